"""What was decided, and what speaks against every size that was not taken? In words and in plain JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ..promise import Promise
from ..quantities import Interval, Unknown, executors
from .question import ChangeCost

Status = Literal["feasible", "infeasible", "unknown"]
Condition = Literal["capacity", "recovery", "observed", "forecast", "latency", "rescale"]


@dataclass(frozen=True)
class Excuse:
    """One condition that a size does not meet, or that nobody can judge; a sentence with the numbers."""

    condition: Condition
    sentence: str
    measure: str | None = None
    """Set where the condition is open, not failed: the measurement that would settle it."""


@dataclass(frozen=True)
class Recoveries(Interval):
    """5, 50 and 95 % of the recovery, whatever is promised."""

    promised: float
    """By when the promised share of them has ended: this is what the target is compared with."""


@dataclass(frozen=True)
class Verdict:
    """What is known about one size."""

    scale_out: int
    excuses: tuple[Excuse, ...]
    capacity: Interval | Unknown
    """Records a second that it keeps up with; where there are batches, in full ones."""
    probability: float | Unknown
    """That a failure is recovered in time, at the worst moment and for the worst kind."""
    worst_moment_s: float | Unknown
    worst_kind: str | Unknown
    load_probability: float | Unknown
    """That the capacity covers the forecast maximum."""
    rescale_probability: float | Unknown
    """That the change to this size is itself recovered in time; 1 for the present size."""
    latency_ms: Interval | Unknown
    recovery_s: Recoveries | Unknown
    """At the worst moment, for the chosen size and its neighbours."""

    status: Status = field(init=False)

    def __post_init__(self) -> None:
        failed = any(e.measure is None for e in self.excuses)
        status = "infeasible" if failed else "unknown" if self.excuses else "feasible"
        object.__setattr__(self, "status", status)

    def failed(self, *conditions: str) -> tuple[Excuse, ...]:
        """Which of these conditions does it miss for sure?"""
        return tuple(e for e in self.excuses if e.condition in conditions and e.measure is None)

    def fails(self, *conditions: str) -> bool:
        """Does it miss one of these conditions for sure?"""
        return bool(self.failed(*conditions))

    def excuses_beside(self, *conditions: str) -> tuple[Excuse, ...]:
        """What speaks against it apart from these conditions."""
        return tuple(e for e in self.excuses if e.condition not in conditions)


@dataclass(frozen=True)
class Decision:
    """The size to take now, with a verdict on every other one."""

    schema: ClassVar[int] = 1
    current: int
    scale_out: int | Unknown
    feasible: bool
    """Whether `scale_out` meets every condition."""
    reason: str
    alarm: str | None
    verdicts: tuple[Verdict, ...]
    utilisation_limit: float | Unknown
    """The highest utilisation the promise allows, (R − D)/(R + I), D at the promised confidence."""
    smallest_feasible: int | Unknown
    cost: ChangeCost | Unknown
    """Of the change to fewer executors, where one was weighed."""
    notes: tuple[str, ...] = ()
    """What was not judged, and why."""

    def of(self, scale_out: int) -> Verdict | Unknown:
        """What was found about this size?"""
        found = [v for v in self.verdicts if v.scale_out == scale_out]
        return found[0] if found else Unknown(f"{executors(scale_out, 'were')} not among the candidates")


def rate(rps: float) -> str:
    """A rate a person reads: 950, 36k, 1.2M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rps >= 0.9995 * size:
            shown = rps / size
            return f"{shown:.0f}{unit}" if shown >= 9.95 else f"{shown:.2g}{unit}"
    return f"{rps:.3g}"


def span(low: str, high: str) -> str:
    """31–36k, or 36k when both ends read the same."""
    if low == high:
        return high
    return f"{low[:-1] if low[-1] == high[-1] and low[-1] in 'kM' else low}–{high}"


def percent(share: float) -> str:
    """Never rounded up to what was promised."""
    return f"{math.floor(share * 1000 + 1e-9) / 10:g} %"


def seconds(value: float) -> str:
    """Whole seconds, or tenths below ten."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def against_promise(taken: Recoveries, share: float, promise: Promise) -> str:
    """`95 % of recoveries within 112 s ≤ 120 s`: the comparison that was made, with its numbers.

    Compared is the share that is in time with the promised one, which is the same as the time within which
    the promised share ends with the target. Where that time is beyond what was looked at, or the size was
    judged by a neighbour that was looked at more closely, the shares themselves are told.
    """
    target, kept = promise.target_s, promise.keeps(share)
    sure = f"{100 * promise.confidence:g} %"
    if math.isinf(taken.promised) or (taken.promised <= target) != kept:
        return f"recovery within {target:g} s in {percent(share)} {'≥' if kept else '<'} {sure}"
    text = seconds(taken.promised)
    if (float(text) <= target) != kept:  # rounded across the target
        text = f"{(math.floor if kept else math.ceil)(10 * taken.promised) / 10:.1f}"
    return f"{sure} of recoveries within {text} s {'≤' if kept else '>'} {target:g} s"
