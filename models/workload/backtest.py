"""Back-test of the forecast candidates by rolling origin, over the horizon in use.

Rolling origin: from each of up to a hundred origins in the later part of the history every candidate
forecasts the whole horizon, having seen only what came before; its coefficients come from before the first
origin.

    loss(origin) = mean over the observed steps of |observed − forecast|

The better of the naive candidates is the bar. Another candidate wins only if it is better by more than one
standard error of the difference, counted over horizons that do not overlap (neighbouring origins share most
of their errors), and visibly so: a model no better than a naive forecast is one more thing that can fail.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..arguments import Array
from ..quantities import Unknown

MOST_ORIGINS = 100  # judgement: 1 % steps of the empirical quantiles
VISIBLE_GAIN = 0.02  # judgement: below a fiftieth of the error the naive forecast stays
FEW_BLOCKS = 3  # a standard error needs them
GAIN_WITHOUT_ERROR = 0.10  # judgement: what a model must gain where no standard error can be computed


class Candidate(Protocol):
    """Forecast candidate."""

    @property
    def name(self) -> str:
        """Name in reports."""
        ...

    def see(self, values: Array) -> None:
        """Update with new values."""
        ...

    def ahead(self, steps: int) -> Array:
        """Forecast of the next `steps` steps."""
        ...


@dataclass(frozen=True)
class BacktestError:
    """Errors of one candidate over the horizon that was tested."""

    mae_rps: float
    wape: float | Unknown
    """Sum of the absolute errors over the sum of the observed rates."""
    origins: int
    steps: int
    """The horizon tested, in steps."""


@dataclass(frozen=True, eq=False)
class Trial:
    """One candidate's forecasts (origins, steps), what was observed, and the loss at each origin."""

    name: str
    forecasts: Array
    observed: Array
    losses: Array

    def error(self) -> BacktestError:
        """The figures that are shown."""
        seen = ~np.isnan(self.observed)
        off = float(np.abs(self.observed - self.forecasts)[seen].sum())
        total = float(self.observed[seen].sum())
        return BacktestError(
            mae_rps=off / max(1, int(seen.sum())),
            wape=off / total if total > 0.0 else Unknown("nothing arrived over the horizons tested"),
            origins=len(self.losses),
            steps=self.observed.shape[1],
        )


@dataclass(frozen=True)
class Plan:
    """Origins and horizon of the back-test."""

    origins: tuple[int, ...]
    steps: int

    @property
    def blocks(self) -> tuple[int, ...]:
        """The block of each origin; horizons of blocks two apart share nothing."""
        return tuple((o - self.origins[0]) // self.steps for o in self.origins)

    @property
    def independent(self) -> float:
        """Number of horizons that fit beside each other into the tested span."""
        if not self.origins:
            return 0.0
        return (self.origins[-1] + self.steps - self.origins[0]) / self.steps


def plan(points: int, *, steps: int, after: int = 0) -> Plan:
    """Later half of the history, or later three quarters where the half holds fewer than four horizons.

    A history that holds no whole horizon is tested over a shorter one. No origin lies before `after`.
    """
    first = max(1, points // 2)
    if points - first < 4 * steps:
        first = max(1, points // 4, points - 4 * steps)
    first = max(first, after)
    tested = min(steps, max(1, (points - first) // 2)) if points - first < steps else steps
    last = points - tested
    if last < first:
        return Plan((), tested)
    count = min(MOST_ORIGINS, last - first + 1)
    return Plan(tuple(int(o) for o in np.unique(np.linspace(first, last, count).round())), tested)


def run(candidate: Candidate, values: Array, where: Plan) -> Trial:
    """Forecasts of this candidate from each origin; afterwards it has seen all values up to the last one."""
    seen = 0
    forecasts = np.empty((len(where.origins), where.steps))
    observed = np.empty_like(forecasts)
    for row, origin in enumerate(where.origins):
        candidate.see(values[seen:origin])
        seen = origin
        forecasts[row] = np.maximum(candidate.ahead(where.steps), 0.0)
        observed[row] = values[origin : origin + where.steps]
    present = ~np.isnan(observed)
    count = present.sum(axis=1)
    off = np.where(present, np.abs(observed - forecasts), 0.0).sum(axis=1)
    losses = np.where(count > 0, off / np.maximum(count, 1), np.nan)
    return Trial(candidate.name, forecasts, observed, losses)


@dataclass(frozen=True)
class Choice:
    """The winner's place among the trials, and why."""

    index: int
    why: str


def choose(trials: Sequence[Trial], where: Plan, *, naive: int) -> Choice:
    """The candidate that forecasts; the first `naive` trials are the naive candidates."""
    means = [_mean(t.losses) for t in trials]
    bar = 0
    for i in range(1, naive):
        error = _error_of_difference(trials[bar].losses - trials[i].losses, where)
        if means[bar] - means[i] > (GAIN_WITHOUT_ERROR * means[bar] if math.isnan(error) else error):
            bar = i
    tested = f"over {where.steps} steps from {len(where.origins)} origins"
    if len(trials) == naive:
        others = "no model could be fitted" if naive == 1 else f"best of {naive} naive candidates"
        return Choice(bar, f"{trials[bar].name}: mean error {means[bar]:.4g} rps {tested}; {others}")
    best = min(range(naive, len(trials)), key=lambda i: means[i])
    gain = means[bar] - means[best]
    said = f"mean error {means[best]:.4g} rps of {trials[best].name} against {means[bar]:.4g} rps of"
    said += f" {trials[bar].name} {tested}"
    error = _error_of_difference(trials[bar].losses - trials[best].losses, where)
    if math.isnan(error):
        wins = gain > GAIN_WITHOUT_ERROR * means[bar]
        rule = (
            f"too few separate horizons for a standard error, so {GAIN_WITHOUT_ERROR:.0%} better is asked for"
        )
    else:
        wins = gain > max(error, VISIBLE_GAIN * means[bar])
        rule = f"standard error of the difference {error:.3g} rps"
    return Choice(best if wins else bar, f"{trials[best if wins else bar].name}: {said} ({rule})")


def _mean(losses: Array) -> float:
    seen = losses[~np.isnan(losses)]
    return float(seen.mean()) if seen.size else math.inf


def _error_of_difference(differences: Array, where: Plan) -> float:
    """Standard error over blocks of one horizon; NaN with fewer than FEW_BLOCKS of them."""
    blocks = np.array(where.blocks)
    seen = ~np.isnan(differences)
    means = [differences[seen & (blocks == b)].mean() for b in np.unique(blocks[seen])]
    if len(means) < FEW_BLOCKS:
        return math.nan
    return float(np.std(means, ddof=1)) / math.sqrt(len(means))
