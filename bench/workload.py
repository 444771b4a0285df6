"""Error of the forecast against a naive one, coverage of its band, and its cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

import numpy as np

from models.workload import Forecaster, fit_forecast

from . import Figure
from ._truths_workload import FAMILIES, JUMPS, SHAPES, STEP_S, FamilyFigures, family, judge

SEEDS = 20
FAMILY_SEEDS = 8
DAY = int(86_400 / STEP_S)
HORIZON_S = 1_080.0


def measure() -> Iterable[Figure]:
    yield from _cost()
    judged = {shape: [judge(shape, seed) for seed in range(SEEDS)] for shape in SHAPES}
    for shape, results in judged.items():
        loss = statistics.median(r.loss for r in results)
        yield Figure(f"{shape}: median loss to the better naive, of what is allowed", loss, "x", at_most=1.0)
    for shape, results in judged.items():
        yield Figure(
            f"{shape}: steps in the 90 % band", statistics.mean(r.band_covered for r in results), "share"
        )
    for shape, results in judged.items():
        peaks = statistics.mean(r.peaks_covered for r in results)
        yield Figure(f"{shape}: maxima in the 90 % interval of the peak", peaks, "share")
    every = [r for results in judged.values() for r in results]
    yield Figure(
        "all shapes: steps in the 90 % band", statistics.mean(r.band_covered for r in every), "share"
    )
    yield Figure(
        "all shapes: maxima in the interval", statistics.mean(r.peaks_covered for r in every), "share"
    )
    for name in FAMILIES:
        yield from _family(name, [family(name, seed) for seed in range(FAMILY_SEEDS)])


def _family(name: str, results: list[FamilyFigures]) -> Iterable[Figure]:
    errors = {who: statistics.mean(r.errors[who] for r in results) for who in results[0].errors}
    best = min((who for who in errors if who != "forecast"), key=lambda who: errors[who])
    ratio = errors["forecast"] / errors[best]
    yield Figure(f"{name}: error to that of the best peer ({best})", ratio, "x", at_most=1.05)
    for what, share in (
        ("steps in the 90 % band", statistics.mean(r.band_covered for r in results)),
        ("maxima in the 90 % interval of the peak", statistics.mean(r.peaks_covered for r in results)),
    ):
        yield Figure(f"{name}: {what}", share, "share", at_least=0.85, at_most=0.96)
    if name in JUMPS:
        after = statistics.mean(r.after_jump for r in results) / statistics.mean(r.steady for r in results)
        yield Figure(f"{name}: error from the third step on to the steady one", after, "x", at_most=1.2)
        highest = max(r.highest for r in results)
        yield Figure(f"{name}: highest forecast after the jump to the truth", highest, "x", at_most=1.3)


def _cost() -> Iterable[Figure]:
    fit_forecast(
        SHAPES["daily"](np.random.default_rng(0), 300), step_s=STEP_S, horizon_s=HORIZON_S
    )  # imports
    slowest = 0.0
    for shape in ("flat", "two periods", "noisy daily", "gappy"):
        slowest = max(slowest, _fit_seconds(shape, DAY))
    yield Figure("refit of a day at 30 s, slowest of four shapes", slowest, "s", at_most=3.0)
    once, twice = _fit_seconds("daily", DAY), _fit_seconds("daily", 2 * DAY)
    yield Figure("refit of two days over one day", twice / once, "x")
    history = SHAPES["two periods"](np.random.default_rng(1), DAY)
    fitted = fit_forecast(history, step_s=STEP_S, horizon_s=HORIZON_S)
    taken = []
    for rate in history[:50]:
        begun = time.perf_counter()
        fitted.update(rate).predict()
        taken.append(time.perf_counter() - begun)
    yield Figure("tick: update and predict, 200 paths", 1e3 * max(taken), "ms", at_most=50.0)
    state = fitted.to_json()
    begun = time.perf_counter()
    Forecaster.from_json(state).predict()
    yield Figure(
        "tick after a restart: from JSON, and predict",
        1e3 * (time.perf_counter() - begun),
        "ms",
        at_most=50.0,
    )


def _fit_seconds(shape: str, points: int) -> float:
    rate = SHAPES[shape](np.random.default_rng(7), points)
    begun = time.perf_counter()
    fit_forecast(rate, step_s=STEP_S, horizon_s=HORIZON_S)
    return time.perf_counter() - begun
