"""Forecast of the arrival rate: fit, update, predict, and its band from the errors of the back-test.

`fit_forecast` takes seconds (orders, coefficients, back-test) and is not called in a tick; the `Forecaster`
that it returns takes in new observations and predicts in milliseconds, with numpy alone, and is stored as
JSON. `naive_forecaster` stands in when the fitted model has failed: the naive candidate with the smallest
error of late.

**Band.** The winner's errors in the back-test are kept as whole trajectories r_j (one per origin), because
errors within a horizon are correlated. With the forecast f and a scale s,

    path_j(h) = max(0, f(h) + s(h) · (r_j(h) + d_j))     s = 1, or max(f, floor) if errors grow with the rate

Quantiles over the paths are the band. The shifts d_j make up for few independent horizons: σ of the
trajectories' means is known from k of them only, so d_j widens it to Student's t, σ·√(q² − 1) with q =
t_{k−1}/z · √(1 + 1/k), and the noise within a horizon stays as it is.

The peak is not the maximum of the paths, which add new noise to the forecast: it is max f plus the
quantiles of max y − max f at the same origins, stretched from their median by q. Intervals from an ARIMA's
own variance cover too little (measured: 87 % for 95 %) and are not used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import codec
from ..arguments import Array, number, numbers, whole
from ..quantities import Interval, Json, Misuse, Unknown
from ..series import periods, profile, recurrence, recurs
from ..student_t import student_quantiles
from . import backtest, fitting
from .arima import Arima
from .backtest import BacktestError, Candidate, Plan, Trial
from .fourier import NO_CURVE, fit_curve
from .naive import LastValue, RecentMedian, SeasonalNaive

CONFIDENCE = 0.90  # judgement: as the capacity intervals
FLOOR_SHARE = (
    0.1  # judgement: errors do not vanish with the rate; a tenth of the mean rate is the least scale
)
MOST_NUMBERS = 40_000  # judgement: half a megabyte of JSON
FEW_HORIZONS = 3  # below this the trajectories say too little, and a prior stands beside them
PRIOR_SHARE = 0.2  # judgement: without experience the rate may move by a fifth over the horizon (one sigma)
PRIOR_PATHS = 40


@dataclass(frozen=True, eq=False)
class Spread:
    """Error trajectories (trajectories, horizon) in units of the scale."""

    trajectories: Array
    peaks: Array
    """How far the highest observed rate lay above the highest forecast, in the same units; may be empty."""
    proportional: bool
    floor_rps: float

    def paths(self, mid: Array) -> Array:
        """Possible paths of the rate, one row per trajectory."""
        scale = np.maximum(mid, self.floor_rps) if self.proportional else np.ones_like(mid)
        result: Array = np.maximum(mid + scale * self.trajectories, 0.0)
        return result

    def later(self, steps: int) -> Spread:
        """The spread of a forecast that begins so many steps after the newest observation."""
        horizon = self.trajectories.shape[1]
        return replace(self, trajectories=_extended(self.trajectories, horizon + steps)[:, steps:])


def spread_of(trial: Trial, where: Plan, *, horizon: int, history: Array, seed: int) -> Spread:
    """Spread of the next forecast, from the errors of the back-test."""
    seen = ~np.isnan(trial.observed)
    enough = seen.sum(axis=1) * 2 >= where.steps
    level = float(np.nanmean(history))
    floor = FLOOR_SHARE * level
    trajectories, peaks = np.empty((0, horizon)), np.empty(0)
    proportional = False
    if enough.any():
        forecasts = trial.forecasts[enough]
        errors = _bridged(trial.observed[enough] - forecasts)
        scale = np.maximum(forecasts, floor)
        proportional = (
            floor > 0.0
            and where.independent >= 2 * FEW_HORIZONS
            and _likelihood(errors / scale, scale) > _likelihood(errors, np.ones_like(scale))
        )
        trajectories = _extended(errors / scale if proportional else errors, horizon)
        shifts = _shifts(trajectories.mean(axis=1), where.independent, seed)
        trajectories = trajectories + shifts[:, None]
        if where.steps == horizon and where.independent >= FEW_HORIZONS:
            highest = forecasts.max(axis=1)
            unit = np.maximum(highest, floor) if proportional else np.ones_like(highest)
            peaks = (np.nanmax(trial.observed[enough], axis=1) - highest) / unit
            peaks = np.median(peaks) + _inflation(where.independent) * (peaks - np.median(peaks))
    if where.independent < FEW_HORIZONS or not len(trajectories):
        trajectories = np.vstack((trajectories, _prior(history, level, horizon, seed)))
    most = max(20, MOST_NUMBERS // horizon)
    if len(trajectories) > most:
        trajectories = trajectories[np.linspace(0, len(trajectories) - 1, most).round().astype(int)]
    return Spread(_rounded(trajectories), _rounded(peaks), proportional, floor)


def band(paths: Array, mid: Array) -> tuple[Array, Array]:
    """The band around the forecast, step by step."""
    low, high = np.quantile(paths, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return np.minimum(low, mid), np.maximum(high, mid)


def peak_of(spread: Spread, paths: Array, mid: Array) -> Interval:
    """Maximum over the horizon."""
    highest = paths.max(axis=1)
    if spread.peaks.size:
        top = float(mid.max())
        highest = np.maximum(
            top + (max(top, spread.floor_rps) if spread.proportional else 1.0) * spread.peaks, 0.0
        )
    low, mid_, high = np.quantile(highest, [(1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2]).tolist()
    return Interval(low, mid_, high, CONFIDENCE)


def _likelihood(errors: Array, scale: Array) -> float:
    """Mean log-likelihood per step of two-sided exponential errors times a scale, up to a constant."""
    return -math.log(float(np.abs(errors).mean()) + 1e-300) - float(np.log(scale).mean())


def _bridged(errors: Array) -> Array:
    """Missing errors lie on the straight line between their neighbours."""
    at = np.arange(errors.shape[1])
    result = errors.copy()
    for row in result:
        missing = np.isnan(row)
        if missing.any():
            row[missing] = np.interp(at[missing], at[~missing], row[~missing])
    return result


def _extended(errors: Array, horizon: int) -> Array:
    """Beyond the horizon tested the last error grows with √time, as a random walk's would."""
    tested = errors.shape[1]
    if tested >= horizon:
        return errors
    growth = np.sqrt(np.arange(tested + 1, horizon + 1) / tested)
    return np.hstack((errors, errors[:, -1:] * growth))


