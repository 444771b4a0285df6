"""At which lag does a series repeat itself more than chance allows?

With the first-order memory φ of the series x taken out,

    e_t = (x_t − mean) − φ (x_{t−1} − mean)          z(L) = √N_L · Σ e_t e_{t+L} / (N_L var e)

over the N_L pairs observed at lag L. White noise, first-order memory and a random walk all leave an e in
no order; so the largest z over all lags is compared with the largest z of e shuffled. A permutation test
needs no normal distribution: it holds for spiky noise as well.
"""

from __future__ import annotations

import math

import numpy as np

from .arguments import Array

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
