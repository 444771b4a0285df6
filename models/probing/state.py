"""What has been asked, and what has been told?

A search is its settings, what it was told and what is still asked; everything else follows from these.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ..quantities import Measurement
from .brackets import Bracket, believed, bracket_of
from .probe import Probe, Result
from .settings import Settings

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
    """Asked and not yet told: asked again after a crash."""
    done: str = ""

    @cached_property
    def _by_size(self) -> dict[int, tuple[Result, ...]]:
        sizes: dict[int, list[Result]] = {s: [] for s in self.settings.scale_outs}
        for result in self.results:
            sizes[result.probe.scale_out].append(result)
        return {s: tuple(r) for s, r in sizes.items()}

    def at(self, scale_out: int) -> tuple[Result, ...]:
        """Every result at this scale-out, in the order told."""
        return self._by_size[scale_out]

    def valid(self, scale_out: int) -> tuple[Result, ...]:
        """The results at this scale-out that may be learnt from."""
        return tuple(r for r in self.at(scale_out) if r.valid)

    def bracket(self, scale_out: int) -> Bracket:
        """What has been sustained here, and what has not?"""
        return bracket_of(self.valid(scale_out))

    def invalid_in_a_row(self, scale_out: int) -> tuple[Result, ...]:
        """The invalid results since the last valid one."""
        results = self.at(scale_out)
        last = max((i for i, r in enumerate(results) if r.valid), default=-1)
        return results[last + 1 :]

    def given_up(self, scale_out: int) -> str:
        """Why is this scale-out not probed any more, its probes being beyond belief; otherwise empty."""
        failed = self.invalid_in_a_row(scale_out)
        if len(failed) <= self.settings.retries:
            return ""
        return f"given up after {len(failed)} invalid probes in a row; the last one: {failed[-1].reason}"

    def has_value(self, scale_out: int) -> bool:
        """Has the capacity here been measured directly, at least once, without an open contradiction?

        A rate that was only just missed counts once one half as high was sustained: alone it may be noise.
        """
        results = believed(self.valid(scale_out))
        sustained = max((r.value_rps for r in results if r.sustained), default=0.0)
        return any(r.clear or (not r.sustained and 2.0 * sustained >= r.value_rps) for r in results)

    @cached_property
    def spent(self) -> float:
        """Executor-seconds used by everything told."""
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
