"""Which model do the data allow, and how good is it? One document per kind of model.

    fit_workload    arrivals on a grid                    -> a forecaster over the job's horizon
    fit_capacity    measurements, costs of a batch        -> T'(s) with its engine inputs
    fit_latency     measurements, a capacity model        -> latency over utilisation and scale-out
    fit_recovery    failures and changes lived through    -> downtime per kind

A document (model_documents) holds the model, what it was trained on and the figures of its held-out tests; or
it is Unknown why there is none. Nothing is registered or promoted here: that is `promoting`.

How well does a model foretell what it has not seen?

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
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from models.arguments import Array
from models.capacity import CapacityModel
from models.capacity.brackets import NOISE
from models.downtime import DowntimeModel
from models.latency import FEWEST_POINTS, LatencyModel
from models.quantities import Interval, Measurement, Misuse, RecoveryEvent, Unknown
from models.series import Grid
from models.workload import Forecaster, fit_forecast
from models.workload.forecaster import naive_forecaster

from ..control_loop.forecasting import FEWEST_RATES, forecast_step_s
from ..telemetry.batch_costs import EngineInputs
from .model_documents import document, training
from .training_data import Measured

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


def fit_workload(
    arrivals: Grid | Unknown, *, horizon_s: float, step_s: float | None = None, seed: int = 0
) -> dict[str, Any] | Unknown:
    """What will arrive over the next `horizon_s`?"""
    if isinstance(arrivals, Unknown):
        return arrivals
    step = forecast_step_s(horizon_s) if step_s is None else step_s
    grid = coarser(arrivals, step_s=step)
    seen = int(grid.values.size - grid.missing)
    if seen < FEWEST_RATES:
        return Unknown(
            f"arrivals are known for {seen} steps of {step:g} s, {FEWEST_RATES} are needed: record the input "
            f"for {FEWEST_RATES * step:.0f} s, or let `headroom serve` watch it"
        )
    forecaster = fit_forecast(grid.values, step_s=step, horizon_s=horizon_s, seed=seed)
    tested = workload(grid.values, step_s=step, steps=forecaster.steps, seed=seed)
    end_s = grid.start_s + step * grid.values.size
    figures: dict[str, Any] = {
        "rates_seen": seen,
        "rates_missing": grid.missing,
        "history_s": step * grid.values.size,
        "horizon_s": forecaster.steps * step,
        "peak_rps": forecaster.predict().peak.mid,
    }
    figures |= {} if isinstance(tested, Unknown) else tested.figures()
    if forecaster.model in forecaster.backtest:
        figures["backtest_mae_rps"] = forecaster.backtest[forecaster.model].mae_rps
    return document(
        "workload",
        forecaster,
        trained_on=training(
            [None if math.isnan(v) else v for v in grid.values.tolist()], from_s=grid.start_s, to_s=end_s
        ),
        figures=figures,
    )


def fit_capacity(
    data: Measured, *, limit_records: float = math.inf, trigger_s: float = 0.0, tasks: int | None = None
) -> dict[str, Any] | Unknown:
    """How much is sustained at each scale-out?"""
    if not data.measurements:
        return Unknown("nothing was measured yet: profile the job")
    measurements, contradicting = data.measurements, data.contradicting
    try:
        model = CapacityModel.fit(measurements, tasks=tasks)
    except Misuse as wrong:
        profile = tuple(m for m in measurements if m.origin == "profile")
        try:
            model = CapacityModel.fit(profile, tasks=tasks)
        except Misuse:
            return Unknown(f"the measurements contradict each other: {wrong.problem}")
        contradicting += len(measurements) - len(profile)
        measurements = profile
    sizes = model.saturated_at
    if not sizes:
        found = model.predict(measurements[0].scale_out)
        return found if isinstance(found, Unknown) else Unknown("the job was never saturated")
    figures: dict[str, Any] = {
        "measurements": len(measurements),
        "live_measurements": sum(m.origin == "live" for m in measurements),
        "left_out_in_recovery": data.in_recovery,
        "left_out_contradicting": contradicting,
        "saturated_sizes": len(sizes),
        "executor_seconds": sum(m.executor_seconds for m in measurements),
    }
    if data.slower is not None:
        figures["profile_taken_at"] = data.slower.share
        figures["slower_at"] = data.slower.scale_out
        figures["slower_since_s"] = data.slower.since_s
    largest = model.predict(sizes[-1])
    if not isinstance(largest, Unknown):
        figures["largest_size"] = sizes[-1]
        figures |= {f"capacity{name}_rps": getattr(largest, at) for name, at in _ENDS.items()}
    named = [c.fold_error for c in model.candidates.values() if c.plausibility > 0.0]
    folds = [error for error in named if not isinstance(error, Unknown)]
    figures |= {"fold_error": min(folds)} if folds else {}
    figures |= capacity(measurements, tasks=tasks).figures()
    engine = None
    if not isinstance(data.overheads_s, Unknown):
        engine = EngineInputs(dict(data.overheads_s), limit_records, trigger_s)
        figures["overhead_s"] = max(data.overheads_s.values())
    return document(
        "capacity",
        model,
        trained_on=_trained(data, [asdict(m) for m in measurements]),
        figures=figures,
        engine=engine,
    )


def missing_for_decisions(data: Measured, *, tasks: int | None = None) -> str:
    """What no decision could be made without, and is not known; empty where nothing is missing."""
    capacity = fit_capacity(data, tasks=tasks)
    if isinstance(capacity, Unknown):
        return f"the capacity is unknown: {capacity.reason}"
    if isinstance(data.overheads_s, Unknown):
        return f"the cost of a batch is unknown: {data.overheads_s.reason}"
    return ""


_ENDS = {"_low": "low", "": "mid", "_high": "high"}


def fit_latency(data: Measured, *, capacity: CapacityModel | Unknown) -> dict[str, Any] | Unknown:
    """How late will records be, and is that normal?"""
    if isinstance(capacity, Unknown):
        return Unknown(f"latency is read against utilisation, and capacity is unknown: {capacity.reason}")
    model = LatencyModel.fit(data.measurements, capacity)
    used = len(model.measurements)
    if used < FEWEST_POINTS:
        return Unknown(
            f"{used} measurements have a latency and a known capacity, {FEWEST_POINTS} are needed: profile "
            "more rates"
        )
    tested, classified = latency(model)
    figures: dict[str, Any] = {"measurements": used, **tested.figures()}
    figures |= {f"abnormal_{name}": count for name, count in classified.items()}
    if abnormal := classified["tp"] + classified["fn"]:
        figures["miss_rate"] = classified["fn"] / abnormal
    if normal := classified["fp"] + classified["tn"]:
        figures["false_alarm_rate"] = classified["fp"] / normal
    if math.isfinite(model.clusters.normal_up_to_ms):
        figures["normal_up_to_ms"] = model.clusters.normal_up_to_ms
    return document(
        "latency", model, trained_on=_trained(data, [asdict(m) for m in model.measurements]), figures=figures
    )


def fit_recovery(events: Sequence[RecoveryEvent]) -> dict[str, Any]:
    """How long is the job down, by kind of failure? Without any event the prior alone says so."""
    model = DowntimeModel.fit(events)
    figures: dict[str, Any] = {"events": len(events), **recovery(events).figures()}
    figures["events_lost"] = sum(math.isinf(e.downtime_s) for e in events)
    for kind in sorted({e.kind for e in events}):
        figures[f"events_{kind}"] = model.events(kind)
        figures[f"downtime_{kind}_s"] = model.interval(kind).mid
    times = [e.failed_at_s for e in events]
    return document(
        "recovery",
        model,
        trained_on=training(
            [asdict(e) for e in events], from_s=min(times, default=None), to_s=max(times, default=None)
        ),
        figures=figures,
    )


def coarser(grid: Grid, *, step_s: float) -> Grid:
    """The same on steps that begin at multiples of `step_s`; one is known where half of it was seen."""
    every = round(step_s / grid.step_s)
    if every < 1 or not math.isclose(every * grid.step_s, step_s):
        raise Misuse("step_s", f"must be a multiple of {grid.step_s:g} s, got {step_s:g}")
    cell = round(grid.start_s / grid.step_s)
    pad = cell % every
    values = np.concatenate([np.full(pad, np.nan), grid.values])
    values = values[: values.size // every * every].reshape(-1, every)
    seen = (~np.isnan(values)).sum(axis=1)
    means = np.where(2 * seen >= every, np.nansum(values, axis=1) / np.maximum(seen, 1), np.nan)
    known = np.flatnonzero(~np.isnan(means))
    first, last = (int(known[0]), int(known[-1]) + 1) if known.size else (0, 0)
    return Grid((cell - pad) * grid.step_s + first * step_s, step_s, means[first:last])


def _trained(data: Measured, values: list[Any]) -> dict[str, Any]:
    return training(values, from_s=data.from_s, to_s=data.to_s, profile=data.profile)
