"""What would people rather look at than read? One function per picture; each returns a PNG."""

from ..pictures.sparkline import sparkline
from .capacity import capacity
from .forecast import forecast
from .latency import latency
from .recovery import downtime, drills, recovery
from .timeline import timeline

__all__ = ["capacity", "latency", "recovery", "downtime", "drills", "forecast", "timeline", "sparkline"]
