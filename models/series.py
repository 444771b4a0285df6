"""What did the rate look like on a regular grid, and does it repeat itself?

**Grid.** Cell k covers [start + k·step, start + (k+1)·step). A cell in which nothing was observed is
*missing* (NaN); an observed zero is a zero. Nothing is interpolated here.

**Periods.** A period must show in the autocorrelation of what an ordinary wandering series would not
explain (`autocorrelation`). That is looked for in block means of 1, 2, 4, … steps, because a day is
invisible from one step to the next, and the scales share the error: **the chance of any period in a series
without one is at most `significance`** (white noise, first-order memory, random walk, each with a straight
line). A lag counts when it is a significant peak of its own, comes again at twice the lag where the series
is long enough, and at least two full periods were seen. The shortest is taken, refined by least squares on
its first harmonics, its profile removed, and the search repeated as long as a next profile explains a
visible share of the series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .arguments import Array, number, numbers, whole
from .autocorrelation import FEWEST_VALUES, repeating_lag
from .quantities import Misuse

SIGNIFICANCE = (
    0.05  # judgement: one series in twenty without a period may be given one; the back-test decides
)
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
        """Number of cells in which nothing was observed."""
        return int(np.isnan(self.values).sum())


def block_means(values: Any, *, size: int) -> Array:
    """What is the mean of every `size` steps? Missing where fewer than half of them were observed.

    The blocks end with the series: what does not fill a block is left out at the beginning.
    """
    data = numbers("values", values, missing_allowed=True)
    size = whole("size", size)
    blocks = data[data.size % size :].reshape(-1, size)
    seen = np.isfinite(blocks).sum(axis=1)
    total = np.nansum(blocks, axis=1)
    result: Array = np.where(seen * 2 >= size, total / np.maximum(seen, 1), np.nan)
    return result


def periods(
    values: Any, *, significance: float = SIGNIFICANCE, most: int = 3, seed: int = 0
) -> tuple[int, ...]:
    """After how many steps does the series repeat itself? Shortest first; empty when it does not."""
    data = numbers("values", values, missing_allowed=True)
    if data.ndim != 1:
        raise Misuse("values", f"must be one series, got shape {data.shape}")
    number("significance", significance, above=0.0, at_most=0.5)
    generator = np.random.default_rng(seed)
    found: list[int] = []
    rest = _without_line(data)
    whole_variance = float(np.nanvar(rest)) if np.isfinite(rest).any() else 0.0
    floor = 1e-6 * float(np.nanmax(np.abs(data), initial=0.0))
    while len(found) < whole("most", most, at_least=0):
        if np.isfinite(rest).sum() < FEWEST_VALUES or float(np.nanstd(rest)) <= floor:
            break
        period = _strongest_scale(rest, significance, generator)
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
    """What is the mean at each phase of the period, from the first value on? Zero for an unseen phase."""
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


def _strongest_scale(rest: Array, significance: float, generator: np.random.Generator) -> int | None:
    """The period at the scale that shows one most clearly, refined to single steps."""
    scales = [1]
    while rest.size // (2 * scales[-1]) >= FEWEST_VALUES:
        scales.append(2 * scales[-1])
    best: tuple[float, int, int] | None = None
    for scale in scales:
        found = repeating_lag(
            block_means(rest, size=scale), chance=significance / len(scales), generator=generator
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
