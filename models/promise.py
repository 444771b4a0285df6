"""Is the job back within the target, whenever it fails, at this scale-out?

    P(kind) = min over moments τ of  the share of draws p with  R(τ; path_p, D_p, T_p) ≤ target

pointwise in τ: a draw that breaks the promise at one moment may keep it at another. A draw is one forecast
path with its own downtime and capacity; the same draws serve every scale-out, so that two scale-outs differ
by what they are, not by luck. `models.moments` says exactly, for every draw, which capacity keeps it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arguments import Array, number, numbers
from .moments import ROUNDING, Counts, Failures, Input, count_kept, count_reached, rising
from .quantities import Misuse

CONFIDENCE = 0.95  # product default; the level of a 90 % interval's lower end
HAIR = 1e-12  # what rounding may take from a share that is exactly the promised one
SHORTEST_DOWNTIME_S = 1e-3  # judgement: nobody can measure less, and some work keeps "in time" decidable
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
        """Is this share of recoveries in time enough?"""
        return share >= self.confidence - HAIR

    def within_s(self, recoveries_s: Array) -> float:
        """By when has the promised share of these recoveries ended? At most the target when it `keeps` it."""
        needed = math.ceil((self.confidence - HAIR) * recoveries_s.size)
        return float(np.partition(recoveries_s, needed - 1)[needed - 1])


@dataclass(frozen=True)
class Kept:
    """How likely the promise is kept at its worst moment, and which moment that is."""

    probability: Array
    """Same leading shape as the downtimes, then one per scale-out."""
    worst_moment_s: Array
    """A moment with that probability: the earliest, or the first found where nothing can keep it."""


def kept(
    paths_rps: Any,
    *,
    capacity_rps: Any,
    downtime_s: Any,
    target_s: float,
    moments_s: float,
    lag_records: float = 0.0,
    replay_s: float = 0.0,
    past_rps: float | None = None,
    step_s: float = 1.0,
) -> Kept:
    """How likely is a failure at any moment before `moments_s` recovered in time, for each scale-out?

    `paths_rps` (paths, steps) from now on, each value constant over its step; `capacity_rps` (scale-outs,
    paths); `downtime_s` (paths,) or (kinds, paths). Draw p of path, downtime and capacity belong together.
    `past_rps` is the rate before now, for the replay; by default each path's first.
    """
    paths = numbers("paths_rps", paths_rps, at_least=0.0)
    if paths.ndim != 2 or not paths.size:
        raise Misuse("paths_rps", f"must be (paths, steps), got shape {paths.shape}")
    capacity = numbers("capacity_rps", capacity_rps, at_least=0.0)
    if capacity.ndim != 2 or capacity.shape[1] != len(paths) or not len(capacity):
        raise Misuse("capacity_rps", f"must be (scale-outs, {len(paths)}), got shape {capacity.shape}")
    downtime = numbers("downtime_s", downtime_s, at_least=0.0, infinite_allowed=True)
    if downtime.shape[-1:] != (len(paths),):
        raise Misuse("downtime_s", f"must be (…, {len(paths)}), got shape {downtime.shape}")
    target = number("target_s", target_s, above=0.0)
    last = number("moments_s", moments_s, at_least=0.0)
    lag = number("lag_records", lag_records, at_least=0.0)
    replay = number("replay_s", replay_s, at_least=0.0)
    step = number("step_s", step_s, above=0.0)
    past = (
        paths[:, 0] if past_rps is None else np.full(len(paths), number("past_rps", past_rps, at_least=0.0))
    )

    lead = downtime.shape[:-1]
    result = kept_along(
        Input(paths, step_s=step, past_rps=past),
        capacity_rps=capacity,
        downtime_s=downtime.reshape(-1, len(paths)),
        target_s=target,
        moments_s=last,
        lag_records=lag,
        replay_s=replay,
    )
    shape = (*lead, len(capacity))
    return Kept(result.probability.reshape(shape), result.worst_moment_s.reshape(shape))


def kept_along(
    input_: Input,
    *,
    capacity_rps: Array,
    downtime_s: Array,
    target_s: float,
    moments_s: float,
    lag_records: float,
    replay_s: float,
) -> Kept:
    """`kept` for an input that is cumulated already and values that are checked; downtimes (kinds, paths)."""
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
