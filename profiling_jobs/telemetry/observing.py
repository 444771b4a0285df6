"""The observation of a job for one evaluation interval, from its timeline, and the load of its executors.

Means over the interval for rates, the newest value for levels. Per worker the larger of its processor share
and its busy share: what runs out first is the limit. A task also waits, for the broker or a look-up, so that
even a job that computes ends at a processor share below 1 (measured: `word-count` at about two thirds, its
slots never idle).

Spark counts a record each time it is read: twice where a topic is joined with itself or a `foreachBatch` has
two actions. So a worker's rate is what it read, in records of the input, by what the whole job has read and
committed:

    rate of a worker  =  read rate  ·  Σ committed / Σ read

Two readings of each executor, at least every five seconds, make one sample:

    cpu   = Δ(CPU seconds of the JVM and its Python workers) / (Δt · slots · processors per slot)
    busy  = Δ(seconds of finished tasks + age of the running ones) / (Δt · slots)
    rate  = Δ(records read) / Δt

A slot counts as one processor, but on a machine that has promised more slots than it has processors as its
share of them. A job that computes has cpu ≈ busy; one that waits is busy without computing, and only `busy`
shows how much it has left. An executor warms up until ten seconds after its first task: its Python workers
are still importing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from models.arguments import Array
from models.observation import NOT_OBSERVED, Observation
from models.ports import ExecutorSample, Status
from models.quantities import Unknown
from models.workload import Forecast

from .timeline import Point, Timeline

WARM_UP_S = 10.0  # measured: the first 10 s after growing, 575 instead of 1 420 records/s
SHORTEST_S = 0.5  # judgement: CPU time is counted in hundredths of a second
LOST_SHOWN_S = 60.0  # judgement: the evaluation interval, so that every tick sees a loss
COMPUTES = 0.7  # judgement: Δcpu/Δbusy from which a job is limited by the processor
WAITS = 0.5  # judgement: below, it waits for most of the time
ONCE = Unknown("the executor was read once: wait for the next reading")


@dataclass(frozen=True)
class ExecutorReading:
    """The counters of one executor at one moment; they only grow while it lives."""

    executor: str
    """Unique over restarts of the application: application and number."""
    started_at_s: float
    slots: int
    cpu_at_s: float
    cpu_s: float | Unknown
    task_at_s: float
    """The two are read at different places and moments."""
    task_s: float | Unknown
    """Seconds of finished tasks, and of the running ones so far."""
    records: int | Unknown
    first_task_at_s: float | Unknown
    """When it had finished a first task, or was first seen to have; Unknown before."""


class ExecutorMeter:
    """Turns readings into samples."""

    def __init__(self) -> None:
        self._before: dict[str, ExecutorReading] = {}
        self._before_s = 0.0
        self._samples: tuple[ExecutorSample, ...] = ()
        self._lost: dict[str, float] = {}

    def update(
        self, at_s: float, readings: Sequence[ExecutorReading], *, processors_per_slot: float = 1.0
    ) -> tuple[ExecutorSample, ...]:
        """The samples since the readings before; of a first reading only the state is known."""
        if self._before and at_s - self._before_s < SHORTEST_S:
            return self._samples
        now = {one.executor: one for one in readings}
        self._lost.update({name: at_s for name in self._before if name not in now})
        self._lost = {n: t for n, t in self._lost.items() if n not in now and at_s - t <= LOST_SHOWN_S}
        found = [_sample(at_s, one, self._before.get(one.executor), processors_per_slot) for one in readings]
        gone = Unknown("the executor is lost")
        found += [ExecutorSample(name, "lost", gone, gone, gone) for name in self._lost]
        self._before, self._before_s, self._samples = now, at_s, tuple(found)
        return self._samples


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


def _sample(
    at_s: float, now: ExecutorReading, before: ExecutorReading | None, processors_per_slot: float
) -> ExecutorSample:
    first = now.first_task_at_s
    warm = not isinstance(first, Unknown) and at_s - first >= WARM_UP_S
    if before is None:
        before = replace(now, cpu_s=ONCE, task_s=ONCE, records=ONCE)
    cpu = _rate(now.cpu_s, before.cpu_s, now.cpu_at_s - before.cpu_at_s)
    busy = _rate(now.task_s, before.task_s, now.task_at_s - before.task_at_s)
    return ExecutorSample(
        executor=now.executor,
        state="running" if warm else "warming_up",
        cpu=cpu if isinstance(cpu, Unknown) else min(1.0, cpu / (now.slots * processors_per_slot)),
        busy=busy if isinstance(busy, Unknown) else min(1.0, busy / now.slots),
        records_rps=_rate(now.records, before.records, now.task_at_s - before.task_at_s),
    )


def _rate(now: float | Unknown, before: float | Unknown, elapsed_s: float) -> float | Unknown:
    """Counters that are read at slightly different moments may go back a little: that is no work."""
    if isinstance(now, Unknown):
        return now
    if isinstance(before, Unknown):
        return before if before is ONCE else Unknown("could not be read the time before: wait for the next")
    return max(0.0, (now - before) / elapsed_s) if elapsed_s > 0.0 else ONCE


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
    forecast: Forecast | Unknown = NOT_OBSERVED,
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
        latency_ms=sample.latency_p95_ms,
        cpu=_larger(_means(load.cpu, unread), _means(load.busy, unread)),
        limited_by=limited_by(timeline, since_s, at_s),
        worker_rps=_in_records_of_the_input(
            _means(load.records_rps, unread), done_per_read(timeline, since_s, at_s)
        ),
        forecast=forecast,
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
    """Of each worker, as far as either is known."""
    if isinstance(cpu, Unknown) or isinstance(busy, Unknown):
        return busy if isinstance(cpu, Unknown) else cpu
    return {name: max(cpu.get(name, 0.0), busy.get(name, 0.0)) for name in {**cpu, **busy}}


def _alive(point: Point) -> int | Unknown:
    executors = point.sample.executors
    if isinstance(executors, Unknown):
        return executors
    return sum(one.state != "lost" for one in executors)
