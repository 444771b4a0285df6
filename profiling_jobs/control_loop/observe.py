"""Collect: everything that one tick can read about a job now.

One observation since the tick before, the arrival rates, the deployment's status, and what people, time
windows and experiments say about the job. Nothing here raises because a job, its driver or its metrics do not
answer: what could not be read is Unknown with its reason, and control holds.

`observation` sums a timeline up: means over the interval for rates, the newest value for levels. Per worker
the larger of its processor share and its busy share: what runs out first is the limit. A task also waits, for
the broker or a look-up, so that even a job that computes ends at a processor share below 1 (measured:
`word-count` at about two thirds, its slots never idle).

Spark counts a record each time it is read: twice where a topic is joined with itself or a `foreachBatch` has
two actions. So a worker's rate is what it read, in records of the input, by what the whole job has read and
committed:

    rate of a worker  =  read rate  ·  Σ committed / Σ read

`symptoms` finds signs of failures in the samples. A loss is placed in the middle of two readings, or between
them where the driver says:

    executor lost     one of a run's executors is not among those of the next reading of the same run
    driver lost       its process ended, or another run of the query took the place of the one before
    brokers silent    they answered late, or not at all
    not watched       no sample for a while although the brokers answered: nothing is learnt from that time
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from models.arguments import Array
from models.control import Directives, Injected, Pause, Pin
from models.errors import HeadroomError
from models.observation import NOT_OBSERVED, DriverLoss, ExecutorLoss, Observation, Symptoms
from models.ports import NOT_TOLD, Directive, ExecutorSample, Status
from models.quantities import Unknown

from ..telemetry.timeline import Point, Timeline
from .forecasting import Rates
from .memory import NO_READING, Tick

SAME_S = 0.01  # a commit's time is read twice, from a file and from a report


@dataclass(frozen=True)
class Observed:
    """What was collected at one tick."""

    observation: Observation
    """Without a forecast."""
    status: Status | Unknown
    directives: Directives
    rates: Rates
    newest: Point | Unknown
    """With the newest sample."""
    down: str
    """Why the job does not run or get on; empty if it does."""
    trouble: tuple[str, ...]
    """What could not be read."""


def observe(tick: Tick, *, step_s: float | None) -> Observed:
    """Everything that can be read now. `step_s`: of the forecast's grid; None keeps the one of before."""
    trouble: list[str] = []
    status = _status(tick, trouble)
    with tick.loop.readings.reading(tick.job) as timeline:
        shown = symptoms(timeline, since_s=tick.memory.control.observed_at_s)
        timeline = _bridged(timeline, tick)
        seen = _observation(timeline, status, tick)
        rates = _rates(tick, step_s, seen.at_s)
        newest = timeline.last
        if isinstance(newest, Unknown):
            newest_gap = bool(timeline.gaps)
        else:
            rates = rates.grown(timeline, until_s=newest.at_s)
            newest_gap = bool(timeline.gaps) and timeline.gaps[-1].at_s > newest.at_s
        if newest_gap:
            trouble.append(f"the metrics could not be read: {timeline.gaps[-1].reason}")
    return Observed(
        observation=replace(seen, symptoms=shown),
        status=status,
        directives=directives(tick),
        rates=rates,
        newest=newest,
        down=_down(tick.job, status) or _stalled(tick.job, status),
        trouble=tuple(trouble),
    )


def directives(tick: Tick) -> Directives:
    """What people, blackouts and drills say about the job now."""
    loop, job = tick.loop, tick.job
    found = {each.kind: each for each in loop.store.directives(job, now_s=tick.now_s)}
    pause, pin, hold = found.get("pause"), found.get("pin"), found.get("hold")
    if pause is None and hold is not None and tick.memory.control.foreign is None:
        pause = hold  # the foreign edit was forgotten with the control state, the hold was not
    resumed = [float(row["at_s"]) for row in loop.store.audit(job) if row["what"] == "resume"]
    return Directives(
        pause=None if pause is None else Pause(pause.who, pause.why, _until_s(pause)),
        pin=None if pin is None else Pin(int(pin.value or 0), pin.who, pin.why, _until_s(pin)),
        blackout=loop.blackout(job, tick.now_s),
        resumed_at_s=max((at_s for at_s in resumed if at_s <= tick.now_s), default=-math.inf),
        started_at_s=loop.started(job),
        injected=_injected(tick),
        drill=loop.drill(job),
    )


def nothing(at_s: float, why: Unknown) -> Observation:
    """An observation of which nothing is known but its time."""
    return Observation(at_s, **{f.name: why for f in fields(Observation) if f.name != "at_s"})


def _status(tick: Tick, trouble: list[str]) -> Status | Unknown:
    try:
        status = tick.loop.deployments.status(tick.job)
    except HeadroomError as error:
        trouble.append(f"the deployment could not be read: {error}")
        return Unknown(str(error))
    if status.state == "unknown":
        trouble.append(f"whether it runs is not known: {status.reason}")
    return status


