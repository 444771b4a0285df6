"""Dagster's sensors.

    optimization_sensor   evaluates every job once per interval; launches a run only if something must change
    decision_checks       reports the checks of decision when their outcome changes
    automation            fits models when there is something new to fit them to (declarative automation)
    put_right             after a run that failed or was cancelled: gives up what it has left going on

A tick of `optimization_sensor` has no effect that a second one of the same interval would repeat: an
evaluation is made once per interval, however often it is asked for, so previewing a tick is harmless. Its
cursor only says which interval of each job was reported last.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from assets import decision_checks as promises
from assets.decide import INTERVAL_TAG, observations, recent
from assets.metadata import sentence
from assets.orders import ORDER_TAG
from models.errors import HeadroomError, NotReady
from models.ports import Store
from models.quantities import executors
from profiling_jobs.orders import Json, Server

from ..settings import time_windows
from ..settings.schema import JobSettings
from .jobs import FIRST, MODEL, OPTIMIZATION, PROFILE

Jobs = Mapping[str, JobSettings]
MOST_S = 30.0  # of the 60 s after which a tick is given up; what is left of the jobs is done at the next
IDLE_S = 30  # between ticks when there is no job
CHECKS_S = 60  # judgement: nobody looks more often, and what is late was so for minutes
REPORTED_AGAIN_S = 6 * 3600.0  # judgement: the page shows when a check was reported last
AUTOMATION_S = 30  # judgement: a refit is not urgent, and every look at it costs a process some 100 ms


def tick(
    cursor: str | None,
    jobs: Jobs,
    server: Server,
    *,
    now_s: float,
    before: Callable[[str], Sequence[Json]] = lambda job: (),
) -> dg.SensorResult:
    """Evaluate every job whose interval has not been reported yet. `before`: a job's last evaluations."""
    reported = _reported(cursor, jobs)
    said: list[str] = []
    events: list[dg.AssetObservation] = []
    runs: list[dg.RunRequest] = []
    began_s = time.monotonic()
    for job, settings in jobs.items():
        interval = math.floor(now_s / settings.evaluation_interval_s)
        if reported.get(job) == interval:
            continue
        if time.monotonic() - began_s > MOST_S:
            said.append(f"{job} waits for the next tick: this one has taken {MOST_S:.0f} s")
            continue
        try:
            evaluation = server.evaluate(job)
        except HeadroomError as error:
            said.append(f"{job} was not evaluated: {error}")
            continue
        reported[job] = interval
        events += observations(evaluation, before=before(job))
        said.append(f"{job}: {sentence(evaluation)}")
        runs += wanted(evaluation, settings, now_s=now_s, said=said)
    return dg.SensorResult(
        run_requests=runs,
        asset_events=events,
        cursor=json.dumps({"schema": 1, "reported": reported}),
        # Dagster takes a reason only where no run is requested; a run says its own in its tags.
        skip_reason=None if runs else "; ".join(said) or _waits(jobs, now_s),
    )


def report(instance: dg.DagsterInstance, events: Sequence[Any]) -> None:
    """Report points on the timelines, but none twice, as after a preview of this tick."""
    for event in events:
        newest = instance.fetch_observations(
            dg.AssetRecordsFilter(asset_key=event.asset_key, asset_partitions=[event.partition]), limit=1
        ).records
        before = newest[0].asset_observation if newest else None
        if before is None or before.tags.get(INTERVAL_TAG) != event.tags[INTERVAL_TAG]:
            instance.report_runless_asset_event(event)


