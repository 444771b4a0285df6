"""Was the forecast right?

Over the horizon in use, with y observed, f forecast, and q the value of a quantile of level a:

    coverage  share of steps with low ≤ y ≤ high             (a 90 % band should reach 90 %)
    pinball   mean of a·(y − q) where y > q, else (1 − a)·(q − y)
    WAPE      Σ |y − f| / Σ y                                (Unknown where nothing arrived)

A forecast *missed* when the highest observed rate lies outside its interval of the peak, or when it was off
by more than twice what the last value would have been. A calibrated 90 % interval misses one time in ten: a
single miss says little; `Drift` says when they add up. A missing observation (NaN) is left out, a zero not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from .arguments import Array, number, numbers
from .drift import Drift
from .quantities import Interval, Misuse, Unknown
from .series import Grid

__all__ = ["coverage", "pinball", "wape", "score", "Score", "Issued", "Drift"]

ENOUGH_SEEN = 0.5  # judgement: with less than half of the horizon observed its maximum is not known
TWICE_AS_BAD = 2.0  # judgement: by chance alone one forecast in two is worse than the last value


class Forecasting(Protocol):
    """What of a forecast is scored: `models.workload.Forecast` and `Issued` both are."""

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
        """What has to be remembered of this forecast?"""
        mid, low, high = (tuple(float(v) for v in x) for x in (forecast.mid, forecast.low, forecast.high))
        at = number("made_at_s", made_at_s)
        return cls(at, forecast.step_s, mid, low, high, forecast.peak, forecast.confidence)

    @property
    def over_at_s(self) -> float:
        """When can it be scored?"""
        return self.made_at_s + self.step_s * len(self.mid)


@dataclass(frozen=True)
class Score:
    """How one forecast compares with what came."""

    steps: int
    """How many steps were observed."""
    mae_rps: float
    naive_mae_rps: float | Unknown
    """The error of the last value observed before the forecast was made."""
    wape: float | Unknown
    coverage: float
    pinball_low_rps: float
    pinball_high_rps: float
    highest_rps: float
    peak: Interval

    @property
    def misses(self) -> tuple[str, ...]:
        """In which ways did it miss? Empty when it did not."""
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
        """Did it miss?"""
        return bool(self.misses)


def coverage(actual: Any, *, low: Any, high: Any) -> float | Unknown:
    """Which share of what was observed lies inside the band?"""
    y, (below, above) = _matched(actual, low=low, high=high)
    if not y.size:
        return _NOTHING
    return float(((below <= y) & (y <= above)).mean())


def pinball(actual: Any, *, quantile: Any, level: float) -> float | Unknown:
    """How costly is this quantile, in the units of the series? The true quantile costs least."""
    level = number("level", level, above=0.0)
    if level >= 1.0:
        raise Misuse("level", f"must be < 1, got {level:g}")
    y, (q,) = _matched(actual, quantile=quantile)
    if not y.size:
        return _NOTHING
    return float(np.maximum(level * (y - q), (level - 1.0) * (y - q)).mean())


def wape(actual: Any, *, forecast: Any) -> float | Unknown:
    """What share of everything that arrived was forecast wrongly?"""
    y, (f,) = _matched(actual, forecast=forecast)
    if not y.size:
        return _NOTHING
    total = float(np.abs(y).sum())
    if total == 0.0:
        return Unknown("nothing arrived, so there is nothing the error could be a share of")
    return float(np.abs(y - f).sum()) / total


def score(forecast: Forecasting, *, made_at_s: float, actual: Grid) -> Score | Unknown:
    """How good was a forecast made at this time? Unknown until at least half of its horizon was observed.

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
    tail = (1.0 - forecast.confidence) / 2
    return Score(
        steps=int(seen.sum()),
        mae_rps=float(np.abs(y - mid).mean()),
        naive_mae_rps=(
            float(np.abs(y - known[-1]).mean())
            if known.size
            else Unknown("the series holds no value from before the forecast was made")
        ),
        wape=wape(y, forecast=mid),
        coverage=float(((low <= y) & (y <= high)).mean()),
        pinball_low_rps=float(np.maximum(tail * (y - low), (tail - 1.0) * (y - low)).mean()),
        pinball_high_rps=float(np.maximum((1.0 - tail) * (y - high), -tail * (y - high)).mean()),
        highest_rps=float(y.max()),
        peak=forecast.peak,
    )


_NOTHING = Unknown("nothing was observed")


def _matched(actual: Any, **others: Any) -> tuple[Array, Sequence[Array]]:
    """What was observed, and the others at the same steps."""
    y = numbers("actual", actual, missing_allowed=True)
    checked = []
    for name, values in others.items():
        array = numbers(name, values)
        if array.shape not in ((), y.shape):
            raise Misuse(name, f"must be one number or of shape {y.shape} as actual is, got {array.shape}")
        checked.append(np.broadcast_to(array, y.shape)[~np.isnan(y)])
    return y[~np.isnan(y)], checked


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
