"""Stage 3, model: the load to come, capacity, latency and downtime.

Each asset fits one model from everything that is known, checks it (profiling_jobs/training/checks.py), and
registers it; it is in charge only if no check failed, and provisional if a check had too little data. All
checks are blocking: one that fails ends the run. One that had too little data is not evaluated: Dagster shows
it as skipped, and the asset's metadata `checks` says what to measure.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import dagster as dg

from models.downtime import DowntimeModel
from models.latency import LatencyModel
from models.ports import Store
from models.quantities import Unknown
from models.workload import Forecaster
from profiling_jobs.explain import recovery_outlook
from profiling_jobs.training import fitting
from profiling_jobs.training.champions import Document, model_name, rebuilt
from profiling_jobs.training.checks import CHECKS, TOO_LITTLE, CheckResult, Evidence, drilled, failed
from profiling_jobs.training.promoting import Made, TrainingContext, refit
from profiling_jobs.training.training_data import Purpose

from . import plots
from .metadata import figures, labelled, table
from .orders import dagster_failures
from .partitions import JOBS, ByJob

GROUP = "model"
NEWS: Any = dg.AutomationCondition.any_deps_updated()
NEWS = (
    NEWS.since_last_handled()
    & ~dg.AutomationCondition.in_progress()
    & ~dg.AutomationCondition.any_deps_in_progress()
)
"""Something it is fitted from is new, and is not just being measured."""
MEASURED: Any = NEWS & ~dg.AutomationCondition.any_deps_missing()
"""The same, and a search is over: until then a point that it has asked for is missing."""
DAILY: Any = dg.AutomationCondition.cron_tick_passed("23 3 * * *")
DAILY = DAILY.since_last_handled() & ~dg.AutomationCondition.in_progress()
"""Live measurements come without a run of their own: they are used once a night."""
AUTOMATED = "dagster/from_automation_condition"
"""Tag of the runs that an automation condition has launched."""
POINTS = dg.AssetDep("profiling_points", partition_mapping=ByJob())


class Modelling(Protocol):
    """The jobs' settings and the registry, as the pipelines provide them."""

    def purpose(self, job: str, store: Store) -> Purpose: ...
    def context(self, store: Store) -> TrainingContext: ...
    def page(self, name: str, version: int) -> str:
        """Where MLflow shows this version."""


ABOUT_CHECKS = {
    "enough_points": "Enough was measured for a model.",
    "held_out_error": "Values that were left out are predicted well.",
    "abnormal_found": "Abnormal latencies are still called abnormal when they are left out.",
    "interval_coverage": "The 90 % intervals hold what was left out as often as they should.",
    "not_worse_than_naive": "The forecast is no worse than the better naive one, on the newest horizons.",
    "monotone": "More executors never sustain less, and latency never falls as the load grows.",
    "comes_back": "The job comes back from the failures that are promised.",
    "agrees_with_live": "The live job still shows the capacities that were profiled.",
    "agrees_with_drills": "The last drills recovered as a model without them predicts.",
}


def check_specs(kind: str) -> list[dg.AssetCheckSpec]:
    """The checks of `KIND_model`."""
    return [
        dg.AssetCheckSpec(name, asset=f"{kind}_model", description=ABOUT_CHECKS[name], blocking=True)
        for name in CHECKS[kind]
    ]


def check_results(results: Sequence[CheckResult], *, job: str) -> list[dg.AssetCheckResult]:
    """The results of the checks that had enough data.

    Dagster knows only passed and failed: a warning has passed, and its description begins with `warned`.
    """
    return [
        dg.AssetCheckResult(
            check_name=one.name,
            passed=one.outcome != "failed",
            description=f"{job}: {one.outcome}: {one.said}",
            metadata={"job": dg.MetadataValue.text(job), **figures(value=one.value, bound=one.bound)},
        )
        for one in results
        if one.outcome != TOO_LITTLE
    ]


def checks_table(results: Sequence[CheckResult]) -> str:
    """All results as Markdown."""
    return table(
        "check | outcome | found | to make it firm",
        [(one.name.replace("_", " "), f"**{one.outcome}**", one.said, one.needs) for one in results],
    )


def _model(
    kind: str, *, deps: Sequence[dg.AssetDep | str], when: Any, description: str
) -> dg.AssetsDefinition:
    spec = dg.AssetSpec(
        f"{kind}_model",
        group_name=GROUP,
        partitions_def=JOBS,
        deps=deps,
        automation_condition=when,
        kinds={"mlflow"},
        description=description,
    )

    # can_subset: neither the asset nor one of its checks has to come out of a run.
    @dg.multi_asset(name=f"{kind}_model", specs=[spec], check_specs=check_specs(kind), can_subset=True)
    def model(
        context: dg.AssetExecutionContext,
        store: dg.ResourceParam[Store],
        modelling: dg.ResourceParam[Modelling],
    ) -> Iterator[dg.MaterializeResult | dg.AssetObservation]:
        yield fitted(kind, context, store, modelling)

    return model


