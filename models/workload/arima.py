"""What comes next if the rate wanders with a memory around a repeating curve?

With u = y − s(t) (the curve of `fourier`) and w = u or its difference u_t − u_{t−1}:

    w_t = c + Σ φ_i w_{t−i} + e_t + Σ θ_j e_{t−j}

A model that returns to a level would go on returning to it after the level has moved. So two sums of the
standardised errors z = e/σ, clipped to ±3, are kept (Page): S = max(0, S ± z − ½). When one exceeds 12, c
moves by (1 + Σθ) times the mean error since that sum was last zero. In white noise that happens less than
once in 10⁵ steps, a spike of four steps does not reach it, a jump of 2σ is followed within about ten steps.

Orders come from pmdarima's `auto_arima`, coefficients from its ARIMA. What is kept is only the recursion:
an update and a forecast need numpy alone, a model is a few numbers of JSON, and the back-test runs exactly
what the live forecast runs. The curve is taken out before (`fourier`) instead of being handed over as
regressors, which costs a tenth. Never `m > 1`: seasonal ARIMA took 82 s on 600 points and lost to the curve.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arguments import Array
from ..quantities import Json
from .fourier import NO_CURVE, Fourier, fit_curve

LARGEST_ORDER = 2  # judgement: with the curve taken out, longer memories only cost time
POINTS_FOR_ORDER = 400  # measured: 0.2–0.6 s; auto_arima on 2 880 points takes 22 s
POINTS_FOR_COEFFICIENTS = 1_500  # measured: 0.1–0.2 s a fit; more points move no coefficient noticeably
FEWEST_POINTS = 40  # judgement: five coefficients want eight observations each
CLIPPED, ALLOWANCE, MOVED = 3.0, 0.5, 12.0  # Page's sums: ½ is best for shifts of one σ; 12 by the text above
LONGEST_MEMORY = 0.9999  # of an innovation half is left after 7 000 steps
ITERATIONS = 30  # measured: the likelihood is flat after 15


@dataclass(frozen=True)
class Recursion:
    """The coefficients φ, θ, c, the standard deviation of e, and whether differences are modelled."""

    ar: tuple[float, ...]
    ma: tuple[float, ...]
    differenced: bool
    intercept: float
    deviation: float

    @property
    def order(self) -> tuple[int, int, int]:
        """(p, d, q), as ARIMA orders are written."""
        return len(self.ar), int(self.differenced), len(self.ma)


class Arima:
    """The recursion with its state: what was last seen, and the curve around which it wanders."""

    kind = "arima"

    def __init__(self, recursion: Recursion, curve: Fourier = NO_CURVE) -> None:
        self.recursion = recursion
        self.curve = curve
        self.at = 0
        settled = 1.0 - sum(recursion.ar)
        usual = recursion.intercept / settled if abs(settled) > 1e-6 else 0.0
        self.w = [usual] * len(recursion.ar)
        """Newest first, as is `e`."""
        self.e = [0.0] * len(recursion.ma)
        self.level: float | None = None
        self.moved = 0.0
        """By how much c has moved since the fit."""
        self.sums = [0.0, 0.0]
        self.since = [0, 0]
        self.errors = [0.0, 0.0]

    @property
    def name(self) -> str:
        """As it is called in reports."""
        orders = ",".join(str(o) for o in self.recursion.order)
        drift = " with drift" if self.recursion.differenced and self.recursion.intercept != 0.0 else ""
        curve = f" + fourier {'/'.join(str(p) for p in self.curve.periods)}" if self.curve.periods else ""
        return f"arima({orders}){drift}{curve}"

    def see(self, values: Array) -> None:
        """Take in what was observed since; a missing value is taken as it was expected."""
        left = (values - self.curve.at(self.at, values.size)).tolist()
        self.at += len(left)
        recursion, w, e, level = self.recursion, self.w, self.e, self.level
        follows = not recursion.differenced and recursion.deviation > 0.0
        for u in left:
            expected = recursion.intercept + self.moved
            for coefficient, value in zip(recursion.ar, w, strict=True):
                expected += coefficient * value
            for coefficient, value in zip(recursion.ma, e, strict=True):
                expected += coefficient * value
            missing = u != u
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
        self.level = level

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
                # A constant that is off by δ leaves errors of δ / (1 + Σθ).
                share = max(0.0, 1.0 + sum(self.recursion.ma))
                self.moved += share * self.errors[side] / self.since[side]
                self.sums, self.since, self.errors = [0.0, 0.0], [0, 0], [0.0, 0.0]
                return

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

    def to_json(self) -> dict[str, object]:
        """Coefficients, curve and state as plain JSON."""
        r = self.recursion
        return {
            "kind": self.kind,
            "recursion": {
                "ar": list(r.ar),
                "ma": list(r.ma),
                "differenced": r.differenced,
                "intercept": r.intercept,
                "deviation": r.deviation,
            },
            "curve": self.curve.to_json(),
            "state": {
                "at": self.at,
                "w": list(self.w),
                "e": list(self.e),
                "level": self.level,
                "moved": self.moved,
                "sums": list(self.sums),
                "since": list(self.since),
                "errors": list(self.errors),
            },
        }

    @classmethod
    def from_json(cls, data: Json) -> Arima:
        """The candidate as it was when `to_json` was called."""
        r, state = data["recursion"], data["state"]
        result = cls(
            Recursion(
                tuple(r["ar"]),
                tuple(r["ma"]),
                bool(r["differenced"]),
                float(r["intercept"]),
                float(r["deviation"]),
            ),
            Fourier.from_json(data["curve"]),
        )
        result.at, result.level = int(state["at"]), state["level"]
        result.w, result.e = list(state["w"]), list(state["e"])
        result.moved, result.sums = float(state["moved"]), list(state["sums"])
        result.since, result.errors = list(state["since"]), list(state["errors"])
        return result


def fit_variants(values: Array, curve: Fourier, *, settling: bool = True) -> list[Arima]:
    """The candidates around one curve: returning to a level, wandering, and wandering with a drift."""
    left = values - curve.at(0, values.size)
    if not _says_something(left):
        return []
    found: list[Recursion] = []
    if settling and (settled := _choose(left, differenced=False)) is not None:
        found.append(settled)
    if (wandering := _choose(left, differenced=True)) is not None:
        found += [wandering, _drifting(wandering, left)]
    return [Arima(recursion, curve) for recursion in found]


def refit(model: Arima, values: Array) -> Arima:
    """The same orders and harmonics with coefficients from all these values; unchanged if that fails."""
    curve = fit_curve(values, model.curve.periods, model.curve.harmonics) if model.curve.periods else NO_CURVE
    left = values - curve.at(0, values.size)
    recursion = _coefficients(left, model.recursion.order)
    if recursion is None:
        return Arima(model.recursion, model.curve)
    drifts = model.recursion.differenced and model.recursion.intercept != 0.0
    return Arima(_drifting(recursion, left) if drifts else recursion, curve)


def _says_something(left: Array) -> bool:
    seen = ~np.isnan(left)
    if seen.sum() < max(FEWEST_POINTS, left.size / 2):
        return False
    return float(np.nanstd(left)) > 1e-9 * (1.0 + float(np.nanmax(np.abs(left))))


def _standardised(left: Array, points: int) -> tuple[Array, float, float]:
    """The newest points with gaps bridged by straight lines, centred and scaled for the optimiser."""
    recent = left[-points:]
    seen = ~np.isnan(recent)
    filled = np.interp(np.arange(recent.size), np.flatnonzero(seen), recent[seen]) if seen.any() else recent
    centre, scale = float(filled.mean()), float(filled.std())
    return (filled - centre) / (scale or 1.0), centre, scale


def _choose(left: Array, *, differenced: bool) -> Recursion | None:
    import pmdarima

    target, centre, scale = _standardised(left, POINTS_FOR_ORDER)
    if not scale > 0.0:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # non-convergence of one of the orders tried is no news
        try:
            model = pmdarima.auto_arima(
                target,
                d=int(differenced),
                seasonal=False,
                start_p=1,
                start_q=1,
                max_p=LARGEST_ORDER,
                max_q=LARGEST_ORDER,
                with_intercept=not differenced,
                maxiter=ITERATIONS,
                error_action="ignore",
                suppress_warnings=True,
            )
        except (ValueError, IndexError, np.linalg.LinAlgError):
            return None  # a series no order fits, such as a single jump: the naive candidates remain
    chosen = _recursion(model, centre, scale)
    return chosen or _coefficients(left, (1, int(differenced), 0))


def _coefficients(left: Array, order: tuple[int, int, int]) -> Recursion | None:
    import pmdarima

    target, centre, scale = _standardised(left, POINTS_FOR_COEFFICIENTS)
    if not scale > 0.0:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = pmdarima.ARIMA(
                order=order, with_intercept=not order[1], maxiter=ITERATIONS, suppress_warnings=True
            ).fit(target)
        except (ValueError, IndexError, np.linalg.LinAlgError):
            return None
    return _recursion(model, centre, scale)


def _recursion(model: Any, centre: float, scale: float) -> Recursion | None:
    """The numbers of a pmdarima model fitted to (left − centre) / scale, in units of the rate."""
    p, d, q = model.order
    ar = tuple(float(v) for v in model.arparams()) if p else ()
    ma = tuple(float(v) for v in model.maparams()) if q else ()
    parameters = np.asarray(model.params())
    # auto_arima may drop the intercept that was asked for; the first parameter is then another one.
    intercept = float(parameters[0]) * scale if model.with_intercept else 0.0
    constant = 0.0 if d else intercept + centre * (1.0 - sum(ar))
    deviation = math.sqrt(max(0.0, float(parameters[-1]))) * scale
    usable = (
        bool(np.isfinite([*ar, *ma, constant, deviation]).all())
        and _forgets(ar)
        and _forgets([-m for m in ma])
    )
    return Recursion(ar, ma, bool(d), constant, deviation) if usable else None


def _forgets(coefficients: Sequence[float]) -> bool:
    """Does a recursion with these coefficients die out? One that does not turns rounding into a forecast."""
    if not len(coefficients):
        return True
    companion = np.eye(len(coefficients), k=-1)
    companion[0] = coefficients
    return float(np.abs(np.linalg.eigvals(companion)).max()) < LONGEST_MEMORY


def _drifting(recursion: Recursion, left: Array) -> Recursion:
    """The same recursion on the slope of the line through the newest values."""
    recent = left[-POINTS_FOR_ORDER:]
    seen = ~np.isnan(recent)
    at = np.flatnonzero(seen) - np.flatnonzero(seen).mean()
    slope = float((at * recent[seen]).sum() / (at**2).sum())
    return replace(recursion, intercept=slope * (1.0 - sum(recursion.ar)))
