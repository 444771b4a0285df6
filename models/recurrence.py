"""Has the series come back to where it was, less than two periods ago?

A period needs two full cycles to pass a significance test (`series.periods`), but a job that has been running
for a day and a half has shown its day. So for a lag L between half and three quarters of the history

    r(L) = mean (y_{t+L} − y_t)² / (2 var y over both stretches)

is 1 for noise, 0 for an exact repetition. Random walks do not go below 0.05 at any of so many lags (none of
200 walks of 200 or 400 steps), on-off rates with random lengths do one time in twenty-five: good enough for a
candidate that still has to win the back-test, not for more. A lag known beforehand (a day, a week) is one
question instead of hundreds, and may have noise of its own.
"""

from __future__ import annotations

import numpy as np

from .arguments import Array
from .series import block_means

SEARCHED_RATIO = 0.05  # measured, see above
KNOWN_RATIO = 0.3  # judgement: noise of two thirds of a sine's own deviation
BLOCKS = 600  # judgement: places a lag to half a percent of the history before it is refined
FEWEST_PAIRS = 24


def recurrence(values: Array) -> int | None:
    """The lag in steps after which the series comes back, if it does within three quarters of the history."""
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
    """Does the series come back after this lag?"""
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
