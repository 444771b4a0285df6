"""What does a `[job.NAME]` table mean for whoever runs, profiles or drills the job?

Settings in, plans and rules out; nothing is started here.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path

from models import probing
from models.optimise.candidates import aligned_scale_outs
from models.quantities import Misuse
from profiling_jobs.drills import drill
from profiling_jobs.errors import Misconfigured, Unsafe
from profiling_jobs.ports import Function, Plan, Script
from profiling_jobs.probing.probe import Rules

from .resources.spark_conf import SECRET_KEYS
from .settings import JobSettings, SparkSettings

MOST_SIZES = 4  # judgement: enough for every form of capacity curve to show, also the one that bends
LAUNCH_S = 70.0  # measured: 25–45 s until a copy works, then some 30 s to settle and to come to its rate
MAX_LAG_SHARE = 0.5  # of the target


def live_plan(name: str, job: JobSettings, *, folder: Path) -> Plan:
    """How the job itself is run, or would be: what copies of it are made from."""
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
    """Which settings of a job were edited since it was launched; its size is control's to change."""
    others = {"program": "script or build", "side_effects": "profiling_side_effects"}
    return tuple(
        others.get(field.name, field.name)
        for field in fields(Plan)
        if field.name != "scale_out" and getattr(launched, field.name) != getattr(today, field.name)
    )


def check_copyable(name: str, job: JobSettings) -> None:
    """Refuse to copy a program that is not here."""
    if not job.copyable:
        raise Misconfigured(
            f"job.{name}.attach",
            "somebody else runs this job, and its program is not here: give `script` or `build` beside it to "
            "profile and drill copies",
        )


def check_order(name: str, job: JobSettings, what: str, *, live: bool = False) -> None:
    """Refuse what is never done to a job of somebody else, before anything is begun."""
    if not job.attach:
        return
    forbidden = {"launch": "started", "stop": "stopped", "apply": "rescaled"}
    if live:
        forbidden["drill"] = "hurt"
    if what in forbidden:
        raise Unsafe(f"job.{name}.attach = true: somebody else runs it, so it is not {forbidden[what]} here")
    if what in ("profile", "probe", "drill"):
        check_copyable(name, job)


def rules(job: JobSettings, *, sample_s: float = 1.0) -> Rules:
    """What a probe has to know of the job."""
    return Rules(
        longest_window_s=job.longest_window_s,
        warm_up_s=job.warm_up_s,
        trigger_s=job.trigger_s,
        limit_records=job.max_offsets_per_trigger,
        sample_s=sample_s,
    )


def search(
    name: str, job: JobSettings, spark: SparkSettings, *, tasks: int | None = None
) -> probing.Settings:
    """What a search is asked to do. `tasks`: of a batch, where they bound what executors can do."""
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
            budget_executor_seconds=job.profile_budget_executor_s,
            tasks=tasks,
            parallel=job.profile_parallel,
            executors_at_once=spark.slots,
        )
    except Misuse as wrong:
        raise Misconfigured(f"job.{name}.profile_scale_outs", str(wrong)) from wrong


def _usual_sizes(job: JobSettings, tasks: int | None) -> tuple[int, ...]:
    """Spread evenly over those that can do more than the ones below them, which decisions choose from."""
    sizes = aligned_scale_outs(job.scale_out_min, job.scale_out_max, tasks=tasks)
    spread = probing.grid_scale_outs(1, len(sizes), min(MOST_SIZES, len(sizes)))
    return tuple(sizes[number - 1] for number in spread)


def max_lag_s(job: JobSettings) -> float:
    """Lag beyond which the job is behind."""
    return MAX_LAG_SHARE * job.recovery_target_s if job.max_lag_s is None else job.max_lag_s


def drill_settings(job: JobSettings, spark: SparkSettings) -> drill.Settings:
    """How its drills are judged, and what is written down with them."""
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


def limit_records(job: JobSettings) -> float:
    """Largest batch; inf without a limit."""
    return math.inf if job.max_offsets_per_trigger is None else float(job.max_offsets_per_trigger)