def _down(job: str, status: Status | Unknown) -> str:
    if isinstance(status, Unknown) or status.state not in ("stopped", "failed"):
        return ""
    why = f" ({status.reason})" if status.reason else ""
    start = "what runs it has to start it" if status.elsewhere else f"`headroom start {job}` starts it"
    return f"{job} does not run, it is {status.state}{why}: {start}"


def _stalled(job: str, status: Status | Unknown) -> str:
    """An attached job that stands still; its declared size is still known."""
    if isinstance(status, Unknown) or status.state != "stalled":
        return ""
    return f"{job} stands still, and is not ours to start: {status.reason}"


def _observation(timeline: Timeline, status: Status | Unknown, tick: Tick) -> Observation:
    before_s, last = tick.memory.control.observed_at_s, timeline.last
    if isinstance(last, Unknown):
        seen = nothing(tick.now_s, last)
    else:
        since_s = max(before_s, last.at_s - tick.settings.longest_gap_s)
        if math.isinf(before_s):
            since_s = last.at_s - tick.settings.interval_s
        found = observation(timeline, since_s=since_s, status=status)
        seen = nothing(last.at_s, found) if isinstance(found, Unknown) else _whole(found, timeline, since_s)
    if isinstance(status, Unknown):
        return replace(seen, scale_out=status)
    if down := _down("the job", status):
        return replace(seen, scale_out=Unknown(down))
    return replace(seen, scale_out=status.declared_scale_out, executors_alive=status.executors_alive)


def _whole(seen: Observation, timeline: Timeline, since_s: float) -> Observation:
    """The observation without its list of commits where some are missing: the gaps would look like downtime.

    Commits from before this process began to sample are missing, and so are those that another reader got.
    """
    commits, newest = seen.commits_at_s, seen.last_commit_at_s
    if isinstance(commits, Unknown) or isinstance(newest, Unknown) or newest <= since_s:
        return seen
    sampled = any(p.sample.last_batch != NO_READING for p in timeline.points(-math.inf, since_s))
    if newest <= max(commits, default=since_s) + SAME_S and sampled:
        return seen
    return replace(seen, commits_at_s=Unknown("not every commit since the tick before was seen"))


def _bridged(timeline: Timeline, tick: Tick) -> Timeline:
    """After a restart: the timeline from the newest sample before it on, if that is not too long ago."""
    anchor = tick.memory.anchor
    if anchor is None or not len(timeline) or timeline.points(-math.inf, anchor.at_s):
        return timeline
    points = timeline.points(-math.inf, math.inf)
    if points[0].at_s - anchor.at_s > tick.settings.longest_gap_s:
        return timeline
    longer = Timeline()
    longer.add(anchor.sample)
    for point in points:
        longer.add(point.sample)
    return longer


def _rates(tick: Tick, step_s: float | None, at_s: float) -> Rates:
    known = tick.memory.rates
    if known is not None and (step_s is None or known.step_s == step_s):
        return known
    return Rates.begin(step_s=step_s or tick.settings.interval_s, at_s=at_s)


def _until_s(directive: Directive) -> float:
    return math.inf if directive.until_s is None else directive.until_s


def _injected(tick: Tick) -> Injected | None:
    if tick.loop.failures is None:
        return None
    try:
        ours = [each for each in tick.loop.failures.active() if each.deployment == tick.job]
    except HeadroomError:
        return None  # then it is learnt under the name that its symptoms have
    newest = max(ours, key=lambda each: each.at_s, default=None)
    return None if newest is None else Injected(newest.kind, newest.at_s)


COMPUTES = 0.7  # judgement: Δcpu/Δbusy from which a job is limited by the processor
WAITS = 0.5  # judgement: below, it waits for most of the time


def limit(samples: Sequence[ExecutorSample]) -> Literal["cpu", "waiting"] | Unknown:
    """What limits this job, the processor or what it waits for, from executors that have work."""
    cpu = busy = 0.0
    for one in samples:
        if one.state == "running" and not isinstance(one.cpu, Unknown) and not isinstance(one.busy, Unknown):
            cpu, busy = cpu + one.cpu, busy + one.busy
    if busy < 0.1:  # judgement: the rest is the JVM's own doing
        return Unknown("the executors have hardly worked: look again under load")
    share = cpu / busy
    if share >= COMPUTES:
        return "cpu"
    if share <= WAITS:
        return "waiting"
    return Unknown(
        f"tasks compute for {share:.0%} of their time: neither the processor ({COMPUTES:.0%}) nor waiting "
        f"({WAITS:.0%}) clearly limits this job; look at both shares"
    )


