"""Who carries out which order of `desk.ORDERS`, and which are in each other's way?

Each gets the owner's means and its `Order`, for what it has to say, and returns what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import drills, live_jobs, profiling, recording
from .context import Found, Means
from .order_queue import Order

WORK: Mapping[str, Callable[[Means, Order], Found]] = {
    "launch": live_jobs.launch,
    "stop": live_jobs.stop,
    "apply": live_jobs.apply,
    "record": recording.record,
    "profile": profiling.profile,
    "probe": profiling.probe,
    "drill": drills.drill,
}


def alone(what: str, job: str) -> str:
    """Two orders with the same answer would be in each other's way."""
    if what in ("profile", "probe", "drill"):
        return f"copies of {job}"
    return f"recording of {job}" if what == "record" else f"{job} itself"
