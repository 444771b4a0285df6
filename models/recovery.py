"""Recovery: seconds from a failure until the job has caught up with its input.

Failure at 0, downtime D, replayed span I (what was read but not yet safe), lag L, arrivals f, capacity T.
Nothing is processed before D; then catch-up ends at the first t with

    T·(t − D)  ≥  L + ∫_{−I}^{0} f + ∫_0^t f                                   (`recovery_seconds`)

which at a constant utilisation u = f/T and L = 0 is D + (I + D)·u/(1 − u) (`steady_recovery_s`), so that a
target R allows at most u* = (R − D)/(R + I) (`utilisation_limit`). u ≥ 1 never catches up: inf, not a number.

How it is solved: the capacity that ends catch-up by t is c(t) = (L + … + ∫_0^t f)/(t − D). Within a step it
is a ratio of two linear functions and therefore monotone, so its running minimum over the step ends is a
non-increasing staircase free of T, and for every T the step of the crossing is found by bisection; inside
that step the crossing is linear. One pass over a path serves all scale-outs.

This form serves continuous engines and the scan of candidates; Spark follows the batch form below.

**Arrivals.** Records arrived by time t, exactly, for rates that are constant within a step Δ:

    F(t) = Σ_{j<k} f_j·Δ + f_k·(t − k·Δ),   k = ⌊t/Δ⌋;   before 0 the first rate, after the end the last one.

Both forms read arrivals only through F, so that nothing is rounded to steps.

**Batch form.** Spark commits batch by batch, so between two commits its lag only grows, and a backlog is
worked off in as few or as many batches as the record limit allows. With downtime d (failure to the START of
the first batch), lag L counted from commits, capacity T, overhead o per batch, record limit N and trigger
interval Δ:

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

**Before the failure** the same batches are stepped (`uncommitted_records`): a failure during a batch loses
all of it, so that L is what was not committed then. One that takes a backlog at once may last for minutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arguments import Array, number, numbers
from .quantities import Misuse

Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Inflow:
    """Arrival rates of many paths on one grid, with their running sums."""

    rates: Array  # (paths, steps)
    summed: Array  # (paths, steps + 1): records by the beginning of each step, and by the end
    step_s: float
    lead: tuple[int, ...]
    """The shape the paths came in, without their time axis."""

    @classmethod
    def of(cls, name: str, rates_rps: Any, *, step_s: float) -> Inflow:
        """Checked rates (…, steps), constant within each step."""
        given = numbers(name, rates_rps, at_least=0.0)
        if given.ndim == 0 or given.shape[-1] == 0:
            raise Misuse(name, f"needs a time axis with at least one step, got shape {given.shape}")
        rates = given.reshape(-1, given.shape[-1])
        summed = np.zeros((rates.shape[0], rates.shape[1] + 1))
        np.cumsum(rates, axis=1, out=summed[:, 1:])
        summed *= step_s
        return cls(rates=rates, summed=summed, step_s=step_s, lead=given.shape[:-1])

    @property
    def steps(self) -> int:
        return int(self.rates.shape[1])

    @property
    def horizon_s(self) -> float:
        return self.steps * self.step_s

    def paths(self, shape: tuple[int, ...]) -> Index:
        """The path of each lane of a result of this shape, whose last axis is not the paths' own."""
        numbered = np.arange(math.prod(self.lead), dtype=np.intp).reshape((*self.lead, 1))
        return np.broadcast_to(numbered, shape).reshape(-1)

    def by(self, path: Index, at_s: Array) -> Array:
        """Records arrived between 0 and `at_s` on each path; negative before 0."""
        step = self._step(at_s)
        whole = self.summed.take(path * (self.steps + 1) + step)
        arrived: Array = whole + (at_s - step * self.step_s) * self.rates.take(path * self.steps + step)
        return arrived

    def _step(self, at_s: Array) -> Index:
        step = (at_s / self.step_s).astype(np.intp)  # rounds to zero: so do the steps before it
        np.maximum(step, 0, out=step)
        return np.minimum(step, self.steps - 1, out=step)

    def rate(self, path: Index, at_s: Array, *, over_s: float) -> Array:
        """Mean arrival rate of each path over so many seconds before these moments."""
        found: Array = (self.by(path, at_s) - self.by(path, at_s - over_s)) / over_s
        return found

    def resumes(self, path: Index, at_s: Array) -> Array:
        """The next moment with arrivals, from `at_s` on; inf where no more arrive."""
        return np.maximum(at_s, self._next_busy_s[path, self._step(at_s)])

    def fastest(self, path: Index, at_s: Array) -> Array:
        """The highest rate of each path from these moments on, for as long as a recovery must hold."""
        return self._fastest_in_hold.take(path * self.steps + self._step(at_s))

    @cached_property
    def _fastest_in_hold(self) -> Array:
        cells = math.ceil(HOLD_S / self.step_s) + 1
        padded = np.concatenate([self.rates, np.repeat(self.rates[:, -1:], cells - 1, axis=1)], axis=1)
        reach = 1
        while reach < cells:  # the maximum of so many cells from each one on
            more = min(reach, cells - reach)
            padded = np.maximum(padded[:, : padded.shape[1] - more], padded[:, more:])
            reach += more
        return padded

    @cached_property
    def _next_busy_s(self) -> Array:
        begins = np.where(self.rates > 0, np.arange(self.steps) * self.step_s, np.inf)
        return np.minimum.accumulate(begins[:, ::-1], axis=1)[:, ::-1]


