"""Between which rates does the capacity of one scale-out lie, and can its results all be true?

A bracket is (highest rate sustained, lowest rate not sustained). Two results contradict each other when one
shows that the job could do more than the other allows, by more than the noise of a probe:

    sustained at y      against  saturated at z          y > 1.10 z
    saturated at y      against  not sustained at r      y > 1.10 r      (it fell short of what it can do)
    saturated at y      against  saturated at z          y > 1.25 z

Which of two is wrong cannot be told; a third one tells, and the odd one out is left aside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from .probe import Result

CONTRADICTION = 0.10  # what CapacityModel merges with a wider interval; beyond it refuses
APART = 0.25  # two estimates: six deviations at 3 % noise, so that noise alone takes nothing away; judgement


class Shown(Protocol):
    """What a valid result has shown, also where only that is left of it."""

    @property
    def sustained(self) -> bool: ...
    @property
    def value_rps(self) -> float: ...
    @property
    def rate_rps(self) -> float: ...


Each = TypeVar("Each", bound=Shown)


@dataclass(frozen=True)
class Bracket:
    """Highest rate kept up with and lowest rate not kept up with at one scale-out; 0 and inf without one."""

    sustained_rps: float
    not_sustained_rps: float
    contradiction: str = ""
    """Which results cannot both be true, beyond noise; or empty."""

    @property
    def flag(self) -> str:
        """What is inconsistent about it, or an empty text."""
        if not self.contradiction and self.sustained_rps > self.not_sustained_rps:
            return (
                f"{self.sustained_rps:,.0f} records/s was sustained and {self.not_sustained_rps:,.0f} was "
                "not; within the noise of a probe"
            )
        return self.contradiction

    @property
    def width(self) -> float:
        """Relative width; inf while a side is open or results contradict, 0 where noise has crossed them."""
        if self.contradiction or self.sustained_rps <= 0.0:
            return math.inf
        return max(0.0, self.not_sustained_rps / self.sustained_rps - 1.0)


def bracket_of(results: Sequence[Result]) -> Bracket:
    """The bracket these valid results make."""
    found = _contradiction(results)
    return Bracket(
        sustained_rps=max((r.value_rps for r in results if r.sustained), default=0.0),
        not_sustained_rps=min((r.rate_rps for r in results if not r.sustained), default=math.inf),
        contradiction=_told(*found) if found else "",
    )


def believed(results: Sequence[Each]) -> tuple[Each, ...]:
    """Which valid results of one scale-out stand, the odd ones left aside? None where that cannot be told."""
    kept = list(results)
    while found := _contradiction(kept):
        least = found[1].value_rps
        # A low rate that was sustained says nothing against a higher capacity.
        witnesses = [r for r in kept if not r.sustained or r.value_rps > least]
        if len(witnesses) < 3:
            return ()
        middle = sorted(r.value_rps for r in witnesses)[len(witnesses) // 2]
        kept.remove(max(found, key=lambda r: abs(math.log(r.value_rps / middle))))
    return tuple(kept)


def _contradiction(results: Sequence[Each]) -> tuple[Each, Each] | None:
    """The pair that contradicts itself most: what could be done, and what says it could not."""
    worst: float = 1.0
    pair: tuple[Each, Each] | None = None
    for able in results:
        for short in results:
            if short.sustained or short is able:
                continue
            excess = able.value_rps / short.value_rps / (1.0 + (CONTRADICTION if able.sustained else APART))
            excess = max(excess, able.value_rps / short.rate_rps / (1.0 + CONTRADICTION))
            if excess > worst * (1.0 + 1e-12):
                worst, pair = excess, (able, short)
    return pair


def _told(able: Result, short: Result) -> str:
    did = "was sustained" if able.sustained else "was processed"
    return (
        f"{able.value_rps:,.0f} records/s {did}, yet another probe saturated at {short.value_rps:,.0f} "
        f"of {short.rate_rps:,.0f}"
    )
