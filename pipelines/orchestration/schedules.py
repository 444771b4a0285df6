"""Schedules that profile and drill a job at the times of headroom.toml, outside its blackouts.

A schedule that meets a blackout window is left out with a sentence; it comes round again. Drills are caused
on a copy of the job; on the live job only with `allow_live_drills = true`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from ..settings import time_windows
from ..settings.schema import JobSettings
from .jobs import DRILL, PROFILE


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
        description=f"{what} {job} at `{line}` ({settings.time_zone}), outside its blackouts.",
    )
    def comes_round(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        at = context.scheduled_execution_time
        return due(job, settings, what, at_s=at.timestamp(), key=at.isoformat(timespec="minutes"))

    return comes_round