def broadcast(name: str, shape: tuple[int, ...], values: Array) -> tuple[int, ...]:
    """The common shape, or one error that names the argument that does not fit."""
    try:
        return np.broadcast_shapes(shape, values.shape)
    except ValueError:
        raise Misuse(
            name, f"has shape {values.shape}, which does not broadcast to the result's {shape}"
        ) from None


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
    """Recovery at a constant utilisation u: D + (I + D)·u/(1 − u); inf for u ≥ 1."""
    u = number("utilisation", utilisation, at_least=0.0)
    down = number("downtime_s", downtime_s, at_least=0.0)
    replay = number("replay_s", replay_s, at_least=0.0)
    return down + (replay + down) * u / (1.0 - u) if u < 1.0 else math.inf


def utilisation_limit(*, target_s: float, downtime_s: float, replay_s: float) -> float:
    """The highest utilisation that keeps the target: u* = (R − D)/(R + I); −inf if D > R."""
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
    """Seconds until a job that fails now has caught up, per path and scale-out; inf: later or never.

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
    """First instant after the failure from which the lag stays in its band for `hold_s`; inf if none.

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


BAND_SHARE = 1.25
"""Of the largest lag of an undisturbed job: what still counts as normal (judgement)."""


def recovery_band_s(
    largest_lag_s: Any, *, trigger_s: float, longest_s: float, sample_s: float = 0.0
) -> Array:
    """The band of a recovered lag, predicted or measured every `sample_s`: at least two triggers."""
    band: Array = np.maximum(BAND_SHARE * largest_lag_s + sample_s, 2.0 * trigger_s)
    return np.minimum(band, longest_s)


Truth = NDArray[np.bool_]

HOLD_S = 15.0
HOLD_BATCHES = 3
"""A recovery counts once lag has stayed inside the band for both: as every drill is measured."""

POLL_S = 0.01
"""A caught-up query looks for new data this often (Spark's spark.sql.streaming.pollingDelay, 10 ms)."""

NOTHING = 1e-9
"""Stands for a capacity of zero where one divides by it."""

LANES = 1 << 16
"""Lanes stepped together: about 16 MiB of state (judgement)."""

RATE_S = 30.0
"""Over which the rate before a failure is taken: batches even out what is shorter (judgement)."""

MOST_POLLS = 500
"""Of an idle query, from where it is followed until it fails: a fraction of a second each (judgement)."""

BUSIEST = 0.95
"""Utilisation whose cycle stands for that of a job that has only just begun to fall behind (judgement)."""

