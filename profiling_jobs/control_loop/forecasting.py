"""The expected load: recent rates, the champion's forecast, and its score against what really came.

`Rates` is the grid of arrival rates: cell k holds the mean rate over [k·step, (k + 1)·step), epoch seconds. A
cell is added once it is over and never changed; what was not read is missing, not zero.

`foresee` updates the champion's forecaster with every rate seen since it was trained, and forecasts from
the tick on. `Scoring` remembers each forecast and scores it when its horizon is over
(`models.workload.forecaster`). Forecasts that overlap share their errors, so misses count once per horizon:
after MISSES of them in a row the best naive forecast takes the champion's place in the same tick, and a
refit is requested.

A routine refit does not end the row of misses: it is the same way of forecasting with an hour more of data,
and a better one ends the row with its first hit. Only the refit that was requested begins a new row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from models.arguments import Array
from models.quantities import Misuse, Unknown
from models.series import Grid
from models.workload import Forecast, Forecaster
from models.workload.fitting import naive_forecaster
from models.workload.forecaster import Issued, Score, score

from ..telemetry.timeline import Timeline
from .context import InCharge

MOST_CELLS = 2880  # judgement: a day at 30 s; enough to see what the champion is updated with after a restart
AHEAD = 2  # cells; judgement: a clock that is kept in step is not set back by so much
DIGITS = 6  # of a rate; its noise is far larger
FIT_STEPS_S = (10.0, 20.0, 30.0, 60.0)
STEPS_A_HORIZON = 9  # judgement: the load is predicted in ninths of the horizon, 30 s of 270 s
FEWEST_RATES = 12  # of a fit; judgement: the level is then known to a third of one value's noise


def forecast_step_s(horizon_s: float) -> float:
    """The step of a forecast over this horizon."""
    return max((s for s in FIT_STEPS_S if s * STEPS_A_HORIZON <= horizon_s), default=FIT_STEPS_S[0])


@dataclass(frozen=True)
class Rates:
    """Consecutive cells, the oldest first; NaN where nothing was read."""

    step_s: float
    first: int
    """The number of the first cell."""
    values: tuple[float, ...] = ()

    @property
    def end(self) -> int:
        return self.first + len(self.values)

    @property
    def end_s(self) -> float:
        return self.end * self.step_s

    @property
    def known_s(self) -> float:
        return self.step_s * sum(not math.isnan(rate) for rate in self.values)

    @property
    def grid(self) -> Grid:
        """The rates as a grid of `models.series`."""
        return Grid(self.first * self.step_s, self.step_s, np.asarray(self.values))

    def since(self, cell: int) -> Array:
        """The rates from this cell on; missing where they are no longer, or not yet, kept."""
        if cell >= self.end:
            return np.empty(0)
        missing = max(0, self.first - cell)
        return np.concatenate((np.full(missing, np.nan), self.values[max(0, cell - self.first) :]))

    def grown(self, timeline: Timeline, *, until_s: float) -> Rates:
        """The rates with every cell that was over by then, and none that a clock gone ahead has added."""
        end = math.floor(until_s / self.step_s)
        if self.end - end > AHEAD:
            return Rates(self.step_s, min(self.first, end), self.values[: max(0, end - self.first)])
        if end <= self.end:
            return self
        begin = max(self.end, end - MOST_CELLS)
        new = tuple(self._read(timeline, cell) for cell in range(begin, end))
        values = (*self.values, *new) if begin == self.end else new
        return Rates(self.step_s, end - min(len(values), MOST_CELLS), values[-MOST_CELLS:])

    def _read(self, timeline: Timeline, cell: int) -> float:
        rate = timeline.arrival_rps(cell * self.step_s, (cell + 1) * self.step_s)
        return math.nan if isinstance(rate, Unknown) else float(f"{rate:.{DIGITS}g}")

    @classmethod
    def begin(cls, *, step_s: float, at_s: float) -> Self:
        """Rates without a cell; the first will be the one that this moment lies in."""
        if not step_s > 0.0:
            raise Misuse("step_s", f"must be > 0, got {step_s}")
        return cls(step_s, math.floor(at_s / step_s))


MISSES = 4
"""A calibrated 90 % interval misses one horizon in ten by chance, four in a row one in ten thousand: at 320
horizons a day (270 s each) once a month for nothing. Three would be every third day; five take 23 minutes."""
MATERIAL = 0.02
"""Of the highest rate observed: what lies closer is no miss, however narrow the interval was. As for the
winner of a back-test, a fiftieth is not visible in any decision (judgement)."""
OUTSTANDING = 12  # judgement: forecasts remembered per horizon; at a long horizon not every tick's
ASK_AGAIN_S = 3600.0  # judgement: a refit that was refused has an hour of new data by then


@dataclass(frozen=True)
class Scored:
    """One forecast whose horizon is over."""

    made_at_s: float
    by: str
    score: Score

    @property
    def missed(self) -> bool:
        found = self.score
        peak, highest = found.peak, found.highest_rps
        outside = max(peak.low - highest, highest - peak.high, 0.0)
        return found.missed and max(found.mae_rps, outside) > MATERIAL * highest

    def shown(self) -> dict[str, Any]:
        found = self.score
        return {
            "made_at_s": self.made_at_s,
            "by": self.by,
            "missed": self.missed,
            "why": list(found.misses),
            "mae_rps": found.mae_rps,
            "naive_mae_rps": found.naive_mae_rps,
            "coverage": found.coverage,
            "highest_rps": found.highest_rps,
        }


@dataclass(frozen=True)
class Scoring:
    """What is remembered of the forecasts made."""

    version: int = 0
    """The champion's."""
    issued: tuple[tuple[str, Issued], ...] = ()
    """Who made it, and the forecast, oldest first."""
    misses: int = 0
    """In a row, over successive champions, each horizon counted once."""
    counted_until_s: float = -math.inf
    instead: str = ""
    """Why the best naive forecast is in charge, if it is."""
    since_s: float = math.inf
    """Since when it is, or since when the refit was asked for again."""

    def under(self, version: int) -> Scoring:
        """The scoring under another champion; begun anew if that is the refit that was asked for."""
        if version == self.version:
            return self
        return Scoring(version=version) if self.instead else replace(self, version=version)

    def settled(self, rates: Rates) -> tuple[Scoring, tuple[Scored, ...]]:
        """The scoring with every forecast scored whose horizon is over, and these scores.

        What a clock gone ahead has made later than the newest rate would keep others from being made.
        """
        kept, scored, state = [], [], self
        if self.counted_until_s > rates.end_s + 1e-6:
            state = replace(self, counted_until_s=-math.inf)
        for by, issued in self.issued:
            if issued.made_at_s > rates.end_s + 1e-6:
                continue
            if issued.over_at_s > rates.end_s + 1e-6:
                kept.append((by, issued))
                continue
            found = score(issued, made_at_s=issued.made_at_s, actual=rates.grid)
            if not isinstance(found, Unknown):
                scored.append(Scored(issued.made_at_s, by, found))
                state = state._counted(scored[-1], until_s=issued.over_at_s)
        return replace(state, issued=tuple(kept)), tuple(scored)

    def judged(self, now_s: float) -> Scoring:
        """The scoring with the champion replaced after too many misses, and a new request after some time."""
        if self.instead:
            return self if 0.0 <= now_s - self.since_s < ASK_AGAIN_S else replace(self, since_s=now_s)
        if self.misses < MISSES:
            return self
        why = f"the champion missed {self.misses} horizons in a row"
        return replace(self, instead=why, since_s=now_s)

    def made(self, forecast: Forecast, *, by: str, from_s: float) -> Scoring:
        """The scoring with this forecast remembered, unless one was made a moment ago."""
        newest_s = self.issued[-1][1].made_at_s if self.issued else -math.inf
        if from_s - newest_s < max(forecast.horizon_s / OUTSTANDING, 1e-6):
            return self
        issued = Issued.of(forecast, made_at_s=from_s)
        issued = replace(
            issued, mid=_rounded(issued.mid), low=_rounded(issued.low), high=_rounded(issued.high)
        )
        return replace(self, issued=(*self.issued, (by, issued)))

    def _counted(self, scored: Scored, *, until_s: float) -> Scoring:
        if scored.by != "champion" or scored.made_at_s < self.counted_until_s:
            return self
        return replace(self, misses=self.misses + 1 if scored.missed else 0, counted_until_s=until_s)


