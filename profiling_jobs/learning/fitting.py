"""Which model do the data allow, and how good is it? One document per kind of model.

    fit_workload    arrivals on a grid                    -> a forecaster over the job's horizon
    fit_capacity    measurements, costs of a batch        -> T'(s) with its engine inputs
    fit_latency     measurements, a capacity model        -> latency over utilisation and scale-out
    fit_recovery    failures and changes lived through    -> downtime per kind

A document (model_documents) holds the model, what it was trained on and the figures of its held-out tests; or
it is Unknown why there is none. Nothing is registered or promoted here: that is `promoting`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.latency import FEWEST_POINTS, LatencyModel
from models.quantities import Misuse, RecoveryEvent, Unknown
from models.series import Grid
from models.workload import fit_forecast

from ..loop.live_rates import FEWEST_RATES, forecast_step_s
from . import held_out
from .engine_inputs import EngineInputs
from .model_documents import document, training
from .training import Measured


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
    tested = held_out.workload(grid.values, step_s=step, steps=forecaster.steps, seed=seed)
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
    figures |= held_out.capacity(measurements, tasks=tasks).figures()
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
    tested, classified = held_out.latency(model)
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
    figures: dict[str, Any] = {"events": len(events), **held_out.recovery(events).figures()}
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
