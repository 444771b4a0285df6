"""What do the models know before a drill, may it be run, did it keep the promise, how is it told?"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.quantities import Unknown
from profiling_jobs.drills import drilling
from profiling_jobs.drills.drill import Outcome
from profiling_jobs.drills.drill_prediction import Models
from profiling_jobs.errors import Unsafe
from profiling_jobs.learning import training
from profiling_jobs.learning.champions import Champions
from profiling_jobs.learning.engine_inputs import EngineInputs
from profiling_jobs.ports import Store
from profiling_jobs.probing import profiling_record

from . import batch_tasks, job_plans, timetable
from .settings import JobSettings

SHARES = (0.5, 0.75)
"""Of the capacity: what promises of three minutes allow, and a recovery long enough to see."""


def known_models(
    store: Store, name: str, job: JobSettings, *, champions: Champions | None = None
) -> Models | None:
    """The champions, or the models of what is in the store; none before the job was profiled."""
    limit = job_plans.limit_records(job)
    capacity: CapacityModel | Unknown
    engine: EngineInputs | Unknown
    if champions is not None and not isinstance(champions.capacity, Unknown):
        capacity, engine, downtime = champions.capacity, champions.engine, champions.downtime
    else:
        found = profiling_record.measured(store, name)
        overheads = profiling_record.overheads_s(store, name)
        if isinstance(found, Unknown) or isinstance(overheads, Unknown) or not found:
            return None
        tasks = batch_tasks.if_known(batch_tasks.known(store, name))
        capacity = CapacityModel.fit(found, tasks=tasks)
        engine = EngineInputs(overheads, limit, job.trigger_s)
        downtime = Unknown("there is no champion")
    if isinstance(engine, Unknown):
        return None
    if isinstance(downtime, Unknown):
        downtime = DowntimeModel.fit(training.lessons(store.events(name), capacity=capacity, engine=engine))
    return Models(capacity, downtime, engine.overhead_s, limit, job.trigger_s)


def refuse_live(name: str, job: JobSettings, *, now_s: float, instead: str = "Drill a copy") -> None:
    """Unsafe where the live job may not be hurt, or not now."""
    if not job.allow_live_drills:
        raise Unsafe(
            f"job.{name}.allow_live_drills is false: the live job is not hurt. {instead}, or set it to true"
        )
    if (window := timetable.blackout(job, now_s)) is not None:
        raise Unsafe(f"{name} is in the blackout {window.why}: the live job is not hurt. {instead}, or wait")


def kept(outcome: Outcome, *, target_s: float) -> bool:
    """Whether it recovered within the target."""
    return not isinstance(outcome.event, Unknown) and outcome.event.recovery_s <= target_s


def as_data(outcome: Outcome, *, target_s: float) -> dict[str, Any]:
    """One drill as JSON; a recovery that did not come is null."""
    event, rate = outcome.event, outcome.rate_rps
    row: dict[str, Any] = {
        "kind": outcome.kind,
        "scale_out": outcome.scale_out,
        "rate_rps": None if isinstance(rate, Unknown) else rate,
        "kept": kept(outcome, target_s=target_s),
        "said": drilling.described(outcome),
    }
    if isinstance(event, Unknown):
        return row | {"invalid": event.reason}
    seconds = {
        key: value if math.isfinite(value) else None for key, value in asdict(event).items() if key != "kind"
    }
    return row | seconds | {"details": finite(dict(outcome.details))}


def finite(value: Any) -> Any:
    """The same without infinities and other things that JSON does not have."""
    if isinstance(value, Unknown):
        return {"unknown": value.reason}
    if isinstance(value, dict):
        return {str(key): finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
