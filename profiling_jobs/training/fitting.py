"""Fit one document per kind of model.

    fit_workload    arrivals on a grid                 -> a forecaster over the job's horizon
    fit_capacity    measurements, costs of a batch     -> T'(s) with its engine inputs
    fit_latency     measurements, a capacity model     -> latency over utilisation and scale-out
    fit_recovery    failures and changes of size       -> downtime per kind

A document (`champions`) holds the model, its training data and figures; Unknown says why there is none.
The figures come from held-out tests, in which a model fitted without a value predicts it:

    capacity    each saturated probe, with all others of its size where that lies between others
    latency     each measurement (`LatencyModel.leave_one_out`)
    recovery    each downtime, where at least three of its kind are known
    workload    the newest horizons, at most a quarter of the history
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from models.arguments import Array
from models.capacity import CapacityModel
from models.capacity.curves import NOISE
from models.downtime import DowntimeModel
from models.latency import FEWEST_POINTS, LatencyModel
from models.quantities import Interval, Measurement, Misuse, RecoveryEvent, Unknown, quantile_95
from models.series import Grid
from models.workload import Forecaster, fit_forecast
from models.workload.fitting import naive_forecaster

from ..control_loop.forecasting import FEWEST_RATES, forecast_step_s
from ..experiments.profiling_record import is_plenty
from ..telemetry.batch_costs import EngineInputs
from .champions import document, training
from .training_data import Measured

MOST = 60  # judgement: left out one by one, evenly spread; more only take time
FEWEST_OF_A_KIND = 3  # judgement: with one of two left out, the prior would be tested
HORIZONS = 4  # judgement: as many as the back-test asks for

T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """One value that was left out, and its prediction."""

    measured: float
    predicted: Interval
    inside: bool


def _figures(trials: Sequence[Trial]) -> dict[str, float]:
    """Mean relative error and coverage, where anything could be left out."""
    found: dict[str, float] = {"held_out_count": len(trials)}
    if trials:
        errors = [abs(one.predicted.mid - one.measured) / one.measured for one in trials]
        found["held_out_error"] = sum(errors) / len(trials)
        found["held_out_inside"] = sum(one.inside for one in trials)
        found["interval_coverage"] = found["held_out_inside"] / len(trials)
    return found


def held_out_capacity(measurements: Sequence[Measurement], *, tasks: int | None = None) -> dict[str, float]:
    """Saturated throughput, predicted by the other measurements."""
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
            trials.append(Trial(one.throughput_rps, found, _near(one, found)))
    return _figures(trials)


def held_out_latency(model: LatencyModel) -> dict[str, float]:
    """Latencies predicted by the other measurements, and how well "abnormal" is classified."""
    trials = []
    for one in _spread(model.measurements):
        rest = [m for m in model.measurements if m is not one]
        found = LatencyModel.fit(rest, model.capacity).predict(one.scale_out, one.offered_rps)
        if not isinstance(found, Unknown) and one.latency_ms:
            trials.append(Trial(one.latency_ms, found, found.low <= one.latency_ms <= found.high))
    classified = model.leave_one_out()
    figures = _figures(trials) | {f"abnormal_{name}": count for name, count in classified.items()}
    if abnormal := classified["tp"] + classified["fn"]:
        figures["miss_rate"] = classified["fn"] / abnormal
    if normal := classified["fp"] + classified["tn"]:
        figures["false_alarm_rate"] = classified["fp"] / normal
    return figures


def held_out_recovery(events: Sequence[RecoveryEvent]) -> dict[str, float]:
    """Downtimes predicted by the others of their kind."""
    trials = []
    for one in _spread([e for e in events if math.isfinite(e.started_s) and e.started_s > 0.0]):
        if sum(e.kind == one.kind for e in events) < FEWEST_OF_A_KIND:
            continue
        found = DowntimeModel.fit([e for e in events if e is not one]).interval(one.kind)
        trials.append(Trial(one.started_s, found, found.low <= one.started_s <= found.high))
    return _figures(trials)


def held_out_workload(values: Array, *, step_s: float, steps: int, seed: int) -> dict[str, float]:
    """The newest horizons, predicted by a model that was fitted before them and updated after each.

    Nothing where the history is shorter than four horizons. Errors are shares of everything that arrived.
    """
    horizons = min(HORIZONS, values.size // (4 * steps))
    before = values[: values.size - horizons * steps]
    if horizons < 1 or np.isnan(before).all() or np.isnan(values[before.size :]).all():
        return {}
    fitted = fit_forecast(before, step_s=step_s, horizon_s=step_s * steps, seed=seed)
    last = [name.rpartition(" ")[2] for name in fitted.backtest if name.startswith("seasonal naive")]
    periods = tuple(int(word) for word in last if word.isdigit())
    naive = naive_forecaster(before, step_s=step_s, steps=steps, periods=periods, seed=seed)
    assert isinstance(naive, Forecaster)  # something was observed
    parts: list[tuple[Array, ...]] = []
    for number in range(horizons):
        at = before.size + number * steps
        observed, forecast = values[at : at + steps], fitted.predict()
        parts.append((observed, forecast.mid, forecast.low, forecast.high, naive.predict().mid))
        fitted.update(observed)
        naive.update(observed)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    seen = ~np.isnan(columns[0])
    y, mid, low, high, simple = (column[seen] for column in columns)
    missed = np.abs(y - mid)
    found = {
        "held_out_horizons": float(horizons),
        "held_out_mae_rps": float(missed.mean()),
        "naive_mae_rps": float(np.abs(y - simple).mean()),
        "held_out_mean_rps": float(y.mean()),
        "interval_coverage": float(((low <= y) & (y <= high)).mean()),
    }
    return found | ({"held_out_error": float(missed.sum() / y.sum())} if y.sum() > 0.0 else {})


def _near(one: Measurement, found: Interval) -> bool:
    """Whether a probe lies inside. Its own noise is added to the interval, which is that of the truth."""
    away = math.log(one.throughput_rps / found.mid)
    side = math.log(found.high / found.mid) if away > 0 else math.log(found.mid / found.low)
    own = NOISE if one.standard_error_rps is None else one.standard_error_rps / one.throughput_rps
    return abs(away) <= math.hypot(side, quantile_95(math.inf) * max(own, NOISE))


def _spread(values: Sequence[T]) -> Sequence[T]:
    """At most MOST of them, evenly spread."""
    if len(values) <= MOST:
        return values
    return [values[i] for i in np.linspace(0, len(values) - 1, MOST).round().astype(int)]


def fit_workload(arrivals: Grid | Unknown, *, horizon_s: float, seed: int = 0) -> dict[str, Any] | Unknown:
    """A forecaster of the next `horizon_s`."""
    if isinstance(arrivals, Unknown):
        return arrivals
    step = forecast_step_s(horizon_s)
    grid = coarser(arrivals, step_s=step)
    seen = int(grid.values.size - grid.missing)
    if seen < FEWEST_RATES:
        return Unknown(
            f"arrivals are known for {seen} steps of {step:g} s, {FEWEST_RATES} are needed: record the input "
            f"for {FEWEST_RATES * step:.0f} s, or let `headroom serve` watch it"
        )
    forecaster = fit_forecast(grid.values, step_s=step, horizon_s=horizon_s, seed=seed)
    figures: dict[str, Any] = {
        "rates_seen": seen,
        "rates_missing": grid.missing,
        "history_s": step * grid.values.size,
        "horizon_s": forecaster.steps * step,
        "forecast_peak_rps": forecaster.predict().peak.mid,
    }
    figures |= held_out_workload(grid.values, step_s=step, steps=forecaster.steps, seed=seed)
    if forecaster.model in forecaster.backtest:
        figures["backtest_mae_rps"] = forecaster.backtest[forecaster.model].mae_rps
    rates = [None if math.isnan(v) else v for v in grid.values.tolist()]
    data = training(rates, from_s=grid.start_s, to_s=grid.start_s + step * grid.values.size)
    return document("workload", forecaster, trained_on=data, figures=figures)


NO_PEAK = Unknown("no load is known")


def fit_capacity(
    data: Measured,
    *,
    limit_records: float = math.inf,
    trigger_s: float = 0.0,
    tasks: int | None = None,
    peak_rps: float | Unknown = NO_PEAK,
) -> dict[str, Any] | Unknown:
    """The rate that each scale-out sustains; live measurements that contradict the profile are left out.

    `peak_rps`: of the load. What far exceeds it counts as capacity although the job kept up.
    """
    if not data.measurements:
        return Unknown("nothing was measured yet: profile the job")
    measurements, contradicting = data.measurements, data.contradicting
    try:
        cautious = is_plenty(measurements, peak_rps)
        model = CapacityModel.fit(measurements, tasks=tasks, cautious=cautious)
    except Misuse as wrong:
        profile = tuple(m for m in measurements if m.origin == "profile")
        try:
            model = CapacityModel.fit(profile, tasks=tasks, cautious=cautious)
        except Misuse:
            return Unknown(f"the measurements contradict each other: {wrong.problem}")
        contradicting += len(measurements) - len(profile)
        measurements = profile
    sizes = model.saturated_at or tuple(sorted({one.scale_out for one in measurements if one.sustained}))
    if isinstance(found := model.predict(sizes[-1]), Unknown) and not model.saturated_at:
        return found
    figures: dict[str, Any] = {
        "measurements": len(measurements),
        "live_measurements": sum(m.origin == "live" for m in measurements),
        "left_out_in_recovery": data.in_recovery,
        "left_out_contradicting": contradicting,
        "saturated_sizes": len(model.saturated_at),
        "executor_seconds": sum(m.executor_seconds for m in measurements),
    }
    if data.slower is not None:
        figures["profile_taken_at"] = data.slower.share
        figures["slower_at"] = data.slower.scale_out
        figures["slower_since_s"] = data.slower.since_s
    largest = model.predict(sizes[-1])
    if not isinstance(largest, Unknown):
        figures["largest_size"] = sizes[-1]
        figures |= {"capacity_low_rps": largest.low, "capacity_rps": largest.mid}
        figures["capacity_high_rps"] = largest.high
    named = [c.fold_error for c in model.candidates.values() if c.plausibility > 0.0]
    folds = [error for error in named if not isinstance(error, Unknown)]
    figures |= {"fold_error": min(folds)} if folds else {}
    figures |= held_out_capacity(measurements, tasks=tasks)
    engine = None
    if not isinstance(data.overheads_s, Unknown):
        engine = EngineInputs(dict(data.overheads_s), limit_records, trigger_s)
        figures["overhead_s"] = max(data.overheads_s.values())
    trained_on = training(
        [asdict(m) for m in measurements], from_s=data.from_s, to_s=data.to_s, profile=data.profile
    )
    return document("capacity", model, trained_on=trained_on, figures=figures, engine=engine)


def fit_latency(data: Measured, *, capacity: CapacityModel | Unknown) -> dict[str, Any] | Unknown:
    """Latency over utilisation and scale-out, and what of it is normal."""
    if isinstance(capacity, Unknown):
        return Unknown(f"latency is read against utilisation, and capacity is unknown: {capacity.reason}")
    model = LatencyModel.fit(data.measurements, capacity)
    used = len(model.measurements)
    if used < FEWEST_POINTS:
        return Unknown(
            f"{used} measurements have a latency and a known capacity, {FEWEST_POINTS} are needed: profile "
            "more rates"
        )
    figures: dict[str, Any] = {"measurements": used, **held_out_latency(model)}
    if model.clusters.both:
        figures["normal_up_to_ms"] = model.clusters.normal_up_to_ms
    trained_on = training(
        [asdict(m) for m in model.measurements], from_s=data.from_s, to_s=data.to_s, profile=data.profile
    )
    return document("latency", model, trained_on=trained_on, figures=figures)


def fit_recovery(events: Sequence[RecoveryEvent]) -> dict[str, Any]:
    """Downtime per kind of failure; without any event, the prior."""
    model = DowntimeModel.fit(events)
    figures: dict[str, Any] = {"events": len(events), **held_out_recovery(events)}
    figures["events_lost"] = sum(math.isinf(e.downtime_s) for e in events)
    for kind in sorted({e.kind for e in events}):
        figures[f"events_{kind}"] = model.events(kind)
        figures[f"downtime_{kind}_s"] = model.interval(kind).mid
    times = [e.failed_at_s for e in events]
    trained_on = training(
        [asdict(e) for e in events], from_s=min(times, default=None), to_s=max(times, default=None)
    )
    return document("recovery", model, trained_on=trained_on, figures=figures)


def coarser(grid: Grid, *, step_s: float) -> Grid:
    """The same on steps that begin at multiples of `step_s`; a step is known where half of it was seen."""
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
