"""What does the control loop get to see of a job, out of its timeline?

One observation per evaluation interval: means over the interval where something flows, the newest value where
something stands. Per worker the larger of its processor share and its busy share: what runs out first is the
limit. A task also waits, for the broker or a look-up, so that even a job that computes ends at a processor
share below 1 (measured: `word-count` at about two thirds, where its slots are never idle).
"""

from __future__ import annotations

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
        worker_rps=_means(load.records_rps, unread),
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
