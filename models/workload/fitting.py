"""Fit of a forecaster: candidates, back-test, and then everything anew with the whole history.

`fit_forecast` takes seconds (orders, coefficients, back-test) and is not called in a tick. `naive_forecaster`
stands in when the fitted model has failed: the naive candidates alone.

**ARIMA.** The curve is fitted first, the orders are chosen on what it leaves (`regressions`), and
pmdarima's ARIMA finds the coefficients by maximum likelihood. The curve is not handed over as regressors,
which only makes every fit slower. Never `m > 1`: a seasonal ARIMA took 82 s on 600 points and lost to the
curve.

**Trends.** Exponential smoothing without a trend, with a damped and with a straight one: of a grid of
coefficients the one with the smallest error over the horizon in use. A likelihood looks one step ahead, and
prefers slopes that follow the noise.

**Back-test.** The forecaster runs over the later part of the history with candidates that were fitted before
it; its weights, its jumps and its band are what experience begins with. Then the candidates are fitted again.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arguments import Array, number, numbers, whole
from ..quantities import Misuse, Unknown
from ..series import periods, profile, recurrence, recurs
from .arima import NO_CURVE, SLOW, Arima, Fourier, Recursion, Trend
from .ensemble import Candidate, Ensemble, LastValue, RecentMedian, SeasonalNaive
from .forecaster import FEW_HORIZONS, PRIOR_SHARE, Band, Forecast, Forecaster, rates
from .regressions import fit_curve, orders

POINTS_FOR_ORDER = 600  # judgement: the memory of five hours at 30 s, not of last week
POINTS_FOR_COEFFICIENTS = 1_000  # measured: 0.05–0.15 s a fit; more points move no coefficient noticeably
BEGINNING = 20  # judgement: the mean of so many has a quarter of one value's noise
LINE = 60  # judgement: the slope is then known to a hundredth of the noise a step
FEWEST_POINTS = 40  # judgement: five coefficients want eight observations each
LONGEST_MEMORY = 0.9999  # of an innovation half is left after 7 000 steps
ITERATIONS = 30  # measured: the likelihood is flat after 15
MOST_POINTS = 20_000  # judgement: a week at 30 s; older values say little about the next half hour
LONGEST_HORIZON_STEPS = 20_000  # judgement: more is a step in the wrong unit
LONGEST_MEDIAN = 120  # judgement: its noise is then an eighth of one value's
SHORTEST_MEDIAN = 20  # judgement: its noise is then a quarter of one value's
MOST_TESTED = 1_500  # judgement: half a day at 30 s holds enough horizons; a second
TESTED_LIVE = 300  # judgement: the stand-in is fitted within a tick
UNREFITTED = 0.02  # of the weight; judgement: what counts less keeps its coefficients
DROPPED = 1e-4  # of the weight: it was several errors worse. Trends and naive ones may be wanted later
LEVEL_SHARES = (0.02, 0.04, 0.08, 0.15, 0.3, 0.5, 0.75, 1.0)  # judgement: each about twice the one before
SLOPE_SHARES = (0.005, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
DAMPINGS = (0.8, 0.9, 0.95, 0.98)


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


def refit(model: Arima, values: Array, curve: Fourier, *, coefficients: bool = True) -> Arima:
    """The same orders around this curve, with coefficients from all these values where they can be found."""
    left = values - curve.at(0, values.size)
    if isinstance(model, Trend):
        return _trend(model.recursion, curve, left)
    recursion = _coefficients(left, model.recursion.order) if coefficients else None
    if recursion is None:
        return _begun(model.recursion, curve, left)
    drifts = model.recursion.differenced and model.recursion.intercept != 0.0
    return _begun(_drifting(recursion, left) if drifts else recursion, curve, left)


def fit_trends(values: Array, curve: Fourier, *, steps: int) -> list[Trend]:
    """Exponential smoothing without, with a damped, a straight and a slow straight trend: the best of a grid.

    l_t = l_{t−1} + φ b_{t−1} + α e_t,  b_t = φ b_{t−1} + α β e_t,  f(t + h) = l_t + b_t (φ + … + φ^h)
    """
    left = values - curve.at(0, values.size)
    if np.isnan(left).all():
        return []
    y, _, scale = _standardised(left, POINTS_FOR_ORDER)
    if not scale > 0.0 or y.size < SHORTEST_MEDIAN:
        return []
    sloped = list(itertools.product(LEVEL_SHARES, SLOPE_SHARES, (*DAMPINGS, 1.0)))
    alpha, beta, phi = np.array([*((a, 0.0, 0.0) for a in LEVEL_SHARES), *sloped]).T
    begin = _line(y)
    level, slope = np.full(alpha.size, begin[0]), np.where(phi > 0.0, begin[1], 0.0)
    first = min(LINE, y.size // 4)
    leads = sorted({1, -(-steps // 3), -(-2 * steps // 3), steps})
    reach = [np.where(phi < 1.0, phi * (1 - phi**h) / np.maximum(1 - phi, 1e-9), h) for h in leads]
    off, squares = np.zeros(alpha.size), np.zeros(alpha.size)
    for t in range(y.size):
        error = y[t] - level - phi * slope
        squares += error**2
        level = level + phi * slope + alpha * error
        slope = phi * slope + alpha * beta * error
        if t >= first:
            for h, far in zip(leads, reach, strict=True):
                if t + h < y.size:
                    off += np.abs(y[t + h] - level - far * slope)
    found = []
    straight = phi == 1.0
    for kind in (phi == 0.0, (phi > 0.0) & ~straight, straight & (alpha > SLOW), straight & (alpha <= SLOW)):
        at = int(np.where(kind, off, np.inf).argmin())
        a, b, f = float(alpha[at]), float(alpha[at] * beta[at]), float(phi[at])
        deviation = scale * math.sqrt(float(squares[at]) / y.size)
        ar, ma = ((), (a - 1.0,)) if f == 0.0 else ((f,), (a + f * b - 1.0 - f, f * (1.0 - a)))
        found.append(_trend(Recursion(ar, ma, True, 0.0, deviation), curve, left))
    return found


def _trend(recursion: Recursion, curve: Fourier, left: Array) -> Trend:
    """Started on the line through the first values: a slow trend would take hours to find it."""
    level, slope = _line(left)
    made = Trend(recursion, curve, level=level)
    made.w = [slope] * len(recursion.ar)
    return made


def _line(left: Array) -> tuple[float, float]:
    """Value at the first step, and slope, of the line through the first values."""
    at = np.flatnonzero(~np.isnan(left))[:LINE]
    if at.size < BEGINNING:
        return float(left[at].mean()), 0.0
    slope, level = np.polyfit(at, left[at], 1).tolist()
    return level, slope


def _begun(recursion: Recursion, curve: Fourier, left: Array) -> Arima:
    """Started at the mean of the first values: a long average would never forget one noisy first value."""
    if not (recursion.differenced and recursion.averages):
        return Arima(recursion, curve)
    return Arima(recursion, curve, level=_level(left))


def _level(left: Array) -> float:
    return float(left[~np.isnan(left)][:BEGINNING].mean())


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


def fit_forecast(history_rps: Any, *, step_s: float, horizon_s: float, seed: int = 0) -> Forecaster:
    """Fit the forecast of this rate over the horizon.

    `history_rps`: rates at a regular step, oldest first, NaN where nothing was observed. The horizon is the
    smallest whole number of steps that covers `horizon_s`.
    """
    values = rates("history_rps", history_rps)
    step = number("step_s", step_s, above=0.0)
    steps = max(1, math.ceil(number("horizon_s", horizon_s, above=0.0) / step - 1e-9))
    if steps > LONGEST_HORIZON_STEPS:
        raise Misuse(
            "horizon_s", f"is {steps} steps of {step:g} s; at most {LONGEST_HORIZON_STEPS} are forecast"
        )
    seed = whole("seed", seed, at_least=0)
    observed = np.flatnonzero(~np.isnan(values))
    if not observed.size:
        raise Misuse(
            "history_rps", "holds no observation; at least one observed rate is needed to forecast from"
        )
    shortened = values.size - observed[0] > MOST_POINTS
    # Steps before the first observation say nothing; those after the last are a gap to be bridged.
    values = values[max(int(observed[0]), values.size - MOST_POINTS) :]
    found = periods(values, seed=seed)
    once = _seen_once(values, found, step, steps)
    first = max(values.size // 2, values.size - MOST_TESTED)
    if values.size - first < 4 * steps:
        first = max(values.size // 4, values.size - 4 * steps)
    first = min(max(1, first, max(once, default=0)), values.size)
    naive: list[Candidate] = [LastValue(), *(SeasonalNaive(period=p) for p in (*found, *once))]
    models: list[Candidate] = []
    if float(np.nanstd(values)) > 0.0:
        models = _models(values[:first], found, steps)
    notes = []
    if shortened:
        notes.append(f"only the newest {MOST_POINTS} steps were used; a longer step_s reaches further back")
    if once:
        notes.append(f"less than two periods of {' and '.join(str(p) for p in once)} steps were seen")
    if missing := int(np.isnan(values).sum()):
        notes.append(f"{missing} of {values.size} steps are missing")
    tested = _tested([*naive, *models], values, first, step_s=step, steps=steps, seed=seed, notes=notes)
    _refitted(tested.ensemble, values, first)
    return tested


def _tested(
    candidates: Sequence[Candidate],
    values: Array,
    first: int,
    *,
    step_s: float,
    steps: int,
    seed: int,
    notes: Sequence[str] = (),
) -> Forecaster:
    """A forecaster of these candidates that was run over the values from the first on."""
    ensemble = Ensemble(candidates, steps=steps)
    ensemble.begin(values[:first])
    band = Band.begin(leads=ensemble.leads, history=values)
    made = Forecaster(step_s=step_s, steps=steps, seed=seed, model=ensemble, band=band, why="", errors={})
    made.update(values[first:])
    errors = ensemble.errors()
    said = f"{made.model}: "
    if not errors:
        said += "there is nothing to test a forecast against"
    else:
        shares = ", ".join(f"{share:.0%} {name}" for name, share in ensemble.shares() if share >= 0.05)
        own = errors[made.model]
        said += f"mean error {own.mae_rps:.4g} rps over up to {steps} steps from {own.origins} origins;"
        said += f" weights {shares}"
    if (horizons := band.horizons) < FEW_HORIZONS:
        said += f"; the history holds no {steps} steps to test on" if horizons <= 0.0 else ""
        said += f"; {int((~np.isnan(values)).sum())} observations: a prior of {PRIOR_SHARE:.0%} of the rate"
        said += " widens the band"
    made.why = "; ".join((said, *notes))
    made.backtest = dict(errors)
    return made


def forecast(history_rps: Any, *, step_s: float, horizon_s: float, seed: int = 0) -> Forecast:
    """Fit and predict in one; slow for long histories."""
    return fit_forecast(history_rps, step_s=step_s, horizon_s=horizon_s, seed=seed).predict()


def naive_forecaster(
    history_rps: Any, *, step_s: float, steps: int, periods: Iterable[int] = (), seed: int = 0
) -> Forecaster | Unknown:
    """The best naive forecaster for the next `steps`, or why there is none.

    `history_rps`: oldest first, NaN where nothing was observed. `periods`: those known, in steps; one that
    was not seen twice is left out.
    """
    values = numbers("history_rps", history_rps, at_least=0.0, missing_allowed=True)
    steps, seed = whole("steps", steps), whole("seed", seed, at_least=0)
    step_s = number("step_s", step_s, above=0.0)
    seen = np.flatnonzero(~np.isnan(values))
    if not seen.size:
        return Unknown("no rate was observed, so there is nothing to forecast from")
    values = values[seen[0] :]
    known = sorted({p for p in periods if 1 < p <= values.size // 2})
    window = min(max(2 * steps, SHORTEST_MEDIAN), LONGEST_MEDIAN)
    median = [RecentMedian(window=window)] if values.size > SHORTEST_MEDIAN else []
    candidates: list[Candidate] = [LastValue(), *median, *(SeasonalNaive(period=p) for p in known)]
    first = max(values.size // 2, values.size - TESTED_LIVE, max(known, default=0))
    first = min(max(1, min(first, values.size - 4 * steps), max(known, default=0)), values.size)
    return _tested(candidates, values, first, step_s=step_s, steps=steps, seed=seed)


def _seen_once(values: Array, found: tuple[int, ...], step_s: float, steps: int) -> tuple[int, ...]:
    """Periods of which fewer than two were seen, with two horizons left to test them on."""
    rest = values
    for period in found:  # a multiple of a period that was seen often enough says nothing new
        rest = rest - profile(rest - np.nanmean(rest), period=period)[np.arange(rest.size) % period]
    known = [round(days * 86_400 / step_s) for days in (1, 7)]
    once = [p for p in known if values.size / 2 < p and recurs(rest, lag=p)]
    if not once and (lag := recurrence(rest)) is not None:
        once.append(lag)
    return tuple(p for p in once if p + 2 * steps <= values.size)


def _models(before: Array, found: tuple[int, ...], steps: int) -> list[Candidate]:
    """Candidates fitted on what came before the first origin."""
    models: list[Candidate] = []
    if before.size >= SHORTEST_MEDIAN:
        models.append(RecentMedian(window=min(max(2 * steps, SHORTEST_MEDIAN), LONGEST_MEDIAN, before.size)))
    seen = tuple(p for p in found if p <= before.size)
    # Beside a period, a model that returns to one level all day long only costs time.
    models += fit_variants(before, NO_CURVE, settling=not seen)
    models += fit_trends(before, NO_CURVE, steps=steps)
    if seen and int((~np.isnan(before)).sum()) >= FEWEST_POINTS:
        curve = fit_curve(before, seen)
        models += [*fit_variants(before, curve), *fit_trends(before, curve, steps=steps)]
    return models


def _refitted(tested: Ensemble, values: Array, first: int) -> None:
    """Coefficients and state from the whole history, in the same members."""
    tested.keep(
        [
            share >= DROPPED
            or not isinstance(member, Arima)
            or (isinstance(member, Trend) and not member.curve.periods)
            for member, (_, share) in zip(tested.members, tested.shares(), strict=True)
        ]
    )
    curves: dict[Fourier, Fourier] = {NO_CURVE: NO_CURVE}
    fresh: list[Candidate] = []
    for member, (_, share) in zip(tested.members, tested.shares(), strict=True):
        if isinstance(member, Arima):
            curve = member.curve
            if curve not in curves:
                curves[curve] = fit_curve(values, curve.periods, curve.harmonics)
            fresh.append(refit(member, values, curves[curve], coefficients=share >= UNREFITTED))
        elif isinstance(member, SeasonalNaive):
            fresh.append(SeasonalNaive(period=member.period))
        elif isinstance(member, RecentMedian):
            fresh.append(RecentMedian(window=member.window))
        else:
            fresh.append(LastValue())
    again = Ensemble(fresh, steps=tested.steps)
    again.begin(values[:first])
    again.see(values[first:])
    tested.continue_with(again)
