"""What does a failure at each moment ask of the capacity, given every arrival path?

Failure at τ, downtime D, replayed span I, target R, arrivals cumulated in F, capacity T, lag₀ at the start:

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

import numpy as np
from numpy.typing import NDArray

from .arguments import Array

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


def backlog_records(input_: Input, *, capacity_rps: Array, lag_records: float, moment_s: float) -> Array:
    """lag(τ): how far behind is each path when it fails at this moment? (paths,)"""
    rows = round(moment_s / input_.grid_s) + 1
    ahead = lag_records + input_.records[:, :rows]
    ahead = ahead - capacity_rps[:, None] * (input_.grid_s * np.arange(rows))
    result: Array = ahead[:, -1] - np.minimum(ahead.min(axis=1), 0.0)
    return result
