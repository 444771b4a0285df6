"""Smallest scale-out for a rate.

The smallest s with T(s) ≥ target, for a capacity T that never falls with s: doubling finds a size that is too
small and one that is enough, halving closes the gap. Where T is unknown its neighbours decide: below a known
size that is too small everything is too small.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ..arguments import number
from ..quantities import Interval, Misuse, Unknown, executors

MOST = 16_384  # judgement: no streaming job has more executors, and a plateau must end the search
NEAR = 256  # judgement: a model that knows no power of two knows a few sizes near those it measured


class Capacity(Protocol):
    """The part of a capacity model that is used here."""

    def predict(self, scale_out: int, /) -> Interval | Unknown: ...


def smallest_scale_out(model: Capacity, *, target_rps: float) -> int | Unknown:
    """The smallest scale-out whose expected capacity reaches the target."""
    target = number("target_rps", target_rps, at_least=0.0)
    if not callable(getattr(model, "predict", None)):
        raise Misuse("model", f"must have predict(scale_out), got {model!r}")
    known = _Known(model, target)
    powers = [2**k for k in range(MOST.bit_length())]
    for s in powers:
        if known.enough is None:
            known.ask(s)
    if len(known.holes) == len(powers):
        for s in range(1, NEAR + 1):
            known.ask(s)
    while known.enough is None and known.hole_above() > known.too_small + 1:
        known.ask((known.too_small + known.hole_above()) // 2)
    while known.enough is not None and known.enough > known.too_small + 1:
        middle = (known.too_small + known.enough) / 2
        between = (s for s in range(known.too_small + 1, known.enough) if s not in known.holes)
        # A hole in the middle must not hide the answer beside it.
        if not any(known.ask(s) for s in sorted(between, key=lambda s: abs(s - middle))[:NEAR]):
            break
    return known.answer()


@dataclass
class _Known:
    """Capacities of the sizes asked so far, and what follows for all others."""

    model: Capacity
    target_rps: float
    too_small: int = 0
    sustained_rps: float = 0.0
    enough: int | None = None
    holes: dict[int, str] = field(default_factory=dict)

    def ask(self, scale_out: int) -> bool:
        """Whether the capacity of this size is known."""
        answer = self.model.predict(scale_out)
        if isinstance(answer, Unknown):
            self.holes[scale_out] = answer.reason
            return False
        if answer.mid >= self.target_rps:
            self.enough = scale_out if self.enough is None else min(self.enough, scale_out)
        elif scale_out > self.too_small:
            self.too_small, self.sustained_rps = scale_out, answer.mid
        return True

    def hole_above(self) -> int:
        """The smallest size of unknown capacity above those too small; 0 if there is none."""
        return min((s for s in self.holes if s > self.too_small), default=0)

    def answer(self) -> int | Unknown:
        target = f"{self.target_rps:,.0f} records/s"
        if self.enough is not None and self.enough == self.too_small + 1:
            return self.enough
        reason = self.holes.get(self.hole_above(), "")
        if self.enough is not None:
            return Unknown(
                f"{executors(self.enough, 'sustain')} {target}, whether fewer do is open: {reason}"
            )
        if not self.too_small:
            return Unknown(reason)
        most = f"{executors(self.too_small, 'sustain')} {self.sustained_rps:.0f} of {target}"
        return Unknown(f"{most}, and beyond: {reason}" if reason else f"out of reach: even {most}")
