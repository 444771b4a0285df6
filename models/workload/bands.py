"""How wrong may the forecast be, step by step, over the whole horizon, and at its maximum?

The winner's own errors in the back-test are kept as whole trajectories r_j (one per origin), because what
happens within a horizon hangs together. With the forecast f and a scale s,

    path_j(h) = max(0, f(h) + s(h) · (r_j(h) + d_j))     s = 1, or max(f, floor) if errors grow with the rate

Quantiles over the paths are the band. The shifts d_j make up for few independent horizons: how far whole
horizons lie off (σ of the trajectories' means) is known from k of them only, so d_j spreads that to what
Student's t gives, σ·√(q² − 1) with q = t_{k−1}/z · √(1 + 1/k), and the noise within a horizon stays as it is.

The peak is not the maximum of the paths, which add new noise to what the forecast carries: it is max f plus
the quantiles of max y − max f at the same origins, drawn out from their median by q.

Intervals from an ARIMA's own variance cover too little (measured: 87 % for 95 %) and are not used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..arguments import Array
from ..quantities import Interval
from ..student_t import student_quantiles
from .backtest import Plan, Trial

CONFIDENCE = 0.90  # judgement: as the capacity intervals
FLOOR_SHARE = (
    0.1  # judgement: errors do not vanish with the rate; a tenth of the mean rate is the least scale
)
MOST_NUMBERS = 40_000  # judgement: half a megabyte of JSON
FEW_HORIZONS = 3  # below this the trajectories say too little, and a prior stands beside them
PRIOR_SHARE = 0.2  # judgement: without experience the rate may move by a fifth over the horizon (one sigma)
PRIOR_PATHS = 40


@dataclass(frozen=True, eq=False)
class Spread:
    """Error trajectories (trajectories, horizon) in units of the scale."""

    trajectories: Array
    peaks: Array
    """How far the highest observed rate lay above the highest forecast, in the same units; may be empty."""
    proportional: bool
    floor_rps: float

    def paths(self, mid: Array) -> Array:
        """Where may the rate go, one row per trajectory?"""
        scale = np.maximum(mid, self.floor_rps) if self.proportional else np.ones_like(mid)
        result: Array = np.maximum(mid + scale * self.trajectories, 0.0)
        return result

    def later(self, steps: int) -> Spread:
        """The same of a forecast that begins so many steps after the newest observation."""
        horizon = self.trajectories.shape[1]
        return replace(self, trajectories=_extended(self.trajectories, horizon + steps)[:, steps:])


def spread(trial: Trial, where: Plan, *, horizon: int, history: Array, seed: int) -> Spread:
    """What the errors of the back-test say about the next forecast."""
    seen = ~np.isnan(trial.observed)
    enough = seen.sum(axis=1) * 2 >= where.steps
    level = float(np.nanmean(history))
    floor = FLOOR_SHARE * level
    trajectories, peaks = np.empty((0, horizon)), np.empty(0)
    proportional = False
    if enough.any():
        forecasts = trial.forecasts[enough]
        errors = _bridged(trial.observed[enough] - forecasts)
        scale = np.maximum(forecasts, floor)
        proportional = (
            floor > 0.0
            and where.independent >= 2 * FEW_HORIZONS
            and _likelihood(errors / scale, scale) > _likelihood(errors, np.ones_like(scale))
        )
        trajectories = _extended(errors / scale if proportional else errors, horizon)
        shifts = _shifts(trajectories.mean(axis=1), where.independent, seed)
        trajectories = trajectories + shifts[:, None]
        if where.steps == horizon and where.independent >= FEW_HORIZONS:
            highest = forecasts.max(axis=1)
            unit = np.maximum(highest, floor) if proportional else np.ones_like(highest)
            peaks = (np.nanmax(trial.observed[enough], axis=1) - highest) / unit
            peaks = np.median(peaks) + _inflation(where.independent) * (peaks - np.median(peaks))
    if where.independent < FEW_HORIZONS or not len(trajectories):
        trajectories = np.vstack((trajectories, _prior(history, level, horizon, seed)))
    most = max(20, MOST_NUMBERS // horizon)
    if len(trajectories) > most:
        trajectories = trajectories[np.linspace(0, len(trajectories) - 1, most).round().astype(int)]
    return Spread(_rounded(trajectories), _rounded(peaks), proportional, floor)


def between(paths: Array, mid: Array) -> tuple[Array, Array]:
    """The band around the forecast, step by step."""
    low, high = np.quantile(paths, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return np.minimum(low, mid), np.maximum(high, mid)


def peak(spread: Spread, paths: Array, mid: Array) -> Interval:
    """How high is the maximum over the horizon?"""
    highest = paths.max(axis=1)
    if spread.peaks.size:
        top = float(mid.max())
        highest = np.maximum(
            top + (max(top, spread.floor_rps) if spread.proportional else 1.0) * spread.peaks, 0.0
        )
    low, mid_, high = np.quantile(highest, [(1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2]).tolist()
    return Interval(low, mid_, high, CONFIDENCE)


def _likelihood(errors: Array, scale: Array) -> float:
    """Mean log-likelihood per step of two-sided exponential errors times a scale, up to a constant."""
    return -math.log(float(np.abs(errors).mean()) + 1e-300) - float(np.log(scale).mean())


def _bridged(errors: Array) -> Array:
    """Missing errors lie on the straight line between their neighbours."""
    at = np.arange(errors.shape[1])
    result = errors.copy()
    for row in result:
        missing = np.isnan(row)
        if missing.any():
            row[missing] = np.interp(at[missing], at[~missing], row[~missing])
    return result


def _extended(errors: Array, horizon: int) -> Array:
    """Beyond the horizon tested the last error grows with √time, as a random walk's would."""
    tested = errors.shape[1]
    if tested >= horizon:
        return errors
    growth = np.sqrt(np.arange(tested + 1, horizon + 1) / tested)
    return np.hstack((errors, errors[:, -1:] * growth))


