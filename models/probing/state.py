"""A capacity search at one point: its settings, what was probed, and what the probes of each scale-out say.

A bracket is (highest rate sustained, lowest rate not sustained). Two results contradict each other when one
shows that the job could do more than the other allows, by more than the noise of a probe:

    sustained at y      against  saturated at z          y > 1.10 z
    saturated at y      against  not sustained at r      y > 1.10 r      (it fell short of what it can do)
    saturated at y      against  saturated at z          y > 1.25 z

Of two either may be wrong; with a third the odd one out is left aside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol, TypeVar

from ..quantities import Measurement
from .probe import Probe, Result
from .settings import Settings

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
        contradiction=_in_words(*found) if found else "",
    )


def believed(results: Sequence[Each]) -> tuple[Each, ...]:
    """The valid results of one scale-out without the odd ones; none where it is open which are odd."""
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
    """The pair that contradicts itself most: what could be done, and what contradicts it."""
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


def _in_words(able: Result, short: Result) -> str:
    did = "was sustained" if able.sustained else "was processed"
    return (
        f"{able.value_rps:,.0f} records/s {did}, yet another probe saturated at {short.value_rps:,.0f} "
        f"of {short.rate_rps:,.0f}"
    )


SAME_RATE = 1.10  # two shortfalls within 10 % are one limit; judgement
REACHABLE = 0.97  # of a source's own limit it holds steadily; judgement


@dataclass(frozen=True)
class Done:
    """Nothing more is asked, and why."""

    reason: str


@dataclass(frozen=True)
class State:
    """A search at one point. Immutable; `tell` gives the next one. JSON both ways at any point."""

    schema: ClassVar[int] = 1
    settings: Settings
    known: tuple[Measurement, ...] = ()
    results: tuple[Result, ...] = ()
    pending: tuple[Probe, ...] = ()
    """Asked and without a result: asked again after a crash."""
    done: str = ""

    @cached_property
    def _by_size(self) -> dict[int, tuple[Result, ...]]:
        sizes: dict[int, list[Result]] = {s: [] for s in self.settings.scale_outs}
        for result in self.results:
            sizes[result.probe.scale_out].append(result)
        return {s: tuple(r) for s, r in sizes.items()}

    def at(self, scale_out: int) -> tuple[Result, ...]:
        """Every result at this scale-out, in the order of their arrival."""
        return self._by_size[scale_out]

    def valid(self, scale_out: int) -> tuple[Result, ...]:
        """The results at this scale-out that have a value."""
        return tuple(r for r in self.at(scale_out) if r.valid)

    def bracket(self, scale_out: int) -> Bracket:
        """What has been sustained here, and what has not."""
        return bracket_of(self.valid(scale_out))

    def invalid_in_a_row(self, scale_out: int) -> tuple[Result, ...]:
        """The invalid results since the last valid one."""
        results = self.at(scale_out)
        last = max((i for i, r in enumerate(results) if r.valid), default=-1)
        return results[last + 1 :]

    def given_up(self, scale_out: int) -> str:
        """Why this scale-out is not probed any more; empty while it is."""
        failed = self.invalid_in_a_row(scale_out)
        if len(failed) <= self.settings.retries:
            return ""
        return f"given up after {len(failed)} invalid probes in a row; the last one: {failed[-1].reason}"

    def has_value(self, scale_out: int) -> bool:
        """Whether the capacity here was measured directly, at least once, without an open contradiction.

        A rate that was only just missed counts once one half as high was sustained: alone it may be noise.
        """
        results = believed(self.valid(scale_out))
        sustained = max((r.value_rps for r in results if r.sustained), default=0.0)
        return any(r.clear or (not r.sustained and 2.0 * sustained >= r.value_rps) for r in results)

    @cached_property
    def spent(self) -> float:
        """Executor-seconds used by all results."""
        return math.fsum(r.cost for r in self.results)

    @cached_property
    def committed(self) -> float:
        """Executor-seconds used, and those the pending probes will use."""
        return self.spent + math.fsum(p.executor_seconds for p in self.pending)

    @cached_property
    def source_limit_rps(self) -> float:
        """The highest rate worth asking: as set, or learnt from a source that fell short twice alike."""
        limit = self.settings.cap_rps
        reached = max((r.rate_rps for r in self.results if r.valid), default=0.0)
        for size in self.settings.scale_outs:
            short = [
                r.offered_rps
                for r in self.at(size)
                if not r.valid and r.offered_rps and r.offered_rps < 0.99 * r.probe.rate_rps
            ]
            for one, two in itertools.pairwise(short):
                # One shortfall may be a lost command; two that agree are the source's own limit.
                if max(one, two) <= SAME_RATE * min(one, two) and min(one, two) > reached:
                    limit = min(limit, REACHABLE * min(one, two))
        return limit