BATCH_ROUNDING = 1e-9
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
    """Seconds until a micro-batch job that fails now stays inside its lag band; inf: beyond the horizon.

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
    lanes = {name: np.broadcast_to(x, shape).ravel() for name, x in given.items()}
    alike = (
        given[x] if given[x].ndim == 0 else lanes[x] for x in ("overhead_s", "limit_records", "trigger_s")
    )
    result = recovered_in_batches(
        inflow,
        inflow.paths(shape),
        Batches(np.broadcast_to(capacity, shape).ravel(), *alike),
        start_s=lanes["downtime_s"],
        ahead=lanes["lag_records"],
        band_s=lanes["band_s"],
        until_s=np.full(math.prod(shape), inflow.horizon_s),
    ).reshape(shape)
    return result[..., 0] if scalar else result


@dataclass(frozen=True)
class Batches:
    """Capacity in records/s, overhead in seconds, record limit, and trigger interval in seconds.

    Each has one value per lane, or one for all lanes: a number (0-d) costs nothing at every step.
    """

    capacity_rps: Array
    overhead_s: Array
    limit_records: Array
    trigger_s: Array

    @property
    def rows(self) -> tuple[Array, ...]:
        return self.capacity_rps, self.overhead_s, self.limit_records, self.trigger_s

    def of(self, lanes: Any) -> Batches:
        """Those of some lanes: indices, a mask, or a slice."""
        return Batches(*(x[lanes] if x.ndim else x for x in self.rows))

    def cycle_s(self, rate_rps: Array) -> tuple[Array, Array]:
        """At a steady rate: from one start to the next, and of that the batch; inf beyond the capacity."""
        used = rate_rps / np.maximum(self.capacity_rps, NOTHING)
        with np.errstate(divide="ignore", invalid="ignore"):
            cycle = np.maximum(self.trigger_s, self.overhead_s / (1.0 - used))
            cycle = np.where(used < 1.0, cycle, np.inf)
            return cycle, np.where(used < 1.0, self.overhead_s + used * cycle, np.inf)


def recovered_in_batches(
    inflow: Inflow,
    path: Index,
    jobs: Batches,
    *,
    start_s: Array,
    ahead: Array,
    band_s: Array,
    until_s: Array,
) -> Array:
    """When lag is back in its band on each lane, on the clock of the arrivals; inf after `until_s`.

    The first batch begins at `start_s`. Not committed at a moment t before it: `ahead` + F(t).
    """
    found = []
    for begin in range(0, path.size, LANES):
        part = slice(begin, begin + LANES)
        lanes = (x[part] for x in (start_s, ahead, band_s, until_s))
        found.append(_step_batches(inflow, path[part], jobs.of(part), *lanes))
    return np.concatenate(found) if found else np.empty(0)


def _step_batches(
    inflow: Inflow, path: Index, jobs: Batches, first: Array, lag: Array, band: Array, horizon: Array
) -> Array:
    """All lanes batch by batch, each on its own clock, until every lane is decided."""
    result = np.full(path.size, np.inf)
    lane = np.flatnonzero(first <= horizon)
    path, jobs = path[lane], jobs.of(lane)
    first, lag, band, horizon = (x[lane] for x in (first, lag, band, horizon))
    start = first
    last = start  # the latest commit
    committed = np.zeros(lane.size)  # records since the failure
    since = np.full(lane.size, np.inf)  # begin of the present stretch inside the band
    batches = np.zeros(lane.size)  # committed within that stretch
    limited, timed = bool(np.isfinite(jobs.limit_records).any()), bool((jobs.trigger_s > 0).any())

    while lane.size:
        capacity, overhead, limit, trigger = jobs.rows
        beyond = 2.0 * horizon
        interval = np.where(trigger > 0, trigger, 1.0)
        if limited:
            # A backlog far outside the band takes full batches at a steady pace, counted and not stepped.
            full = overhead + _worked_s(limit, capacity)
            spare = (lag + inflow.by(path, start - band) - committed) / limit
            phase = (start - first) / interval
            paced = (full >= trigger) | (np.abs(phase - np.round(phase)) <= BATCH_ROUNDING)
            skipped = np.where(np.isinf(since) & np.isfinite(full) & paced, np.floor(spare) - 1.0, 0.0)
            ahead = skipped > 0
            committed = committed + np.where(ahead, skipped * np.where(ahead, limit, 0.0), 0.0)
            start = start + np.where(ahead, skipped * np.where(ahead, np.maximum(full, trigger), 0.0), 0.0)
            start = np.minimum(start, beyond)

        waiting = lag + inflow.by(path, start) - committed
        idle = waiting <= BATCH_ROUNDING * np.maximum(1.0, committed)
        some_idle = bool(idle.any())
        taken = np.minimum(limit, waiting)
        everything = taken == waiting
        end = np.minimum(start + overhead + _worked_s(taken, capacity), beyond)
        if some_idle:
            end = np.where(idle, start, end)
        ends = end > horizon
        until = np.minimum(end, horizon)

        # Up to `until` nothing changed since the last commit. Was the stretch held, or did it break?
        if some_idle:
            since = np.where(idle & np.isinf(since) & ~ends, start, since)
        stretch = np.isfinite(since)
        held_at = np.where(batches >= HOLD_BATCHES, np.maximum(since + HOLD_S, last), np.inf)
        back = np.flatnonzero(stretch & ((held_at <= end) | ends))
        if back.size:
            arrived = lag[back] + inflow.by(path[back], np.minimum(held_at, horizon)[back] - band[back])
            back = back[_covers(committed[back], arrived)]
            result[lane[back]] = since[back]

        # The commit at `end`.
        arrived = lag + inflow.by(path, until - band)
        lasted = stretch & _covers(committed, arrived)
        committed = np.where(idle, committed, committed + taken)
        since = np.where(lasted, since, np.where(_covers(committed, arrived), end, np.inf))
        more = (
            np.where(idle, np.maximum(batches, HOLD_BATCHES), batches + 1.0) if some_idle else batches + 1.0
        )
        batches = np.where(lasted, more, 0.0)
        last = np.where(idle, last, end)

        # Steady batches need not be followed to the end of their hold: none is larger than at its busiest.
        held = np.flatnonzero((batches >= HOLD_BATCHES) & everything & ~ends)
        if held.size:
            fastest = inflow.fastest(path[held], start[held])
            steady_jobs = jobs.of(held)
            cycle, batch = steady_jobs.cycle_s(fastest)
            largest = fastest * np.maximum(cycle, POLL_S)
            steady = (taken[held] <= largest) & (largest <= steady_jobs.limit_records)
            steady &= np.maximum(cycle, POLL_S) + batch <= band[held]
            held = held[steady]
            result[lane[held]] = since[held]

        # The next start. A caught-up query polls; without new data it sleeps until there is some.
        soonest = np.where(idle | everything, np.maximum(end, start + POLL_S), end)
        if some_idle:
            soonest = np.where(idle, np.maximum(soonest, inflow.resumes(path, start)), soonest)
        soonest = np.minimum(soonest, beyond)
        if timed:
            boundary = np.floor((start - first) / interval + BATCH_ROUNDING) + 1.0
            if some_idle:
                awake = np.ceil((soonest - first) / interval - BATCH_ROUNDING)
                boundary = np.where(idle, np.maximum(boundary, awake), boundary)
            boundary = first + boundary * interval
            soonest = np.where(trigger > 0, np.minimum(np.maximum(end, boundary), beyond), soonest)
        start = soonest

        keep = ~ends
        keep[back] = keep[held] = False
        if not keep.all():
            lane, path, jobs = lane[keep], path[keep], jobs.of(keep)
            first, lag, band, horizon = (x[keep] for x in (first, lag, band, horizon))
            start, last, committed, since, batches = (
                x[keep] for x in (start, last, committed, since, batches)
            )
    return result


def _worked_s(records: Array, capacity: Array) -> Array:
    """Seconds of work that these records are; inf without a capacity."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = records / capacity
        return found


