"""Which recorded records make up this slice, so that the rate is reached and the keys keep their shares?

A slice moves on from position p to p + a in the recording, and n records are due in it. The stretch is cut
into n equal strata, and each gives the record under a point that is drawn at random within it:

    i_j = ⌊p + (j + u_j) · a / n⌋,   u_j uniform on [0, 1),   j = 0 … n − 1

Every record is expected n / a times: deleted with n < a, replicated with n > a, each exactly once with n = a
from a whole position on. The order is kept. One common random start u for all strata, plain systematic
sampling, would meet patterns that repeat with its own step (of ten keys in turn, every second record shows
five); a point of its own per stratum does not.

Positions are whole millionths of a record, and everything is an integer. A slice's random numbers follow from
(seed, number of the slice) alone, so that several tasks draw the same records and share them out.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from models.arguments import whole
from models.quantities import Misuse

Whole = NDArray[np.int64]

MICRO = 1_000_000  # positions are counted in millionths of a record


def draw(*, position: int, advance: int, count: int, seed: int, number: int) -> Whole:
    """The records of one slice by their index, ascending. `position` and `advance` in millionths."""
    whole("count", count, at_least=0)
    whole("position", position, at_least=0)
    whole("advance", advance, at_least=0)
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if count * advance >= 2**63:
        raise Misuse("advance", f"{count} records out of {advance / MICRO:,.0f} are too many for one slice")
    record, offset = divmod(position, MICRO)
    strata = np.arange(count, dtype=np.int64) * advance
    if advance > 0:
        strata += np.random.default_rng([seed, number]).integers(0, advance, size=count)
    chosen: Whole = record + (offset + strata // count) // MICRO
    return chosen


def position_at(at_us: int, *, records: int, span_us: int) -> int:
    """How far into a recording of so many records in so much time, walked through in its own time."""
    return records * MICRO * at_us // span_us


def position_after(due: int, *, copies: Fraction) -> int:
    """How far into a recording after so many records, when each appears `copies` times."""
    return due * MICRO * copies.denominator // copies.numerator
