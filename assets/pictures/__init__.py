"""What would people rather look at than read? One function per picture; each returns a PNG."""

from .capacity import capacity
from .drills import drills
from .forecast import forecast
from .recovery import recovery
from .timeline import timeline

__all__ = ["capacity", "recovery", "forecast", "drills", "timeline"]
