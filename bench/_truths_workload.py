"""Twelve shapes of an arrival rate, and how a forecast is judged on them.

The winner is chosen on the first part of each series and judged on the rest, from one origin after another,
against the last value and the value one true period ago: whichever of the two was better in hindsight.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from models.workload import Forecaster, fit_forecast

STEP_S = 30.0
PERIOD = 240
SECOND_PERIOD = 60


def _noise(random: np.random.Generator, n: int | tuple[int, ...], share: float) -> np.ndarray:
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


# Families of loads whose character changes, or whose period was not seen twice. No constant was fitted to
# them, but the trends were mended after the figures of `ramp up` and `first day, smooth` had been seen, and
# the peaks after those of `first day, smooth`, `counts` and `heavy tails`.

KNOWN, JUDGED, STEPS = 480, 480, 18  # four hours of history, four hours judged, nine minutes ahead
SETTLED = 3  # observations after a jump, from which on the error is compared with the steady one
AGAIN_STEADY = 90  # steps after a jump from which on the load counts as steady again
JUMPS = {"jump ×2.5": 2.5, "jump ×0.4": 0.4}
JUMP_NOISE = 0.04
DRAWN = 30  # loads after each jump
DAY = 2_880

Family = Callable[[np.random.Generator, int], np.ndarray]


def _jumps(factor: float) -> Family:
    """One jump in the part that is judged."""

    def rate(random: np.random.Generator, n: int) -> np.ndarray:
        level = 1_200 * np.where(np.arange(n) < jump_at(random, n), 1.0, factor)
        return level * _noise(random, n, JUMP_NOISE)

    return rate


def jump_at(random: np.random.Generator, n: int) -> int:
    return KNOWN + int(random.integers(150, n - KNOWN - 150))


def _first_day(share: float) -> Family:
    def rate(random, n):
        day = 1.0 + 0.7 * np.sin(2 * np.pi * np.arange(n) / DAY + random.uniform(0, 2 * np.pi))
        return 1_500 * day * _noise(random, n, share)

    return rate


def _line(first: float, last: float) -> Family:
    return lambda random, n: np.linspace(first, last, n) * _noise(random, n, 0.025)


def _ramp_and_plateau(random, n):
    begin = KNOWN + int(random.integers(30, 120))
    return np.interp(np.arange(n), [begin, begin + 160], [700, 2_100]) * _noise(random, n, 0.03)


def _flash_crowd(random, n):
    """Six times the load within five minutes; half of the excess is gone every quarter of an hour."""
    after = np.arange(n) - jump_at(random, n)
    crowd = np.where(after < 0, 0.0, np.minimum(after / 10, 1.0) * 0.5 ** (np.maximum(after - 10, 0) / 30))
    return 900 * (1.0 + 5.0 * crowd) * _noise(random, n, 0.04)


def _day_with_gaps(random, n):
    rate = _first_day(0.03)(random, n)
    rate[random.random(n) < 0.08] = np.nan
    for start in random.integers(0, n - 40, 5):
        rate[start : start + int(random.integers(8, 40))] = np.nan
    return rate


def _periodic(random, n):
    t = np.arange(n) / 200 + random.random()
    return (1_000 + 450 * np.sin(2 * np.pi * t) + 150 * np.cos(4 * np.pi * t)) * _noise(random, n, 0.03)


def _growing_period(random, n):
    t = np.arange(n)
    return (800 + 0.8 * t + (200 + 0.3 * t) * np.sin(2 * np.pi * t / 160)) * _noise(random, n, 0.03)


def _counts(random, n):
    return random.poisson(12 * (1.0 + 0.5 * np.sin(2 * np.pi * np.arange(n) / DAY)), n).astype(float)


def _memory(random, n):
    level = np.zeros(n)
    for k, e in enumerate(random.normal(size=n)):
        level[k] = 0.97 * level[k - 1] + e
    return np.maximum(0.0, 1_500 + 40 * level + 40 * random.normal(size=n))


def _noisier(random, n):
    return 1_000 * (1.0 + np.where(np.arange(n) < jump_at(random, n), 0.03, 0.09) * random.normal(size=n))


def _staircase(random, n):
    heights = random.uniform(500, 2_500, n // 80 + 1)
    return heights[np.arange(n) // 80] * _noise(random, n, 0.03)


def _heavy_tails(random, n):
    return 1_000 * np.exp(0.12 * random.standard_t(4, size=n))


def _wandering(random, n):
    return 3_000 * np.exp(np.cumsum(0.006 * random.normal(size=n)))


def _bursts(random, n):
    rate = 1_000 * _noise(random, n, 0.04)
    for start in np.flatnonzero(random.random(n) < 0.008):
        rate[start : start + int(random.integers(2, 7))] *= random.uniform(1.8, 3.0)
    return rate


def _momentum(random, n):
    """The slope wanders and dies away: what a damped trend describes."""
    level, slope = np.empty(n), 0.0
    at = 0.0
    for k, e in enumerate(random.normal(size=n)):
        slope = 0.95 * slope + 2.0 * e
        at += slope
        level[k] = at
    return np.maximum(0.0, 3_000 + level) * _noise(random, n, 0.005)


FAMILIES: dict[str, Family] = {
    "first day, smooth": _first_day(0.0),
    "first day, noisy": _first_day(0.03),
    "ramp up": _line(400, 2_800),
    "ramp down": _line(2_800, 400),
    "ramp and plateau": _ramp_and_plateau,
    **{name: _jumps(factor) for name, factor in JUMPS.items()},
    "flash crowd": _flash_crowd,
    "day with gaps": _day_with_gaps,
    "periodic": _periodic,
    "growing period": _growing_period,
    "counts": _counts,
    "memory": _memory,
    "noisier": _noisier,
    "staircase": _staircase,
    "heavy tails": _heavy_tails,
    "wandering": _wandering,
    "bursts": _bursts,
    "momentum": _momentum,
}


@dataclass(frozen=True)
class FamilyFigures:
    """What was found in one series; errors are mean absolute ones over all origins and steps."""

    errors: dict[str, float]
    """Of the forecast and of its peers: last value, Holt, seasonal naive."""
    band_covered: float
    peaks_covered: float
    after_jump: float = np.nan
    """Error of the forecasts made SETTLED observations after the jump, over DRAWN loads that follow it."""
    steady: float = np.nan
    highest: float = np.nan
    """The largest forecast after the jump, as a multiple of the true rate."""


def judge_family(
    rate: np.ndarray, seed: int, *, period: int | None = None, jump: int | None = None
) -> FamilyFigures:
    """Fit on the first KNOWN values; then one forecast after every value."""
    forecaster = fit_forecast(rate[:KNOWN], step_s=STEP_S, horizon_s=STEPS * STEP_S, seed=seed)
    peers = {"last value": _last, "holt": _holt(rate[:KNOWN])}
    if period is not None:
        peers["seasonal naive"] = lambda past: past[past.size - period :][:STEPS]
    off: dict[str, list[float]] = {name: [] for name in ("forecast", *peers)}
    inside, peaks, at, over, after_jump = [], [], [], [], np.nan
    for origin in range(KNOWN, rate.size - STEPS + 1):
        if origin == jump:
            after_jump = _after_jump(forecaster, float(np.median(rate[jump:])), seed)
        forecast = forecaster.predict(paths=20)
        actual = rate[origin : origin + STEPS]
        seen = ~np.isnan(actual)
        if seen.any():
            past = _filled(rate[:origin])
            guesses = {"forecast": forecast.mid} | {name: peer(past) for name, peer in peers.items()}
            for name, guess in guesses.items():
                off[name].append(float(np.abs(actual - guess)[seen].mean()))
            inside.append(float(((forecast.low <= actual) & (actual <= forecast.high))[seen].mean()))
            peaks.append(forecast.peak.low <= np.nanmax(actual) <= forecast.peak.high)
            at.append(origin)
            if jump is not None and origin > jump:
                over.append(float(forecast.mid.max()) / float(np.median(rate[jump:])))
        forecaster.update(rate[origin])
    figures = FamilyFigures(
        {name: float(np.mean(errors)) for name, errors in off.items()},
        float(np.mean(inside)),
        float(np.mean(peaks)),
    )
    if jump is None:
        return figures
    steady = np.array(off["forecast"])[np.array(at) >= jump + AGAIN_STEADY]
    return replace(figures, after_jump=after_jump, steady=float(steady.mean()), highest=max(over))


def _after_jump(before: Forecaster, level: float, seed: int) -> float:
    """Error of three forecasts in a row after the jump to this level, the mean over DRAWN loads.

    Over one load it says little: what was seen since the jump are three to five values, and with eight jumps
    their mean, the best there is to forecast from, had 1.02 and 1.28 times the steady error, not 1.12.
    """
    errors = []
    for load in level * _noise(np.random.default_rng(seed), (DRAWN, SETTLED + 2 + STEPS), JUMP_NOISE):
        forecaster = Forecaster.from_json(before.to_json()).update(load[: SETTLED - 1])
        for seen in range(SETTLED, SETTLED + 3):
            forecaster.update(load[seen - 1])
            errors.append(np.abs(load[seen : seen + STEPS] - forecaster.predict(paths=1).mid).mean())
    return float(np.mean(errors))


def _filled(past: np.ndarray) -> np.ndarray:
    seen = np.flatnonzero(~np.isnan(past))
    return past[seen[np.maximum(np.searchsorted(seen, np.arange(past.size), side="right") - 1, 0)]]


def _last(past: np.ndarray) -> np.ndarray:
    return np.full(STEPS, past[-1])


def _holt(known: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Holt's linear trend by statsmodels, with the coefficients of the history."""
    from statsmodels.tsa.holtwinters import Holt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = Holt(_filled(known), initialization_method="estimated").fit()
    alpha, beta = found.params["smoothing_level"], found.params["smoothing_trend"]
    state = {"seen": 0, "level": found.params["initial_level"], "slope": found.params["initial_trend"]}

    def ahead(past: np.ndarray) -> np.ndarray:
        for value in past[int(state["seen"]) :]:
            level = alpha * value + (1 - alpha) * (state["level"] + state["slope"])
            state["slope"] = beta * (level - state["level"]) + (1 - beta) * state["slope"]
            state["level"] = level
        state["seen"] = past.size
        return np.maximum(0.0, state["level"] + state["slope"] * np.arange(1, STEPS + 1))

    return ahead


def family(name: str, seed: int) -> FamilyFigures:
    period = {"periodic": 200, "growing period": 160}.get(name)
    key = [seed, *name.encode()]
    jump = jump_at(np.random.default_rng(key), KNOWN + JUDGED) if name in JUMPS else None
    rate = FAMILIES[name](np.random.default_rng(key), KNOWN + JUDGED)
    return judge_family(rate, seed, period=period, jump=jump)
