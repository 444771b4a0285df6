"""How does the owner record what arrives in a job's topics, and what is remembered of it?"""

from __future__ import annotations

import math

from profiling_jobs.errors import Misconfigured
from profiling_jobs.learning import recorded_history
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
    recordings = means.folder / "recordings"
    try:
        for own, topic in job.inputs.items():
            # Several topics one after the other would be of different times: the later ones look back.
            folder = recorded_history.folder_of(recordings, order.job, began_s=began_s, own=own)
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
    finally:  # also of one that was given up
        recorded_history.tell(world.store, order.job, recordings, inputs=job.inputs)
    return {"seconds": seconds, "recordings": found}
