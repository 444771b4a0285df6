"""What does the control loop get to see of a job, out of its timeline?

One observation per evaluation interval: means over the interval where something flows, the newest value where
something stands. Per worker either the processor share or the busy share, whichever limits the job
(`executor_signals.limit`); a job whose limit nobody can tell yet shows its processor share, as far as it is
known.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from models.arguments import Array
from models.observation import NOT_OBSERVED, Observation
from models.quantities import Unknown
from models.workload import Forecast

from ..ports import Status
from .executor_signals import limit
from .timeline import Point, Timeline

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
    shares = load.busy if _waits(timeline, since_s, at_s) else load.cpu
    return Observation(
        at_s=at_s,
        scale_out=status if isinstance(status, Unknown) else status.declared_scale_out,
        arrival_rps=timeline.arrival_rps(since_s, at_s, clip=True),
        throughput_rps=timeline.throughput_rps(since_s, at_s, clip=True),
        lag_records=sample.lag_records,
        latency_ms=sample.latency_p95_ms,
        cpu=_means(shares),
        worker_rps=_means(load.records_rps),
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


def _waits(timeline: Timeline, start_s: float, end_s: float) -> bool:
    executors = [
        one
        for point in timeline.points(start_s, end_s)
        if not isinstance(point.sample.executors, Unknown)
        for one in point.sample.executors
    ]
    return limit(executors) == "waiting"


def _means(columns: Mapping[str, Array]) -> Mapping[str, float] | Unknown:
    known = {name: column[np.isfinite(column)] for name, column in columns.items()}
    means = {name: float(column.mean()) for name, column in known.items() if column.size}
    return means or NO_LOAD


def _alive(point: Point) -> int | Unknown:
    executors = point.sample.executors
    if isinstance(executors, Unknown):
        return executors
    return sum(one.state != "lost" for one in executors)
