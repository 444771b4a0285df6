"""Forecast of the arrival rate: the fitted `Forecaster`, updated and asked in every tick, and its band.

It takes in new observations and predicts in milliseconds, with numpy alone, and is stored as JSON; `fitting`
makes it.

**Band.** Errors of earlier forecasts are kept as whole trajectories r_j, because errors within a horizon hang
together, each in units of the error one step ahead at its origin, e_j; the newest ROWS of them count. With
the forecast f, that error now, e, and a factor c,

    path_j(h) = max(0, f(h) + c · u(h) · r_j(h))          u(h) = e · (max(f(h), floor) / max(f(0), floor))^p

Quantiles over the paths are the band. e has a half-life of NOW steps, so the band widens as soon as the
load gets less predictable; c stretches the trajectories about their median, and follows what the band has
covered of late: its logarithm grows by PACE · (0.9 − share inside) with every value. (Adaptive conformal
inference, Gibbs and Candès 2021, on the width in place of the level.) Until three horizons were seen, random
walks of a prior width are among the trajectories, and from few horizons the trajectories' common part is
widened to Student's t: σ of k means by σ·√(q² − 1) with q = t_{k−1}/z · √(1 + 1/k).

**Surprises.** A ramp out of a quiet load is hundreds of that load's errors, and makes e grow, too: the one
times the other would be far more than anything that happened. So what is larger than SURPRISING times the
usual |r(h)| is replayed at most as large as it was, e_j in place of e.

**Peak.** Quantiles of the paths' maxima, stretched about their median by a factor of its own. Every interval
is remembered as it was issued, and held against the maximum that came: what is learnt from the trajectories
themselves would always seem covered, since that maximum is one of them.

**Score** against the rates observed afterwards. A forecast *missed* when the highest observed rate lies
outside its interval of the peak, or when its mean absolute error is more than twice that of the last value
observed before it was made. A calibrated 90 % interval misses one time in ten, so a single miss says little.
A missing observation (NaN) is left out; a zero is a value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from .. import codec
from ..arguments import Array, number, numbers, whole
from ..quantities import MOST_PATHS, Interval, Json, Misuse, Unknown, student_quantiles
from ..series import Grid
from .ensemble import PRECISE, BacktestError, Ensemble

CONFIDENCE = 0.90  # judgement: as the capacity intervals


ROWS = 120  # trajectories, at most; 5 % is then the sixth smallest
A_HORIZON = 6  # trajectories begin within one horizon; more hang together too closely to count
NOW = 8  # steps
CLIPPED = 5.0  # times the error of late that one error may count, unless the one before was as large
PACE = 0.08  # judgement, not tuned: nine steps without a hit double the width
PEAK_PACE = 0.04
NARROWEST, WIDEST = 0.3, 4.0  # judgement: beyond, the trajectories themselves must change
FEW_HORIZONS = 3  # below this the trajectories say too little, and a prior stands beside them
PRIOR_SHARE = 0.2  # judgement: without experience the rate may move by a fifth over the horizon (one sigma)
PRIOR_PATHS = 40
FLOOR_SHARE = 0.1  # of the usual rate; judgement: errors do not vanish with the rate
SURPRISING = 6.0  # times the median error at a lead; judgement: four standard deviations
BEYOND = 1.25  # judgement: of the largest error of late, beyond what was seen
FADING = 360  # steps until half of it is left; with 120 the limit cut into the maxima of steady noise
TINY = 1e-9  # of the rate
HALF_AS_SURE = 4.0  # judgement: what a load that doubles now and then shows of it within twenty steps
FARTHEST = 50.0  # errors of late; judgement: where nothing varied, the first jump is no measure of the next
INSIDE = ((1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2)


@dataclass(kw_only=True, eq=False)
class Band:
    """The errors of earlier forecasts, and those of the forecasts under way."""

    leads: int
    level_rps: float
    """The usual rate."""
    prior_rps: float
    """Standard deviation of a prior's random walk, a step."""
    rows: Array
    """Finished trajectories, oldest first, in units of their origins."""
    row_units: Array
    """The error one step ahead at each of these origins."""
    error: float = 0.0
    newest: float = 0.0
    """The newest of the errors in `error`, as large as it was."""
    seen: float = 0.0
    """The discounted number of errors in `error`."""
    growth: list[float] = field(default_factory=lambda: [0.0] * 5)
    """Of log rate x and log |error| y: count, means, Σ (x − x̄)², Σ (x − x̄)(y − ȳ)."""
    largest: float = 0.0
    """The largest error at any lead, fading."""
    factor: float = 1.0
    peak_factor: float = 1.0
    finished: int = 0
    mids: Array
    """Forecasts under way (origins, leads), newest origin first, as their units and bands."""
    units: Array
    lows: Array
    highs: Array
    peaks: Array
    """Lower and upper end of the peak of each (origins, 2)."""
    values: list[float | None] = field(default_factory=list)
    """Those that they are compared with, newest last; None where nothing was observed."""

    def __post_init__(self) -> None:
        # JSON has no shape for what is empty.
        for name in ("rows", "mids", "units", "lows", "highs"):
            setattr(self, name, getattr(self, name).reshape(-1, self.leads))
        self.peaks = self.peaks.reshape(-1, 2)

    @classmethod
    def begin(cls, *, leads: int, history: Array) -> Band:
        """Without any experience."""
        seen = history[~np.isnan(history)]
        level = float(seen.mean()) if seen.size else 0.0
        step = PRIOR_SHARE * level / math.sqrt(leads)
        if seen.size > 1:
            step = math.hypot(step, float(np.sqrt((np.diff(seen) ** 2).mean())))
        none = np.empty((0, leads))
        return cls(
            leads=leads,
            level_rps=level,
            prior_rps=step,
            rows=none,
            row_units=np.empty(0),
            mids=none,
            units=none,
            lows=none,
            highs=none,
            peaks=np.empty((0, 2)),
        )

    @property
    def horizons(self) -> float:
        """How many horizons fit beside each other into the time since the beginning."""
        return self.finished / self.leads

    @property
    def _floor_rps(self) -> float:
        """The least rate that errors are scaled with."""
        return max(FLOOR_SHARE * self.level_rps, TINY)

    def unit(self, mid: Array) -> Array:
        floor = self._floor_rps
        now = max(float(mid[0]), floor)
        result: Array = (
            max(self.error, PRECISE * self.level_rps, TINY * floor)
            * (np.maximum(mid, floor) / now) ** self.power
        )
        return result

    @property
    def power(self) -> float:
        """The p of errors that grow as rate^p: slope of log |error| over log rate, drawn towards ½."""
        *_, squares, products = self.growth
        return min(max((0.5 * HALF_AS_SURE + products) / (HALF_AS_SURE + squares), 0.0), 1.0)

    def _grow(self, rate: float, error: float) -> None:
        count, x, y, squares, products = self.growth
        floor = self._floor_rps
        new_x, new_y, count = math.log(max(rate, floor)), math.log(max(error, TINY * floor)), count + 1.0
        x, off = x + (new_x - x) / count, new_x - x
        y = y + (new_y - y) / count
        self.growth = [count, x, y, squares + off * (new_x - x), products + off * (new_y - y)]

    def see(self, y: float) -> None:
        """A new value: an error of every forecast under way."""
        count = len(self.mids)
        lead = np.arange(count)
        self.values = [*self.values[-self.leads + 1 :], None if y != y else y][-self.leads :]
        if y == y and count:
            off = y - self.mids[lead, lead]
            self.largest = max(float(np.abs(off).max()), 0.5 ** (1.0 / FADING) * self.largest)
            one, before, self.newest = abs(float(off[0])), self.newest, abs(float(off[0]))
            one = min(one, max(CLIPPED * self.error, before)) if self.seen > NOW else one
            self._grow(float(self.mids[0, 0]), one)
            self.seen = min(self.seen + 1.0, NOW / math.log(2.0))
            self.error += (one - self.error) / self.seen
            if self.horizons >= FEW_HORIZONS:
                inside = float(((self.lows[lead, lead] <= y) & (y <= self.highs[lead, lead])).mean())
                self.factor = _steered(self.factor, inside, pace=PACE)
        if count == self.leads:
            self._finish()

    def _finish(self) -> None:
        """The oldest forecast is over."""
        mid, unit, observed = self.mids[-1], self.units[-1], np.array(self.values, dtype=np.float64)
        known = ~np.isnan(observed)
        self.finished += 1
        if 2 * known.sum() < known.size:
            return
        low, high = self.peaks[-1]
        highest = float(observed[known].max())
        if self.horizons >= FEW_HORIZONS:
            inside = float(low <= highest <= high)
            widest = WIDEST / min(self.factor, 1.0)  # what the band's factor has narrowed too
            self.peak_factor = _steered(self.peak_factor, inside, pace=PEAK_PACE, widest=widest)
        if self.finished % max(1, self.leads // A_HORIZON):
            return
        at = np.arange(known.size)
        row = np.clip(np.interp(at, at[known], ((observed - mid) / unit)[known]), -FARTHEST, FARTHEST)
        self.rows = np.vstack((self.rows[1 - ROWS :], row))
        self.row_units = np.append(self.row_units[1 - ROWS :], unit[0])

    def issue(self, mid: Array, *, seed: int) -> None:
        """A new forecast, at the leads that are judged."""
        paths = np.maximum(mid + self.trajectories(mid, seed=seed), 0.0)
        low, high = ends(paths, mid)
        peak = self.peak(paths, mid)
        keep = self.leads - 1
        self.mids = np.vstack((mid, self.mids[:keep]))
        self.units = np.vstack((self.unit(mid), self.units[:keep]))
        self.lows, self.highs = np.vstack((low, self.lows[:keep])), np.vstack((high, self.highs[:keep]))
        self.peaks = np.vstack(([peak.low, peak.high], self.peaks[:keep]))

    def trajectories(self, mid: Array, *, seed: int) -> Array:
        """Errors around this forecast, in records/s."""
        found = np.empty((0, self.leads))
        if len(self.rows):
            unit, middle = self.unit(mid), np.median(self.rows, axis=0)
            shifts = _shifts(self.rows.mean(axis=1), self.horizons, seed)
            spread = middle + self.factor * (self.rows + shifts[:, None] - middle)
            as_it_was = np.abs(self.rows) * self.row_units[:, None] * (unit / unit[0])
            # A forecast that lags a ramp errs one step ahead already.
            ordinary = SURPRISING * unit * np.median(np.abs(self.rows), axis=0)
            most = np.minimum(np.maximum(ordinary, as_it_was), self._most)
            found = np.clip(unit * spread, -most, most)
        if self.horizons < FEW_HORIZONS or not len(self.rows):
            found = np.vstack((found, _prior(self.prior_rps, self.leads, seed)))
        return found

    @property
    def _most(self) -> float:
        """Errors little larger than any seen."""
        return BEYOND * self.largest

    def peak(self, paths: Array, mid: Array) -> Interval:
        """Maximum over the horizon."""
        low, middle, high = np.quantile(paths.max(axis=1), INSIDE).tolist()
        low, high = (middle + self.peak_factor * (end - middle) for end in (low, high))
        if self.horizons >= FEW_HORIZONS:
            high = max(middle, min(high, float(mid.max()) + self._most))
        return Interval(max(low, 0.0), middle, high, CONFIDENCE)


def ends(paths: Array, mid: Array) -> tuple[Array, Array]:
    """Low and high: quantiles of the paths, around the forecast."""
    low, high = np.quantile(paths, (INSIDE[0], INSIDE[-1]), axis=0)
    return np.minimum(low, mid), np.maximum(high, mid)


def _steered(factor: float, inside: float, *, pace: float, widest: float = WIDEST) -> float:
    return min(max(factor * math.exp(pace * (CONFIDENCE - inside)), NARROWEST), widest)


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


def _prior(step_rps: float, horizon: int, seed: int) -> Array:
    """Random walks, as many up as down."""
    walk = np.random.default_rng(seed).normal(scale=step_rps, size=(PRIOR_PATHS // 2, horizon)).cumsum(axis=1)
    return np.vstack((walk, -walk))


def extended(errors: Array, horizon: int) -> Array:
    """Beyond the horizon tested the last error grows with √time, as a random walk's would."""
    tested = errors.shape[1]
    if tested >= horizon:
        return errors
    growth = np.sqrt(np.arange(tested + 1, horizon + 1) / tested)
    return np.hstack((errors, errors[:, -1:] * growth))


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
        return self.step_s * len(self.mid)


class Forecaster:
    """A fitted forecast: `update` with new rates, then `predict` from there on."""

    schema: ClassVar[int] = 4

    def __init__(
        self,
        *,
        step_s: float,
        steps: int,
        seed: int,
        model: Ensemble,
        band: Band,
        why: str,
        errors: Mapping[str, BacktestError],
    ) -> None:
        self.step_s = step_s
        self.steps = steps
        self.seed = seed
        self.why = why
        self.backtest = dict(errors)
        self.ensemble = model
        self.band = band

    @property
    def model(self) -> str:
        return self.ensemble.name

    def update(self, new_rps: Any) -> Forecaster:
        """Update with new rates, oldest first, one per step; NaN where nothing was observed.

        In one piece or in many makes no difference. The forecaster itself changes, and is returned.
        """
        stride = self.ensemble.stride
        for value in rates("new_rps", new_rps):
            self.ensemble.see(np.array([value]))
            if self.ensemble.at % stride == 0:
                self.band.see(float(value))
                judged = self._expected(self.band.leads * stride)[stride - 1 :: stride]
                self.band.issue(judged, seed=self.seed)
        return self

    def _expected(self, steps: int) -> Array:
        result: Array = np.maximum(self.ensemble.ahead(steps), 0.0)
        return result

    def predict(self, *, paths: int = 200, later_steps: float = 0.0) -> Forecast:
        """The rate over the horizon, with the same paths around the forecast at every call.

        `later_steps`: how long ago the newest observation ended. Whole steps are left out, and where the rate
        rises, a part of one is gone ahead; where it falls, nothing is, for what is left of the step that has
        begun still lies higher. The errors are those at the end of each step.
        """
        count = whole("paths", paths, at_most=MOST_PATHS)
        # A clock's last digits are no step.
        later = round(number("later_steps", later_steps, at_least=0.0), 6)
        left_out = int(later)
        expected = self._expected(left_out + self.steps + 1)[left_out:]
        mid = expected[:-1] + (later - left_out) * np.maximum(np.diff(expected), 0.0)
        every = np.maximum(mid + self._errors(mid, later=math.ceil(later)), 0.0)
        low, high = ends(every, mid)
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
            peak=self.band.peak(every, mid),
            confidence=CONFIDENCE,
            model=self.model,
            why=self.why,
            backtest=self.backtest,
        )

    def _errors(self, mid: Array, *, later: int) -> Array:
        """Trajectories at every step of a forecast that begins so many steps after the newest observation."""
        stride, steps = self.ensemble.stride, np.arange(1, self.steps + 1)
        found = self.band.trajectories(mid[stride - 1 :: stride], seed=self.seed)
        if stride > 1:
            judged = stride * np.arange(1, found.shape[1] + 1)
            found = np.stack([np.interp(steps, judged, row) for row in found])
        return extended(found, self.steps + later)[:, later:]

    def to_json(self) -> dict[str, Any]:
        """The fitted state as plain JSON; numpy alone evaluates it."""
        return {
            "schema": self.schema,
            "step_s": self.step_s,
            "steps": self.steps,
            "seed": self.seed,
            "model": codec.to_json(self.ensemble),
            "band": codec.to_json(self.band),
            "why": self.why,
            "backtest": codec.to_json(self.backtest),
        }

    @classmethod
    def from_json(cls, data: Json) -> Forecaster:
        """The forecaster as it was when `to_json` was called."""
        if data.get("schema") != cls.schema:
            raise Misuse(
                "data",
                f"must be of schema {cls.schema}, got {data.get('schema')!r}: fit the model again",
            )
        return cls(
            step_s=float(data["step_s"]),
            steps=int(data["steps"]),
            seed=int(data["seed"]),
            model=Ensemble.from_json(data["model"]),
            band=codec.from_json(Band, data["band"], name="band"),
            why=str(data["why"]),
            errors=codec.from_json(dict[str, BacktestError], data["backtest"], name="backtest"),
        )


def rates(name: str, values: Any) -> Array:
    """The series of rates; Misuse where it is none."""
    rates = numbers(name, values, at_least=0.0, missing_allowed=True)
    if rates.ndim == 0:
        rates = rates[None]
    if rates.ndim != 1:
        raise Misuse(name, f"must be one series of rates, got shape {rates.shape}")
    return rates


ENOUGH_SEEN = 0.5  # judgement: with less than half of the horizon observed its maximum is not known
TWICE_AS_BAD = 2.0  # judgement: by chance alone one forecast in two is worse than the last value


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
    def of(cls, forecast: Forecast, *, made_at_s: float) -> Issued:
        mid, low, high = (tuple(float(v) for v in x) for x in (forecast.mid, forecast.low, forecast.high))
        at = number("made_at_s", made_at_s)
        return cls(at, forecast.step_s, mid, low, high, forecast.peak, forecast.confidence)

    @property
    def over_at_s(self) -> float:
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
        return bool(self.misses)


def score(forecast: Forecast | Issued, *, made_at_s: float, actual: Grid) -> Score | Unknown:
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
