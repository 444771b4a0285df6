"""Naive forecasts: the last value, the value one period ago, the median of recent values.

    last value        f(t + h) = y(t)
    seasonal naive    f(t + h) = y(t + h − P)
    recent median     f(t + h) = median of the last W observed values; of the last 12 only once all of
                      those were on one side of it, because then the level has moved; of those
                      since a long gap, because nothing says that it has not

A missing value is replaced by what the candidate itself expected, so that a gap never reads as zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..arguments import Array

LONG_GAP = 20  # steps; judgement: twice the horizon, and what an average with θ = −0.95 remembers
ONE_SIDED = 12  # of noise around one level about one value in 4 000 completes such a run


@dataclass(kw_only=True)
class LastValue:
    """The newest observed value, repeated."""

    kind: ClassVar[str] = "last"
    name: ClassVar[str] = "last value"
    last: float = 0.0

    def see(self, values: Array) -> None:
        """Update with new values."""
        observed = values[~np.isnan(values)]
        if observed.size:
            self.last = float(observed[-1])

    def ahead(self, steps: int) -> Array:
        """Forecast of the next `steps` steps."""
        return np.full(steps, self.last)


@dataclass(kw_only=True)
class SeasonalNaive:
    """The value one period ago."""

    kind: ClassVar[str] = "seasonal"
    period: int
    ring: list[float] = field(default_factory=list)
    """The last `period` values, oldest first."""
    last: float = 0.0

    @property
    def name(self) -> str:
        """Name in reports."""
        return f"seasonal naive {self.period}"

    def see(self, values: Array) -> None:
        """Update with new values."""
        for value in values.tolist():
            if value == value:
                self.last = value
            elif len(self.ring) >= self.period:
                value = self.ring[-self.period]
            else:
                value = self.last
            self.ring.append(value)
        del self.ring[: -self.period]

    def ahead(self, steps: int) -> Array:
        """Forecast of the next `steps` steps; before one full period was observed, the last value."""
        if len(self.ring) < self.period:
            return np.full(steps, self.last)
        return np.resize(np.array(self.ring), steps)


@dataclass(kw_only=True)
class RecentMedian:
    """The median of the newest observed values, which spikes and noise do not move."""

    kind: ClassVar[str] = "median"
    window: int
    recent: list[float] = field(default_factory=list)
    run: int = 0
    """How many values in a row were above (positive) or below (negative) the median before them."""
    missing: int = 0
    """Missing values in a row, up to now."""

    @property
    def name(self) -> str:
        """Name in reports."""
        return f"median of {self.window}"

    def see(self, values: Array) -> None:
        """Update with new values."""
        for value in values.tolist():
            if value != value:
                self.missing += 1
                continue
            if self.missing > LONG_GAP:
                self.recent, self.run = [], 0
            self.missing = 0
            middle = self._middle()
            if value == middle or not self.recent:
                self.run = 0
            elif value > middle:
                self.run = max(self.run, 0) + 1
            else:
                self.run = min(self.run, 0) - 1
            self.recent.append(value)
            del self.recent[: -self.window]
            if abs(self.run) >= ONE_SIDED:
                del self.recent[:-ONE_SIDED]
                self.run = 0

    def _middle(self) -> float:
        ordered = sorted(self.recent)
        half = len(ordered) // 2
        if not ordered:
            return 0.0
        return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2

    def ahead(self, steps: int) -> Array:
        """Forecast of the next `steps` steps."""
        return np.full(steps, self._middle())
