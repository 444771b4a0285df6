"""Drills: the handler of the order, what may be drilled, and the predictions that a drill is compared with.

A drill runs on a copy, within a budget of executor-seconds; on the live job only where `allow_live_drills` is
set, outside every blackout window. A restart of the broker hits every job, so every live job must allow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from models.capacity import CapacityModel
from models.codec import readable
from models.downtime import DowntimeModel
from models.errors import Misconfigured, NotReady, Unsafe
from models.quantities import FAILURE_KINDS, Unknown, counted
from profiling_jobs.experiments import drilling, profiling_record
from profiling_jobs.experiments.drill import DrillRun, Outcome
from profiling_jobs.experiments.drill_prediction import Models
from profiling_jobs.experiments.drilling import Drilling
from profiling_jobs.orders import Drill
from profiling_jobs.telemetry.batch_costs import EngineInputs
from profiling_jobs.telemetry.timeline import Watch
from profiling_jobs.training import training_data, workload_history
from profiling_jobs.training.champions import Champions

from ..environments import batch_tasks
from ..settings import job_plans, time_windows
from ..settings.schema import JobSettings
from .context import Context, Found
from .order_queue import Interrupted, Order

SHARES = (0.6,)
"""Of the capacity: a recovery of 1.5 downtimes, long enough to measure and within most promises."""
BOUND_SHARES = (0.1,)
"""The same where only a lower bound of the capacity is known: it hardly matters to the recovery then."""
BUDGET = "profile_budget_executor_s"
"""Key of the job: what a profile may cost, and a series of drills on a copy."""
BROKER = "broker_restart"
MOST_LIVE = 20  # judgement: on a copy the budget ends a series; those who use the live job have none


def _known_models(context: Context, order: Order) -> Models | None:
    """The champions, or the models of what is in the store; none before the job was profiled."""
    store, name, job = context.environment.store, order.job, context.job(order)
    limit = job.limit_records
    champions = Champions.load(context.folder, name, kinds=("capacity", "recovery"))
    capacity: CapacityModel | Unknown
    engine: EngineInputs | Unknown
    if not isinstance(champions.capacity, Unknown):
        capacity, engine, downtime = champions.capacity, champions.engine, champions.downtime
    else:
        found = profiling_record.measured(store, name)
        overheads = profiling_record.overheads_s(store, name)
        if isinstance(found, Unknown) or isinstance(overheads, Unknown) or not found:
            return None
        tasks = batch_tasks.if_known(batch_tasks.known(store, name))
        plenty = profiling_record.is_plenty(found, workload_history.peak_rps(store, name))
        capacity = CapacityModel.fit(found, tasks=tasks, cautious=plenty)
        engine = EngineInputs(overheads, limit, job.trigger_s)
        downtime = Unknown("there is no champion")
    if isinstance(engine, Unknown):
        return None
    if isinstance(downtime, Unknown):
        downtime = DowntimeModel.fit(
            training_data.downtimes(store.events(name), capacity=capacity, engine=engine)
        )
    return Models(capacity, downtime, replace(engine, limit_records=limit, trigger_s=job.trigger_s))


def refuse_live(name: str, job: JobSettings, *, now_s: float, instead: str = "Drill a copy") -> None:
    """Unsafe where the live job may not be drilled, or not now."""
    if not job.allow_live_drills:
        raise Unsafe(f"job.{name}.allow_live_drills is false. {instead}, or set it to true")
    if (window := time_windows.blackout(job, now_s)) is not None:
        raise Unsafe(f"{name} is in the blackout {window.why}: it is not drilled now. {instead}, or wait")


def drill(context: Context, order: Order, details: Drill) -> Found:
    """Every kind at every size and rate on a copy, or one after the other on the live job."""
    name, job = order.job, context.job(order)
    kinds = _kinds(context, order, details.kinds)
    if BROKER in kinds:
        _refuse_under_live_jobs(context)
    models = _known_models(context, order)
    if details.live:
        refuse_live(name, job, now_s=context.environment.clock.now_s())
        asked = len(kinds) * details.repeats
        if asked > MOST_LIVE:
            raise Misconfigured(
                "drill.repeats", f"makes {asked} drills on the live job; one order may hold {MOST_LIVE}"
            )
        found = _on_live(context, order, models, kinds=kinds * details.repeats)
    else:
        found = _on_copy(context, order, details, models, kinds=kinds)
    rows = [_as_data(one, target_s=job.recovery_target_s) for one in found]
    return {"drills": rows, "kept": bool(rows) and all(row["kept"] for row in rows)}


def _kinds(context: Context, order: Order, given: Sequence[str] | None) -> tuple[str, ...]:
    """The kinds that were asked for; or of those that the promise covers, all that can be injected here."""
    can = context.environment.failures.kinds()
    kinds = tuple(context.job(order).failure_kinds if given is None else given)
    for kind in kinds:
        if kind not in FAILURE_KINDS:
            raise Misconfigured("drill.kinds", f"unknown kind '{kind}'; expected {', '.join(FAILURE_KINDS)}")
    cannot = [kind for kind in kinds if kind not in can]
    setting = f"job.{order.job}.failure_kinds" if given is None else "drill.kinds"
    pool = "node_loss" in cannot and context.environment.kind == "kubernetes"
    here = "here" + (" without kubernetes.drill_node_selector" if pool else "")
    if cannot and (given is not None or len(cannot) == len(kinds)):
        raise Misconfigured(
            setting, f"'{cannot[0]}' cannot be injected {here}; expected {', '.join(sorted(can))}"
        )
    if cannot:
        order.say(f"left out: {', '.join(cannot)} of {setting}, which cannot be injected {here}")
    return tuple(kind for kind in kinds if kind in can)


def _check_again(context: Context, kind: str, *, live: JobSettings | None = None) -> None:
    """At the moment of the injection: a job may have been launched since the order, or its blackout begun."""
    if kind == BROKER:
        _refuse_under_live_jobs(context)
    if live and (window := time_windows.blackout(live, context.environment.clock.now_s())) is not None:
        raise NotReady(f"the blackout {window.why} has begun meanwhile")


def _refuse_under_live_jobs(context: Context) -> None:
    """Unsafe while a job runs that may not be drilled; an attached job never may."""
    environment, instead = context.environment, f"Leave out {BROKER}, which stops the broker of every job"
    for name, job in context.settings.jobs.items():
        job_plans.check_order(name, job, "drill", live=True)
        if name in environment.deployments.names():
            refuse_live(name, job, now_s=environment.clock.now_s(), instead=instead)


def _on_copy(
    context: Context, order: Order, details: Drill, models: Models | None, *, kinds: Sequence[str]
) -> Sequence[Outcome]:
    environment, name, job = context.environment, order.job, context.job(order)
    template = job_plans.live_plan(name, job, folder=context.folder)
    budget = details.budget_executor_s or job.profile_budget_executor_s
    rates = {
        size: tuple(details.rates_rps or _usual_rates(name, models, size))
        for size in details.scale_outs or (job.scale_out,)
    }
    plan = drilling.planned(
        kinds=kinds, rates_rps=rates, repeats=details.repeats, budget_executor_seconds=budget
    )
    whose = "drill.budget_executor_s" if details.budget_executor_s else f"job.{name}.{BUDGET}"
    if not plan.cells:
        least = min(rates) * drilling.DRILL_S
        raise Misconfigured(whose, f"{budget:g} is not enough for one drill, which may take {least:g}")
    if plan.left_out:
        order.say(
            f"{counted(plan.left_out, 'drill')} left out: the budget of {budget:,.0f} executor-seconds "
            f"({whose}) has no room for more than {len(plan.cells)}"
        )
    context.wait_for_live_job(order)
    order.say(f"{counted(len(plan.cells), 'drill')} on a copy of {name}")
    series = Drilling(
        template,
        context.around_until_blackout(order),
        failures=environment.failures,
        may_cause=lambda kind: _check_again(context, kind),
        partitions=environment.partitions(template, job),
        rules=context.rules(name, at_least_rps=max(map(max, rates.values()))),
        settings=job_plans.drill_settings(job, context.settings.spark),
        batch_began_s=environment.batch_began_s,
        say=lambda line: order.say(line, share=len(series.outcomes) / len(plan.cells)),
    )
    try:
        series.run(plan, models=models, budget_executor_seconds=budget)
    except Interrupted as why:
        order.say(f"{why}: the drills end here, the next ones go on from there")
    return series.outcomes


def _usual_rates(name: str, models: Models | None, size: int) -> tuple[float, ...]:
    never = Unknown(f"{name} was never profiled: run `headroom profile {name}` first")
    capacity = never if models is None else models.capacity.predict(size)
    if isinstance(capacity, Unknown):
        raise Misconfigured("drill.rates_rps", f"is needed, for the capacity is unknown: {capacity.reason}")
    bound = models is not None and models.is_bound(size)
    return tuple(share * capacity.mid for share in (BOUND_SHARES if bound else SHARES))


def _on_live(
    context: Context, order: Order, models: Models | None, *, kinds: Sequence[str]
) -> Sequence[Outcome]:
    environment, name, job = context.environment, order.job, context.job(order)
    if name not in environment.deployments.names():
        raise NotReady(f"{name} does not run here: `headroom start {name}` starts it, or drill a copy")
    around = context.around(order)
    how = job_plans.drill_settings(job, context.settings.spark)
    if job.elsewhere:  # its time-outs are not those of [spark]
        how = replace(how, recorded={})
    found: list[Outcome] = []
    for number, kind in enumerate(kinds):
        window = time_windows.blackout(job, environment.clock.now_s())
        if window is not None:  # it has begun since the first one
            order.say(f"the blackout {window.why} has begun: {', '.join(kinds[number:])} is left out")
            break
        with context.drilling(name, kind) as metrics:
            declared = environment.deployments.status(name).declared_scale_out
            if isinstance(declared, Unknown):
                raise NotReady(declared.reason)
            watch = Watch(name, scale_out=declared, metrics=metrics, deployments=environment.deployments)
            outcome = DrillRun(
                watch,
                kind,
                on="live",
                batch_began_s=lambda batch: environment.batch_began_s(name, batch),
                failures=environment.failures,
                may_cause=lambda kind: _check_again(context, kind, live=job),
                clock=around.clock,
                settings=how,
                say=lambda line: order.say(line, share=len(found) / len(kinds)),
            ).run()
        outcome = drilling.with_prediction(outcome, models)
        drilling.keep(around, name, outcome)
        order.say(drilling.described(outcome), share=len(found) / len(kinds))
        found.append(outcome)
        if outcome.not_cleared is not None:
            raise outcome.not_cleared
    return found


def _as_data(outcome: Outcome, *, target_s: float) -> dict[str, Any]:
    """One drill as JSON; a recovery that did not come is null."""
    event = outcome.event
    row: dict[str, Any] = {
        "kind": outcome.kind,
        "scale_out": outcome.scale_out,
        "rate_rps": None if isinstance(outcome.rate_rps, Unknown) else outcome.rate_rps,
        "kept": not isinstance(event, Unknown) and event.recovery_s <= target_s,
        "said": drilling.described(outcome),
    }
    if isinstance(event, Unknown):
        return row | {"invalid": event.reason}
    return readable(asdict(event)) | row | {"details": readable(outcome.details)}
