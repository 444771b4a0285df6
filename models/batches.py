"""How long does a job that runs in micro-batches need to catch up?

Spark commits batch by batch, so between two commits its lag only grows, and a backlog is worked off in as few
or as many batches as the record limit allows. With downtime d (failure to the START of the first batch), lag
L counted from commits, capacity T, overhead o per batch, record limit N and trigger interval Δ:

    n = min(N, head(start) − committed)          what a batch takes; nothing there, no batch
    end = start + o + n/T                        its commit
    next start = end when late, else the next trigger boundary d + k·Δ       (Δ = 0: back to back)

Recovered is the first instant, not before the first commit, from which lag stays inside the band for three
batches and for 15 s. Lag in *seconds of input* is the age of the oldest record not committed, so it is inside
the band at t when everything that had arrived by t − band is committed:  committed(t) ≥ L + F(t − band).
Between two commits that can only turn false and at a commit only true: a stretch inside the band begins at a
commit, and the tooth just before each later commit decides whether it lasts. A band below the steady tooth
(trigger or batch, whichever is longer, plus the batch) is never reached: inf. Where the arrivals end before
the hold has passed, the hold ends with them; a query that finds nothing to do has no batch to wait for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arguments import Array, number, numbers
from .inflow import Index, Inflow, broadcast
from .quantities import Misuse

Truth = NDArray[np.bool_]

HOLD_S = 15.0
HOLD_BATCHES = 3
"""A recovery counts once lag has stayed inside the band for both: as every drill is measured."""

POLL_S = 0.01
"""A caught-up query looks for new data this often (Spark's spark.sql.streaming.pollingDelay, 10 ms)."""

LANES = 1 << 16
"""Lanes stepped together: about 16 MiB of state (judgement)."""

DOWNTIME = 4
"""Row of the downtime among a job's rows: capacity, then the arguments in the order they are given."""

ROUNDING = 1e-9
"""Of running sums and clocks, relative: a lag equal to the band is inside, a start on a boundary is on it."""


def batch_recovery_seconds(
    arrivals_rps: Any,
    *,
    capacity_rps: Any,
    overhead_s: Any,
    limit_records: Any,
    trigger_s: Any,
    downtime_s: Any,
    lag_records: Any = 0.0,
    band_s: Any,
    step_s: float = 1.0,
) -> Array:
    """When is a micro-batch job that fails now back inside its lag band, to stay? inf = not in the horizon.

    `downtime_s` runs from the failure to the START of the first batch (see `first_batch_start_s`).
    `trigger_s` = 0 is back to back, `limit_records` = inf is no limit. Shapes as in `recovery_seconds`;
    everything else broadcasts to the result. Never earlier than the first commit after the failure (with
    nothing to do: than `downtime_s`).
    """
    step = number("step_s", step_s, above=0.0)
    inflow = Inflow.of("arrivals_rps", arrivals_rps, step_s=step)
    capacity = numbers("capacity_rps", capacity_rps, at_least=0.0)
    given = {
        "overhead_s": numbers("overhead_s", overhead_s, at_least=0.0),
        "limit_records": numbers("limit_records", limit_records, infinite_allowed=True),
        "trigger_s": numbers("trigger_s", trigger_s, at_least=0.0),
        "downtime_s": numbers("downtime_s", downtime_s, at_least=0.0, infinite_allowed=True),
        "lag_records": numbers("lag_records", lag_records, at_least=0.0),
        "band_s": numbers("band_s", band_s, at_least=0.0),
    }
    if bool((given["limit_records"] <= 0).any()):
        raise Misuse("limit_records", "must be > 0 (inf for no limit)")
    scalar = capacity.ndim == 0
    if scalar:
        capacity = capacity[None]
        given = {name: x[..., None] if x.ndim else x for name, x in given.items()}
    shape = broadcast("capacity_rps", (*inflow.lead, 1), capacity)
    for name, values in given.items():
        shape = broadcast(name, shape, values)
    path = inflow.paths(shape)
    job = np.stack([np.broadcast_to(x, shape).reshape(-1) for x in (capacity, *given.values())])
    result = np.empty(path.size)
    for first in range(0, path.size, LANES):
        part = slice(first, first + LANES)
        result[part] = _step_batches(inflow, path[part], job[:, part])
    result = result.reshape(shape)
    return result[..., 0] if scalar else result


def _step_batches(inflow: Inflow, path: Index, job: Array) -> Array:
    """All lanes batch by batch, each on its own clock, until every lane is decided."""
    horizon = inflow.horizon_s
    beyond = 2.0 * horizon
    result = np.full(path.size, np.inf)
    lane = np.flatnonzero(job[DOWNTIME] <= horizon)
    path, job = path[lane], job[:, lane]
    start = job[DOWNTIME].copy()
    last = start.copy()  # the latest commit
    committed = np.zeros(lane.size)  # records since the failure
    since = np.full(lane.size, np.inf)  # begin of the present stretch inside the band
    batches = np.zeros(lane.size)  # committed within that stretch

    while lane.size:
        capacity, overhead, limit, trigger, first, lag, band = job
        # A backlog far outside the band takes full batches at a steady pace: those are counted, not stepped.
        full = overhead + np.divide(limit, capacity, out=np.full(lane.size, np.inf), where=capacity > 0)
        spare = (lag + inflow.by(path, start - band) - committed) / limit
        phase = (start - first) / np.where(trigger > 0, trigger, 1.0)
        paced = (full >= trigger) | (np.abs(phase - np.round(phase)) <= ROUNDING)
        skipped = np.where(np.isinf(since) & np.isfinite(full) & paced, np.floor(spare) - 1.0, 0.0)
        ahead = skipped > 0
        committed = committed + np.where(ahead, skipped * np.where(ahead, limit, 0.0), 0.0)
        start = start + np.where(ahead, skipped * np.where(ahead, np.maximum(full, trigger), 0.0), 0.0)
        start = np.minimum(start, beyond)

        waiting = lag + inflow.by(path, start) - committed
        idle = waiting <= ROUNDING * np.maximum(1.0, committed)
        taken = np.minimum(limit, waiting)
        working = np.divide(taken, capacity, out=np.full(lane.size, np.inf), where=capacity > 0)
        end = np.where(idle, start, np.minimum(start + overhead + working, beyond))
        ends = end > horizon
        until = np.minimum(end, horizon)

        # Up to `until` nothing changed since the last commit. Was the stretch held, or did it break?
        since = np.where(idle & np.isinf(since) & ~ends, start, since)
        stretch = np.isfinite(since)
        held_at = np.where(batches >= HOLD_BATCHES, np.maximum(since + HOLD_S, last), np.inf)
        decided = stretch & ((held_at <= end) | ends)
        arrived = lag + inflow.by(path, np.where(decided, np.minimum(held_at, horizon), until) - band)
        recovered = decided & _covers(committed, arrived)
        result[lane[recovered]] = since[recovered]

        # The commit at `end`.
        arrived = lag + inflow.by(path, until - band)
        lasted = stretch & _covers(committed, arrived)
        committed = np.where(idle, committed, committed + taken)
        since = np.where(lasted, since, np.where(_covers(committed, arrived), end, np.inf))
        batches = np.where(lasted, np.where(idle, np.maximum(batches, HOLD_BATCHES), batches + 1.0), 0.0)
        last = np.where(idle, last, end)

        # The next start. A caught-up query polls; without new data it sleeps until there is some.
        soonest = np.where(idle | (taken == waiting), np.maximum(end, start + POLL_S), end)
        soonest = np.where(idle, np.maximum(soonest, inflow.resumes(path, start)), soonest)
        soonest = np.minimum(soonest, beyond)
        timed = trigger > 0
        interval = np.where(timed, trigger, 1.0)
        boundary = np.floor((start - first) / interval + ROUNDING) + 1.0
        awake = np.ceil((soonest - first) / interval - ROUNDING)
        boundary = first + np.where(idle, np.maximum(boundary, awake), boundary) * interval
        start = np.minimum(np.where(timed, np.maximum(end, boundary), soonest), beyond)

        keep = ~(recovered | ends)
        lane, path, job = lane[keep], path[keep], job[:, keep]
        start, last, committed, since, batches = (x[keep] for x in (start, last, committed, since, batches))
    return result


def _covers(committed: Array, arrived: Array) -> Truth:
    answer: Truth = arrived <= committed + ROUNDING * np.maximum(1.0, committed)
    return answer


def first_batch_start_s(
    downtime_s: Any,
    *,
    arrival_rps: Any,
    capacity_rps: Any,
    overhead_s: Any,
    limit_records: Any,
    lag_records: Any = 0.0,
) -> Array:
    """A drill knows failure → first new COMMIT (D); when did that batch START (d)?

    D = d + o + min(N, L + f·d)/T rises with d, and so d = max(D − o − N/T, (D − o − L/T)/(1 + f/T)), at least
    0. What the first batch took beyond its overhead and its records (workers warming up) stays in d: it is
    downtime too.
    """
    down = numbers("downtime_s", downtime_s, at_least=0.0, infinite_allowed=True)
    rate = numbers("arrival_rps", arrival_rps, at_least=0.0)
    capacity = numbers("capacity_rps", capacity_rps)
    overhead = numbers("overhead_s", overhead_s, at_least=0.0)
    limit = numbers("limit_records", limit_records, infinite_allowed=True)
    lag = numbers("lag_records", lag_records, at_least=0.0)
    if bool((capacity <= 0).any()):
        raise Misuse("capacity_rps", "must be > 0: no first batch is ever committed without a capacity")
    if bool((limit <= 0).any()):
        raise Misuse("limit_records", "must be > 0 (inf for no limit)")
    lost = np.isinf(down)
    down = np.where(lost, 0.0, down)
    limited = np.where(np.isinf(limit), -np.inf, down - overhead - limit / capacity)
    whole = (down - overhead - lag / capacity) / (1.0 + rate / capacity)
    return np.where(lost, np.inf, np.maximum(0.0, np.maximum(limited, whole)))
