"""Stage 3, model: what will arrive, what is sustained, how late are records, how long is the job down?

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
from profiling_jobs.training.promoting import Made, Purpose, Room, refit

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
"""What the live job has shown has no run of its own; at night somebody looks at it."""
AUTOMATED = "dagster/from_automation_condition"
"""Tag of the runs that an automation condition has launched."""
POINTS = dg.AssetDep("profiling_points", partition_mapping=ByJob())


class Modelling(Protocol):
    """What the pipeline knows of jobs and registries."""

    def purpose(self, job: str, store: Store) -> Purpose:
        """What the models of this job are for."""

    def room(self, store: Store) -> Room:
        """Where models are made."""

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
    description="What will arrive until a failure of now would be worked off: a forecast with its band.",
)
capacity_model = _model(
    "capacity",
    deps=[POINTS],
    when=MEASURED | DAILY,
    description="How many records per second the job keeps up with at each scale-out, and what a batch "
    "costs.",
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
    description="How long the job is down after each kind of failure or change, learnt from drills and real "
    "events.",
)


def fitted(
    kind: str, context: dg.AssetExecutionContext, store: Store, modelling: Modelling
) -> dg.MaterializeResult | dg.AssetObservation:
    """One refit with its figures, its plots and its checks; an observation with the reason if it is skipped.

    Without the data that a fit needs the run fails. It skips the model where nobody waits for it: in a run by
    an automation condition, and for the latency model of a job without a latency bound.
    """
    if not context.selected_asset_keys:
        raise dg.Failure(
            "the checks run when the model is fitted: materialize the asset", allow_retries=False
        )
    job = context.partition_key
    try:
        purpose = modelling.purpose(job, store)
        made = refit(kind, purpose, modelling.room(store), draw=DRAWN[kind], run_id=context.run.run_id)
    except HeadroomError as error:
        raise dg.Failure(description=str(error), allow_retries=isinstance(error, NotReady)) from error
    (context.log.info if made.promoted else context.log.warning)(made.said)
    if isinstance(made.document, Unknown):
        optional = kind == "latency" and purpose.latency_bound_ms is None
        if not optional and AUTOMATED not in context.run.tags:
            raise dg.Failure(made.said, allow_retries=False)
        return dg.AssetObservation(f"{kind}_model", partition=job, metadata=labelled({"said": made.said}))
    values = of_model(made) | beside(made, purpose)
    if made.version is not None:
        values["mlflow"] = modelling.page(model_name(job, kind), made.version)
    metadata = labelled(values) | {"checks": dg.MetadataValue.md(checks.table(made.verdicts))}
    return dg.MaterializeResult(
        f"{kind}_model", metadata=metadata, check_results=checks.results(made.verdicts, job=job)
    )


def of_model(made: Made) -> dict[str, Any]:
    """The figures of a refit by their agreed names."""
    values: dict[str, Any] = {
        "said": made.said,
        "promoted": made.promoted,
        "checks_failed": len(failed(made.verdicts)),
        "checks_warned": sum(verdict.outcome == "warned" for verdict in made.verdicts),
        "checks_too_little_data": sum(verdict.outcome == TOO_LITTLE for verdict in made.verdicts),
    }
    if made.champion is not None:
        values["champion_version"] = made.champion
    if isinstance(made.document, Unknown):
        return values
    names = {"peak_rps": "forecast_peak_rps"}
    figures = {names.get(name, name): value for name, value in made.document["figures"].items()}
    return values | figures | {"model_version": made.version, "picture": made.picture}


def beside(made: Made, purpose: Purpose) -> dict[str, Any]:
    """What is shown beside the picture that is registered: how drills came out, and downtimes."""
    if isinstance(made.document, Unknown) or made.kind not in ("capacity", "recovery"):
        return {}
    found = drilled(made.document, made.evidence)
    values: dict[str, Any] = {"drills": len(found)}
    if found:
        values["drill_error"] = sum(one.error for one in found) / len(found)
        values["drills_picture"] = plots.drills(found, job=made.job, target_s=purpose.target_s)
    if made.kind == "recovery":
        model = rebuilt(made.document, kind="recovery")
        if isinstance(model, DowntimeModel):
            values["downtime_picture"] = plots.downtime(model, job=made.job, kinds=purpose.failure_kinds)
    return values


def drilled(document: Document, evidence: Evidence) -> tuple[Drilled, ...]:
    """The last drills beside what this document foretells of them."""
    capacity, engine = evidence.own(document)
    if isinstance(capacity, Unknown) or isinstance(engine, Unknown):
        return ()
    since_s = document["figures"].get("slower_since_s", -math.inf)
    return against_drills(evidence.events, capacity=capacity, engine=engine, since_s=since_s)


# --------------------------------------------------------------- the picture that is registered with a model


def draw_workload(purpose: Purpose, document: Document, evidence: Evidence) -> bytes:
    """The forecast."""
    model = rebuilt(document, kind="workload")
    if isinstance(evidence.arrivals, Unknown) or not isinstance(model, Forecaster):
        return b""
    history = fitting.coarser(evidence.arrivals, step_s=model.step_s)
    return plots.forecast(model, job=purpose.job, history=history)


def draw_capacity(purpose: Purpose, document: Document, evidence: Evidence) -> bytes:
    """The curve."""
    capacity, _ = evidence.own(document)
    if isinstance(capacity, Unknown):
        return b""
    return plots.capacity(capacity, job=purpose.job, candidates=purpose.candidates)


def draw_latency(purpose: Purpose, document: Document, evidence: Evidence) -> bytes:
    """Latency over utilisation."""
    model = rebuilt(document, kind="latency")
    if not isinstance(model, LatencyModel):
        return b""
    return plots.latency(model, job=purpose.job, bound_ms=purpose.latency_bound_ms)


def draw_recovery(purpose: Purpose, document: Document, evidence: Evidence) -> bytes:
    """Recovery against scale-out where capacity is known, and downtimes otherwise."""
    model = rebuilt(document, kind="recovery")
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


Draw = Callable[[Purpose, Document, Evidence], bytes]
DRAWN: dict[str, Draw] = {
    "workload": draw_workload,
    "capacity": draw_capacity,
    "latency": draw_latency,
    "recovery": draw_recovery,
}
