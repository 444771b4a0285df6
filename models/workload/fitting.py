"""Fit of ARIMA recursions to a history, with pmdarima.

The curve is fitted first (`fourier`), the orders are chosen on what it leaves (`orders`), and pmdarima's
ARIMA finds the coefficients by maximum likelihood. The curve is not handed over as regressors, which only
makes every fit slower. Never `m > 1`: a seasonal ARIMA took 82 s on 600 points and lost to the curve.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arguments import Array
from .arima import Arima, Recursion, orders
from .fourier import NO_CURVE, Fourier, fit_curve

POINTS_FOR_ORDER = 600  # judgement: the memory of five hours at 30 s, not of last week
POINTS_FOR_COEFFICIENTS = 1_000  # measured: 0.05–0.15 s a fit; more points move no coefficient noticeably
BEGINNING = 20  # judgement: the mean of so many has a quarter of one value's noise
FEWEST_POINTS = 40  # judgement: five coefficients want eight observations each
LONGEST_MEMORY = 0.9999  # of an innovation half is left after 7 000 steps
ITERATIONS = 30  # measured: the likelihood is flat after 15


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
    return [_begun(recursion, curve, left) for recursion in found]


def refit(model: Arima, values: Array) -> Arima:
    """The same orders and harmonics with coefficients from all these values; unchanged if that fails."""
    curve = fit_curve(values, model.curve.periods, model.curve.harmonics) if model.curve.periods else NO_CURVE
    left = values - curve.at(0, values.size)
    recursion = _coefficients(left, model.recursion.order)
    if recursion is None:
        return _begun(model.recursion, model.curve, values - model.curve.at(0, values.size))
    drifts = model.recursion.differenced and model.recursion.intercept != 0.0
    return _begun(_drifting(recursion, left) if drifts else recursion, curve, left)


def _begun(recursion: Recursion, curve: Fourier, left: Array) -> Arima:
    """Started at the mean of the first values: a long average would never forget one noisy first value."""
    if not (recursion.differenced and recursion.averages):
        return Arima(recursion, curve)
    return Arima(recursion, curve, level=float(left[~np.isnan(left)][:BEGINNING].mean()))


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
    target, _, scale = _standardised(left, POINTS_FOR_ORDER)
    if not scale > 0.0:
        return None
    p, q = orders(np.diff(target) if differenced else target)
    for order in ((p, int(differenced), q), (min(p, 1), int(differenced), 0)):
        if (recursion := _coefficients(left, order)) is not None:
            return recursion
    return None  # a series no order fits, such as a single jump: the naive candidates remain


def _coefficients(left: Array, order: tuple[int, int, int]) -> Recursion | None:
    import pmdarima
    from threadpoolctl import threadpool_limits

    target, centre, scale = _standardised(left, POINTS_FOR_COEFFICIENTS)
    if not scale > 0.0:
        return None
    # Matrices of a few rows: a BLAS with threads spins for itself, 68 s instead of 4 s on a busy machine.
    with warnings.catch_warnings(), threadpool_limits(limits=1):
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
    constant = 0.0 if d else float(parameters[0]) * scale + centre * (1.0 - sum(ar))
    deviation = math.sqrt(max(0.0, float(parameters[-1]))) * scale
    usable = (
        bool(np.isfinite([*ar, *ma, constant, deviation]).all())
        and _forgets(ar)
        and _forgets([-m for m in ma])
    )
    return Recursion(ar, ma, bool(d), constant, deviation) if usable else None


def _forgets(coefficients: Sequence[float]) -> bool:
    """Whether a recursion with these coefficients decays; otherwise rounding errors grow into the
    forecast."""
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