workload_model = _model(
    "workload",
    deps=["workload_history"],
    when=NEWS,
    description="Forecast of the arriving records/s for as long as a decision looks ahead, with its band.",
)
capacity_model = _model(
    "capacity",
    deps=[POINTS],
    when=MEASURED | DAILY,
    description="Records/s that the job sustains at each scale-out, and the overhead of a batch.",
)
latency_model = _model(
    "latency",
    deps=[POINTS, "capacity_model"],
    when=MEASURED,
    description="Latency at a scale-out and a rate, and whether it is normal for the job. The measured "
    "latencies are clustered in two, normal and abnormal; latency is regressed on utilisation (rate over "
    "capacity) and on the number of executors, and never falls as utilisation grows.",
)
recovery_model = _model(
    "recovery",
    deps=["failure_drills", "capacity_model"],
    when=NEWS | DAILY,
    description="Downtime after each kind of failure or change of size, from drills and real events.",
)


def fitted(
    kind: str, context: dg.AssetExecutionContext, store: Store, modelling: Modelling
) -> dg.MaterializeResult | dg.AssetObservation:
    """One refit with its figures, its plots and its checks; an observation with the reason if it is skipped.

    Without the data that a fit needs the run fails. It skips the model where that is no failure: in a run by
    an automation condition, and for the latency model of a job without a latency bound.
    """
    if not context.selected_asset_keys:
        raise dg.Failure(
            "the checks run when the model is fitted: materialize the asset", allow_retries=False
        )
    job, name = context.partition_key, f"{kind}_model"
    with dagster_failures():
        purpose = modelling.purpose(job, store)
        made = refit(kind, purpose, modelling.context(store), draw=DRAWN[kind], run_id=context.run.run_id)
    (context.log.info if made.promoted else context.log.warning)(made.said)
    if isinstance(made.document, Unknown):
        optional = kind == "latency" and purpose.latency_bound_ms is None
        if not optional and AUTOMATED not in context.run.tags:
            raise dg.Failure(made.said, allow_retries=False)
        return dg.AssetObservation(name, partition=job, metadata=labelled({"said": made.said}))
    values = {
        "said": made.said,
        "promoted": made.promoted,
        "checks_failed": len(failed(made.checks)),
        "checks_warned": sum(one.outcome == "warned" for one in made.checks),
        "checks_too_little_data": sum(one.outcome == TOO_LITTLE for one in made.checks),
        **made.document["figures"],
        "model_version": made.version,
        "champion_version": made.champion,
        "picture": made.picture,
        "mlflow": modelling.page(model_name(job, kind), made.version or 0),
        **_drills_and_downtimes(made, made.document),
    }
    metadata = labelled(values) | {"checks": dg.MetadataValue.md(checks_table(made.checks))}
    return dg.MaterializeResult(name, metadata=metadata, check_results=check_results(made.checks, job=job))


def _drills_and_downtimes(made: Made, document: Document) -> dict[str, Any]:
    """What is shown beside the plot that is registered."""
    if made.kind not in ("capacity", "recovery"):
        return {}
    purpose, found = made.evidence.purpose, drilled(document, made.evidence)
    found = () if isinstance(found, Unknown) else found
    values: dict[str, Any] = {"drills": len(found)}
    if found:
        values["drill_error"] = sum(one.error for one in found) / len(found)
        values["drills_picture"] = plots.drills(found, job=made.job, target_s=purpose.target_s)
    model = rebuilt(document, kind=made.kind)
    if isinstance(model, DowntimeModel):
        values["downtime_picture"] = plots.downtime(model, job=made.job, kinds=purpose.failure_kinds)
    return values


# ------------------------------------------------------------------- the plot that is registered with a model


def draw_workload(document: Document, evidence: Evidence) -> bytes:
    """The forecast."""
    model = rebuilt(document, kind="workload")
    if isinstance(evidence.arrivals, Unknown) or not isinstance(model, Forecaster):
        return b""
    history = fitting.coarser(evidence.arrivals, step_s=model.step_s)
    return plots.forecast(model, job=evidence.purpose.job, history=history)


def draw_capacity(document: Document, evidence: Evidence) -> bytes:
    """The curve."""
    capacity, _ = evidence.of_document(document)
    if isinstance(capacity, Unknown):
        return b""
    return plots.capacity(capacity, job=evidence.purpose.job, candidates=evidence.purpose.candidates)


def draw_latency(document: Document, evidence: Evidence) -> bytes:
    """Latency over utilisation."""
    model = rebuilt(document, kind="latency")
    if not isinstance(model, LatencyModel):
        return b""
    return plots.latency(model, job=evidence.purpose.job, bound_ms=evidence.purpose.latency_bound_ms)


def draw_recovery(document: Document, evidence: Evidence) -> bytes:
    """Recovery against scale-out where capacity is known, and downtimes otherwise."""
    model, purpose = rebuilt(document, kind="recovery"), evidence.purpose
    if not isinstance(model, DowntimeModel):
        return b""
    found = recovery_outlook.predicted(model, evidence)
    if isinstance(found, Unknown):
        return plots.downtime(model, job=purpose.job, kinds=purpose.failure_kinds)
    load, recoveries = found
    return plots.recovery(
        recoveries, job=purpose.job, target_s=purpose.target_s, promised=purpose.confidence, rate_rps=load
    )


DRAWN: dict[str, Callable[[Document, Evidence], bytes]] = {
    "workload": draw_workload,
    "capacity": draw_capacity,
    "latency": draw_latency,
    "recovery": draw_recovery,
}
