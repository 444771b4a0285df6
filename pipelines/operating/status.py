"""Status of every job, as plain JSON: what `headroom status` prints, and the home page shows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from models.control.state import ALARM_EVERY_S
from models.errors import HeadroomError
from models.ports import LATE_TICKS
from models.quantities import Unknown
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.explain.explanation import has_decided, in_short
from profiling_jobs.explain.wording import is_known, verdict_on
from profiling_jobs.orders import ServerBusy

from ..integrations.stores.opening import find_store
from ..integrations.stores.sql import PATIENCE_S
from ..processes import owner
from ..server.client import START_IT, Client
from ..settings import times
from ..settings.schema import Settings

ANSWER_S = 5.0  # judgement: of the server; the status does without it
Dated = tuple[float, Mapping[str, Any]]


def status_of(
    settings: Settings,
    folder: Path,
    only: str | None = None,
    *,
    look_back: int = 1,
    answer_s: float = ANSWER_S,
    patience_s: float = PATIENCE_S,
) -> dict[str, Any]:
    """Status of the jobs, or of one. `look_back`: evaluations of each, from which alarms are taken."""
    running, problem = server_status(folder, answer_s=answer_s)
    now_s = max(time.time(), running.get("now_s", 0.0))
    jobs = {}
    names = sorted(settings.jobs) if only is None else [only]
    with find_store(settings.store, folder, patience_s=patience_s) or nullcontext() as store:
        evaluated = {name: store.evaluations(name, limit=look_back) if store else () for name in names}
    for name, newest in evaluated.items():
        jobs[name] = job_status(name, newest, running, now_s=now_s)
    theirs = running.get("jobs", {})
    runs = {
        name for name, one in theirs.items() if one["state"] != "stopped" and not one.get("elsewhere", False)
    }
    going_on = [one for one in running.get("orders", ()) if one["state"] == "running"]
    return {
        "at": times.shown(now_s),
        "server": None if problem else running.get("folder"),
        "problem": problem or running.get("problem", ""),
        "jobs": jobs,
        "removed": [] if only else sorted({*runs, *running.get("removed", ())} - set(settings.jobs)),
        "orders": [one for one in going_on if only in (None, one["job"])],
    }


def server_status(folder: Path, *, answer_s: float) -> tuple[Mapping[str, Any], str]:
    """Status that the server reports, or the reason why it reports none."""
    if owner.holder(folder) is None:
        return {}, f"no server runs for {folder}, nothing is evaluated: {START_IT}"
    try:
        return Client(folder, answer_s=answer_s).status(), ""
    except ServerBusy as busy:
        return {"busy": True}, str(busy)
    except HeadroomError as error:
        return {}, str(error)


def job_status(
    name: str, evaluated: Sequence[Dated], running: Mapping[str, Any], *, now_s: float
) -> dict[str, Any]:
    """Status of one job, of its newest evaluations and of what the server reports."""
    status = running.get("jobs", {}).get(name, {})
    declared, alive = status.get("declared_scale_out"), status.get("executors_alive")
    row: dict[str, Any] = {
        "state": status.get("state"),
        "scale_out": declared if isinstance(declared, int) else None,
        "executors_alive": alive if isinstance(alive, int) else None,
        "load_rps": None,
        "lag_s": None,
        "promise": "not evaluated",
        "probability": None,
        "ticked_ago_s": None,
        "in_force": [],
        "models": {},
        "provisional": [],
        "alarms": [],
        "why": "",
    }
    if not evaluated:
        return row
    *earlier, evaluation = (Evaluation.if_readable(document) for _, document in evaluated)
    if evaluation is None:
        return row | {"why": "the last tick was written by another version of Headroom"}
    size = evaluation.scale_out
    rate = evaluation.observation.get("arrival_rps")
    # Without a server, what was evaluated last says nothing of now.
    promise = _promise(evaluation, now_s=now_s) if running else "not evaluated"
    verdict = None if isinstance(size, Unknown) else verdict_on(evaluation, size)
    judged = verdict["probability"] if verdict is not None and promise in ("kept", "not kept") else None
    raised = [
        alarm
        for one in reversed(earlier)
        if one is not None and evaluation.at_s - one.at_s < ALARM_EVERY_S
        for alarm in one.alarms
    ]
    return row | {
        "scale_out": row["scale_out"] or (None if isinstance(size, Unknown) else size),
        "load_rps": rate if isinstance(rate, int | float) else None,
        "lag_s": None if isinstance(evaluation.lag_s, Unknown) else evaluation.lag_s,
        "promise": promise,
        "probability": judged if is_known(judged) else None,
        "ticked_ago_s": round(max(0.0, now_s - evaluation.at_s), 1),
        "in_force": [*evaluation.orders, *(["set from outside"] if evaluation.foreign else [])],
        "models": dict(evaluation.models),
        "provisional": sorted(evaluation.provisional),
        "alarms": list(dict.fromkeys([*evaluation.alarms, *evaluation.trouble, *raised])),
        "why": in_short(evaluation).why,
    }


def going_on(found: Mapping[str, Any]) -> list[str]:
    """The jobs that run without being in headroom.toml, and the orders under way: a sentence each."""
    lines = [
        f"{name} is not in headroom.toml any more, and runs: `headroom stop {name}` ends it"
        for name in found["removed"]
    ]
    for order in found["orders"]:
        share = "" if order["share"] is None else f" {order['share']:.0%}"
        lines.append(f"{order['what']} of {order['job']}{share}: {order['stage']}")
    return lines


def executors_in_words(row: Mapping[str, Any]) -> str:
    """`4`; `3 of 4` where one is missing; `?` where it is not known."""
    alive, size = row["executors_alive"], row["scale_out"]
    if size is None:
        return "?"
    differs = alive is not None and alive != size and row["state"] is not None
    return f"{alive} of {size}" if differs else str(size)


def _promise(evaluation: Evaluation, *, now_s: float) -> str:
    if now_s - evaluation.at_s > LATE_TICKS * evaluation.interval_s:
        return "not evaluated"
    if evaluation.change:
        return "changing size"
    if evaluation.recovering:
        return "recovering"
    size = evaluation.scale_out
    verdict = None if isinstance(size, Unknown) else verdict_on(evaluation, size)
    if not has_decided(evaluation) or verdict is None:
        return "not known"
    return {"feasible": "kept", "infeasible": "not kept"}.get(str(verdict["status"]), "not known")