def _shifts(means: Array, independent: float, seed: int) -> Array:
    """Shifts of whole trajectories, independent of their errors."""
    if means.size < 2:
        return np.zeros_like(means)
    width = float(np.sqrt((means**2).mean()) * math.sqrt(_inflation(independent) ** 2 - 1.0))
    generator = np.random.default_rng(seed)
    drawn: Array = generator.normal(size=means.size)
    result: Array = width * (drawn - drawn.mean()) / (drawn.std() or 1.0)
    return result


def _inflation(independent: float) -> float:
    """Factor by which a quantile that is known from so few horizons is widened."""
    k = max(2.0, independent)
    level = np.array([(1 + CONFIDENCE) / 2])
    t, z = student_quantiles(level, degrees=k - 1.0)[0], student_quantiles(level, degrees=10_000.0)[0]
    return float(t / z) * math.sqrt(1.0 + 1.0 / k)


def _prior(history: Array, level: float, horizon: int, seed: int) -> Array:
    """Random walks with the prior width and that of the observed steps."""
    seen = history[~np.isnan(history)]
    step = PRIOR_SHARE * level / math.sqrt(horizon)
    if seen.size > 1:
        step = math.hypot(step, float(np.sqrt((np.diff(seen) ** 2).mean())))
    walk = np.random.default_rng(seed).normal(scale=step, size=(PRIOR_PATHS // 2, horizon)).cumsum(axis=1)
    return np.vstack((walk, -walk))  # as many up as down


def _rounded(values: Array) -> Array:
    """Rounded to six significant digits, as they are stored."""
    size = float(np.abs(values).max(initial=0.0))
    if size == 0.0:
        return values
    return np.round(values, min(12, 6 - math.ceil(math.log10(size))))


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

    def candidates() -> list[Candidate]:
        median = [RecentMedian(window=window)] if values.size > SHORTEST_MEDIAN else []
        return [LastValue(), *median, *(SeasonalNaive(period=p) for p in known)]

    where = backtest.plan(values.size, steps=steps, after=max(known, default=0))
    if where.origins and np.isnan(values[where.origins[0] :]).all():
        where = backtest.Plan((), steps)
    trials = [backtest.run(candidate, values, where) for candidate in candidates()]
    choice = backtest.choose(trials, where, naive=len(trials))
    winner = candidates()[choice.index]
    winner.see(values)
    return Forecaster(
        step_s=step_s,
        steps=steps,
        seed=seed,
        model=winner,
        spread=spread_of(trials[choice.index], where, horizon=steps, history=values, seed=seed),
        why=choice.why if where.origins else "last value: there is nothing to test a forecast against",
        errors={trial.name: trial.error() for trial in trials if len(trial.losses)},
    )


MOST_POINTS = 20_000  # judgement: a week at 30 s; older values say little about the next half hour
LONGEST_HORIZON_STEPS = 20_000  # judgement: more is a step in the wrong unit
LONGEST_MEDIAN = 120  # judgement: its noise is then an eighth of one value's
SHORTEST_MEDIAN = 20  # judgement: its noise is then a quarter of one value's
SCHEMA = 1

_KINDS: Mapping[str, Any] = {kind.kind: kind for kind in (LastValue, SeasonalNaive, RecentMedian, Arima)}


@dataclass(frozen=True, eq=False)
class Forecast:
    """The rate over the horizon: H steps from the newest observation on, or from a little later."""

    step_s: float
    mid: Array
    low: Array
    high: Array
    paths: Array
    """(P, H): equally likely ways the rate may take, errors hanging together as they did in the past."""
    peak: Interval
    """The maximum over the horizon."""
    confidence: float
    model: str
    why: str
    backtest: Mapping[str, BacktestError]
    """Every candidate's error over the horizon; empty where the history is too short for any."""

    @property
    def horizon_s(self) -> float:
        """Seconds that it covers."""
        return self.step_s * len(self.mid)


class Forecaster:
    """A fitted forecast: `update` with new rates, then `predict` from there on."""

    def __init__(
        self,
        *,
        step_s: float,
        steps: int,
        seed: int,
        model: Candidate,
        spread: Spread,
        why: str,
        errors: Mapping[str, BacktestError],
    ) -> None:
        self.step_s = step_s
        self.steps = steps
        self.seed = seed
        self.why = why
        self.backtest = dict(errors)
        self._model = model
        self._spread = spread

    @property
    def model(self) -> str:
        """Name of the candidate that forecasts."""
        return self._model.name

    def update(self, new_rps: Any) -> Forecaster:
        """Update with new rates, oldest first, one per step; NaN where nothing was observed.

        In one piece or in many makes no difference. The forecaster itself changes, and is returned.
        """
        self._model.see(_rates("new_rps", new_rps))
        return self

    def predict(self, *, paths: int = 200, later_steps: float = 0.0) -> Forecast:
        """The rate over the horizon, with the same paths around the forecast at every call.

        `later_steps`: how long ago the newest observation ended. Whole steps are left out, and where the rate
        rises, a part of one is gone ahead; where it falls, nothing is, for what is left of the step that has
        begun still lies higher. The errors are those at the end of each step.
        """
        count = whole("paths", paths)
        # A clock's last digits are no step.
        later = round(number("later_steps", later_steps, at_least=0.0), 6)
        left_out = int(later)
        expected = np.maximum(self._model.ahead(left_out + self.steps + 1), 0.0)[left_out:]
        mid = expected[:-1] + (later - left_out) * np.maximum(np.diff(expected), 0.0)
        spread = self._spread.later(math.ceil(later))
        every = spread.paths(mid)
        low, high = band(every, mid)
        generator = np.random.default_rng(self.seed)
        rounds = [generator.permutation(len(every)) for _ in range(-(-count // len(every)))]
        drawn = every[np.concatenate(rounds)[:count]]
        for array in (mid, low, high, drawn):
            array.setflags(write=False)
        return Forecast(
            step_s=self.step_s,
            mid=mid,
            low=low,
            high=high,
            paths=drawn,
            peak=peak_of(spread, every, mid),
            confidence=CONFIDENCE,
            model=self.model,
            why=self.why,
            backtest=self.backtest,
        )

    def to_json(self) -> dict[str, Any]:
        """The fitted state as plain JSON; numpy alone evaluates it."""
        return {
            "schema": SCHEMA,
            "step_s": self.step_s,
            "steps": self.steps,
            "seed": self.seed,
            "model": codec.to_json(self._model),
            "spread": codec.to_json(self._spread),
            "why": self.why,
            "backtest": codec.to_json(self.backtest),
        }

    @classmethod
    def from_json(cls, data: Json) -> Forecaster:
        """The forecaster as it was when `to_json` was called."""
        if data.get("schema") != SCHEMA:
            raise Misuse("data", f"must be a forecaster of schema {SCHEMA}, got {data.get('schema')!r}")
        errors = {
            name: {**error, "wape": {"unknown": error["wape_unknown"]}} if error["wape"] is None else error
            for name, error in data["backtest"].items()  # null: as the first versions wrote an unknown
        }
        return cls(
            step_s=float(data["step_s"]),
            steps=int(data["steps"]),
            seed=int(data["seed"]),
            model=codec.from_json(_KINDS[data["model"]["kind"]], data["model"], name="model"),
            spread=codec.from_json(Spread, data["spread"], name="spread"),
            why=str(data["why"]),
            errors=codec.from_json(dict[str, BacktestError], errors, name="backtest"),
        )


def fit_forecast(history_rps: Any, *, step_s: float, horizon_s: float, seed: int = 0) -> Forecaster:
    """Fit the candidate that forecasts this rate best over the horizon.

    `history_rps`: rates at a regular step, oldest first, NaN where nothing was observed. The horizon is the
    smallest whole number of steps that covers `horizon_s`.
    """
    values = _rates("history_rps", history_rps)
    step = number("step_s", step_s, above=0.0)
    steps = math.ceil(number("horizon_s", horizon_s, above=0.0) / step - 1e-9)
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
    where = backtest.plan(values.size, steps=steps, after=max(once, default=0))
    if where.origins and np.isnan(values[where.origins[0] :]).all():
        where = backtest.Plan((), steps)  # nothing was observed that a forecast could be held against
    naive: list[Candidate] = [LastValue(), *(SeasonalNaive(period=p) for p in (*found, *once))]
    models: list[Candidate] = []
    if where.origins and float(np.nanstd(values)) > 0.0:
        models += _models(values[: where.origins[0]], found, steps)
    candidates = naive + models
    trials = [backtest.run(candidate, values, where) for candidate in candidates]
    choice = backtest.choose(trials, where, naive=len(naive))
    notes = [choice.why] if where.origins else ["last value: there is nothing to test a forecast against"]
    if where.origins and where.steps < steps:
        notes.append(
            f"the history holds no {steps} steps to test on; errors over {where.steps} are extended as √time"
        )
    if where.independent < FEW_HORIZONS:
        notes.append(
            f"{len(observed)} observations: a prior of {PRIOR_SHARE:.0%} of the rate widens the band"
        )
    if shortened:
        notes.append(f"only the newest {MOST_POINTS} steps were used; a longer step_s reaches further back")
    if once:
        notes.append(f"less than two periods of {' and '.join(str(p) for p in once)} steps were seen")
    missing = int(np.isnan(values).sum())
    if missing:
        notes.append(f"{missing} of {values.size} steps are missing")
    winner = _settled(candidates[choice.index], values)
    return Forecaster(
        step_s=step,
        steps=steps,
        seed=seed,
        model=winner,
        spread=spread_of(trials[choice.index], where, horizon=steps, history=values, seed=seed),
        why="; ".join(notes),
        errors={trial.name: trial.error() for trial in trials if len(trial.losses)},
    )


def forecast(history_rps: Any, *, step_s: float, horizon_s: float, seed: int = 0) -> Forecast:
    """Fit and predict in one; slow for long histories."""
    return fit_forecast(history_rps, step_s=step_s, horizon_s=horizon_s, seed=seed).predict()


def _rates(name: str, values: Any) -> Array:
    rates = numbers(name, values, at_least=0.0, missing_allowed=True)
    if rates.ndim == 0:
        rates = rates[None]
    if rates.ndim != 1:
        raise Misuse(name, f"must be one series of rates, got shape {rates.shape}")
    return rates


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
    models += fitting.fit_variants(before, NO_CURVE, settling=not seen)
    if seen and int((~np.isnan(before)).sum()) >= fitting.FEWEST_POINTS:
        models += fitting.fit_variants(before, fit_curve(before, seen))
    return models


def _settled(winner: Candidate, values: Array) -> Candidate:
    """The winner with coefficients and state from the whole history."""
    fresh: Candidate
    if isinstance(winner, Arima):
        fresh = fitting.refit(winner, values)
    elif isinstance(winner, SeasonalNaive):
        fresh = SeasonalNaive(period=winner.period)
    elif isinstance(winner, RecentMedian):
        fresh = RecentMedian(window=winner.window)
    else:
        fresh = LastValue()
    fresh.see(values)
    return fresh
