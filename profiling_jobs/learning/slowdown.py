"""Can the live job do less than it was profiled at?

A new release, or a machine that others use too, may cost every size a part of its capacity, and no later
profile says so. With T the profile's capacity at one size, the mean of its saturated runs there or else the
highest rate sustained, the newest five live stretches count that came after it and tell something:

    against the profile   saturated at less than T / (1 + CONTRADICTION)
    for it                saturated at more, or sustained at as much

Three against it are believed, so that a bad stretch or two change nothing. What has slowed one size down has
slowed the others, too: were the results dropped at this size alone, the rest of the profile would refute the
new ones. So the profile keeps its shape, and all of it is taken at the share that is left at this size,

    share = median of the stretches against it / T

and of several sizes the smallest share counts. What was seen live before the first stretch against it is left
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from models.capacity.brackets import CONTRADICTION
from models.quantities import Measurement

NEWEST = 5  # judgement: two hours and a half of a job that stays saturated
AGAINST = 3  # the majority of them

Timed = tuple[float, Measurement]


@dataclass(frozen=True)
class Slowdown:
    """Since when it can do only this share of what was profiled, and at which size that was seen."""

    scale_out: int
    share: float
    since_s: float

    def taken(self, one: Measurement) -> Measurement:
        """A result of the profile as it would be now."""
        return replace(
            one, offered_rps=self.share * one.offered_rps, throughput_rps=self.share * one.throughput_rps
        )


def slowdown(probed: Sequence[Timed], lived: Sequence[Timed]) -> Slowdown | None:
    """None: the live job speaks for the profile, or too little against it."""
    found = [_at(size, probed, lived) for size in sorted({one.scale_out for _, one in probed})]
    return min((one for one in found if one is not None), key=lambda one: one.share, default=None)


def _at(size: int, probed: Sequence[Timed], lived: Sequence[Timed]) -> Slowdown | None:
    here = [(at_s, one) for at_s, one in probed if one.scale_out == size]
    profiled_s = max(at_s for at_s, _ in here)
    saturated = [one.throughput_rps for _, one in here if not one.sustained]
    capacity_rps = fmean(saturated) if saturated else max(one.throughput_rps for _, one in here)
    after = [(at_s, one) for at_s, one in lived if one.scale_out == size and at_s > profiled_s]
    telling = [
        (at_s, one)
        for at_s, one in sorted(after, key=lambda timed: timed[0])
        if not (one.sustained and _below(one, capacity_rps))
    ]
    against = [timed for timed in telling[-NEWEST:] if _below(timed[1], capacity_rps)]
    if len(against) < AGAINST:
        return None
    left_rps = median(one.throughput_rps for _, one in against)
    return Slowdown(size, left_rps / capacity_rps, against[0][0])


def _below(one: Measurement, capacity_rps: float) -> bool:
    return one.throughput_rps * (1.0 + CONTRADICTION) < capacity_rps
