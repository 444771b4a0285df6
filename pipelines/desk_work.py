"""Who carries out which order of `desk.ORDERS`, and which are in each other's way?

Each gets the owner's means and its `Order`, for what it has to say, and returns what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import desk_drills, desk_live, desk_probes, desk_recording
from .desk_means import Found, Means
from .desk_orders import Order

WORK: Mapping[str, Callable[[Means, Order], Found]] = {
    "launch": desk_live.launch,
    "stop": desk_live.stop,
    "apply": desk_live.apply,
    "record": desk_recording.record,
    "profile": desk_probes.profile,
    "probe": desk_probes.probe,
    "drill": desk_drills.drill,
}


def alone(what: str, job: str) -> str:
    """Two orders with the same answer would be in each other's way."""
    if what in ("profile", "probe", "drill"):
        return f"copies of {job}"
    return f"recording of {job}" if what == "record" else f"{job} itself"