def _rounded(rates: Sequence[float]) -> tuple[float, ...]:
    """Six digits are plenty for what is compared with noisy rates."""
    return tuple(float(f"{rate:.6g}") for rate in rates)


def periods_of(forecaster: Forecaster) -> tuple[int, ...]:
    """The periods that the champion's back-test knew, in steps."""
    names = [name.split() for name in forecaster.backtest if name.startswith("seasonal naive ")]
    return tuple(int(words[-1]) for words in names if words[-1].isdigit())


def stand_in(champion: Forecaster, rates: Rates) -> Forecaster | Unknown:
    """The best naive forecaster for the champion's horizon, on what was seen live."""
    return naive_forecaster(
        rates.grid.values,
        step_s=champion.step_s,
        steps=champion.steps,
        periods=periods_of(champion),
        seed=champion.seed,
    )


PATHS = 200  # agreed: what the optimiser is measured with


@dataclass(frozen=True)
class Foreseen:
    """The forecast of one tick."""

    forecast: Forecast | Unknown
    scoring: Scoring
    summary: Mapping[str, Any]
    """What the evaluation records of it."""
    requests: tuple[Mapping[str, Any], ...] = ()


def foresee(
    job: str,
    charge: InCharge | Unknown,
    *,
    rates: Rates,
    scoring: Scoring,
    horizon_s: float,
    cache: dict[str, Any],
    now_s: float,
) -> Foreseen:
    """The forecast from now on: the champion's, or the best naive one after too many misses in a row."""
    champion = charge if isinstance(charge, Unknown) else charge.forecaster
    if isinstance(charge, Unknown) or isinstance(champion, Unknown):
        assert isinstance(champion, Unknown)
        asked_s = now_s // ASK_AGAIN_S * ASK_AGAIN_S
        # A fit that is asked for earlier fails, and a first start would show a failed run.
        fits = rates.known_s > FEWEST_RATES * forecast_step_s(horizon_s)
        requests = (_refit(champion.reason, since_s=asked_s),) if fits else ()
        return Foreseen(champion, scoring, {"unknown": champion.reason}, requests)
    scoring, scored = scoring.under(charge.versions.get("workload", 0)).settled(rates)
    scoring = scoring.judged(now_s)
    forecaster, by = _updated(job, cache, charge, champion, rates), "champion"
    if scoring.instead:
        naive = stand_in(champion, rates)
        if not isinstance(naive, Unknown):
            forecaster, by = naive, "naive"
    scoring = scoring.made(forecaster.predict(paths=PATHS), by=by, from_s=rates.end_s)
    # Beyond a whole horizon nothing that was observed is left, and control has stopped believing it.
    later_steps = min(max(0.0, now_s - rates.end_s) / rates.step_s, float(forecaster.steps))
    forecast = forecaster.predict(paths=PATHS, later_steps=later_steps)
    requests = (_refit(scoring.instead, since_s=scoring.since_s),) if scoring.instead else ()
    from_s = rates.end_s + later_steps * rates.step_s
    return Foreseen(forecast, scoring, _summary(forecast, by, scoring, scored, from_s), requests)