def _covers(committed: Array, arrived: Array) -> Truth:
    answer: Truth = arrived <= committed + BATCH_ROUNDING * np.maximum(1.0, committed)
    return answer


STEADY_CYCLES = 4.0
"""After a backlog is gone, a job is in its steady rhythm again within this many cycles (judgement)."""


def uncommitted_records(
    inflow: Inflow, path: Index, jobs: Batches, *, begin_s: Array, waiting: Array, phase: Array, at_s: Array
) -> Array:
    """Records not committed on each lane at the moment of a failure, which loses the batch under way.

    At `begin_s` a job with an infinite `waiting` is in its steady rhythm, at this `phase` (0…1) of its cycle:
    φ seconds into it the input of φ seconds is read or waits, and before the commit that of the cycle before
    as well. Otherwise a batch begins, of all the records that wait and that it may take: how far the present
    one has come is not known, and then the most is lost.
    """
    jobs = replace(jobs, capacity_rps=np.maximum(jobs.capacity_rps, NOTHING))
    rate = inflow.rate(path, begin_s, over_s=RATE_S)
    cycle, batch = replace(jobs, capacity_rps=np.maximum(jobs.capacity_rps, rate / BUSIEST)).cycle_s(rate)
    steady, into = np.isinf(waiting), phase * cycle
    running = steady & (into < batch)
    owed = np.where(steady, rate * (into + np.where(running, cycle, 0.0)), waiting)
    owed = owed - inflow.by(path, begin_s)  # and all that arrives is owed, too
    origin = np.where(steady, begin_s - into, begin_s)
    end = np.where(running, origin + batch, begin_s)
    safe = np.where(running & (end <= at_s), rate * cycle, 0.0)  # committed since `begin_s`
    start = np.where(steady, np.maximum(end, origin + cycle), begin_s)

    poll = np.maximum(POLL_S, (at_s - begin_s) / MOST_POLLS)
    limited = bool(np.isfinite(jobs.limit_records).any())
    lane = np.flatnonzero(start < at_s)
    while lane.size:
        p, first, moment = path[lane], start[lane], at_s[lane]
        capacity, overhead, limit, trigger = jobs.of(lane).rows
        there = owed[lane] + inflow.by(p, first) - safe[lane]
        if limited:  # full batches are counted, not stepped
            full = np.maximum(overhead + limit / capacity, trigger)
            many = np.minimum(np.floor(there / limit) - 1.0, np.floor((moment - first) / full) - 1.0)
            skipped = np.where(np.isfinite(limit) & (many > 0), many, 0.0)
            safe[lane] += skipped * np.where(skipped > 0, limit, 0.0)
            first = first + skipped * np.where(skipped > 0, full, 0.0)
            there = owed[lane] + inflow.by(p, first) - safe[lane]
        taken = np.minimum(limit, np.maximum(there, 0.0))
        ends = first + np.where(taken > 0, overhead + taken / capacity, 0.0)
        safe[lane] += np.where(ends <= moment, taken, 0.0)
        timed = trigger > 0
        interval = np.where(timed, trigger, 1.0)
        boundary = np.floor((first - origin[lane]) / interval + BATCH_ROUNDING) + 1.0
        following = np.maximum(ends, origin[lane] + boundary * interval)
        start[lane] = np.where(timed, following, np.maximum(ends, first + poll[lane]))
        lane = lane[start[lane] < moment]
    result: Array = np.maximum(owed + inflow.by(path, at_s) - safe, 0.0)
    return result


def first_batch_start_s(
    downtime_s: Any,
    *,
    arrival_rps: Any,
    capacity_rps: Any,
    overhead_s: Any,
    limit_records: Any,
    lag_records: Any = 0.0,
) -> Array:
    """Start of the first batch (d) after a failure, from its commit (D), which drills measure.

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
