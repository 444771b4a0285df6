"""How does the owner record what arrives in a job's topics, and what is remembered of it?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from models.quantities import Unknown
from profiling_jobs.errors import Misconfigured
from profiling_jobs.learning import workload_history
from profiling_jobs.ports import Store
from profiling_jobs.recording.recorder import Request

from .desk_means import Found, Means
from .desk_orders import Order


def record(means: Means, order: Order) -> Found:
    """Every record of so many seconds, topic by topic."""
    world, job = means.world, means.job(order)
    clock, seconds = means.clock(order), float(order.details["seconds"])
    if seconds < 1.0:
        raise Misconfigured("record.seconds", f"must be at least 1, got {seconds:g}")
    began_s = math.ceil(clock.now_s())
    found = {}
    rates: list[tuple[int, Any] | Unknown] = []
    for own, topic in job.inputs.items():
        # Several topics one after the other would be of different times: the later ones look back.
        folder = means.folder / "recordings" / order.job / f"{began_s}-{own}"
        order.say(f"recording {topic} for {seconds:.0f} s")
        kept = world.record(
            f"{order.job}.{own}",
            Request(topic, folder, seconds, from_s=float(began_s)),
            clock=clock,
            say=order.say,
        )
        found[own] = {
            "topic": topic,
            "folder": str(folder),
            "records": kept.records,
            "bytes": kept.bytes,
            "missing": kept.missing,
            "from_s": kept.from_s,
            "until_s": kept.until_s,
            "ended": kept.ended,
            "mean_rps": kept.records / kept.covered_s if kept.covered_s > 0.0 else 0.0,
        }
        order.say(f"{kept.records:,} records of {topic}, {kept.bytes / 1e6:,.1f} MB", share=1.0)
        rates.append(kept.rate_rps())
    _remember(world.store, order.job, rates)
    return {"seconds": seconds, "recordings": found}


def _remember(store: Store, job: str, rates: Sequence[tuple[int, Any] | Unknown]) -> None:
    """What has arrived in all topics together, second by second, for the workload's history."""
    known = [rate for rate in rates if not isinstance(rate, Unknown)]
    if len(known) < len(rates) or not known:
        return
    first = max(begin for begin, _ in known)
    last = min(begin + each.size for begin, each in known)
    if last > first:
        total = sum(each[first - begin : last - begin] for begin, each in known)
        workload_history.remember(store, job, start_s=float(first), step_s=1.0, rates_rps=total)