def _shifts(means: Array, independent: float, seed: int) -> Array:
    """Shifts of whole trajectories, drawn without regard to their own."""
    if means.size < 2:
        return np.zeros_like(means)
    width = float(np.sqrt((means**2).mean()) * math.sqrt(_inflation(independent) ** 2 - 1.0))
    generator = np.random.default_rng(seed)
    drawn: Array = generator.normal(size=means.size)
    result: Array = width * (drawn - drawn.mean()) / (drawn.std() or 1.0)
    return result


def _inflation(independent: float) -> float:
    """How much wider a quantile must be that is known from so few horizons."""
    k = max(2.0, independent)
    level = np.array([(1 + CONFIDENCE) / 2])
    t, z = student_quantiles(level, degrees=k - 1.0)[0], student_quantiles(level, degrees=10_000.0)[0]
    return float(t / z) * math.sqrt(1.0 + 1.0 / k)


def _prior(history: Array, level: float, horizon: int, seed: int) -> Array:
    """Random walks as wide as judgement and the steps seen so far say."""
    seen = history[~np.isnan(history)]
    step = PRIOR_SHARE * level / math.sqrt(horizon)
    if seen.size > 1:
        step = math.hypot(step, float(np.sqrt((np.diff(seen) ** 2).mean())))
    walk = np.random.default_rng(seed).normal(scale=step, size=(PRIOR_PATHS // 2, horizon)).cumsum(axis=1)
    return np.vstack((walk, -walk))  # as many up as down


def _rounded(values: Array) -> Array:
    """Six significant digits: what JSON holds is what is computed with."""
    size = float(np.abs(values).max(initial=0.0))
    if size == 0.0:
        return values
    return np.round(values, min(12, 6 - math.ceil(math.log10(size))))
