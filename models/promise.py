"""Probability that a failure at any moment is recovered within the target, for each scale-out.

    P(kind) = min over moments τ of  the share of draws p with  R(τ; path_p, D_p, T_p) ≤ target

pointwise in τ: a draw that breaks the promise at one moment may keep it at another. A draw is one forecast
path with its own downtime and capacity; all scale-outs share the same draws, so that they differ by their
properties and not by chance.

**Exact condition per draw.** Failure at τ, downtime D, replayed span I, target R, arrivals cumulated in F,
capacity T, lag₀ at the start:

    lag(τ) = X(τ) − m(τ)      X(u) = lag₀ + F(u) − T u      m(τ) = min(0, min_{u ≤ τ} X(u))
    kept at τ  ⇔  a moment t in [τ + D, τ + R] has  lag(τ) + F(t) − F(τ − I) ≤ T (t − τ − D)
               ⇔  m(τ + R) ≤ m(τ) − (F(τ) − F(τ − I)) − T D                                         (1)

The second line is the first with lag(τ) put in: what lies below m(τ) by some work is reached after τ only, so
the window needs no left end, and one running minimum answers for every moment. Where T is never below the
arrivals, X only falls, t = τ + R is the best moment, and (1) becomes a capacity needed that is free of T:

    T ≥ max( (F(τ+R) − F(τ−I)) / (R − D),  (lag₀ + F(τ+R) + F(τ) − F(τ−I)) / (τ + R − D) )          (2)

(The second term only with lag₀ > 0.) Both are exact, also for lag that builds up before the failure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .arguments import Array, number
from .quantities import Misuse
from .recovery import Inflow

MOMENT_STEP_S = 1.0  # judgement: a failure second by second, as recovery is measured
ROUNDING = 1e-9  # relative; a load exactly at the limit is kept

Counts = NDArray[np.intp]


class Input:
    """Records arrived by any moment, on a grid of at most a second that meets every step of the paths."""

    def __init__(self, paths_rps: Array, *, step_s: float, past_rps: Array) -> None:
        parts = max(1, math.ceil(step_s / MOMENT_STEP_S - ROUNDING))
        self.grid_s = step_s / parts
        self.past_rps = past_rps
        self.rates_rps = np.repeat(paths_rps, parts, axis=1) if parts > 1 else paths_rps
        self.records = np.zeros((len(paths_rps), self.rates_rps.shape[1] + 1))
        np.cumsum(self.rates_rps, axis=1, out=self.records[:, 1:])
        self.records *= self.grid_s
        self.end_s = step_s * paths_rps.shape[1]
        self.fastest_rps: Array = paths_rps.max(axis=1)
        self._inflow: tuple[float, Inflow] | None = None

    def at(self, times_s: Array) -> Array:
        """Records arrived by each moment: (paths, moments); negative before now."""
        position = times_s / self.grid_s
        position = np.where(abs(position - np.rint(position)) < 1e-6, np.rint(position), position)
        cell = np.clip(np.floor(position).astype(np.intp), 0, self.records.shape[1] - 1)
        in_a_row = len(cell) > 0 and bool((np.diff(cell) == 1).all())
        value = self.records[:, cell[0] : cell[0] + len(cell)] if in_a_row else self.records[:, cell]
        share = np.where(position > 0, position - cell, 0.0)
        if share.any():
            following = self.records[:, np.minimum(cell + 1, self.records.shape[1] - 1)]
            value = value + share * (following - value)
        if (times_s < 0).any():
            value = value + self.past_rps[:, None] * np.minimum(times_s, 0.0)
        return value

    def largest_mean_rps(self, span_s: float) -> Array:
        """The largest mean rate of each path over a stretch of this length: (paths,)."""
        cells = max(1, min(round(span_s / self.grid_s), self.rates_rps.shape[1]))
        arrived = self.records[:, cells:] - self.records[:, :-cells]
        result: Array = arrived.max(axis=1) / (cells * self.grid_s)
        return result

    def inflow(self, *, lead_s: float) -> Inflow:
        """The same arrivals on a clock that begins so many seconds before now."""
        if self._inflow is None or self._inflow[0] != lead_s:
            columns = math.ceil(lead_s / self.grid_s - ROUNDING)
            past = np.repeat(self.past_rps[:, None], columns, axis=1)
            rates = np.concatenate([past, self.rates_rps], axis=1)
            self._inflow = lead_s, Inflow.of("paths_rps", rates, step_s=self.grid_s)
        return self._inflow[1]

    def last_caught_up_s(
        self, path: NDArray[np.intp], *, capacity_rps: Array, lag_records: Array, until_s: Array
    ) -> Array:
        """The last moment, up to each of `until_s` (moments, draws), without a backlog at this capacity.

        NaN: there was none.
        """
        cell = np.floor(until_s / self.grid_s + ROUNDING).astype(np.intp)
        ahead = lag_records + self.records[path, cell] - capacity_rps * (self.grid_s * cell)
        # a capacity above all arrivals of its path: once gone, a backlog does not come back
        last = np.where((ahead <= 0.0) | (lag_records == 0.0), cell, -1)
        strained = np.flatnonzero(capacity_rps < self.fastest_rps[path])
        if strained.size:
            rows = int(cell.max()) + 1
            ahead = lag_records[strained, None] + self.records[path[strained], :rows]
            ahead -= capacity_rps[strained, None] * (self.grid_s * np.arange(rows))
            caught_up = ahead <= np.minimum(np.minimum.accumulate(ahead, axis=1), 0.0)
            since = np.maximum.accumulate(np.where(caught_up, np.arange(rows), -1), axis=1)
            last[:, strained] = since[np.arange(len(strained)), cell[:, strained]]
        at = np.where(last == cell, until_s, last * self.grid_s)
        return np.where(last < 0, np.nan, at)


class Failures:
    """Everything about the failures that does not depend on the capacity."""

    def __init__(
        self, input_: Input, *, moments_s: Array, target_s: float, lag_records: float, replay_s: float
    ) -> None:
        self.moments_s, self.target_s, self.lag_records = moments_s, target_s, lag_records
        self.grid_s = input_.grid_s
        self.before = input_.at(moments_s)
        self.replay = self.before - input_.at(moments_s - replay_s) if replay_s else np.zeros((1, 1))
        self.after = input_.at(moments_s + target_s)
        self.rows = len(moments_s) + math.ceil(target_s / self.grid_s - ROUNDING)
        self.records = input_.records[:, : self.rows + 1]
        self.fastest_rps: Array = input_.rates_rps[:, : self.rows].max(axis=1)
        self.rounding = ROUNDING * (lag_records + float(self.records[:, -1].max()))

    def needed_rps(self, downtime_s: Array) -> Array:
        """(2): the capacity needed per (path, moment) if the arrivals never exceed it."""
        work = self.after - self.before + self.replay
        left = (self.target_s - downtime_s)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(work > 0, work / np.maximum(left, 0.0), 0.0)
            if self.lag_records:
                behind = self.lag_records + self.after + self.replay
                np.maximum(needed, behind / np.maximum(left + self.moments_s, 0.0), out=needed)
        needed[left[:, 0] < 0] = np.inf
        result: Array = needed * (1 - ROUNDING)
        return result

    def least_needed_rps(self, moment: int, downtime_s: Array) -> Array:
        """Below this capacity a failure at this moment is not recovered, whatever came before: (paths,)."""
        tau = self.moments_s[moment]
        replay = self.replay[:, moment] if self.replay.size > 1 else 0.0
        rows = slice(moment, moment + math.floor(self.target_s / self.grid_s + ROUNDING) + 1)
        until = np.column_stack([self.records[:, rows], self.after[:, moment]])
        times = np.append(self.grid_s * np.arange(rows.start, rows.stop), tau + self.target_s)
        work = until + np.reshape(replay, (-1, 1))
        worked_s = times - tau - downtime_s[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = (work - self.before[:, moment, None]) / worked_s
            if self.lag_records:
                np.maximum(needed, (work + self.lag_records) / (worked_s + tau), out=needed)
        needed[worked_s <= 0] = np.inf
        result: Array = needed.min(axis=1) * (1 - ROUNDING)
        return result


def rising(capacity: Array) -> bool:
    """An interval that widens with the size may put its lower end below that of a smaller size."""
    return bool((np.diff(capacity, axis=0) >= 0).all())


def count_reached(needed: Array, capacity: Array) -> Counts:
    """How many paths have capacity >= needed, for every (scale-out, moment)."""
    sizes, moments = len(capacity), needed.shape[1]
    if not rising(capacity):
        return np.stack([np.count_nonzero(needed <= c[:, None], axis=0) for c in capacity])
    first = np.empty(needed.shape, dtype=np.intp)
    columns = np.ascontiguousarray(capacity.T)
    for p, row in enumerate(needed):
        first[p] = columns[p].searchsorted(row)
    first += np.arange(moments) * (sizes + 1)
    counts = np.bincount(first.ravel(), minlength=moments * (sizes + 1)).reshape(moments, sizes + 1)
    return np.cumsum(counts, axis=1)[:, :-1].T


def count_kept(failures: Failures, capacity: Array, downtime: Array) -> list[Counts]:
    """(1): how many paths keep the promise, for every kind and (scale-out, moment)."""
    capacity = np.maximum(capacity, 1e-9)  # with nothing arriving, no capacity is needed
    whole = math.floor(failures.target_s / failures.grid_s + ROUNDING)
    between = abs(whole * failures.grid_s - failures.target_s) > ROUNDING * failures.target_s
    count = len(failures.moments_s)
    lost = [capacity * d - failures.rounding for d in downtime]
    recent = np.zeros((whole + 1, *capacity.shape))  # m at the last R seconds
    kept_by = np.empty((len(lost), count, *capacity.shape), dtype=np.bool_)
    lowest, line = np.zeros(capacity.shape), np.empty(capacity.shape)
    for i, arrived in enumerate(np.ascontiguousarray(failures.records.T[: whole + count])):
        np.multiply(capacity, i * failures.grid_s, out=line)
        np.subtract(arrived + failures.lag_records, line, out=line)
        lowest = np.minimum(lowest, line, out=recent[i % (whole + 1)])
        failed = i - whole
        if failed < 0:
            continue
        fallen = np.subtract(recent[(i + 1) % (whole + 1)], lowest, out=line)
        if between:
            end_s = failures.moments_s[failed] + failures.target_s
            end = failures.after[:, failed] + failures.lag_records - capacity * end_s
            np.maximum(fallen, recent[(i + 1) % (whole + 1)] - end, out=fallen)
        if failures.replay.size > 1:
            fallen -= failures.replay[:, failed]
        for k, work in enumerate(lost):
            np.greater_equal(fallen, work, out=kept_by[k, failed])
    packed = np.packbits(kept_by, axis=-1)  # counting bits is three times as fast as adding truths
    return [np.bitwise_count(by).sum(axis=-1, dtype=np.intp).T for by in packed]


def backlog_records(
    input_: Input, *, path: NDArray[np.intp], capacity_rps: Array, lag_records: float, moment_s: float
) -> Array:
    """lag(τ): the backlog of each draw at this moment, in records: (draws,)."""
    rows = round(moment_s / input_.grid_s) + 1
    ahead = lag_records + input_.records[path, :rows]
    ahead = ahead - capacity_rps[:, None] * (input_.grid_s * np.arange(rows))
    result: Array = ahead[:, -1] - np.minimum(ahead.min(axis=1), 0.0)
    return result


CONFIDENCE = 0.95  # product default; the level of a 90 % interval's lower end
HAIR = 1e-12  # what rounding may take from a share that is exactly the promised one
SHORTEST_DOWNTIME_S = 1e-3  # judgement: less cannot be measured, and some work keeps "in time" decidable
BLOCK = 12  # scale-outs settled at once: fastest of 4 … 32 with 200 paths, 3.5 MB
SURE_MOMENTS = 4  # tried for "no draw can keep it" before all are; 16 settled hardly a size more


@dataclass(frozen=True)
class Promise:
    """Back within `target_s` after a failure, with probability `confidence`, whenever it happens."""

    target_s: float
    confidence: float = CONFIDENCE

    def __post_init__(self) -> None:
        number("Promise.target_s", self.target_s, above=0.0)
        if number("Promise.confidence", self.confidence, above=0.0) >= 1.0:
            raise Misuse("Promise.confidence", f"must be < 1, got {self.confidence!r}: nothing is certain")

    def keeps(self, share: float) -> bool:
        return share >= self.confidence - HAIR

    def within_s(self, recoveries_s: Array) -> float:
        """Time within which the promised share of these recoveries ends; at most the target if it `keeps`."""
        needed = math.ceil((self.confidence - HAIR) * recoveries_s.size)
        return float(np.partition(recoveries_s, needed - 1)[needed - 1])


@dataclass(frozen=True)
class Kept:
    """Probability that the promise is kept at its worst moment, and that moment."""

    probability: Array
    """Per kind of failure and scale-out."""
    worst_moment_s: Array
    """A moment with that probability: the earliest, or the first found where nothing can keep it."""


def kept(
    input_: Input,
    *,
    capacity_rps: Array,
    downtime_s: Array,
    target_s: float,
    moments_s: float,
    lag_records: float,
    replay_s: float,
) -> Kept:
    """Probability that a failure at any moment before `moments_s` is recovered in time.

    Capacities (scale-outs, paths) and downtimes (kinds, paths) give a result (kinds, scale-outs). Draw p of
    path, downtime and capacity belong together.
    """
    count = max(1, math.ceil(moments_s / input_.grid_s - ROUNDING))
    moments: Array = input_.grid_s * np.arange(count, dtype=np.float64)
    if moments[-1] + target_s > input_.end_s * (1 + ROUNDING):
        raise Misuse(
            "paths_rps",
            f"reach {input_.end_s:g} s, but a failure at {moments[-1]:g} s is judged {target_s:g} s later:"
            f" forecast at least {moments[-1] + target_s:g} s",
        )
    failures = Failures(
        input_, moments_s=moments, target_s=target_s, lag_records=lag_records, replay_s=replay_s
    )
    return Kept(*_worst(failures, capacity_rps, np.maximum(downtime_s, SHORTEST_DOWNTIME_S)))


def _worst(failures: Failures, capacity: Array, downtime: Array) -> tuple[Array, Array]:
    """Per kind and scale-out: the smallest share of paths that keep the promise, and when."""
    share = np.ones((len(downtime), len(capacity)))
    moment = np.zeros(share.shape, dtype=np.intp)
    if len(failures.moments_s) == 1:  # a failure now: nothing can have built up before it
        for k, d in enumerate(downtime):
            needed = failures.least_needed_rps(0, d)[:, None]
            share[k] = count_reached(needed, capacity)[:, 0] / len(d)
        return share, failures.moments_s[moment]
    strained = np.flatnonzero((capacity < failures.fastest_rps).any(axis=1))
    calm = np.setdiff1d(np.arange(len(capacity)), strained)
    for k, d in enumerate(downtime):
        if len(calm):
            kept_by = count_reached(failures.needed_rps(d), capacity[calm])
            moment[k, calm] = kept_by.argmin(axis=1)
            share[k, calm] = kept_by.min(axis=1) / len(d)
    for k, d in enumerate(downtime):
        worst_when_calm = moment[k, calm[:1]]
        hopeless = _hopeless_moment(failures, capacity[strained], d, first=worst_when_calm)
        sure = strained[hopeless >= 0]
        share[k, sure], moment[k, sure] = 0.0, hopeless[hopeless >= 0]
    rest = strained[(share[:, strained] > 0).any(axis=0)]

    def settle(block: Counts) -> None:
        if len(block):
            for k, kept_by in enumerate(count_kept(failures, capacity[block], downtime)):
                moment[k, block] = kept_by.argmin(axis=1)
                share[k, block] = kept_by.min(axis=1) / downtime.shape[1]

    if len(rest) and rising(capacity[rest]):  # then so is the share: between two both 0 or both 1 it is known
        ladder = rest[np.unique(np.linspace(0, len(rest) - 1, BLOCK).astype(np.intp))]
        settle(ladder)
        above = np.searchsorted(ladder, rest)
        upper, lower = ladder[above], ladder[np.maximum(above - 1, 0)]
        known = (share[:, upper] == 0) | (share[:, lower] == 1) | (upper == rest)
        share[:, rest] = np.where(known, share[:, upper], share[:, rest])
        moment[:, rest] = np.where(known, moment[:, upper], moment[:, rest])
        rest = rest[~known.all(axis=0)]
    for start in range(0, len(rest), BLOCK):
        settle(rest[start : start + BLOCK])
    return share, failures.moments_s[moment]


def _hopeless_moment(failures: Failures, capacity: Array, downtime_s: Array, *, first: Counts) -> Counts:
    """Per scale-out the first tried moment at which no path can keep the promise, else -1."""
    found = np.full(len(capacity), -1, dtype=np.intp)
    if len(capacity):
        evenly = np.linspace(0, len(failures.moments_s) - 1, SURE_MOMENTS).astype(np.intp)
        for moment in np.concatenate([first, evenly]):
            least = failures.least_needed_rps(moment, downtime_s)
            found[(found < 0) & (capacity < least).all(axis=1)] = moment
    return found
