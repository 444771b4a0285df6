"""What comes next if the rate wanders with a memory around a repeating curve?

With u = y − s(t) (the curve of `fourier`) and w = u or its difference u_t − u_{t−1}:

    w_t = c + Σ φ_i w_{t−i} + e_t + Σ θ_j e_{t−j}

A model that returns to a level, or averages over many steps, would go on doing so after the level has moved.
So two sums of the standardised errors z = e/σ, clipped to ±3, are kept (Page): S = max(0, S ± z − ½). When
one exceeds 12, c moves by (1 + Σθ) times the mean error since that sum was last zero; with differences the
level moves by that error. In white noise that happens less than once in 10⁵ steps, a spike of four steps does
not reach it, a jump of 2σ is followed within about ten steps.

After a long gap nothing says that the level is still where it was: the drift is not drawn on through it, and
what is seen next is believed at once. With differences the k-th value since counts as the k-th of their mean,
1/k, until the model's own averaging gives it as much; a model that returns to a level takes the first value
for it if that lies further off than its values ever do.

Only this recursion is kept of a fitted ARIMA: an update and a forecast need numpy alone, a model is a few
numbers of JSON, and the back-test runs exactly what the live forecast runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import codec
from ..arguments import Array
from ..quantities import Json
from .fourier import NO_CURVE, Fourier
from .naive import LONG_GAP
from .recursion import Recursion

CLIPPED, ALLOWANCE, MOVED = 3.0, 0.5, 12.0  # Page's sums: ½ is best for shifts of one σ; 12 by the text above
FAR_OFF = 3.0  # usual deviations of u from its level; one value in 400

STATE = ("at", "w", "e", "level", "moved", "sums", "since", "errors", "missing", "since_gap")


class Arima:
    """The recursion with its state: what was last seen, and the curve around which it wanders."""

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
        self.sums = [0.0, 0.0]
        self.since = [0, 0]
        self.errors = [0.0, 0.0]
        self.missing = 0
        """Values in a row, up to now."""
        self.since_gap = 0
        """How many were seen since a long gap, while the model's own average would give them less weight."""

    @property
    def name(self) -> str:
        """As it is called in reports."""
        orders = ",".join(str(o) for o in self.recursion.order)
        drift = " with drift" if self.recursion.differenced and self.recursion.intercept != 0.0 else ""
        curve = f" + fourier {'/'.join(str(p) for p in self.curve.periods)}" if self.curve.periods else ""
        return f"arima({orders}){drift}{curve}"

    def see(self, values: Array) -> None:
        """Take in what was observed since; a missing value is taken as it was expected, for a while."""
        left = (values - self.curve.at(self.at, values.size)).tolist()
        self.at += len(left)
        recursion, w, e, level = self.recursion, self.w, self.e, self.level
        # Differences follow the level by themselves, unless Σθ near −1 averages over many steps.
        follows = recursion.deviation > 0.0 and recursion.averages
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
            if follows and not missing:
                self._follow(change - expected)
            if self.since_gap and not missing:
                self._average(change - expected)
        self.level = level

    def _found_again(self, u: float, level: float | None) -> float | None:
        """The level to go on from with the first value after a long gap."""
        recursion = self.recursion
        if recursion.differenced:
            self._begin_at(recursion.usual)
            self.since_gap = int(recursion.averages)
            return u - recursion.usual
        settled = 1.0 - sum(recursion.ar)
        if abs(u - (recursion.intercept + self.moved) / settled) > FAR_OFF * recursion.usual_deviation:
            self._begin_at(u)
            self.moved = settled * u - recursion.intercept
        return level

    def _begin_at(self, w: float) -> None:
        """As if it had always been so."""
        self.w[:] = [w] * len(self.w)
        self.e[:] = [0.0] * len(self.e)
        self.sums, self.since, self.errors = [0.0, 0.0], [0, 0], [0.0, 0.0]

    def _follow(self, error: float) -> None:
        z = max(-CLIPPED, min(CLIPPED, error / self.recursion.deviation))
        for side, signed in enumerate((z, -z)):
            self.sums[side] = max(0.0, self.sums[side] + signed - ALLOWANCE)
            if self.sums[side] == 0.0:
                self.since[side], self.errors[side] = 0, 0.0
                continue
            self.since[side] += 1
            self.errors[side] += error
            if self.sums[side] > MOVED:
                self._move(self.errors[side] / self.since[side])
                self.sums, self.since, self.errors = [0.0, 0.0], [0, 0], [0.0, 0.0]
                return

    def _move(self, error: float) -> None:
        if self.recursion.differenced:
            self._shift(error)
        else:
            # A constant that is off by δ leaves errors of δ / (1 + Σθ).
            self.moved += error * max(0.0, 1.0 + sum(self.recursion.ma))

    def _shift(self, change: float) -> None:
        """Every later level by so much: an error d enters them with d Σθ / (1 − Σφ)."""
        self.e[0] += change * (1.0 - sum(self.recursion.ar)) / sum(self.recursion.ma)

    def _average(self, error: float) -> None:
        """The next value since a long gap has its share in their mean."""
        own = (1.0 + sum(self.recursion.ma)) / (1.0 - sum(self.recursion.ar))
        share = 1.0 / self.since_gap
        if share <= own:
            self.since_gap = 0
            return
        self._shift((share - own) * error)
        self.since_gap += 1

    def ahead(self, steps: int) -> Array:
        """What comes in the next `steps` steps?"""
        recursion, w, e = self.recursion, list(self.w), list(self.e)
        result = []
        for _ in range(steps):
            expected = recursion.intercept + self.moved
            for coefficient, value in zip(recursion.ar, w, strict=True):
                expected += coefficient * value
            for coefficient, value in zip(recursion.ma, e, strict=True):
                expected += coefficient * value
            if w:
                w.insert(0, expected)
                w.pop()
            if e:
                e.insert(0, 0.0)
                e.pop()
            result.append(expected)
        left = np.array(result)
        if recursion.differenced:
            left = (self.level or 0.0) + np.cumsum(left)
        return left + self.curve.at(self.at, steps)

    def to_json(self) -> dict[str, Any]:
        """Coefficients, curve and state as plain JSON."""
        return {
            "kind": self.kind,
            "recursion": codec.to_json(self.recursion),
            "curve": codec.to_json(self.curve),
            "state": {name: codec.to_json(getattr(self, name)) for name in STATE},
        }

    @classmethod
    def from_json(cls, data: Json) -> Arima:
        """The candidate as it was when `to_json` was called."""
        recursion = codec.from_json(Recursion, data["recursion"], name="recursion")
        result = cls(recursion, codec.from_json(Fourier, data["curve"], name="curve"))
        for name, value in data["state"].items():
            if name in STATE:
                setattr(result, name, list(value) if isinstance(value, list) else value)
        return result
