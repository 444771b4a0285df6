"""Fit a model, check it, register it, and put it in charge if no check failed.

    data in the store -> document | Unknown -> checks -> registered as challenger, with their results
        none failed   -> champion: the registry's alias, and the file that evaluations read; provisional
                         when a check had too little data
        one failed    -> the old champion stays in charge; without one there is none, and decisions hold

The results are part of the document, which the registry signs; `champions` puts nothing in charge that failed
a check or was never checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models import codec
from models.ports import ModelVersion, Registry, Store
from models.quantities import Unknown, counted

from . import champions, fitting, training_data, workload_history
from .champions import Champions, Document, model_name, to_make_it_firm
from .checks import TOO_LITTLE, CheckResult, Evidence, failed, run_checks
from .training_data import Purpose


@dataclass(frozen=True)
class TrainingContext:
    """Where the data are, where versions are registered, and where the champions' files lie."""

    store: Store
    registry: Registry
    folder: Path
    """`.headroom`."""


@dataclass(frozen=True)
class Made:
    """Result of one refit."""

    job: str
    kind: str
    document: Document | Unknown
    checks: tuple[CheckResult, ...]
    version: int | None
    """As it was registered; None when there was nothing to fit."""
    champion: int | None
    """The version in charge now."""
    promoted: bool
    said: str
    """One sentence for a person."""
    picture: bytes = field(default=b"", repr=False)
    evidence: Evidence = field(default=Evidence(), repr=False)


Draw = Callable[[Document, Evidence], bytes]


def refit(
    kind: str,
    purpose: Purpose,
    context: TrainingContext,
    *,
    draw: Draw = lambda document, evidence: b"",
    run_id: str = "",
) -> Made:
    """Fit one kind of model from what is known, check it, register it, and put it in charge if it may.

    First the registry's champion is put in charge here, too: a person may have gone back to an older version,
    or a promotion was interrupted. A document that is the newest version already is not registered again.
    """
    job, name, store = purpose.job, model_name(purpose.job, kind), context.store
    champions.refresh(context.registry, context.folder, job)
    before = Champions.load(context.folder, job)
    champion = before.versions.get(kind)
    document = _fitted(kind, purpose, store, before)
    evidence = Evidence(
        purpose=purpose,
        events=store.events(job),
        capacity=before.capacity,
        engine=before.engine,
        forecaster=before.forecaster,
        arrivals=workload_history.history(store, job),
    )
    if isinstance(document, Unknown):
        said = f"{name} could not be fitted: {document.reason}. {_stays(champion)}"
        return Made(job, kind, document, (), None, champion, False, said, evidence=evidence)
    results = run_checks(document, evidence)
    document = {**document, "checks": [codec.to_json(one) for one in results]}
    refused = failed(results)
    if refused:
        why = "; ".join(f"{one.name}: {one.said}" for one in refused)
        said = f"refused by {why}. {_stays(champion)}"
    else:
        said = f"in charge{_how(results)}."
    picture = draw(document, evidence)
    made = context.registry.load(name, alias="challenger")
    known = isinstance(made, ModelVersion) and made.document == codec.loads(codec.dumps("document", document))
    if isinstance(made, Unknown) or not known:
        # As a list: the registry's pages leave no room between the columns of a table.
        rows = "\n".join(f"- {one.name.replace('_', ' ')} **{one.outcome}**: {one.said}" for one in results)
        made = context.registry.register(
            name, document, tags=_tags(results, run_id), picture=picture, about=f"It is {said}\n\n{rows}"
        )
    if not refused:
        champions.promote(context.registry, context.folder, job=job, kind=kind, version=made.version)
        champion = made.version
    said = f"{'Nothing is new: ' if known else ''}{name} version {made.version} is {said}"
    return Made(job, kind, document, results, made.version, champion, not refused, said, picture, evidence)


def _fitted(kind: str, purpose: Purpose, store: Store, before: Champions) -> Document | Unknown:
    job = purpose.job
    if kind == "workload":
        arrivals = training_data.arrivals(store, job)
        return fitting.fit_workload(arrivals, horizon_s=purpose.horizon_s, seed=purpose.seed)
    if kind == "recovery":
        events = store.events(job)
        return fitting.fit_recovery(
            training_data.downtimes(events, capacity=before.capacity, engine=before.engine)
        )
    data = training_data.measured(store, job)
    if kind == "latency":
        return fitting.fit_latency(data, capacity=before.capacity)
    return fitting.fit_capacity(
        data,
        limit_records=purpose.limit_records,
        trigger_s=purpose.trigger_s,
        tasks=purpose.tasks,
        peak_rps=workload_history.peak_rps(store, job),
    )


def _how(results: Sequence[CheckResult]) -> str:
    """Behind `in charge`: how its checks came out."""
    passed = sum(one.outcome == "passed" for one in results)
    said = f"{passed} of {counted(len(results), 'check')} passed"
    if warned := [f"{one.name}: {one.said}" for one in results if one.outcome == "warned"]:
        said += f", with a warning from {'; '.join(warned)}"
    few = [one.needs for one in results if one.outcome == TOO_LITTLE]
    if not few:
        return f": {said}"
    needs = "; ".join(to_make_it_firm(few))
    return f", provisional: {said}, {len(few)} had too little data. To make it firm: {needs}"


def _stays(champion: int | None) -> str:
    if champion is None:
        return "There is no champion: what depends on it is held."
    return f"Version {champion} stays in charge."


def _tags(results: Sequence[CheckResult], run_id: str) -> dict[str, str]:
    refused, few = failed(results), [one.needs for one in results if one.outcome == TOO_LITTLE]
    found = {"checks": "failed" if refused else "provisional" if few else "passed"}
    if few:
        found["to_make_it_firm"] = "; ".join(to_make_it_firm(few))
    if refused:
        found["failed_checks"] = ", ".join(one.name for one in refused)
    return found | ({"dagster_run": run_id} if run_id else {})
