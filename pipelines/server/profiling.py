"""Orders that measure the capacity on copies of a job: `profile`, a whole search, and `probe`, one point."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from models import probing
from models.errors import Misconfigured, NotReady
from models.probing import Result
from models.probing.search import AT_THE_SOURCE_LIMIT
from models.quantities import Misuse, Unknown, counted, executors
from profiling_jobs.experiments.copies import Copies
from profiling_jobs.experiments.probe import ProbeRun, finish
from profiling_jobs.experiments.profiling import Profiling
from profiling_jobs.experiments.profiling_record import missing_for_decisions, point
from profiling_jobs.orders import Probe, Profile
from profiling_jobs.training import workload_history

from ..environments import batch_tasks
from ..settings import job_plans
from ..settings.schema import SparkSettings
from .context import Context, Found
from .order_queue import Interrupted, Order


def profile(context: Context, order: Order, details: Profile) -> Found:
    """Search the capacity, from where the last search was interrupted."""
    environment, name, job = context.environment, order.job, context.job(order)
    template = job_plans.live_plan(name, job, folder=context.folder)
    partitions = environment.partitions(template, job)
    tasks = batch_tasks.if_known(batch_tasks.learnt(environment, name, job, partitions))
    slots = _counted_slots(context)
    rules = context.rules(name)
    search = replace(job_plans.search(name, job, slots, tasks=tasks), most_rps=rules.most_rps)
    try:
        if details.scale_outs:
            search = replace(search, scale_outs=tuple(details.scale_outs))
        if details.budget_executor_s:
            search = replace(search, budget_executor_seconds=details.budget_executor_s)
    except Misuse as wrong:
        raise Misconfigured(f"profile.{wrong.argument}", wrong.problem) from wrong
    if slots is not None:
        search = _beside_live_jobs(search, slots.slots, context, order)
    context.wait_for_live_job(order)
    reported: set[int] = set()

    def progress(state: probing.State, text: str) -> None:
        order.say(text, share=probing.progress(state).fraction)
        for result in (*profiling.light, *state.results):
            if id(result) not in reported:
                reported.add(id(result))
                order.found(_fact(context, name, result))

    profiling = Profiling(
        template,
        search,
        context.around_until_blackout(order),
        partitions=partitions,
        rules=rules,
        progress=progress,
    )
    ended = ""
    try:
        profiling.run()
    except Interrupted as why:
        ended = f"{why}: what was measured is kept, the next profile goes on from there"
        order.say(ended)
    state = profiling.state
    if not ended:
        _check_decisions_can_follow(context, name, state)
    reached = probing.progress(state)
    found: dict[str, Any] = {}
    kept_up_rps = 0.0
    for size, one in sorted(probing.estimates(state).items()):
        kept_up_rps = max(kept_up_rps, one.bracket.sustained_rps)
        most = kept_up_rps >= AT_THE_SOURCE_LIMIT * state.source_limit_rps
        if not isinstance(one.capacity, Unknown):
            found[str(size)] = asdict(one.capacity)
        else:  # what a smaller size keeps up with, a larger one does too
            found[str(size)] = {"at_least": kept_up_rps} if most else one.capacity
    return {
        "why_done": ended or state.done,
        "text": reached.text,
        "spent_executor_s": reached.spent_executor_seconds,
        "probes": len(state.results),
        "capacity_rps": found,
    }


def _check_decisions_can_follow(context: Context, name: str, state: probing.State) -> None:
    """Raise where no decision can be made after this profile; what was measured is kept."""
    job = context.settings.jobs[name]
    store, one_size = context.environment.store, len(state.settings.scale_outs) == 1
    peak_rps = workload_history.peak_rps(store, name)
    missing = missing_for_decisions(
        store, name, one_size=one_size, peak_rps=peak_rps, limit_records=job.limit_records
    )
    if not missing:
        return
    invalid = [result.reason for result in state.results if not result.valid]
    if invalid:
        missing += f"; the last of {counted(len(invalid), 'invalid probe')}: {invalid[-1]}"
    if "budget" in state.done or "are spent" in state.done:
        key, value = "profile_budget_executor_s", 2.0 * job.profile_budget_executor_s
    else:
        key, value = "probe_s", 2.0 * job.probe_s
    raise Misconfigured(
        f"job.{name}.{key}",
        f"no decision can follow from this profile, {missing}. Set it to {value:g}, say, and profile again",
    )


def _counted_slots(context: Context) -> SparkSettings | None:
    """None on a cluster: there live jobs and copies have namespaces of their own, with a quota each."""
    settings = context.settings
    return None if settings.deployment.kind == "kubernetes" else settings.spark


def _beside_live_jobs(
    search: probing.Settings, slots: int, context: Context, order: Order
) -> probing.Settings:
    """The search within the slots that no live job has or may be given, so that none waits for a copy.

    room = slots − Σ over live jobs (its largest size where we change it, else the size that it has)
    """
    kept = {}
    for name in set(context.environment.deployments.names()) & set(context.settings.jobs):
        job, status = context.settings.jobs[name], context.environment.deployments.status(name)
        declared = status.declared_scale_out
        has = 0 if isinstance(declared, Unknown) else declared
        kept[name] = max(has, job.scale_out_max) if job.mode == "apply" else has
    room = slots - sum(kept.values())
    fitting = tuple(size for size in search.scale_outs if size <= room)
    named = ", ".join(f"{name}: {count}" for name, count in sorted(kept.items()))
    why = f"{slots - room} of {slots} slots kept for live jobs ({named})"
    if not fitting:
        least = search.scale_outs[0]
        raise Misconfigured(
            "spark.slots",
            f"{why} leave no room for a copy of {executors(least)}, the smallest size to profile: set it to "
            f"at least {slots - room + least}",
        )
    if left_out := search.scale_outs[len(fitting) :]:
        sizes = ", ".join(map(str, left_out))
        enough = slots - room + left_out[-1]
        order.say(f"{sizes} executors left out: {why}; spark.slots = {enough} has room")
    return replace(search, scale_outs=fitting, executors_at_once=room)


def probe(context: Context, order: Order, details: Probe) -> Found:
    """One probe on a copy, outside of a search."""
    environment, name, job = context.environment, order.job, context.job(order)
    template = job_plans.live_plan(name, job, folder=context.folder)
    search, around = job_plans.search(name, job, _counted_slots(context)), context.around(order)
    size, rate = details.scale_out, details.rate_rps
    probe = probing.Probe(0, size, rate, warm_up_s=search.warm_up_s, probe_s=search.probe_s)
    copies = Copies(template, around, partitions=environment.partitions(template, job))
    context.wait_for_live_job(order)
    began_s = around.clock.now_s()
    try:
        if problems := copies.clear():
            raise NotReady(f"an earlier run has left something behind that would not go: {problems[0]}")
        order.say(f"{executors(size)} at {rate:,.0f} records/s")
        copy = copies.launch(size)
        run = ProbeRun(probe, copy, clock=around.clock, rules=context.rules(name, at_least_rps=rate))

        def look() -> None:
            took = around.clock.now_s() - began_s
            order.at(min(0.99, took / (search.warm_up_s + search.probe_s)))

        result = finish(run.steps(), around.clock, look=look)
    finally:
        for problem in copies.clear():
            order.say(f"left behind: {problem}")
    result = replace(result, executor_seconds=size * (around.clock.now_s() - began_s))
    fact = _fact(context, name, result)
    if not result.valid:
        raise NotReady(f"the probe shows nothing: {result.reason}")
    order.say(f"{result.verdict}, {result.value_rps:,.0f} records/s")
    around.store.add_measurement(name, fact["key"], result.measurement, at_s=fact["at_s"])
    order.found(fact)
    return fact


def _fact(context: Context, name: str, result: Result) -> dict[str, Any]:
    probe = result.probe
    measured = ("offered_rps", "throughput_rps", "latency_ms", "duration_s")
    return {
        "fact": "probe",
        "key": f"{name}/{point(probe.scale_out, probe.rate_rps)}",
        "number": probe.number,
        "at_s": context.environment.clock.now_s(),
        "scale_out": probe.scale_out,
        "rate_rps": probe.rate_rps,
        **{key: getattr(result, key) for key in ("verdict", "reason", *measured)},
        "executor_seconds": result.cost,
    }
