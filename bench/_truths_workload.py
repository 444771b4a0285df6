"""Twelve shapes of an arrival rate, and how a forecast is judged on them.

The winner is chosen on the first part of each series and judged on the rest, from one origin after another,
against the last value and the value one true period ago: whichever of the two was better in hindsight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from models.workload import fit_forecast

STEP_S = 30.0
PERIOD = 240
SECOND_PERIOD = 60


def _noise(random: np.random.Generator, n: int, share: float) -> np.ndarray:
    return 1.0 + share * random.normal(size=n)


def _flat(random, n):
    return 1_000 * _noise(random, n, 0.03)


def _ramp(random, n):
    return np.linspace(500, 2_500, n) * _noise(random, n, 0.03)


def _daily(random, n):
    phase = random.uniform(0, 2 * np.pi)
    return (1_000 + 600 * np.sin(2 * np.pi * np.arange(n) / PERIOD + phase)) * _noise(random, n, 0.02)


def _two_periods(random, n):
    t = np.arange(n)
    slow = 1_000 + 500 * np.sin(2 * np.pi * t / PERIOD + random.uniform(0, 6))
    fast = 250 * np.sin(2 * np.pi * t / SECOND_PERIOD + random.uniform(0, 6))
    return (slow + fast) * _noise(random, n, 0.02)


def _spikes(random, n):
    rate = 800 * _noise(random, n, 0.03)
    for start in np.flatnonzero(random.random(n) < 0.015):
        rate[start : start + 4] += random.uniform(500, 2_000)
    return rate


def _random_walk(random, n):
    return np.abs(2_000 + np.cumsum(20 * random.normal(size=n)))


def _zero_stretches(random, n):
    rate = 1_000 * _noise(random, n, 0.05)
    at = 0
    while at < n:
        at += int(random.integers(40, 160))
        quiet = int(random.integers(20, 80))
        rate[at : at + quiet] = 0.0
        at += quiet
    return rate


def _step(random, n):
    at = int(random.uniform(0.2, 0.9) * n)
    return np.where(np.arange(n) < at, 800, 1_600) * _noise(random, n, 0.03)


def _sawtooth(random, n):
    t = np.arange(n) + int(random.integers(PERIOD))
    return (400 + 1_200 * (t % PERIOD) / PERIOD) * _noise(random, n, 0.03)


def _decaying(random, n):
    return (300 + 2_500 * np.exp(-np.arange(n) / (n / 4))) * _noise(random, n, 0.03)


def _noisy_daily(random, n):
    wander = np.zeros(n)
    for k, e in enumerate(random.normal(size=n)):
        wander[k] = (0.9 * wander[k - 1] if k else 0.0) + e
    day = 1_000 + 500 * np.sin(2 * np.pi * np.arange(n) / PERIOD + random.uniform(0, 6))
    return np.maximum(0.0, day + 60 * wander + 100 * random.normal(size=n))


def _gappy(random, n):
    rate = _daily(random, n)
    rate[random.random(n) < 0.1] = np.nan
    for start in random.integers(0, n, 4):
        rate[start : start + 30] = np.nan
    return rate


SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "flat": _flat,
    "ramp": _ramp,
    "daily": _daily,
    "two periods": _two_periods,
    "spikes": _spikes,
    "random walk": _random_walk,
    "zero stretches": _zero_stretches,
    "step": _step,
    "sawtooth": _sawtooth,
    "decaying": _decaying,
    "noisy daily": _noisy_daily,
    "gappy": _gappy,
}


@dataclass(frozen=True)
class Judgement:
    model: str
    error: float
    """Mean absolute error over the horizons judged, as those of the naive forecasts."""
    last: float
    seasonal: float
    mean_rate: float
    band_covered: float
    """Share of steps inside the 90 % band."""
    peaks_covered: float
    """Share of horizons whose maximum lies in the 90 % interval of the peak."""
    peaks_below_high: float

    @property
    def loss(self) -> float:
        """Loss to the better naive over what is allowed: 5 % of its error or 0.5 % of the mean rate."""
        better = min(self.last, self.seasonal)
        return (self.error - better) / max(0.05 * better, 0.005 * self.mean_rate)


def judge(shape: str, seed: int, *, points: int = 960, horizon: int = 36, share: float = 0.7) -> Judgement:
    rate = SHAPES[shape](np.random.default_rng([seed, len(shape)]), points)
    begin = int(share * points)
    forecaster = fit_forecast(rate[:begin], step_s=STEP_S, horizon_s=horizon * STEP_S, seed=seed)
    sums = dict.fromkeys(("error", "last", "seasonal"), 0.0)
    steps = inside = peaks = peaks_in = peaks_below = 0
    for origin in range(begin, points - horizon + 1, horizon // 3):
        if origin > begin:
            forecaster.update(rate[origin - horizon // 3 : origin])
        forecast = forecaster.predict(paths=50)
        actual = rate[origin : origin + horizon]
        seen = ~np.isnan(actual)
        if not seen.any():
            continue
        before = rate[:origin]
        last = before[~np.isnan(before)][-1]
        season = before[np.arange(origin, origin + horizon) - PERIOD]
        season = np.where(np.isnan(season), last, season)
        for name, guess in (("error", forecast.mid), ("last", last), ("seasonal", season)):
            sums[name] += float(np.abs(actual - guess)[seen].sum())
        steps += int(seen.sum())
        inside += int(((actual >= forecast.low) & (actual <= forecast.high))[seen].sum())
        highest = float(np.nanmax(actual))
        peaks += 1
        peaks_in += forecast.peak.low <= highest <= forecast.peak.high
        peaks_below += highest <= forecast.peak.high
    return Judgement(
        model=forecaster.model,
        error=sums["error"] / steps,
        last=sums["last"] / steps,
        seasonal=sums["seasonal"] / steps,
        mean_rate=float(np.nanmean(rate)),
        band_covered=inside / steps,
        peaks_covered=peaks_in / peaks,
        peaks_below_high=peaks_below / peaks,
    )
