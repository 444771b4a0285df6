"""Chooses the recorded records of a slice, so that the rate is reached and the keys keep their shares.

A slice passes over m records of the recording, and n are due in it. Each of the m appears ⌊n / m⌋ times, and
n mod m of them, drawn at random without replacement, once more: all have the same chance. The order is kept.
While a slice passes over no whole record, the one that it is passing over appears n times. (Every (m / n)-th
record from a random start would meet patterns that repeat with its own step: of ten keys in turn, every
second record shows five.)

Positions are whole millionths of a record, so that nothing drifts. A slice's random numbers follow from
(seed, number of the slice) alone: several tasks draw the same records and share them out.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from models.arguments import whole

Whole = NDArray[np.int64]

MICRO = 1_000_000  # positions are counted in millionths of a record


def draw(*, position: int, advance: int, count: int, seed: int, number: int) -> Whole:
    """The records of one slice by their index, ascending. `position` and `advance` in millionths."""
    whole("count", count, at_least=0)
    first = whole("position", position, at_least=0) // MICRO
    passed = (position + whole("advance", advance, at_least=0)) // MICRO - first
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if passed <= 1:
        return np.full(count, first, dtype=np.int64)
    copies, more = divmod(count, passed)
    random = np.random.default_rng([seed, number])
    chosen = np.sort(random.choice(passed, size=more, replace=False, shuffle=False))
    if copies:
        chosen = np.sort(np.concatenate([np.repeat(np.arange(passed), copies), chosen]))
    return chosen.astype(np.int64) + first


def position_at(at_us: int, *, records: int, span_us: int) -> int:
    """How far into a recording of so many records in so much time, walked through in its own time."""
    return records * MICRO * at_us // span_us


def position_after(due: int, *, copies: Fraction) -> int:
    """How far into a recording after so many records, when each appears `copies` times."""
    return due * MICRO * copies.denominator // copies.numerator
