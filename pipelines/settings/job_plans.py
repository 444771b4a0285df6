"""Plans and settings that follow from a `[job.NAME]` table, for running, profiling, drilling and deciding."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from models import control, probing
from models.downtime import COLD_START_S
from models.errors import Misconfigured, Unsafe
from models.optimise.question import aligned_scale_outs
from models.ports import Function, Plan, Script
from models.promise import Promise
from models.quantities import Misuse
from profiling_jobs.experiments import drill
from profiling_jobs.experiments.probe import Rules

from .schema import JobSettings, Rescale, SparkSettings
from .spark_timeouts import SECRET_KEYS

MOST_SIZES = 4  # judgement: enough for every form of capacity curve to show, also the one that bends
LAUNCH_S = 70.0  # measured: 25–45 s until a copy works, then some 30 s to settle and to come to its rate
MAX_LAG_SHARE = 0.5  # of the target
RECORDED_S = 120.0  # what a forecast is fitted to at least; a copy is sent the same events over and over


def live_plan(name: str, job: JobSettings, *, folder: Path) -> Plan:
    """The plan of the live job, from which the plans of its copies are made."""
    check_copyable(name, job)
    program = Function(job.build) if job.build else Script(str(job.script), job.args)
    return Plan(
        name=name,
        job=name,
        role="live",
        program=program,
        scale_out=job.scale_out,
        inputs=dict(job.inputs),
        outputs=dict(job.outputs),
        checkpoint=job.checkpoint or str(folder.resolve() / "checkpoints" / name),
        trigger_s=job.trigger_s,
        max_offsets_per_trigger=job.max_offsets_per_trigger,
        state_partitions=job.state_partitions,
        conf=dict(job.conf),
        side_effects=job.profiling_side_effects,
    )


def changed(launched: Plan, today: Plan) -> tuple[str, ...]:
    """The settings of a job that were edited since it was launched, without its size."""
    others = {"program": "script or build", "side_effects": "profiling_side_effects"}
    return tuple(
        others.get(field.name, field.name)
        for field in fields(Plan)
        if field.name != "scale_out" and getattr(launched, field.name) != getattr(today, field.name)
    )


def check_copyable(name: str, job: JobSettings) -> None:
    """Refuse to run copies of a program that is not here."""
    if not job.copyable:
        raise Misconfigured(
            f"job.{name}.attach" if job.attach else f"job.{name}.spark_application",
            "the job is run elsewhere and its program is not here: add `script` or `build` to profile and "
            "drill copies",
        )


def check_order(name: str, job: JobSettings, what: str, *, live: bool = False) -> None:
    """Refuse what is never done to a job that another system runs."""
    if not job.elsewhere:
        return
    forbidden = {"launch": "started", "stop": "stopped"}
    if job.attach:
        forbidden["apply"] = "rescaled"
        if live:
            forbidden["drill"] = "hurt"
    if what in forbidden and job.attach:
        raise Unsafe(f"job.{name}.attach = true: it is run elsewhere, so it is not {forbidden[what]} here")
    if what in forbidden:
        instead = {
            "launch": "`kubectl apply` its manifest",
            "stop": f"`kubectl delete sparkapplication {job.spark_application}` ends it, "
            "`spec.suspend: true` in its manifest suspends it",
        }
        raise Unsafe(
            f"job.{name}.spark_application = {job.spark_application}: the Spark operator runs it, so it is "
            f"not {forbidden[what]} here: {instead[what]}"
        )
    if what in ("profile", "probe", "drill") and not live:
        check_copyable(name, job)


def rules(job: JobSettings) -> Rules:
    """The rules of a probe."""
    return Rules(
        longest_window_s=job.longest_window_s,
        warm_up_s=job.warm_up_s,
        trigger_s=job.trigger_s,
        limit_records=job.max_offsets_per_trigger,
    )


def search(
    name: str, job: JobSettings, spark: SparkSettings | None, *, tasks: int | None = None
) -> probing.Settings:
    """The settings of a capacity search. `tasks` of a batch, where they bound what executors can do.

    Without `spark` slots are not counted: a cluster's quota bounds its copies.
    """
    sizes = job.profile_scale_outs or _usual_sizes(job, tasks)
    stepped = job.strategy == "stepped"
    try:
        return probing.Settings(
            scale_outs=sizes,
            warm_up_s=max(job.warm_up_s, job.longest_window_s) + LAUNCH_S,
            probe_s=job.probe_s,
            strategy=job.strategy,
            first_rate_rps=job.profile_first_rps if stepped else None,
            increment_rps=job.profile_step_rps if stepped else None,
            first_guess=None if stepped else job.profile_guess_rps,
            most_probes=job.profile_most_probes,
            bracket=job.profile_precision,
            budget_executor_seconds=job.profile_budget_executor_s,
            tasks=tasks,
            parallel=job.profile_parallel,
            executors_at_once=None if spark is None else spark.slots,
        )
    except Misuse as wrong:
        raise Misconfigured(f"job.{name}.profile_scale_outs", str(wrong)) from wrong


def _usual_sizes(job: JobSettings, tasks: int | None) -> tuple[int, ...]:
    """Up to MOST_SIZES of the sizes that decisions choose from, spread evenly."""
    sizes = aligned_scale_outs(job.scale_out_min, job.scale_out_max, tasks=tasks)
    spread = probing.grid_scale_outs(1, len(sizes), min(MOST_SIZES, len(sizes)))
    return tuple(sizes[number - 1] for number in spread)


def recorded_s(job: JobSettings) -> float:
    """How long its input is recorded. What its windows hold must not come twice within one of them."""
    return max(RECORDED_S, job.longest_window_s)


def max_lag_s(job: JobSettings) -> float:
    """Lag beyond which the job is behind."""
    return MAX_LAG_SHARE * job.recovery_target_s if job.max_lag_s is None else job.max_lag_s


def drill_settings(job: JobSettings, spark: SparkSettings) -> drill.Settings:
    """The settings of its drills, and what is recorded with them."""
    return drill.Settings(
        max_lag_s=max_lag_s(job),
        trigger_s=job.trigger_s,
        longest_s=max(300.0, 3.0 * job.recovery_target_s),
        recorded={
            "spark.network.timeout": f"{spark.network_timeout_s}s",
            "spark.executor.heartbeatInterval": f"{spark.heartbeat_s}s",
            "executor_memory_mb": str(spark.executor_memory_mb),
            "slots": str(spark.slots),
            **{
                key: "(redacted)" if re.search(SECRET_KEYS, key) else value
                for key, value in {**spark.conf, **job.conf}.items()
            },
        },
    )


BACK_TO_BACK_S = 10.0  # a batch of a job without a trigger interval; control's own default
ENDING_S = 60.0  # a restart first waits so long for the batch in hand, then for its executors
EFFECT_S = {"live": control.Settings.effect_s, "restart": ENDING_S + COLD_START_S}
"""Until a change works."""
SCALE_TIMEOUT_S = SparkSettings().scale_timeout_s


def control_settings(
    name: str, job: JobSettings, *, tasks: int | None = None, scale_timeout_s: float = SCALE_TIMEOUT_S
) -> control.Settings:
    """The settings of the control loop. `tasks` of a batch, where they bound what executors can do.

    A change has failed only after `scale_timeout_s`, when the deployment gives it up.
    """
    path: Rescale = "restart" if job.elsewhere else job.rescale
    try:
        return control.Settings(
            promise=Promise(job.recovery_target_s, job.confidence),
            min_scale_out=job.scale_out_min,
            max_scale_out=job.scale_out_max,
            candidates=aligned_scale_outs(job.scale_out_min, job.scale_out_max, tasks=tasks),
            mode=job.mode,
            path=path,
            only_commits=job.attach,
            interval_s=job.evaluation_interval_s,
            failure_kinds=job.failure_kinds,
            latency_bound_ms=job.latency_bound_ms,
            max_step_out=job.step_out,
            max_step_in=job.step_in,
            scale_in_window_s=job.scale_in_window_s,
            cooldown_in_s=min(job.scale_in_window_s, control.Settings.cooldown_in_s),
            trigger_s=job.trigger_s or BACK_TO_BACK_S,
            max_lag_s=job.max_lag_s,
            effect_s=EFFECT_S[path],
            take_effect_s=max(control.Settings.take_effect_s, scale_timeout_s + ENDING_S),
        )
    except Misuse as wrong:
        raise Misconfigured(f"job.{name}.{wrong.argument}", wrong.problem) from wrong
