"""How much can this job sustain at each scale-out? From profiling, from the live job, and from both."""

from .online import OnlineCapacity
from .profiled import CapacityModel

__all__ = ["CapacityModel", "OnlineCapacity"]
