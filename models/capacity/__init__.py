"""Capacity: records/s sustained at each scale-out, from profiling and from the live job."""

from .online import OnlineCapacity
from .profiled import CapacityModel

__all__ = ["CapacityModel", "OnlineCapacity"]
