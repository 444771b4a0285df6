"""Rates on a regular grid, and the periods with which they repeat.

**Grid.** Cell k covers [start + k·step, start + (k+1)·step). A cell in which nothing was observed is
*missing* (NaN); an observed zero is a zero. Nothing is interpolated here.

**Periods.** A period must show in the autocorrelation of what an ordinary wandering series would not
explain (`autocorrelation`). That is looked for in block means of 1, 2, 4, … steps, because a day is
invisible from one step to the next, and the scales share the error: **the chance of any period in a series
without one is at most SIGNIFICANCE** (white noise, first-order memory, random walk, each with a straight
line). A lag counts when it is a significant peak of its own, comes again at twice the lag where the series
is long enough, and at least two full periods were seen. The shortest is taken, refined by least squares on
its first harmonics, its profile removed, and the search repeated as long as a next profile explains a
visible share of the series.

Autocorrelation: the lag at which a series repeats itself more than chance allows.

With the first-order memory φ of the series x taken out,

    e_t = (x_t − mean) − φ (x_{t−1} − mean)          z(L) = √N_L · Σ e_t e_{t+L} / (N_L var e)

over the N_L pairs observed at lag L. White noise, first-order memory and a random walk all leave an e in
no order; so the largest z over all lags is compared with the largest z of e shuffled. A permutation test
needs no normal distribution: it holds for spiky noise as well.

Recurrence: whether the series has come back to where it was, less than two periods ago.

A period needs two full cycles to pass a significance test (`series.periods`), but a job that has been running
for a day and a half has shown its day. So for a lag L between half and three quarters of the history

    r(L) = mean (y_{t+L} − y_t)² / (2 var y over both stretches)

is 1 for noise, 0 for an exact repetition. Random walks do not go below 0.05 at any of so many lags (none of
200 walks of 200 or 400 steps), on-off rates with random lengths do one time in twenty-five: good enough for a
candidate that still has to win the back-test, not for more. A lag known beforehand (a day, a week) is one
question instead of hundreds, and may have noise of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arguments import Array, numbers, whole
from .quantities import Misuse

SHUFFLES = 200  # judgement: 1/201 resolves 0.05 shared by seven scales, in tens of milliseconds
SHORTEST_LAG = 3  # two steps back and forth is noise to everything that rescales executors
FEWEST_VALUES = 24  # measured: below it the threshold exceeds what a clean sine reaches


def repeating_lag(
    values: Array, *, chance: float, generator: np.random.Generator
) -> tuple[int, float] | None:
    """The fundamental lag and how far beyond the threshold it is (> 1); None if chance may explain it."""
    innovations = _innovations(values)
    if innovations is None:
        return None
    z = _scores(innovations[None, :], innovations)[0]
    # The k-th largest of the shuffles bounds the chance by k / (SHUFFLES + 1).
    allowed = max(1, int(chance * (SHUFFLES + 1)))
    threshold = float(np.sort(_largest_by_chance(innovations, generator))[-allowed]) * _spread(z)
    lag = _fundamental(z, threshold)
    return None if lag is None else (lag, float(z[lag]) / threshold)


def _innovations(values: Array) -> Array | None:
    """What first-order memory does not explain; None when there is nothing left but rounding."""
    seen = np.isfinite(values)
    if seen.sum() < FEWEST_VALUES:
        return None
    centred = values - values[seen].mean()
    both = seen[1:] & seen[:-1]
    power = float((centred[:-1][both] ** 2).sum())
    if both.sum() < FEWEST_VALUES or power <= 0.0:
        return None
    memory = float((centred[1:][both] * centred[:-1][both]).sum()) / power
    left: Array = centred[1:] - min(max(memory, 0.0), 1.0) * centred[:-1]
    left = left - np.nanmean(left)
    if float(np.nanstd(left)) <= 1e-6 * float(np.nanstd(values)):
        return None
    return left


def _scores(rows: Array, like: Array) -> Array:
    """The score z(L) of every row, L = 0 … half the length; `like` says which cells are observed."""
    seen = np.isfinite(like)
    n = like.size
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(np.where(seen, rows, 0.0), size)
    products = np.fft.irfft(np.abs(spectrum) ** 2, size)[:, : n // 2 + 1]
    mask = np.fft.rfft(seen.astype(np.float64), size)
    pairs = np.round(np.fft.irfft(np.abs(mask) ** 2, size)[: n // 2 + 1])
    variance = float(np.nanvar(like))
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Array = np.where(pairs >= FEWEST_VALUES / 2, products / np.sqrt(pairs) / variance, 0.0)
    return result


def _spread(z: Array) -> float:
    """How much wider autocorrelations scatter than after shuffling, when too much memory was taken out.

    Bartlett: var r(L) = (1 + 2 Σ ρ²) / n. A step in the level makes φ ≈ 1, which leaves differences of noise.
    """
    return math.sqrt(1.0 + 2.0 * float((np.minimum(z[1:3] / max(float(z[0]), 1e-12), 0.0) ** 2).sum()))


def _largest_by_chance(innovations: Array, generator: np.random.Generator) -> Array:
    seen = np.isfinite(innovations)
    at_once = max(1, min(SHUFFLES, 200_000 // innovations.size))  # bounds the memory to a few megabytes
    largest: list[Array] = []
    for first in range(0, SHUFFLES, at_once):
        rows = np.full((min(at_once, SHUFFLES - first), innovations.size), np.nan)
        rows[:, seen] = generator.permuted(
            np.broadcast_to(innovations[seen], (rows.shape[0], int(seen.sum()))), axis=1
        )
        largest.append(_scores(rows, innovations)[:, SHORTEST_LAG:].max(axis=1))
    return np.concatenate(largest)


def _fundamental(z: Array, threshold: float) -> int | None:
    """The shortest lag that is a significant peak of its own and comes again at twice the lag."""
    above = z > threshold
    lag = SHORTEST_LAG
    while lag < z.size and z[lag] > 0:  # memory of the last few steps is no period
        lag += 1
    while lag < z.size:
        if not above[lag]:
            lag += 1
            continue
        end = lag
        while end < z.size and z[end] > 0:
            end += 1
        peak = lag + int(np.argmax(z[lag:end]))
        reach = max(1, peak // 10)
        again = z[2 * peak - reach : 2 * peak + reach + 1]
        if 2 * peak + reach >= z.size or float(again.max()) >= 0.5 * z[peak]:
            return peak
        lag = end
    return None


SEARCHED_RATIO = 0.05  # measured, see above
KNOWN_RATIO = 0.3  # judgement: noise of two thirds of a sine's own deviation
BLOCKS = 600  # judgement: places a lag to half a percent of the history before it is refined
FEWEST_PAIRS = 24


def recurrence(values: Array) -> int | None:
    """The lag in steps after which the series repeats, if within three quarters of the history."""
    size = max(1, values.size // BLOCKS)
    blocks = block_means(values, size=size)
    coarse = {lag: _ratio(blocks, lag) for lag in range(blocks.size // 2, 3 * blocks.size // 4 + 1)}
    if not coarse:
        return None
    about = size * min(coarse, key=lambda lag: coarse[lag])
    fine = {lag: _ratio(values, lag) for lag in range(about - size, about + size + 1)}
    best = min(fine, key=lambda lag: fine[lag])
    return best if fine[best] <= SEARCHED_RATIO else None


def recurs(values: Array, *, lag: int) -> bool:
    """Whether the series repeats after this lag."""
    return _ratio(values, lag) <= KNOWN_RATIO


def _ratio(values: Array, lag: int) -> float:
    if not 0 < lag < values.size:
        return 1.0
    before, after = values[:-lag], values[lag:]
    both = ~np.isnan(before) & ~np.isnan(after)
    if both.sum() < FEWEST_PAIRS:
        return 1.0
    before, after = before[both], after[both]
    variance = float(np.concatenate((before, after)).var())
    if variance <= 1e-12 * float(np.abs(after).max(initial=0.0)) ** 2:
        return 1.0  # a constant comes back after any time
    return float(((after - before) ** 2).mean()) / (2.0 * variance)


SIGNIFICANCE = 0.05
"""Judgement: one series in twenty without a period may be given one; the back-test decides."""
MOST_PERIODS = 3  # judgement: of a day, a week, and one of the machine's own
HARMONICS = 4  # judgement: enough to place a period; more only follow the noise
VISIBLE_SHARE = 0.02  # judgement: a weekend 40 % lower than weekdays shows 4 % of the variance


@dataclass(frozen=True)
class Grid:
    """Values at start_s, start_s + step_s, …; NaN where nothing was observed."""

    start_s: float
    step_s: float
    values: Array

    @property
    def missing(self) -> int:
        return int(np.isnan(self.values).sum())


def block_means(values: Any, *, size: int) -> Array:
    """Means of every `size` steps; missing where fewer than half of them were observed.

    The blocks end with the series: what does not fill a block is left out at the beginning.
    """
    data = numbers("values", values, missing_allowed=True)
    size = whole("size", size)
    blocks = data[data.size % size :].reshape(-1, size)
    seen = np.isfinite(blocks).sum(axis=1)
    total = np.nansum(blocks, axis=1)
    result: Array = np.where(seen * 2 >= size, total / np.maximum(seen, 1), np.nan)
    return result


def periods(values: Any, *, seed: int = 0) -> tuple[int, ...]:
    """Periods of the series in steps, shortest first, MOST_PERIODS at the most; empty if there is none."""
    data = numbers("values", values, missing_allowed=True)
    if data.ndim != 1:
        raise Misuse("values", f"must be one series, got shape {data.shape}")
    generator = np.random.default_rng(seed)
    found: list[int] = []
    rest = _without_line(data)
    whole_variance = float(np.nanvar(rest)) if np.isfinite(rest).any() else 0.0
    floor = 1e-6 * float(np.nanmax(np.abs(data), initial=0.0))
    while len(found) < MOST_PERIODS:
        if np.isfinite(rest).sum() < FEWEST_VALUES or float(np.nanstd(rest)) <= floor:
            break
        period = _strongest_scale(rest, generator)
        if period is None or any(abs(period - known) <= 0.05 * known for known in found):
            break
        rest = _straightened(rest, period)
        after = rest - profile(rest, period=period)[np.arange(rest.size) % period]
        # Phase means explain one part in the number of cycles of any noise: that much is no sign of a period.
        by_chance = float(np.nanvar(rest)) * min(1.0, period / int(np.isfinite(rest).sum()))
        gain = float(np.nanvar(rest) - np.nanvar(after)) - by_chance
        if found and gain < VISIBLE_SHARE * whole_variance:
            break
        found.append(period)
        rest = after
    return tuple(sorted(found))


def profile(values: Array, *, period: int) -> Array:
    """Mean at each phase of the period, from the first value on; zero for an unobserved phase."""
    padded = np.full(-(-values.size // period) * period, np.nan)
    padded[: values.size] = values
    folded = padded.reshape(-1, period)
    seen = np.isfinite(folded).sum(axis=0)
    result: Array = np.nansum(folded, axis=0) / np.maximum(seen, 1)
    return result


def _without_line(data: Array) -> Array:
    seen = np.isfinite(data)
    if seen.sum() < 2:
        return data
    at = np.arange(data.size, dtype=np.float64)
    at -= at[seen].mean()
    level = data[seen].mean()
    slope = float((at[seen] * (data[seen] - level)).sum() / (at[seen] ** 2).sum())
    result: Array = data - level - slope * at
    return result


def _strongest_scale(rest: Array, generator: np.random.Generator) -> int | None:
    """The period at the scale that shows one most clearly, refined to single steps."""
    scales = [1]
    while rest.size // (2 * scales[-1]) >= FEWEST_VALUES:
        scales.append(2 * scales[-1])
    best: tuple[float, int, int] | None = None
    for scale in scales:
        found = repeating_lag(
            block_means(rest, size=scale), chance=SIGNIFICANCE / len(scales), generator=generator
        )
        if found is not None and (best is None or found[1] > best[0]):
            best = (found[1], scale, found[0])
    return None if best is None else _refined(rest, about=best[1] * best[2], within=best[1])


def _refined(rest: Array, *, about: int, within: int) -> int | None:
    """The period near `about` whose first harmonics, beside a straight line, leave the smallest squares."""
    reach = max(within, about // 20)
    coarse = max(1, about // 128)
    blocks = block_means(rest, size=coarse)
    first = rest.size % coarse + (coarse - 1) / 2
    tried = range(max(2, about - reach), min(about + reach, rest.size // 2) + 1)
    best = min(tried, key=lambda period: _harmonic_fit(blocks, first, coarse, period)[0])
    # At the edge the true one is longer, and was not seen twice.
    return None if best == tried[-1] and best >= rest.size // 2 - 1 else best


def _straightened(rest: Array, period: int) -> Array:
    """Without the line that stands beside the period: one fitted alone tilts with an unfinished cycle."""
    coarse = max(1, period // 128)
    first = rest.size % coarse + (coarse - 1) / 2
    _, level, slope = _harmonic_fit(block_means(rest, size=coarse), first, coarse, period)
    result: Array = rest - level - slope * np.arange(rest.size)
    return result


def _harmonic_fit(blocks: Array, first: float, coarse: int, period: int) -> tuple[float, float, float]:
    """Squares left by the first harmonics and a line, and the line's level and slope per step."""
    seen = np.isfinite(blocks)
    at = (first + coarse * np.arange(blocks.size, dtype=np.float64))[seen]
    length = max(1.0, float(at[-1]))
    angle = 2.0 * np.pi / period * at[:, None] * np.arange(1, min(HARMONICS, period // 2) + 1)
    columns = np.hstack((np.ones((at.size, 1)), at[:, None] / length, np.cos(angle), np.sin(angle)))
    target = blocks[seen]
    solution = _solved(columns, target)
    # Beside a wandering level the differences place the curve, beside noise the values do.
    left = target - columns @ solution
    memory = min(max(float(left[1:] @ left[:-1]) / max(float(left @ left), 1e-300), 0.0), 1.0)
    columns, target = columns[1:] - memory * columns[:-1], target[1:] - memory * target[:-1]
    sifted = target - columns @ _solved(columns, target)
    return float(sifted @ sifted), float(solution[0]), float(solution[1]) / length


def _solved(columns: Array, target: Array) -> Array:
    gram = columns.T @ columns
    ridge = 1e-9 * len(target) * np.eye(len(gram))
    return np.asarray(np.linalg.solve(gram + ridge, columns.T @ target), dtype=np.float64)
