"""Score of a forecast against the rates that were observed afterwards.

A forecast *missed* when the highest observed rate lies outside its interval of the peak, or when its mean
absolute error is more than twice that of the last value observed before it was made. A calibrated 90 %
interval misses one time in ten, so a single miss says little. A missing observation (NaN) is left out; a zero
is a value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from .arguments import Array, number, numbers
from .quantities import Interval, Unknown
from .series import Grid

ENOUGH_SEEN = 0.5  # judgement: with less than half of the horizon observed its maximum is not known
TWICE_AS_BAD = 2.0  # judgement: by chance alone one forecast in two is worse than the last value


class Forecasting(Protocol):
    """The parts of a forecast that are scored; `models.workload.Forecast` and `Issued` have them."""

    @property
    def step_s(self) -> float: ...
    @property
    def mid(self) -> Any: ...
    @property
    def low(self) -> Any: ...
    @property
    def high(self) -> Any: ...
    @property
    def peak(self) -> Interval: ...
    @property
    def confidence(self) -> float: ...


@dataclass(frozen=True)
class Issued:
    """A forecast as it was made, small enough to keep until its horizon is over."""

    schema: ClassVar[int] = 1
    made_at_s: float
    step_s: float
    mid: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    peak: Interval
    confidence: float

    @classmethod
    def of(cls, forecast: Forecasting, *, made_at_s: float) -> Issued:
        """The parts of a forecast that its score needs."""
        mid, low, high = (tuple(float(v) for v in x) for x in (forecast.mid, forecast.low, forecast.high))
        at = number("made_at_s", made_at_s)
        return cls(at, forecast.step_s, mid, low, high, forecast.peak, forecast.confidence)

    @property
    def over_at_s(self) -> float:
        """End of its horizon, when it can be scored."""
        return self.made_at_s + self.step_s * len(self.mid)


@dataclass(frozen=True)
class Score:
    """One forecast compared with the observed rates."""

    steps: int
    """How many steps were observed."""
    mae_rps: float
    naive_mae_rps: float | Unknown
    """The error of the last value observed before the forecast was made."""
    coverage: float
    """Share of the observed steps inside the band."""
    highest_rps: float
    peak: Interval

    @property
    def misses(self) -> tuple[str, ...]:
        """The ways in which it missed; empty when it did not."""
        said = []
        p = self.peak
        if not p.low <= self.highest_rps <= p.high:
            side = "above" if self.highest_rps > p.high else "below"
            said.append(f"the highest rate {self.highest_rps:.4g} rps is {side} {p.low:.4g}–{p.high:.4g} rps")
        naive = self.naive_mae_rps
        if not isinstance(naive, Unknown) and self.mae_rps > TWICE_AS_BAD * naive:
            said.append(f"off by {self.mae_rps:.4g} rps where the last value was off by {naive:.4g} rps")
        return tuple(said)

    @property
    def missed(self) -> bool:
        """Whether it missed in any way."""
        return bool(self.misses)


def score(forecast: Forecasting, *, made_at_s: float, actual: Grid) -> Score | Unknown:
    """Score of the forecast made at `made_at_s`; Unknown until at least half of its horizon was observed.

    `actual` may have another step than the forecast; its cells are averaged by how long they overlap.
    """
    made_at_s = number("made_at_s", made_at_s)
    mid = numbers("forecast", forecast.mid)
    y = _resampled(actual, start_s=made_at_s, step_s=forecast.step_s, steps=mid.size)
    seen = ~np.isnan(y)
    if int(seen.sum()) < max(1.0, ENOUGH_SEEN * mid.size):
        return Unknown(
            f"{int(seen.sum())} of the {mid.size} steps forecast at {made_at_s:.0f} are observed; "
            f"it can be scored from {made_at_s + forecast.step_s * mid.size:.0f} on"
        )
    y, mid = y[seen], mid[seen]
    low, high = numbers("forecast", forecast.low)[seen], numbers("forecast", forecast.high)[seen]
    known = actual.values[: max(0, math.floor((made_at_s - actual.start_s) / actual.step_s + 1e-9))]
    known = known[~np.isnan(known)]
    return Score(
        steps=int(seen.sum()),
        mae_rps=float(np.abs(y - mid).mean()),
        naive_mae_rps=(
            float(np.abs(y - known[-1]).mean())
            if known.size
            else Unknown("the series holds no value from before the forecast was made")
        ),
        coverage=float(((low <= y) & (y <= high)).mean()),
        highest_rps=float(y.max()),
        peak=forecast.peak,
    )


def _resampled(actual: Grid, *, start_s: float, step_s: float, steps: int) -> Array:
    """Means over the forecast's cells, weighted by overlap; missing where less than half was observed."""
    edges = (start_s + step_s * np.arange(steps + 1) - actual.start_s) / actual.step_s
    seen = ~np.isnan(actual.values)
    at = np.arange(actual.values.size + 1)
    amount = np.interp(edges, at, np.concatenate(([0.0], np.cumsum(np.where(seen, actual.values, 0.0)))))
    present = np.interp(edges, at, np.concatenate(([0.0], np.cumsum(seen))))
    overlap = np.diff(present)
    enough = overlap >= 0.5 * step_s / actual.step_s - 1e-9
    result: Array = np.where(enough, np.diff(amount) / np.where(enough, overlap, 1.0), np.nan)
    return result
