"""What would people rather look at than read? One function per picture; each returns a PNG."""

from .capacity import capacity
from .downtime import downtime
from .drills import drills
from .forecast import forecast
from .latency import latency
from .recovery import recovery
from .sparkline import sparkline
from .timeline import timeline

__all__ = ["capacity", "latency", "recovery", "downtime", "drills", "forecast", "timeline", "sparkline"]
