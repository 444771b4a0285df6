"""Stage 3, model: the load to come, capacity, latency and downtime.

Each asset fits one model from everything that is known, checks it, and registers it; it is in charge only if
no check failed, and provisional if a check had too little data.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import dagster as dg

from models.downtime import DowntimeModel
from models.errors import HeadroomError, NotReady
from models.latency import LatencyModel
from models.ports import Store
from models.quantities import Unknown
from models.workload import Forecaster
from profiling_jobs.explain import recovery_outlook
from profiling_jobs.training import fitting
from profiling_jobs.training.checks import TOO_LITTLE, Drilled, Evidence, against_drills, failed
from profiling_jobs.training.model_documents import Document, model_name, rebuilt
from profiling_jobs.training.promoting import Made, TrainingContext, refit
from profiling_jobs.training.training_data import Purpose

from . import checks, plots
from .metadata import labelled
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
    @dg.multi_asset(name=f"{kind}_model", specs=[spec], check_specs=checks.specs(kind), can_subset=True)
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
    try:
        purpose = modelling.purpose(job, store)
        made = refit(kind, purpose, modelling.context(store), draw=DRAWN[kind], run_id=context.run.run_id)
    except HeadroomError as error:
        raise dg.Failure(description=str(error), allow_retries=isinstance(error, NotReady)) from error
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
    metadata = labelled(values) | {"checks": dg.MetadataValue.md(checks.table(made.checks))}
    return dg.MaterializeResult(name, metadata=metadata, check_results=checks.evaluated(made.checks, job=job))


def _drills_and_downtimes(made: Made, document: Document) -> dict[str, Any]:
    """What is shown beside the plot that is registered."""
    if made.kind not in ("capacity", "recovery"):
        return {}
    purpose, found = made.evidence.purpose, drilled(document, made.evidence)
    values: dict[str, Any] = {"drills": len(found)}
    if found:
        values["drill_error"] = sum(one.error for one in found) / len(found)
        values["drills_picture"] = plots.drills(found, job=made.job, target_s=purpose.target_s)
    model = rebuilt(document, kind=made.kind)
    if isinstance(model, DowntimeModel):
        values["downtime_picture"] = plots.downtime(model, job=made.job, kinds=purpose.failure_kinds)
    return values


def drilled(document: Document, evidence: Evidence) -> tuple[Drilled, ...]:
    """The last drills beside what this document predicts of them."""
    capacity, engine = evidence.of_document(document)
    if isinstance(capacity, Unknown) or isinstance(engine, Unknown):
        return ()
    since_s = document["figures"].get("slower_since_s", -math.inf)
    return against_drills(evidence.events, capacity=capacity, engine=engine, since_s=since_s)


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
    load = recovery_outlook.rate_rps(evidence.forecaster, evidence.capacity, purpose.candidates)
    found = (
        load
        if isinstance(load, Unknown)
        else recovery_outlook.recoveries(
            purpose.failure_kinds,
            purpose.candidates,
            capacity=evidence.capacity,
            engine=evidence.engine,
            downtime=model,
            load_rps=load,
            target_s=purpose.target_s,
            promised=purpose.confidence,
        )
    )
    if isinstance(found, Unknown) or isinstance(load, Unknown):
        return plots.downtime(model, job=purpose.job, kinds=purpose.failure_kinds)
    return plots.recovery(
        found, job=purpose.job, target_s=purpose.target_s, promised=purpose.confidence, rate_rps=load
    )


DRAWN: dict[str, Callable[[Document, Evidence], bytes]] = {
    "workload": draw_workload,
    "capacity": draw_capacity,
    "latency": draw_latency,
    "recovery": draw_recovery,
}
