"""Independent simulator of a micro-batch job that fails: the truth that promises are judged by.

It shares no code with `models`. Each lane is one possible future with its own arrivals, capacity, downtime
and phase, followed batch by batch from now on:

    a batch takes min(N, everything that waits) and commits after o + n / T
    the next one starts when it is over, or with a trigger interval at the next boundary
    a failure loses the batch that is under way; the first batch after it starts d later

It has recovered at the first commit from which lag, as the age of the oldest record that is not committed,
stays in the band for three batches and 15 s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

HOLD_S, HOLD_BATCHES = 15.0, 3
Array = Any


@dataclass(frozen=True)
class Futures:
    """Arrivals second by second from now on (lanes, seconds), a lag now, and the rate until now."""

    rates: Array
    lag: float
    before_rps: float

    def __post_init__(self) -> None:
        arrived = np.concatenate([np.zeros((len(self.rates), 1)), np.cumsum(self.rates, axis=1)], axis=1)
        object.__setattr__(self, "arrived", arrived)

    def head(self, lane: Array, at_s: Array) -> Array:
        """Records in the topic that were not committed now, at these moments."""
        whole = np.clip(np.floor(at_s), 0, self.rates.shape[1] - 1).astype(int)
        arrived: Array = self.arrived  # type: ignore[attr-defined]
        inside = arrived[lane, whole] + (at_s - whole) * self.rates[lane, whole]
        return self.lag + np.where(at_s < 0.0, self.before_rps * at_s, inside)


@dataclass(frozen=True)
class Engine:
    """Overhead, limit and trigger of the batches of a size."""

    overhead_s: float
    limit: float
    trigger_s: float

    def cycle_s(self, used: Array) -> tuple[Array, Array]:
        """Seconds from start to start, and of one batch, at a steady share of the capacity."""
        share = np.minimum(used, 0.999)
        cycle = np.maximum(self.trigger_s, self.overhead_s / (1.0 - share))
        return cycle, self.overhead_s + share * cycle

    def band_s(self, used: Array, target_s: float) -> Array:
        """1.25 × the lag of an undisturbed job, at least two triggers, at most half the target.

        A job beyond its capacity has no lag of its own; it counts as one that is nearly full.
        """
        cycle, batch = self.cycle_s(np.minimum(used, 0.95))
        return np.minimum(np.maximum(2.0 * self.trigger_s, 1.25 * (cycle + batch)), 0.5 * target_s)

    def after(self, start: Array, end: Array, origin: Array) -> Array:
        """The start of the next batch."""
        if not self.trigger_s:
            return np.maximum(end, start + 0.01)
        boundary = origin + (np.floor((start - origin) / self.trigger_s + 1e-9) + 1.0) * self.trigger_s
        return np.maximum(end, boundary)


def uncommitted(futures: Futures, engine: Engine, capacity: Array, phase: Array, moments: Array) -> Array:
    """Records not committed at each moment, if nothing has failed until then: (lanes, moments).

    A lag that a healthy job has by itself is where its batches are (`phase` of a cycle); with a larger one a
    batch with all that it may take starts now.
    """
    lanes = np.arange(len(capacity))
    cycle, batch = engine.cycle_s(futures.before_rps / capacity)
    into = phase * cycle
    running = into < batch
    healthy = futures.lag <= futures.before_rps * (cycle + batch)
    taken = np.where(running, futures.before_rps * cycle, 0.0)
    waiting = futures.before_rps * (into + np.where(running, cycle, 0.0))
    shift = np.where(healthy, waiting - futures.lag, 0.0)  # the lag now is that of the phase
    origin = np.where(healthy, -into, 0.0)
    start, done = origin.copy(), np.zeros(len(lanes))
    first = healthy & running
    end = np.where(first, batch - into, 0.0)
    ends, commits = [np.full(len(lanes), -1.0)], [done]
    done = np.where(first, taken, 0.0)
    ends.append(np.where(first, end, -1.0))
    commits.append(done)
    idle_until = np.where(healthy & ~running, cycle - into, 0.0)
    start = np.where(first, engine.after(start, end, origin), idle_until)
    while bool((start < moments[-1]).any()):
        n = np.minimum(engine.limit, np.maximum(futures.head(lanes, start) + shift - done, 0.0))
        end = start + np.where(n > 1e-9, engine.overhead_s + n / capacity, 0.01)
        done = done + n
        ends.append(end)
        commits.append(done)
        start = engine.after(start, end, origin)
    times, records = np.array(ends), np.array(commits)
    found = np.empty((len(lanes), len(moments)))
    for j, moment in enumerate(moments):
        latest = (times <= moment).sum(axis=0) - 1
        found[:, j] = futures.head(lanes, np.full(len(lanes), moment)) + shift - records[latest, lanes]
    return np.maximum(found, 0.0)


def recoveries(
    futures: Futures,
    engine: Engine,
    lane: Array,
    *,
    capacity: Array,
    failed_s: Array,
    waiting: Array,
    start_s: Array,
    band_s: Array,
    longest_s: float,
) -> tuple[Array, Array]:
    """Seconds from failure to recovery, inf beyond `longest_s`; and to the first commit."""
    count = len(lane)
    result, first_commit = np.full(count, np.inf), np.full(count, np.inf)
    alive = np.arange(count)
    base = futures.head(lane, failed_s) - waiting  # committed by then
    start = failed_s + start_s
    origin, done, last_s = start.copy(), base.copy(), failed_s + longest_s + HOLD_S
    since, held = np.full(count, np.inf), np.zeros(count)
    while alive.size:
        a = alive
        n = np.minimum(engine.limit, np.maximum(futures.head(lane[a], start[a]) - done[a], 0.0))
        end = start[a] + np.where(n > 1e-9, engine.overhead_s + n / capacity[a], 0.01)
        overdue = futures.head(lane[a], end - band_s[a])
        broke = overdue > done[a] + 1e-6 * (1.0 + abs(done[a]))
        # held: three batches and 15 s since the commit that brought it back
        since[a] = np.where(broke, np.inf, since[a])
        held[a] = np.where(broke, 0.0, held[a] + 1.0)
        good = np.isfinite(since[a]) & (held[a] >= HOLD_BATCHES) & (end >= since[a] + HOLD_S)
        result[a[good]] = (since[a] - failed_s[a])[good]
        done[a] += n
        first_commit[a] = np.minimum(first_commit[a], end - failed_s[a])
        inside = overdue <= done[a] + 1e-6 * (1.0 + abs(done[a]))
        begins = inside & np.isinf(since[a])
        since[a] = np.where(begins, end, since[a])
        held[a] = np.where(begins, 0.0, held[a])
        start[a] = engine.after(start[a], end, origin[a])
        late = end > last_s[a]
        at_end = late & ~good & np.isfinite(since[a])
        result[a[at_end]] = (since[a] - failed_s[a])[at_end]
        alive = a[~(good | late)]
    return np.where(result <= longest_s, result, np.inf), first_commit


def least_kept(
    futures: Futures,
    engine: Engine,
    *,
    capacity: Array,
    start_s: Array,
    phase: Array,
    moments: Array,
    target_s: float,
) -> tuple[float, float, float]:
    """Smallest share in time over the moments, its standard error, and the moment."""
    waiting = uncommitted(futures, engine, capacity, phase, moments)

    def shares(lanes: Array, at: Array) -> Array:
        lane, which = np.tile(lanes, len(at)), np.repeat(at, len(lanes))
        failed = moments[which]
        taken, _ = recoveries(
            futures,
            engine,
            lane,
            capacity=capacity[lane],
            failed_s=failed,
            waiting=waiting[lane, which],
            start_s=start_s[lane],
            band_s=engine.band_s(busiest(futures, lane, failed, target_s) / capacity[lane], target_s),
            longest_s=target_s,
        )
        return np.isfinite(taken).reshape(len(at), len(lanes)).mean(axis=1)

    few = np.arange(min(400, len(capacity)))
    worst = np.argsort(shares(few, np.arange(len(moments))))[:3]
    share = shares(np.arange(len(capacity)), worst)
    p = float(share.min())
    error = float(np.sqrt(max(p * (1.0 - p), 1e-4) / len(capacity)))
    return p, error, float(moments[worst[int(share.argmin())]])


def busiest(futures: Futures, lane: Array, failed_s: Array, target_s: float) -> Array:
    """The highest mean rate of a minute, from the failure until the promise ends."""
    begins = failed_s[:, None] + np.arange(0.0, max(target_s - 60.0, 0.0) + 1.0, 30.0)
    until = np.minimum(begins + 60.0, futures.rates.shape[1])
    rows = lane[:, None]
    return ((futures.head(rows, until) - futures.head(rows, begins)) / (until - begins)).max(axis=1)
