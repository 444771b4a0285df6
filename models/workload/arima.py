"""ARIMA recursion around a periodic curve, evaluated with numpy alone.

The curve has harmonics of the periods that were found,

    s(t) = Σ_P Σ_{k ≤ K_P} a_{P,k} cos(2πkt/P) + b_{P,k} sin(2πkt/P)

With u = y − s(t) and w = u or its difference u_t − u_{t−1}:

    w_t = c + Σ φ_i w_{t−i} + e_t + Σ θ_j e_{t−j}

After a jump of the level (`ensemble`) or a long gap nothing says where the level is: the drift is not drawn
on, and what is seen next is believed at once. The k-th value since counts as the k-th of their mean, 1/k,
until the model's own averaging gives it as much. A model that returns to a level believes it only if that
value lies further off than its values ever do.

A damped trend is a recursion too: with the share α of an error that moves the level, β that moves the slope,
and φ of the slope that is left a step later, φ_1 = φ, θ_1 = α + φβ − 1 − φ, θ_2 = φ(1 − α), on differences.

Only this recursion is kept of a fitted ARIMA: an update and a forecast need numpy alone, a model is a few
numbers of JSON, and the back-test runs exactly what the live forecast runs. `regressions` and `fitting` find
the numbers.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from operator import mul
from typing import Any

import numpy as np

from .. import codec
from ..arguments import Array
from ..quantities import Json


@dataclass(frozen=True)
class Fourier:
    """Periods in steps, the number of harmonics of each, and their cosine and sine coefficients."""

    periods: tuple[int, ...]
    harmonics: tuple[int, ...]
    coefficients: tuple[float, ...]

    def at(self, first: int, steps: int) -> Array:
        if not self.coefficients:
            return np.zeros(steps)
        at = first + np.arange(steps)
        result: Array = sum(
            (table[at % period] for period, table in zip(self.periods, _tables(self), strict=True)),
            np.zeros(steps),
        )
        return result


NO_CURVE = Fourier((), (), ())


@functools.lru_cache(maxsize=64)
def _tables(curve: Fourier) -> tuple[Array, ...]:
    """One period of each: a tick asks for a few steps of it many times."""
    found, begin = [], 0
    for period, count in zip(curve.periods, curve.harmonics, strict=True):
        own = np.array(curve.coefficients[begin : begin + 2 * count])
        found.append(waves(period, (period,), (count,)) @ own)
        begin += 2 * count
    return tuple(found)


def waves(steps: int, periods: tuple[int, ...], harmonics: tuple[int, ...]) -> Array:
    """Cosines and sines of each period (steps, 2 · harmonics), from step 0 on."""
    at = np.arange(steps)
    parts = []
    for period, count in zip(periods, harmonics, strict=True):
        # The step modulo the period is exact however long the job has been running.
        angle = (2.0 * np.pi / period) * (at % period)[:, None] * np.arange(1, count + 1)
        parts += [np.cos(angle), np.sin(angle)]
    return np.hstack(parts)


LONG_GAP = 20  # steps; judgement: twice the horizon, and what an average with θ = −0.95 remembers
AVERAGING = -0.5  # judgement: above it half of a jump is followed at once
REMEMBERED = 1_000  # judgement: steps of its own past that make up the usual deviation


@dataclass(frozen=True)
class Recursion:
    """The coefficients φ, θ, c, the standard deviation of e, and whether differences are modelled."""

    ar: tuple[float, ...]
    ma: tuple[float, ...]
    differenced: bool
    intercept: float
    deviation: float

    @property
    def averages(self) -> bool:
        """Whether it keeps a level, or follows one only slowly because it averages over many steps."""
        return not self.differenced or sum(self.ma) < AVERAGING

    @property
    def order(self) -> tuple[int, int, int]:
        """(p, d, q), as ARIMA orders are written."""
        return len(self.ar), int(self.differenced), len(self.ma)

    @property
    def usual(self) -> float:
        """The w to which it returns."""
        settled = 1.0 - sum(self.ar)
        return self.intercept / settled if abs(settled) > 1e-6 else 0.0

    @property
    def usual_deviation(self) -> float:
        """Standard deviation of w around that: σ √(Σ ψ²), with ψ_j the effect of an error j steps later."""
        psi = [1.0]
        for j in range(1, REMEMBERED):
            own = self.ma[j - 1] if j <= len(self.ma) else 0.0
            psi.append(own + sum(c * psi[j - 1 - i] for i, c in enumerate(self.ar[:j])))
        return self.deviation * math.sqrt(math.fsum(v * v for v in psi))


FAR_OFF = 3.0  # usual deviations of u from its level; one value in 400

STATE = ("at", "w", "e", "level", "moved", "missing", "since_gap")


@functools.lru_cache(maxsize=256)
def _responses(recursion: Recursion, steps: int) -> Array:
    """What one unit of the constant, of each w and of each e adds to the next `steps` values."""
    p, rows = len(recursion.ar), []
    for unit in np.eye(1 + p + len(recursion.ma)).tolist():
        constant, w, e, row = unit[0], unit[1 : 1 + p], unit[1 + p :], []
        for _ in range(steps):
            value = constant + sum(map(mul, recursion.ar, w)) + sum(map(mul, recursion.ma, e))
            w, e = [value, *w][:p], [0.0, *e][: len(e)]
            row.append(value)
        rows.append(np.cumsum(row) if recursion.differenced else row)
    return np.array(rows)


class Arima:
    """The recursion with its state and its curve."""

    kind = "arima"

    def __init__(
        self, recursion: Recursion, curve: Fourier = NO_CURVE, *, level: float | None = None
    ) -> None:
        self.recursion = recursion
        self.curve = curve
        self.at = 0
        self.w = [recursion.usual] * len(recursion.ar)
        """Newest first, as is `e`."""
        self.e = [0.0] * len(recursion.ma)
        self.level = level
        """The newest u; before the first, where to begin. None: at the first value observed."""
        self.moved = 0.0
        """By how much c has moved since the fit."""
        self.missing = 0
        """Values in a row, up to now."""
        self.since_gap = 0
        """How many were seen since a long gap or a jump, while the model's average would give them less."""

    @property
    def name(self) -> str:
        """Name in reports."""
        orders = ",".join(str(o) for o in self.recursion.order)
        drift = " with drift" if self.recursion.differenced and self.recursion.intercept != 0.0 else ""
        return f"arima({orders}){drift}{self._around}"

    @property
    def _around(self) -> str:
        return f" + fourier {'/'.join(str(p) for p in self.curve.periods)}" if self.curve.periods else ""

    def see(self, values: Array) -> None:
        """Update with new values; a missing value is replaced by the expected one, for a while."""
        left = (values - self.curve.at(self.at, values.size)).tolist()
        self.at += len(left)
        recursion, w, e, level = self.recursion, self.w, self.e, self.level
        for u in left:
            missing = u != u
            if missing:
                self.missing += 1
                if self.missing > LONG_GAP and recursion.differenced:
                    continue
            elif self.missing:
                if self.missing > LONG_GAP:
                    level = self._found_again(u, level)
                self.missing = 0
            expected = recursion.intercept + self.moved
            for coefficient, value in zip(recursion.ar, w, strict=True):
                expected += coefficient * value
            for coefficient, value in zip(recursion.ma, e, strict=True):
                expected += coefficient * value
            if missing:
                change = expected
            elif not recursion.differenced:
                change = u
            elif level is None:
                change = expected  # the first value has nothing to differ from
            else:
                change = u - level
            if not missing:
                level = u
            elif level is not None and recursion.differenced:
                level += expected
            if w:
                w.insert(0, change)
                w.pop()
            if e:
                e.insert(0, change - expected)
                e.pop()
            if self.since_gap and not missing:
                level = self._averaged(change - expected, level)
        self.level = level

    def restart(self) -> None:
        """Take the next value for the level: it has moved."""
        self.missing = LONG_GAP + 1

    def _found_again(self, u: float, level: float | None) -> float | None:
        """The level to go on from with the first value after a long gap or a jump."""
        recursion = self.recursion
        if recursion.differenced:
            self._begin_at(recursion.usual)
            self.since_gap = int(recursion.averages)
            return u - recursion.usual
        settled = 1.0 - sum(recursion.ar)
        if abs(u - (recursion.intercept + self.moved) / settled) > FAR_OFF * recursion.usual_deviation:
            self._begin_at(u)
            self.moved = settled * u - recursion.intercept
            self.since_gap = 1
        return level

    def _begin_at(self, w: float) -> None:
        """Reset the state to a constant w."""
        self.w[:] = [w] * len(self.w)
        self.e[:] = [0.0] * len(self.e)

    def _averaged(self, error: float, level: float | None) -> float | None:
        """The level with the newest value's weight in the mean of those since the jump."""
        recursion, share = self.recursion, 1.0 / self.since_gap
        own = 1.0 + sum(recursion.ar[:1]) + sum(recursion.ma[:1]) if recursion.differenced else 1.0 / LONG_GAP
        if share <= own:
            self.since_gap = 0
            return level
        self.since_gap += 1
        if recursion.differenced and level is not None:
            return (
                level + (share - own) * error
            )  # a newest value that lies so much higher moves all forecasts
        self.moved += share * error * (1.0 + sum(recursion.ma))
        return level

    def ahead(self, steps: int) -> Array:
        """Forecast of the next `steps` steps."""
        recursion = self.recursion
        state = np.array((recursion.intercept + self.moved, *self.w, *self.e))
        # Not as a matrix product, whose last digit depends on the number of steps.
        result: Array = (state[:, None] * _responses(recursion, steps)).sum(axis=0)
        result = result + self.curve.at(self.at, steps)
        return result + (self.level or 0.0) if recursion.differenced else result

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "recursion": codec.to_json(self.recursion),
            "curve": codec.to_json(self.curve),
            "state": {name: codec.to_json(getattr(self, name)) for name in STATE},
        }

    @classmethod
    def from_json(cls, data: Json) -> Arima:
        recursion = codec.from_json(Recursion, data["recursion"], name="recursion")
        result = cls(recursion, codec.from_json(Fourier, data["curve"], name="curve"))
        for name, value in data["state"].items():
            if name in STATE:
                setattr(result, name, list(value) if isinstance(value, list) else value)
        return result


SLOW = 0.08  # of an error in the level; judgement: the mean of a quarter of an hour at 30 s


class Trend(Arima):
    """Exponential smoothing."""

    kind = "trend"

    @property
    def name(self) -> str:
        ar, ma = self.recursion.ar, self.recursion.ma
        form = "exponential smoothing" if not ar else "damped trend" if ar[0] < 1.0 else "straight trend"
        if ar == (1.0,) and 1.0 - ma[1] <= SLOW + 1e-9:
            form = "slow trend"
        return f"{form}{self._around}"
