"""Fit a model, check it, register it, and put it in charge if no check failed.

    data in the store -> document | Unknown -> checks -> registered as challenger, with their results
        none failed   -> champion: the registry's alias, and the file that evaluations read; provisional
                         when a check had too little data
        one failed    -> the old champion stays in charge; without one there is none, and decisions hold

The results are part of the document, which the registry signs; `champions` puts nothing in charge that failed
a check or was never checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.codec import dumps, loads
from models.ports import ModelVersion, Registry, Store
from models.quantities import Unknown, counted

from . import champions, checks, fitting, training_data, workload_history
from .champions import Champions
from .checks import TOO_LITTLE, Evidence, Verdict, failed
from .model_documents import Document, checked, model_name


@dataclass(frozen=True)
class Purpose:
    """What the models of one job are for: what decisions will ask of them."""

    job: str
    horizon_s: float
    """How far a decision looks: models.control.Settings.horizon_s."""
    candidates: tuple[int, ...]
    failure_kinds: tuple[str, ...] = ()
    target_s: float = math.inf
    confidence: float = 0.95
    limit_records: float = math.inf
    trigger_s: float = 0.0
    tasks: int | None = None
    """Of a batch, where capacity moves in waves."""
    latency_bound_ms: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Room:
    """Where models are made: what is known, where versions are kept, and what ticks read."""

    store: Store
    registry: Registry
    folder: Path
    """`.headroom`."""


@dataclass(frozen=True)
class Made:
    """What became of one refit."""

    job: str
    kind: str
    document: Document | Unknown
    verdicts: tuple[Verdict, ...]
    version: int | None
    """As it was registered; None when there was nothing to fit."""
    champion: int | None
    """The version in charge now."""
    promoted: bool
    said: str
    """One sentence for a person."""
    picture: bytes = field(default=b"", repr=False)
    evidence: Evidence = field(default=Evidence(), repr=False)
    """What it was held against."""


Draw = Callable[[Purpose, Document, Evidence], bytes]


def nothing_drawn(purpose: Purpose, document: Document, evidence: Evidence) -> bytes:
    """No picture."""
    return b""


def refit(kind: str, purpose: Purpose, room: Room, *, draw: Draw = nothing_drawn, run_id: str = "") -> Made:
    """Fit one kind of model from what is known, check it, register it, and put it in charge if it may.

    First of all what is in charge in the registry takes charge here, too: somebody may have gone back to an
    older version, or a promotion was interrupted.
    """
    champions.refresh(room.registry, room.folder, purpose.job)
    before = Champions.load(room.folder, purpose.job)
    document = fitted(kind, purpose, room.store, before)
    evidence = evidence_of(purpose, room.store, before)
    return put_forward(kind, document, purpose, room, evidence=evidence, draw=draw, run_id=run_id)


def fitted(kind: str, purpose: Purpose, store: Store, before: Champions) -> Document | Unknown:
    """The document that the data allow."""
    job = purpose.job
    if kind == "workload":
        arrivals = training_data.arrivals(store, job)
        return fitting.fit_workload(arrivals, horizon_s=purpose.horizon_s, seed=purpose.seed)
    if kind == "capacity":
        return fitting.fit_capacity(
            training_data.measured(store, job),
            limit_records=purpose.limit_records,
            trigger_s=purpose.trigger_s,
            tasks=purpose.tasks,
        )
    if kind == "latency":
        return fitting.fit_latency(training_data.measured(store, job), capacity=before.capacity)
    lived = training_data.events(store, job)
    return fitting.fit_recovery(training_data.lessons(lived, capacity=before.capacity, engine=before.engine))


def evidence_of(purpose: Purpose, store: Store, before: Champions) -> Evidence:
    """What a model of this job is held against."""
    return Evidence(
        candidates=purpose.candidates,
        horizon_s=purpose.horizon_s,
        failure_kinds=purpose.failure_kinds,
        events=training_data.events(store, purpose.job),
        capacity=before.capacity,
        engine=before.engine,
        forecaster=before.forecaster,
        arrivals=workload_history.history(store, purpose.job),
    )


def put_forward(
    kind: str,
    document: Document | Unknown,
    purpose: Purpose,
    room: Room,
    *,
    evidence: Evidence,
    draw: Draw = nothing_drawn,
    run_id: str = "",
) -> Made:
    """Check and register a document; it is promoted exactly when no check failed.

    One that is the newest version already, to the last digit, is not registered again.
    """
    job, name = purpose.job, model_name(purpose.job, kind)
    current = champions.exported(room.folder, job, kind)
    champion = None if isinstance(current, Unknown) else current.version
    if isinstance(document, Unknown):
        said = f"{name} could not be fitted: {document.reason}. {_in_charge(champion)}"
        return Made(job, kind, document, (), None, champion, False, said, evidence=evidence)
    verdicts = checks.judged(document, evidence)
    document = checked(document, [verdict.to_json() for verdict in verdicts])
    refused = failed(verdicts)
    said = _refused(refused, champion) if refused else f"It is in charge{_how(verdicts)}."
    picture = draw(purpose, document, evidence)
    made = room.registry.load(name, alias="challenger")
    known = isinstance(made, ModelVersion) and made.document == loads(dumps("document", document))
    if isinstance(made, Unknown) or not known:
        made = room.registry.register(
            name, document, tags=_tags(verdicts, run_id), picture=picture, about=_about(said, verdicts)
        )
    again = "Nothing is new: " if known else ""
    if refused:
        said = f"{again}{name} version {made.version} is not put in charge. {said}"
    else:
        champions.promote(room.registry, room.folder, job=job, kind=kind, version=made.version)
        champion = made.version
        said = f"{again}{name} version {made.version} is in charge{_how(verdicts)}."
    return Made(job, kind, document, verdicts, made.version, champion, not refused, said, picture, evidence)


def _refused(refused: Sequence[Verdict], champion: int | None) -> str:
    why = "; ".join(f"{verdict.name}: {verdict.said}" for verdict in refused)
    return f"Refused by {why}. {_in_charge(champion)}"


def _how(verdicts: Sequence[Verdict]) -> str:
    """Behind `is in charge`: how its checks came out."""
    passed = sum(one.outcome == "passed" for one in verdicts)
    few = [one for one in verdicts if one.outcome == TOO_LITTLE]
    said = f"{passed} of {counted(len(verdicts), 'check')} passed"
    if warned := [f"{one.name}: {one.said}" for one in verdicts if one.outcome == "warned"]:
        said += f", with a warning from {'; '.join(warned)}"
    if not few:
        return f": {said}"
    needs = "; ".join(dict.fromkeys(one.needs for one in few))
    return f", provisional: {said}, {len(few)} had too little data. To make it firm: {needs}"


def _in_charge(champion: int | None) -> str:
    if champion is None:
        return "There is no champion: what depends on it is held."
    return f"Version {champion} stays in charge."


def _tags(verdicts: Sequence[Verdict], run_id: str) -> dict[str, str]:
    refused = failed(verdicts)
    few = [verdict for verdict in verdicts if verdict.outcome == TOO_LITTLE]
    found = {"checks": "failed" if refused else "provisional" if few else "passed"}
    if few:
        found["to_make_it_firm"] = "; ".join(dict.fromkeys(verdict.needs for verdict in few))
    if refused:
        found["failed_checks"] = ", ".join(verdict.name for verdict in refused)
    return found | ({"dagster_run": run_id} if run_id else {})


def _about(said: str, verdicts: Sequence[Verdict]) -> str:
    """As a list: the registry's pages leave no room between the columns of a table."""
    rows = "\n".join(f"- {v.name.replace('_', ' ')} **{v.outcome}**: {v.said}" for v in verdicts)
    return f"{said}\n\n{rows}"