def _refit(why: str, *, since_s: float) -> dict[str, Any]:
    return {"do": "refit", "model": "workload", "why": why, "since_s": since_s}


def _updated(
    job: str, cache: dict[str, Any], charge: InCharge, champion: Forecaster, rates: Rates
) -> Forecaster:
    """A copy of the champion, updated with everything seen since it was trained; kept for the next tick."""
    key = f"forecaster of {job}"
    which = (charge.versions.get("workload", 0), champion.step_s, charge.forecaster_until_s)
    known, forecaster, seen = cache.get(key, (None, None, 0))
    if known != which or seen > rates.end:  # or it has seen what a clock gone ahead had added
        forecaster = Forecaster.from_json(champion.to_json())
        until_s = charge.forecaster_until_s
        seen = rates.first if isinstance(until_s, Unknown) else round(until_s / rates.step_s)
    new = rates.since(seen)
    if new.size:
        forecaster.update(new)
    cache[key] = (which, forecaster, max(seen, rates.end))
    return forecaster


def _summary(
    forecast: Forecast, by: str, scoring: Scoring, scored: tuple[Scored, ...], from_s: float
) -> dict[str, Any]:
    return {
        "by": by,
        "model": forecast.model,
        "from_s": from_s,
        "step_s": forecast.step_s,
        "horizon_s": forecast.horizon_s,
        "mean_rps": float(forecast.mid.mean()),
        "peak": vars(forecast.peak),
        "misses_in_row": scoring.misses,
        "instead": scoring.instead or None,
        "scored": [each.shown() for each in scored],
    }