def wanted(
    evaluation: Json, settings: JobSettings, *, now_s: float, said: list[str]
) -> Iterator[dg.RunRequest]:
    """The runs that this evaluation asks for; each key once."""
    job = str(evaluation["job"])
    change = evaluation.get("apply")
    if change:
        yield dg.RunRequest(
            run_key=str(change["key"]),
            job_name=OPTIMIZATION,
            partition_key=job,
            tags={
                **FIRST,
                "headroom/job": job,
                "headroom/apply": job,
                "headroom/epoch": str(change["epoch"]),
                "headroom/why": f"{change['before']} to {executors(change['to'])}: {change['reason']}"[:250],
            },
        )
    for request in evaluation.get("requests") or ():
        why, model, sizes = str(request["why"]), request["model"], request.get("scale_outs")
        profiles = request["do"] == "profile"
        if profiles and (no := may_not_profile(settings, now_s=now_s)):
            said.append(f"{job} should be profiled ({why}), {no}")
            continue
        what = request["do"] if profiles else f"{request['do']}:{model}"
        yield dg.RunRequest(
            run_key=f"{job}:{what}:{request['since_s']:.0f}",
            job_name=PROFILE if profiles else MODEL,
            partition_key=job,
            asset_selection=None if profiles else [dg.AssetKey(f"{model}_model")],
            # Only the sizes that matter: the others are as they were.
            run_config={"ops": {"search": {"config": {"scale_outs": list(sizes)}}}} if sizes else None,
            tags={"headroom/job": job, "headroom/why": why[:250]},
        )


def may_not_profile(settings: JobSettings, *, now_s: float) -> str:
    """Why no copy of this job is run by itself now; empty if one may be."""
    if not settings.copyable:
        return "but another system runs it: copies need `script` or `build` beside `attach = true`"
    if settings.mode == "observe":
        return "but mode observe only watches"
    window = time_windows.blackout(settings, now_s)
    return f"after the blackout {window.why}" if window else ""


def _reported(cursor: str | None, jobs: Jobs) -> dict[str, int]:
    """Job -> the interval that was reported last; a cursor that cannot be read is begun anew."""
    try:
        data = json.loads(cursor or "{}")
        found = data.get("reported", {}) if data.get("schema") == 1 else {}
        return {job: int(interval) for job, interval in found.items() if job in jobs}
    except (ValueError, TypeError, AttributeError):
        return {}


def _waits(jobs: Jobs, now_s: float) -> str:
    if not jobs:
        return "headroom.toml has no [job.NAME] yet: add one, and reload this code location"
    left = {job: one.evaluation_interval_s - now_s % one.evaluation_interval_s for job, one in jobs.items()}
    job = min(left, key=lambda one: left[one])
    return f"every job was evaluated in its interval; the next is {job}, in {left[job]:.0f} s"


def optimization_sensor(
    jobs: Jobs, launched: Mapping[str, Any], *, problem: str, left_out: Sequence[str] = ()
) -> dg.SensorDefinition:
    """The sensor of the control loop. `problem`: what is wrong with headroom.toml, if something is.

    `left_out`: what does not come round although the file asks for it; every tick warns of it.
    """
    shortest = min((one.evaluation_interval_s for one in jobs.values()), default=2.0 * IDLE_S)

    @dg.sensor(
        name="optimization_sensor",
        jobs=[launched[name] for name in (OPTIMIZATION, MODEL, PROFILE)],
        # Twice per interval, so that a late tick leaves none out; the second one finds nothing to do.
        minimum_interval_seconds=max(5, int(shortest / 2.0)),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Evaluates every job once per interval: a point on the timeline of the asset decision, "
        "also when nothing has to change, and a run of the job optimization when something must.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, server: dg.ResourceParam[Server], store: dg.ResourceParam[Store]
    ) -> dg.SensorResult:
        if problem:
            return dg.SensorResult(skip_reason=problem)
        for line in left_out:
            context.log.warning(line)
        found = tick(context.cursor, jobs, server, now_s=time.time(), before=partial(recent, store))
        for run in found.run_requests or ():
            context.log.info(f"{run.run_key}: {run.tags['headroom/why']}")
        if found.skip_reason:
            context.log.info(found.skip_reason.skip_message or "")
        report(context.instance, found.asset_events)
        # A tick that carries events counts as one that did something, and its reason is not shown.
        return dg.SensorResult(
            run_requests=found.run_requests, cursor=found.cursor, skip_reason=found.skip_reason
        )

    return sensor


