"""After a failure, how many seconds until the job has caught up with its input?

Failure at 0, downtime D, replayed span I (what was read but not yet safe), lag L, arrivals f, capacity T.
Nothing is processed before D; then catch-up ends at the first t with

    T·(t − D)  ≥  L + ∫_{−I}^{0} f + ∫_0^t f                                   (`recovery_seconds`)

which at a constant utilisation u = f/T and L = 0 is D + (I + D)·u/(1 − u) (`steady_recovery_s`), so that a
target R allows at most u* = (R − D)/(R + I) (`utilisation_limit`). u ≥ 1 never catches up: inf, not a number.

How it is solved: the capacity that ends catch-up by t is c(t) = (L + … + ∫_0^t f)/(t − D). Within a step it
is a ratio of two linear functions and therefore monotone, so its running minimum over the step ends is a
non-increasing staircase free of T, and for every T the step of the crossing is found by bisection; inside
that step the crossing is linear. One pass over a path serves all scale-outs.

This is the form for continuous engines and for scanning candidates. Spark runs in batches: `models.batches`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arguments import Array, number, numbers
from .batches import batch_recovery_seconds, first_batch_start_s
from .inflow import Index, Inflow, broadcast
from .quantities import Misuse

__all__ = [
    "recovery_seconds",
    "batch_recovery_seconds",
    "first_batch_start_s",
    "steady_recovery_s",
    "utilisation_limit",
    "recovered_at",
]

CHUNK = 1 << 16
"""Floats in one temporary array: slices that stay in the cache took a third of the time of 4 MiB ones."""

ROUNDING = 1e-12
"""Capacity counts as this share larger: a crossing on the last step end is not lost to rounding, and where
load = capacity recovery is continuous in D. There a downtime D leaves a backlog f·D that never shrinks; one
below the rounding of the running sums is worked off after D/ROUNDING seconds, which tends to 0 with D."""

MICROSECOND = 1e-6
"""Epoch seconds carry 2.4e-7 s in a float: shorter differences between sample times mean nothing."""


def steady_recovery_s(*, utilisation: float, downtime_s: float, replay_s: float) -> float:
    """How long does recovery take while the load stays as it is? D + (I + D)·u/(1 − u); inf for u ≥ 1."""
    u = number("utilisation", utilisation, at_least=0.0)
    down = number("downtime_s", downtime_s, at_least=0.0)
    replay = number("replay_s", replay_s, at_least=0.0)
    return down + (replay + down) * u / (1.0 - u) if u < 1.0 else math.inf


def utilisation_limit(*, target_s: float, downtime_s: float, replay_s: float) -> float:
    """How busy may the job be and keep its target? u* = (R − D)/(R + I); −inf if D alone is longer."""
    target = number("target_s", target_s, at_least=0.0)
    down = number("downtime_s", downtime_s, at_least=0.0)
    replay = number("replay_s", replay_s, at_least=0.0)
    if target < down:
        return -math.inf
    # R + I = 0 leaves nothing to catch up with: any load below the capacity will do.
    return (target - down) / (target + replay) if target + replay > 0 else 1.0


def recovery_seconds(
    arrivals_rps: Any,
    *,
    capacity_rps: Any,
    downtime_s: Any,
    replay_s: Any = 0.0,
    lag_records: Any = 0.0,
    past_rps: Any = None,
    step_s: float = 1.0,
) -> Array:
    """When has a job that fails now caught up, for all paths and scale-outs at once? inf = later or never.

    `arrivals_rps` (…, T) from the failure on, constant within a step. `capacity_rps` scalar gives a result
    (…), (S,) gives (…, S); downtime, replay and lag broadcast to the result (and may enlarge it). `past_rps`
    is the rate before the failure, one number or (…, K) on the same grid, oldest first, covering `replay_s`;
    by default the first arrival rate. An infinite downtime is a job that does not come back.
    """
    step = number("step_s", step_s, above=0.0)
    inflow = Inflow.of("arrivals_rps", arrivals_rps, step_s=step)
    capacity = numbers("capacity_rps", capacity_rps, at_least=0.0)
    downtime = numbers("downtime_s", downtime_s, at_least=0.0, infinite_allowed=True)
    replay = numbers("replay_s", replay_s, at_least=0.0)
    lag = numbers("lag_records", lag_records, at_least=0.0)
    scalar = capacity.ndim == 0
    if scalar:  # a last axis of one capacity, taken off again at the end
        capacity = capacity[None]
        downtime, replay, lag = (x[..., None] if x.ndim else x for x in (downtime, replay, lag))
    shape = broadcast("capacity_rps", (*inflow.lead, 1), capacity)
    shape = broadcast("downtime_s", shape, downtime)
    shape = broadcast("replay_s", shape, replay)
    shape = broadcast("lag_records", shape, lag)
    owed = lag + _replayed(inflow, replay, past_rps)

    # A row is one staircase c(t). All capacities share it unless downtime or backlog differ between them.
    shared = all(x.ndim == 0 or x.shape[-1] == 1 for x in (downtime, owed))
    row_shape = (*shape[:-1], 1) if shared else shape
    rows = math.prod(row_shape)
    path = inflow.paths(row_shape)
    row_downtime = np.broadcast_to(downtime, row_shape).reshape(rows)
    row_owed = np.broadcast_to(owed, row_shape).reshape(rows)
    row_capacity = np.broadcast_to(capacity, shape).reshape(rows, shape[-1] if shared else 1)

    result = np.empty(row_capacity.shape)
    size = max(1, CHUNK // max(inflow.steps + 1, row_capacity.shape[1]))
    for first in range(0, rows, size):
        part = slice(first, first + size)
        result[part] = _crossing(
            inflow, path[part], row_downtime[part, None], row_owed[part, None], row_capacity[part]
        )
    result = result.reshape(shape)
    return result[..., 0] if scalar else result


def _replayed(inflow: Inflow, replay: Array, past_rps: Any) -> Array:
    """Records that arrived during the last `replay` seconds before the failure."""
    if past_rps is None:
        return replay * inflow.rates[:, 0].reshape((*inflow.lead, 1))
    given = numbers("past_rps", past_rps, at_least=0.0)
    if given.ndim == 0:
        return replay * given
    backwards = Inflow.of("past_rps", given[..., ::-1], step_s=inflow.step_s)
    if replay.size and float(replay.max()) > backwards.horizon_s * (1 + ROUNDING):
        raise Misuse(
            "past_rps",
            f"covers {backwards.horizon_s:g} s, but replay_s goes back {float(replay.max()):g} s: "
            "give a longer past, or one rate",
        )
    if math.prod(np.broadcast_shapes(inflow.lead, backwards.lead)) != math.prod(inflow.lead):
        raise Misuse("past_rps", f"has paths {backwards.lead}, but arrivals_rps has {inflow.lead}")
    shape = np.broadcast_shapes((*backwards.lead, 1), replay.shape)
    spans = np.broadcast_to(replay, shape).reshape(-1)
    return backwards.by(backwards.paths(shape), spans).reshape(shape)


def _crossing(inflow: Inflow, path: Index, downtime: Array, owed: Array, capacity: Array) -> Array:
    """First t with T·(t − D) ≥ owed + F(t), for rows (r, 1) of D and owed and their capacities (r, m)."""
    steps, horizon = inflow.steps, inflow.horizon_s
    ends = np.arange(steps + 1) * inflow.step_s
    down = np.minimum(
        downtime, 2.0 * horizon
    )  # beyond the horizon nothing is reached; keeps inf out of the sums
    demand = inflow.summed[path] + owed
    worked = ends - down
    need = np.full_like(demand, np.inf)
    np.divide(demand, worked, out=need, where=worked > 0)
    np.minimum.accumulate(need, axis=1, out=need)

    # The first step end with need ≤ T is the number of those above T, since the staircase only descends.
    row = np.arange(len(path))[:, None]
    enough = capacity * (1.0 + ROUNDING)
    above = np.zeros(capacity.shape, dtype=np.intp)
    for power in reversed(range((steps + 1).bit_length())):
        trial = above + (1 << power)
        inside = trial <= steps + 1
        above = np.where(inside & (need[row, np.minimum(trial, steps + 1) - 1] > enough), trial, above)

    end = np.clip(above, 1, steps)
    began = np.maximum(ends[end - 1], down)
    rate = inflow.rates[path[:, None], end - 1]
    backlog = demand[row, end - 1] + rate * (began - ends[end - 1]) - enough * (began - down)
    gain = enough - rate
    after = np.full(capacity.shape, np.inf)
    np.divide(np.maximum(backlog, 0.0), gain, out=after, where=gain > 0)
    result = np.minimum(began + after, ends[end])
    result[above > steps] = np.inf
    nothing = (down <= horizon) & (owed + inflow.by(path[:, None], down) == 0)
    return np.where(nothing, down, result)


def recovered_at(times_s: Any, lag_s: Any, *, failed_at_s: float, band_s: float, hold_s: float) -> float:
    """From which instant after the failure has the lag stayed in its band for `hold_s`? inf if it never did.

    The answer is the time of a sample, on the samples' own clock (recovery = answer − failure): the first one
    at or after the failure from which every sample of the next `hold_s`, both ends included, is ≤ `band_s`. A
    record that ends before `hold_s` has passed does not show a recovery: inf. An infinite lag is a value
    outside every band. A lag that takes longer than `hold_s` to leave its band has, by this definition, not
    left it: hold at least as long as the band is wide.
    """
    times = numbers("times_s", times_s)
    lag = numbers("lag_s", lag_s, at_least=0.0, infinite_allowed=True)
    failed = number("failed_at_s", failed_at_s)
    band = number("band_s", band_s, at_least=0.0)
    hold = number("hold_s", hold_s, at_least=0.0)
    if times.ndim != 1 or times.size == 0:
        raise Misuse("times_s", f"needs one axis with at least one sample, got shape {times.shape}")
    if lag.shape != times.shape:
        raise Misuse("lag_s", f"needs one value per time: {times.size} times, shape {lag.shape}")
    if bool((np.diff(times) <= 0).any()):
        at = int(np.argmax(np.diff(times) <= 0))
        raise Misuse("times_s", f"must increase, got {times[at]:g} before {times[at + 1]:g}")
    seen = times >= failed - MICROSECOND
    if not bool(seen.any()):
        return math.inf
    times, outside = times[seen], lag[seen] > band
    next_outside = np.minimum.accumulate(np.where(outside, times, np.inf)[::-1])[::-1]
    held_until = times + hold
    held = (next_outside > held_until + MICROSECOND) & (times[-1] >= held_until - MICROSECOND)
    return float(times[np.argmax(held)]) if bool(held.any()) else math.inf