Shares = Mapping[str, float] | Unknown
NO_LOAD = Unknown("no executor was read twice in this interval: wait for the next")
COMPARED_S = 600.0
"""Measured on batches of up to 23 s in a model of such a job: rates scatter by 3 % as those of reading alone,
by 15 % where throughput over a minute is shared out, which cuts batches in two."""
FEWEST_BATCHES = 10  # judgement: of which one may be read and not committed yet


def observation(
    timeline: Timeline,
    *,
    since_s: float,
    status: Status | Unknown = NOT_OBSERVED,
) -> Observation | Unknown:
    """The interval from `since_s`, the observation before, to the newest sample."""
    last = timeline.last
    if isinstance(last, Unknown):
        return last
    sample, at_s = last.sample, last.at_s
    if at_s <= since_s:
        return Unknown(f"nothing was sampled since {since_s:.0f}: check what reads the metrics")
    load = timeline.load(since_s, at_s)
    unread = sample.executors if isinstance(sample.executors, Unknown) else NO_LOAD
    return Observation(
        at_s=at_s,
        scale_out=status if isinstance(status, Unknown) else status.declared_scale_out,
        arrival_rps=timeline.arrival_rps(since_s, at_s, clip=True),
        throughput_rps=timeline.throughput_rps(since_s, at_s, clip=True),
        lag_records=sample.lag_records,
        lag_readings=tuple(
            (point.at_s, point.sample.lag_records)
            for point in timeline.points(since_s, at_s)
            if point.at_s > since_s and not isinstance(point.sample.lag_records, Unknown)
        ),
        latency_ms=sample.latency_p95_ms,
        cpu=_larger(_means(load.cpu, unread), _means(load.busy, unread)),
        limited_by=limited_by(timeline, since_s, at_s),
        worker_rps=_in_records_of_the_input(
            _means(load.records_rps, unread), done_per_read(timeline, since_s, at_s)
        ),
        run_id=sample.run_id if isinstance(status, Unknown) else status.run_id,
        executors_alive=_alive(last) if isinstance(status, Unknown) else status.executors_alive,
        last_commit_at_s=sample.last_commit_at_s,
        commits_at_s=(
            sample.committed
            if isinstance(sample.committed, Unknown)
            else tuple(done.at_s for done in timeline.commits(since_s, at_s) if done.at_s > since_s)
        ),
    )


def limited_by(timeline: Timeline, start_s: float, end_s: float) -> Literal["cpu", "waiting"] | Unknown:
    """What limits the job, by everything that was read of its executors between two moments."""
    read = [point.sample.executors for point in timeline.points(start_s, end_s)]
    known = [executors for executors in read if not isinstance(executors, Unknown)]
    if read and not known and isinstance(read[-1], Unknown):
        return read[-1]
    return limit([one for executors in known for one in executors])


def done_per_read(timeline: Timeline, since_s: float, until_s: float) -> float | Unknown:
    """Records committed for each one that executors have read, lately.

    What is read but not committed yet at either end must not count: further back than `since_s`, where that
    is too short.
    """
    batches = timeline.commits(-math.inf, until_s)[-FEWEST_BATCHES - 1 :]
    start_s = min(since_s, until_s - COMPARED_S, *(done.at_s for done in batches[:1]))
    known = [
        (point.at_s, rps)
        for point in timeline.points(start_s, until_s)
        if not isinstance(point.processed, Unknown) and not isinstance(rps := _read_rps(point), Unknown)
    ]
    found = len(timeline.commits(known[0][0], known[-1][0])) if known else 0
    if found < FEWEST_BATCHES:
        return Unknown(
            f"{found} batches were seen from reading to commit, {FEWEST_BATCHES} show how often a record is "
            "read: wait for more"
        )
    read_rps = float(np.mean([rps for _, rps in known]))
    done_rps = timeline.throughput_rps(known[0][0], known[-1][0])
    if isinstance(done_rps, Unknown):
        return done_rps
    if read_rps <= 0.0 or done_rps <= 0.0:
        return Unknown("nothing was read and committed lately: wait for records")
    return done_rps / read_rps


def _read_rps(point: Point) -> float | Unknown:
    """Of all executors together, also those that are still warming up."""
    executors = point.sample.executors
    if isinstance(executors, Unknown):
        return executors
    rates = [one.records_rps for one in executors if not isinstance(one.records_rps, Unknown)]
    return sum(rates) if rates else NO_LOAD


def _in_records_of_the_input(read_rps: Shares, done: float | Unknown) -> Shares:
    if isinstance(read_rps, Unknown):
        return read_rps
    if isinstance(done, Unknown):
        return done
    return {worker: rps * done for worker, rps in read_rps.items()}


def _means(columns: Mapping[str, Array], unread: Unknown) -> Shares:
    known = {name: column[np.isfinite(column)] for name, column in columns.items()}
    means = {name: float(column.mean()) for name, column in known.items() if column.size}
    return means or unread


