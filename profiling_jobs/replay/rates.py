"""How many records are due by now, when the rate is constant, goes in steps or follows a trace?

With rate r(u), constant on each stretch, due(t) = ⌊∫₀ᵗ r(u) du⌋. Times are whole microseconds and rates
whole millirecords per second, so the integral is an integer in units of 10⁻⁹ records: nothing drifts,
however long it runs and however finely it is cut. A schedule can be changed from some moment on; what was
due before stays due.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

from models.arguments import number, numbers
from models.quantities import Misuse

MICROS = 1_000_000
UNIT = 1_000_000_000  # a millirecord per second for a microsecond is 10⁻⁹ records
LONGEST_S = 30 * 86_400.0  # judgement: a source that outlives its job by a month was forgotten
HIGHEST_RPS = 1e7  # judgement: far above any one machine


@dataclass(frozen=True)
class Schedule:
    """A rate for every moment from 0 to the end."""

    stretches: tuple[tuple[int, int], ...]
    """(from µs, millirecords per second), the first from 0, ascending."""
    end_us: int

    def __post_init__(self) -> None:
        starts = [start for start, _ in self.stretches]
        if not starts or starts[0] != 0:
            raise Misuse("stretches", "must begin at 0")
        if any(later <= earlier for earlier, later in pairwise(starts)):
            raise Misuse("stretches", "must ascend")
        if any(not 0 <= rate <= HIGHEST_RPS * 1000 for _, rate in self.stretches):
            raise Misuse("stretches", f"rates must lie within 0 and {HIGHEST_RPS:g} records/s")
        if not starts[-1] <= self.end_us <= LONGEST_S * MICROS:
            raise Misuse("end_us", f"must lie between the last stretch and {LONGEST_S:,.0f} s")

    @classmethod
    def constant(cls, rate_rps: float, *, duration_s: float) -> Self:
        """The same rate all the time."""
        return cls.steps([(duration_s, rate_rps)])

    @classmethod
    def steps(cls, steps: Iterable[tuple[float, float]]) -> Self:
        """(seconds, records/s), one after the other."""
        stretches, at_us = [], 0
        for index, (duration_s, rate_rps) in enumerate(steps):
            stretches.append((at_us, _milli(f"steps[{index}] rate", rate_rps)))
            at_us += micros(number(f"steps[{index}] duration", duration_s, at_least=1e-6, at_most=LONGEST_S))
        if not stretches:
            raise Misuse("steps", "must not be empty")
        return cls(tuple(stretches), at_us)

    @classmethod
    def trace(cls, rates_rps: Sequence[float], *, step_s: float = 1.0) -> Self:
        """One rate per step, as an arrival rate is recorded."""
        rates = numbers("rates_rps", rates_rps, at_least=0.0)
        return cls.steps([(step_s, float(rate)) for rate in rates.ravel()])

    def due(self, at_us: int) -> int:
        """How many records are due from 0 until this moment? After the end it stays as it is."""
        at_us = min(at_us, self.end_us)
        if at_us <= 0:
            return 0
        place = bisect_right(self._starts, at_us) - 1
        start, rate = self.stretches[place]
        return (self._before[place] + rate * (at_us - start)) // UNIT

    def rate_rps(self, at_us: int) -> float:
        """The rate that is commanded at this moment; 0 outside."""
        if not 0 <= at_us < self.end_us:
            return 0.0
        return self.stretches[bisect_right(self._starts, at_us) - 1][1] / 1000

    def mean_rps(self, from_us: int, to_us: int) -> float:
        """The mean rate that is commanded between two moments."""
        if to_us <= from_us:
            raise Misuse("to_us", "must be after from_us")
        return (self.due(to_us) - self.due(from_us)) * MICROS / (to_us - from_us)

    def changed(self, rate_rps: float, *, at_us: int) -> Self:
        """The same until `at_us`, and from then on another rate; what stood after it falls away."""
        at_us = max(at_us, 0)
        if at_us >= self.end_us:
            raise Misuse("at_us", f"the schedule is over after {self.end_us / MICROS:,.0f} s")
        kept = tuple(stretch for stretch in self.stretches if stretch[0] < at_us)
        return type(self)((*kept, (at_us, _milli("rate_rps", rate_rps))), self.end_us)

    def ended(self, *, at_us: int) -> Self:
        """The same until `at_us`, and then the end."""
        at_us = min(max(at_us, 0), self.end_us)
        kept = tuple(stretch for stretch in self.stretches if stretch[0] < at_us)
        return type(self)(kept or ((0, 0),), at_us)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"schema": 1, "stretches": [list(one) for one in self.stretches], "end_us": self.end_us}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` has written."""
        return cls(tuple((int(start), int(rate)) for start, rate in data["stretches"]), int(data["end_us"]))

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _ in self.stretches]

    @cached_property
    def _before(self) -> list[int]:
        """What is due when each stretch begins, in 10⁻⁹ records."""
        sums = [0]
        for (start, rate), (end, _) in pairwise(self.stretches):
            sums.append(sums[-1] + rate * (end - start))
        return sums


def micros(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * MICROS)


def _milli(name: str, rate_rps: float) -> int:
    return round(number(name, rate_rps, at_least=0.0, at_most=HIGHEST_RPS) * 1000)
