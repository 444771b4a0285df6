"""The order `record`: record the live input, topic by topic, and keep its rates as workload history.

A recording that was cut short (full disk, killed server, cancelled order) is continued by the next order for
as many seconds, while its topics still have what follows; otherwise a new one begins.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

from models.errors import HeadroomError
from models.ports import Broker
from profiling_jobs.orders import Record
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.recorder import Request
from profiling_jobs.training import workload_history

from ..settings import job_plans
from .context import Context, Found
from .order_queue import Order

LATER_S = 3600.0  # judgement: an order long after the recording was over means the time to come


def record(context: Context, order: Order, details: Record) -> Found:
    """Record every event of so many seconds."""
    environment, job = context.environment, context.job(order)
    clock, seconds = context.clock(order), details.seconds or job_plans.recorded_s(job)
    recordings = context.folder / "recordings"
    began_s = _goes_on(context, order, recordings, seconds=seconds, now_s=clock.now_s())
    heads: dict[str, dict[int, int]] = {}
    if began_s is None:
        for (topic, part), end in environment.broker.ends(sorted(set(job.inputs.values()))).items():
            heads.setdefault(topic, {})[part] = end
        began_s = math.ceil(clock.now_s())
    found = {}
    try:
        for own, topic in job.inputs.items():
            # Several topics one after the other would be of different times: the later ones look back.
            folder = workload_history.folder_of(recordings, order.job, began_s=began_s, own=own)
            if _ended(folder):
                kept = Recorded.read(folder)
            else:
                order.say(f"recording {topic} for {seconds:.0f} s")
                kept = environment.record(
                    f"{order.job}.{own}",
                    Request(topic, folder, seconds, float(began_s), details.max_bytes, heads.get(topic)),
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
            why = "" if kept.ended == "complete" else f"; it ended at the {kept.ended}"
            order.say(f"{kept.records:,} records of {topic}, {kept.bytes / 1e6:,.1f} MB{why}", share=1.0)
    finally:  # also of one that was given up
        if len(found) < len(job.inputs) and any(recordings.glob(f"{order.job}/{began_s}-*/slices/*.json")):
            order.say(
                f"what was recorded is kept: another order for {seconds:g} s continues it, until "
                f"{_local(_latest_s(began_s, seconds))} and as long as the topic still has what follows"
            )
        workload_history.tell(environment.store, order.job, recordings, inputs=job.inputs)
    return {"seconds": seconds, "recordings": found}


def _goes_on(context: Context, order: Order, recordings: Path, *, seconds: float, now_s: float) -> int | None:
    """When the recording began that this order continues; None for a new one."""
    inputs = context.job(order).inputs
    began, folders = workload_history.newest(recordings, order.job)
    if not folders or all(own in folders and _ended(folders[own]) for own in inputs):
        return None
    try:
        parts = {own: Recorded.read(folder) for own, folder in folders.items() if own in inputs}
    except (HeadroomError, ValueError, KeyError, TypeError):  # it cannot be read, so it cannot be continued
        return None
    for own, part in parts.items():
        asked = (part.topic, part.from_s, round(part.until_s - part.from_s, 3))
        if asked != (inputs[own], float(began), round(seconds, 3)) or part.is_written:
            return None
    why = ""
    if now_s > _latest_s(began, seconds):
        why = f"its time was over at {_local(began + seconds)}"
    why = why or _gone(context.environment.broker, parts)
    if why:
        order.say(
            f"the recording of {_local(began)} was cut short and cannot be continued, {why}: a new one begins"
        )
        return None
    order.say(f"continuing the recording of {_local(began)}, which was cut short")
    workload_history.goes_on(context.environment.store, order.job, began_s=began)
    return began


def _latest_s(began_s: float, seconds: float) -> float:
    return began_s + seconds + max(seconds, LATER_S)


def _gone(broker: Broker, parts: Mapping[str, Recorded]) -> str:
    """Why the topics no longer have the records that follow; empty if they do."""
    for part in parts.values():
        if part.ended:
            continue
        starts, ends = broker.starts([part.topic]), broker.ends([part.topic])
        for partition, at in part.ends.items():
            key = (part.topic, partition)
            if starts.get(key, 0) > at:
                return f"retention has deleted what follows in {part.topic}"
            if ends.get(key, 0) < at:
                return f"{part.topic} was deleted and made again"
    return ""


def _ended(folder: Path) -> bool:
    return (folder / "ended.json").is_file() and Recorded.is_one(folder)


def _local(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
