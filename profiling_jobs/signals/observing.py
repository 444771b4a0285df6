"""What does the control loop get to see of a job, out of its timeline?

One observation per evaluation interval: means over the interval where something flows, the newest value where
something stands. Per worker the larger of its processor share and its busy share: what runs out first is the
limit. A task also waits, for the broker or a look-up, so that even a job that computes ends at a processor
share below 1 (measured: `word-count` at about two thirds, where its slots are never idle).

Spark counts a record each time it is read: twice where a topic is joined with itself or a `foreachBatch` has
two actions, and those of a static side with every batch. So a worker's rate is what it read, in records of
the input, by what the whole job has read and committed for some minutes:

    rate of a worker  =  read rate  ·  Σ committed / Σ read
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from models.arguments import Array
from models.observation import NOT_OBSERVED, Observation
from models.quantities import Unknown
from models.workload import Forecast

from ..ports import Status
from . import executor_signals
from .timeline import Point, Timeline

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
    return executor_signals.limit([one for executors in known for one in executors])


def done_per_read(timeline: Timeline, since_s: float, until_s: float) -> float | Unknown:
    """How many records were committed for each one that executors have read, lately?

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
