"""How well does a model foretell what it has not seen?

    capacity    each saturated run is left out, with all others of its size where that lies between others
    latency     each measurement is left out (`LatencyModel.leave_one_out`)
    recovery    each downtime is left out of its kind, where at least three are known
    workload    the newest horizons, at most a quarter of the history, are forecast as they came

Whatever could be told of a value that was left out is one `Trial`; their errors and how many lay inside the
90 % interval are the figures that promotion is decided by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.arguments import Array
from models.capacity import CapacityModel
from models.capacity.brackets import NOISE
from models.downtime import DowntimeModel
from models.latency import LatencyModel
from models.quantities import Interval, Measurement, Misuse, RecoveryEvent, Unknown
from models.workload import Forecaster, fit_forecast
from models.workload.naive_forecast import naive_forecaster

MOST = 60  # judgement: left out one by one, evenly spread; more only take time
NORMAL_95 = 1.645
FEWEST_OF_A_KIND = 3  # judgement: leaving one of two out tests the prior, not what was learnt
HORIZONS = 4  # judgement: as many as the back-test asks for


@dataclass(frozen=True)
class Trial:
    """One value that was left out, and what was foretold."""

    measured: float
    foretold: Interval
    inside: bool

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return abs(self.foretold.mid - self.measured) / self.measured


@dataclass(frozen=True)
class HeldOut:
    """All of them."""

    trials: tuple[Trial, ...]

    def figures(self) -> dict[str, float]:
        """Mean relative error and coverage, where anything could be left out."""
        found: dict[str, float] = {"held_out_count": len(self.trials)}
        if self.trials:
            found["held_out_error"] = sum(t.error for t in self.trials) / len(self.trials)
            found["held_out_inside"] = sum(t.inside for t in self.trials)
            found["interval_coverage"] = found["held_out_inside"] / len(self.trials)
        return found


def capacity(measurements: Sequence[Measurement], *, tasks: int | None = None) -> HeldOut:
    """Saturated runs, foretold by the others."""
    saturated = [m for m in measurements if not m.sustained]
    sizes = sorted({m.scale_out for m in saturated})
    trials = []
    for one in _spread(saturated):
        between = len(sizes) > 3 and sizes[0] < one.scale_out < sizes[-1]
        rest = [m for m in measurements if m is not one and not (between and m.scale_out == one.scale_out)]
        try:
            found = CapacityModel.fit(rest, tasks=tasks).predict(one.scale_out)
        except Misuse:  # what is left contradicts itself
            continue
        if not isinstance(found, Unknown):
            trials.append(Trial(one.throughput_rps, found, _run_inside(one, found)))
    return HeldOut(tuple(trials))


def latency(model: LatencyModel) -> tuple[HeldOut, dict[str, int]]:
    """Latencies foretold by the others, and how "abnormal" was told: tp, fp, fn, tn."""
    trials = []
    for one in _spread(model.measurements):
        rest = [m for m in model.measurements if m is not one]
        found = LatencyModel.fit(rest, model.capacity).predict(one.scale_out, one.offered_rps)
        if not isinstance(found, Unknown) and one.latency_ms:
            inside = found.low <= one.latency_ms <= found.high
            trials.append(Trial(one.latency_ms, found, inside))
    return HeldOut(tuple(trials)), model.leave_one_out()


def recovery(events: Sequence[RecoveryEvent]) -> HeldOut:
    """Downtimes foretold by the others of their kind."""
    trials = []
    for one in _spread([e for e in events if math.isfinite(e.downtime_s) and e.downtime_s > 0.0]):
        if sum(e.kind == one.kind for e in events) < FEWEST_OF_A_KIND:
            continue
        found = DowntimeModel.fit([e for e in events if e is not one]).interval(one.kind)
        trials.append(Trial(one.downtime_s, found, found.low <= one.downtime_s <= found.high))
    return HeldOut(tuple(trials))


@dataclass(frozen=True)
class Forecasts:
    """The newest horizons beside what was forecast for them."""

    observed: Array
    mid: Array
    low: Array
    high: Array
    naive: Array
    horizons: int

    def figures(self) -> dict[str, float]:
        """Errors in shares of everything that arrived, of the forecast and of the better naive one."""
        seen = ~np.isnan(self.observed)
        y, total = self.observed[seen], float(self.observed[seen].sum())
        inside = (self.low[seen] <= y) & (y <= self.high[seen])
        found = {
            "held_out_horizons": float(self.horizons),
            "held_out_mae_rps": float(np.abs(y - self.mid[seen]).mean()),
            "naive_mae_rps": float(np.abs(y - self.naive[seen]).mean()),
            "held_out_mean_rps": float(y.mean()),
            "interval_coverage": float(inside.mean()),
        }
        if total > 0.0:
            found["held_out_error"] = float(np.abs(y - self.mid[seen]).sum()) / total
        return found


def workload(values: Array, *, step_s: float, steps: int, seed: int) -> Forecasts | Unknown:
    """The newest horizons, forecast by a model that was fitted before them and told what came after each."""
    horizons = min(HORIZONS, values.size // (4 * steps))
    if horizons < 1:
        return Unknown(
            f"{values.size * step_s:.0f} s of arrivals are less than four horizons of "
            f"{steps * step_s:.0f} s, so nothing can be left out yet"
        )
    before = values[: -horizons * steps]
    if np.isnan(before).all() or np.isnan(values[-horizons * steps :]).all():
        return Unknown("nothing was observed in the newest horizons, or before them")
    fitted = fit_forecast(before, step_s=step_s, horizon_s=step_s * steps, seed=seed)
    naive = naive_forecaster(before, step_s=step_s, steps=steps, periods=_periods(fitted), seed=seed)
    assert isinstance(naive, Forecaster)  # something was observed
    parts: list[tuple[Array, ...]] = []
    for number in range(horizons):
        at = before.size + number * steps
        came = values[at : at + steps]
        forecast = fitted.predict()
        parts.append((came, forecast.mid, forecast.low, forecast.high, naive.predict().mid))
        fitted.update(came)
        naive.update(came)
    observed, mid, low, high, simple = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Forecasts(observed, mid, low, high, simple, horizons)


def _periods(fitted: Forecaster) -> tuple[int, ...]:
    """The periods that its back-test knew."""
    last = [name.rpartition(" ")[2] for name in fitted.backtest if name.startswith("seasonal naive")]
    return tuple(int(word) for word in last if word.isdigit())


def _run_inside(one: Measurement, found: Interval) -> bool:
    """Did this run lie where it had to? Its own noise comes on top of the interval, which is the truth's."""
    away = math.log(one.throughput_rps / found.mid)
    side = math.log(found.high / found.mid) if away > 0 else math.log(found.mid / found.low)
    own = NOISE if one.standard_error_rps is None else one.standard_error_rps / one.throughput_rps
    return abs(away) <= math.hypot(side, NORMAL_95 * max(own, NOISE))


def _spread(values: Iterable[Any]) -> list[Any]:
    every = list(values)
    if len(every) <= MOST:
        return every
    return [every[i] for i in np.linspace(0, len(every) - 1, MOST).round().astype(int)]