def _larger(cpu: Shares, busy: Shares) -> Shares:
    """The larger share of each worker, as far as either is known."""
    if isinstance(cpu, Unknown) or isinstance(busy, Unknown):
        return busy if isinstance(cpu, Unknown) else cpu
    return {name: max(cpu.get(name, 0.0), busy.get(name, 0.0)) for name in {**cpu, **busy}}


def _alive(point: Point) -> int | Unknown:
    executors = point.sample.executors
    if isinstance(executors, Unknown):
        return executors
    return sum(one.state != "lost" for one in executors)


PAUSE_S = 45.0  # judgement: samples come every second; a round that waits for a driver takes some seconds
LATE_S = 3.0  # judgement: an answer takes milliseconds, also of a broker under load
READ_S = 5.0  # executors and drivers are read at least so often
EARLIER_S = 600.0  # judgement: longer than any silence after which a driver is ended


def symptoms(timeline: Timeline, *, since_s: float) -> Symptoms | Unknown:
    """What was seen after `since_s`; Unknown before the first sample."""
    points = timeline.points(since_s - EARLIER_S, float("inf"))
    if not points:
        return Unknown("nothing has been sampled yet")
    silent = [gap.at_s for gap in timeline.gaps if gap.broker and gap.at_s > since_s]
    silences = []
    for one, two in pairwise(points):
        waited_s = two.sample.broker_waited_s
        if any(one.at_s < at_s <= two.at_s for at_s in silent):
            silences.append((one.at_s, two.at_s))
        elif waited_s >= LATE_S and two.at_s > since_s:
            silences.append((max(one.at_s, two.at_s - waited_s), two.at_s))
    paused = [
        two.at_s
        for one, two in pairwise(points)
        if two.at_s - one.at_s > PAUSE_S and all(two.at_s != end_s for _, end_s in silences)
    ]
    return Symptoms(
        watched_since_s=max(points[0].at_s, *paused) if paused else points[0].at_s,
        executors_lost=tuple(loss for loss, shown_at_s in _executors_lost(points) if shown_at_s > since_s),
        drivers_lost=tuple(
            loss for loss, shown_at_s in _drivers_lost(points, timeline) if shown_at_s > since_s
        ),
        brokers_silent_s=tuple(silences),
    )


def _executors_lost(points: tuple[Point, ...]) -> list[tuple[ExecutorLoss, float]]:
    """Each loss, and when it was shown."""
    found: list[tuple[ExecutorLoss, float]] = []
    read_at_s, run, alive = points[0].at_s, points[0].sample.run_id, frozenset[str]()
    before = points[0].sample.executors
    for point in points:
        sample = point.sample
        if isinstance(sample.executors, Unknown) or isinstance(sample.run_id, Unknown):
            continue
        now = frozenset(one.executor for one in sample.executors if one.state != "lost")
        if sample.run_id == run:
            told = {one.executor: one.loss for one in sample.executors}
            for name in sorted(alive - now):
                loss = told.get(name, NOT_TOLD)
                if isinstance(loss, Unknown):
                    loss = ExecutorLoss((read_at_s + point.at_s) / 2.0)
                at_s = min(max(loss.at_s, read_at_s), point.at_s)
                found.append((replace(loss, at_s=at_s), point.at_s))
        read_at_s = point.at_s if sample.executors != before else max(read_at_s, point.at_s - READ_S)
        before, run, alive = sample.executors, sample.run_id, now
    return found


def _drivers_lost(points: tuple[Point, ...], timeline: Timeline) -> list[tuple[DriverLoss, float]]:
    """Each loss, and when it was shown."""
    found: list[tuple[DriverLoss, float]] = []
    run: str | None = None
    before = points[0].sample.executors
    up_at_s = silent_at_s = gone_at_s = None
    for point in points:
        at_s, sample = point.at_s, point.sample
        answers = sample.driver == "up" and not isinstance(sample.run_id, Unknown)
        if (
            run is not None
            and gone_at_s is None
            and (sample.driver == "gone" or (answers and sample.run_id != run))
        ):
            assert up_at_s is not None
            gone_at_s = at_s
            first_s = gone_at_s if silent_at_s is None else silent_at_s
            commits = [done.at_s for done in timeline.commits(up_at_s, first_s)]
            lost_at_s = max([(up_at_s + first_s) / 2.0, *commits])
            found.append((DriverLoss(lost_at_s, run, gone_at_s - first_s), at_s))
        if answers:
            read_at_s = at_s if up_at_s is None or sample.executors != before else max(up_at_s, at_s - READ_S)
            run, up_at_s, silent_at_s, gone_at_s = str(sample.run_id), read_at_s, None, None
            before = sample.executors
        elif sample.driver == "silent" and silent_at_s is None:
            silent_at_s = at_s
    return found
