"""Dagster's jobs, launched by a sensor, a schedule, or by hand; and the schedules of headroom.toml.

    record        record the live input
    profile       search the capacity of a job: adds points and measures them, within the job's budget
    drill         cause failures, and see how long the job takes to come back
    model         fit, check and put in charge all models of a job
    optimization  evaluate a job now, and carry out the change if something must change

All are partitioned by job. Runs are small and each starts a process: within a run everything is one process.

A schedule that meets a blackout window is left out with a sentence; it comes round again. Drills are caused
on a copy of the job; on the live job only with `allow_live_drills = true`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from assets.decide import MODELS
from assets.orders import ordered
from assets.partitions import Search
from assets.profile import POOL
from models.ports import Store
from profiling_jobs.orders import Server

from ..settings import time_windows
from ..settings.schema import JobSettings

OPTIMIZATION = "optimization"
PROFILE = "profile"
DRILL = "drill"
MODEL = "model"
FIRST = {"dagster/priority": "10"}  # a change of the size waits for no model


class Profile(dg.Config):
    """What a search may cost, where it is not what headroom.toml says."""

    scale_outs: list[int] | None = None
    budget_executor_s: float | None = None


@dg.op(pool=POOL)
def search(
    context: dg.OpExecutionContext,
    config: Profile,
    server: dg.ResourceParam[Server],
    store: dg.ResourceParam[Store],
) -> None:
    """Search the capacity of the job at several sizes, on copies of it; it goes on where it was interrupted.

    Every point that is asked for becomes a partition of `profiling_points`, measured ones are materialised.
    """
    job = context.partition_key
    points = Search(context.instance, store, job)
    found = ordered(
        context, server, "profile", job, seen=points.seen,
        scale_outs=config.scale_outs, budget_executor_s=config.budget_executor_s,
    )  # fmt: skip
    context.log.info(f"{points.end()} points of {job} are measured; {found['why_done']}")


def all_jobs(jobs: Sequence[str]) -> dict[str, Any]:
    """Everything that can be launched for these jobs of headroom.toml."""
    fixed = dg.StaticPartitionsDefinition(list(jobs))

    @dg.job(
        name=PROFILE,
        partitions_def=fixed,
        description="Search the capacity of a job, within its budget of executor-seconds.",
    )
    def profile() -> None:
        search()

    def of(name: str, description: str, *assets: str, checked: bool = True, **more: Any) -> Any:
        selection = dg.AssetSelection.assets(*assets)
        return dg.define_asset_job(
            name,
            selection=selection if checked else selection.without_checks(),
            description=description,
            **more,
        )

    found = [
        profile,
        of("record", "Record the live input of a job.", "recording", "workload_history"),
        of(DRILL, "Cause failures on a copy of a job, and measure its recovery.", "failure_drills"),
        of(MODEL, "Fit, check and put in charge the models of a job.", *MODELS),
        of(
            OPTIMIZATION,
            "Evaluate a job now, and carry out the change if something must change.",
            "decision",
            "scale_out",
            checked=False,  # a change of the size waits for no check; a sensor reports them
            tags=FIRST,
        ),
    ]
    return {job.name: job for job in found}


# ------------------------------------------------------------------------------------------------ schedules


def due(
    job: str, settings: JobSettings, what: str, *, at_s: float, key: str
) -> dg.RunRequest | dg.SkipReason:
    """The run that is due, or why it is left out this time."""
    window = time_windows.blackout(settings, at_s)
    if window is not None:
        return dg.SkipReason(f"{job} is in the blackout {window.why}: left out until it comes round again")
    config = {}
    if what == DRILL:  # it may wait for other runs, and a blackout have begun by the time that it is begun
        drills = {"by_itself": True, "live": settings.allow_live_drills}
        config = {"ops": {"failure_drills": {"config": drills}}}
    return dg.RunRequest(
        run_key=f"{job}:{what}:{key}", partition_key=job, run_config=config, tags={"headroom/job": job}
    )


def schedules(
    jobs: Mapping[str, JobSettings],
    launched: Mapping[str, Any],
    *,
    say: Callable[[str], None] = lambda line: None,
) -> Sequence[dg.ScheduleDefinition]:
    """One per job and line of its table; one that Dagster refuses is said, and costs the others nothing."""
    found = []
    for job, settings in jobs.items():
        for what, line in ((PROFILE, settings.profile_cron), (DRILL, settings.drill_cron)):
            if line is None or not settings.copyable:
                continue
            try:
                found.append(_schedule(job, settings, what, line, launched[what]))
            except dg.DagsterInvalidDefinitionError as refused:
                say(
                    f"job.{job}.{what}_cron: no {what} comes round at {line!r}, Dagster refuses it: {refused}"
                )
    return found


def _schedule(job: str, settings: JobSettings, what: str, line: str, target: Any) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"{what}_{job.replace('-', '_')}",  # a job's name has hyphens, and no underscores
        cron_schedule=line,
        job=target,
        execution_timezone=settings.time_zone,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"{what} {job} at {line} ({settings.time_zone}), outside its blackouts.",
    )
    def comes_round(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        at = context.scheduled_execution_time
        return due(job, settings, what, at_s=at.timestamp(), key=at.isoformat(timespec="minutes"))

    return comes_round