def checked(
    cursor: str | None, store: Store, jobs: Sequence[str], *, now_s: float, problem: str = ""
) -> dg.SensorResult:
    """Report the checks of `decision` whose outcome has changed, for whichever job, or that are old."""
    before = _checked_before(cursor)
    events = []
    for one in promises.looked(store, jobs, now_s=now_s, problem=problem):
        outcomes, at_s = before.get(one.name, ({}, -math.inf))
        if outcomes != one.outcomes or not 0.0 <= now_s - at_s < REPORTED_AGAIN_S:
            events.append(one.event())
            before[one.name] = (one.outcomes, now_s)
    why = None if events else "the checks of decision have the same outcome as before"
    return dg.SensorResult(
        asset_events=events, cursor=json.dumps({"schema": 1, "checked": before}), skip_reason=why
    )


def _checked_before(cursor: str | None) -> dict[str, tuple[Mapping[str, str], float]]:
    """Check -> its outcomes by job, and when it was reported; a cursor that cannot be read is begun anew."""
    try:
        data = json.loads(cursor or "{}")
        found = data.get("checked", {}) if data.get("schema") == 1 else {}
        return {name: (dict(outcomes), float(at_s)) for name, (outcomes, at_s) in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def decision_checks(jobs: Sequence[str], *, problem: str) -> dg.SensorDefinition:
    """The sensor that reports the checks of `decision`, also where optimization_sensor evaluates nothing."""

    @dg.sensor(
        name="decision_checks",
        minimum_interval_seconds=CHECKS_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports whether the promise of every job is kept and every job is evaluated, as checks "
        "of the asset decision: when the outcome changes, and every six hours.",
    )
    def sensor(context: dg.SensorEvaluationContext, store: dg.ResourceParam[Store]) -> dg.SensorResult:
        return checked(context.cursor, store, jobs, now_s=time.time(), problem=problem)

    return sensor


def automation() -> dg.AutomationConditionSensorDefinition:
    """Declarative automation, evaluated in this code: the mapping of points to jobs is ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.AutomationConditionSensorDefinition(
            "automation",
            target=dg.AssetSelection.all(),
            minimum_interval_seconds=AUTOMATION_S,
            default_status=dg.DefaultSensorStatus.RUNNING,
            use_user_code_server=True,
            emit_backfills=False,
            description="Fits the models of a job when new points, drills or arrivals are there.",
        )


def put_right(run: dg.DagsterRun, server: Server) -> str:
    """Clean up after a run that failed or was cancelled; returns what was done.

    An order that it has left going on is given up: the owner then clears what was injected and stops the
    copies. A change of the size is never cut in two: control completes it or goes back to the last good size,
    which the evaluation of now sees to.
    """
    done: list[str] = []
    order, job = run.tags.get(ORDER_TAG), run.tags.get("dagster/partition", "").partition("/")[0]
    try:
        if run.job_name == OPTIMIZATION:
            done.append(f"{job}: {sentence(server.evaluate(job))}")
        elif order:
            server.cancel(order)
            done.append(f"order {order} was given up: failures are cleared, copies are stopped")
    except NotReady as gone:
        done.append(f"nothing of it is going on any more: {gone}")
    except HeadroomError as error:
        done.append(f"nothing could be done: {error}")
    return "; ".join(done) or "it has left nothing behind"


def after_runs() -> Sequence[dg.SensorDefinition]:
    """Sensors that clean up after runs that failed or were cancelled."""

    def sensor_of(name: str, status: dg.DagsterRunStatus) -> dg.SensorDefinition:
        @dg.run_status_sensor(
            run_status=status,
            name=name,
            default_status=dg.DefaultSensorStatus.RUNNING,
            minimum_interval_seconds=15,
            description="Gives up what the run has left going on: failures still injected, copies, changes.",
        )
        def put_it_right(
            context: dg.RunStatusSensorContext, server: dg.ResourceParam[Server]
        ) -> dg.SkipReason:
            return dg.SkipReason(put_right(context.dagster_run, server))

        return put_it_right

    return [
        sensor_of("put_right_after_failure", dg.DagsterRunStatus.FAILURE),
        sensor_of("put_right_after_cancelling", dg.DagsterRunStatus.CANCELED),
    ]
