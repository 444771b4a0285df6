"""Speed of predicted recoveries, error of the integral form, and coverage of downtimes."""

from __future__ import annotations

import math
import resource
import statistics
import time
from collections.abc import Callable, Iterable

import numpy as np

from models.downtime import DowntimeModel
from models.quantities import RecoveryEvent
from models.recovery import batch_recovery_seconds, recovery_seconds

from . import Figure

SIZES, PATHS, STEPS = 256, 200, 1080  # what one decision asks at one moment


def median_ms(question: Callable[[], object], *, times: int = 5) -> float:
    taken = []
    for _ in range(times + 1):
        started = time.perf_counter()
        question()
        taken.append(1000.0 * (time.perf_counter() - started))
    return statistics.median(taken[1:])


def paths(count: int, steps: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    wave = 1.0 + 0.3 * np.sin(np.arange(steps) / 150.0)
    return 1000.0 * wave * rng.uniform(0.8, 1.2, (count, 1)) * rng.uniform(0.9, 1.1, (count, steps))


def integral(sizes: int, count: int, steps: int, *, own_downtime: bool = False) -> Callable[[], object]:
    downtime = np.random.default_rng(2).uniform(20.0, 60.0, (count, sizes if own_downtime else 1))
    arrivals, capacity = paths(count, steps), 20.0 * np.arange(1, sizes + 1)
    return lambda: recovery_seconds(
        arrivals, capacity_rps=capacity, downtime_s=downtime, replay_s=10.0, lag_records=500.0
    )


def in_batches(sizes: int, count: int, steps: int, *, trigger_s: float, limit: float) -> Callable[[], object]:
    downtime = np.random.default_rng(2).uniform(20.0, 60.0, (count, 1))
    arrivals, capacity = paths(count, steps), 20.0 * np.arange(1, sizes + 1)
    return lambda: batch_recovery_seconds(
        arrivals,
        capacity_rps=capacity,
        overhead_s=0.5,
        limit_records=limit,
        trigger_s=trigger_s,
        downtime_s=downtime,
        lag_records=500.0,
        band_s=max(5.0, 2.5 * trigger_s),
    )


def covered(events: int, *, truths: int = 2000) -> float:
    """Share of later events inside the 90 % interval; typical off by a factor 1.6, spreads 0.2–0.8."""
    rng = np.random.default_rng([7, events])
    shares = []
    for _ in range(truths):
        typical, spread = 37.0 * math.exp(rng.normal(0.0, 0.5)), rng.uniform(0.2, 0.8)
        drawn = typical * np.exp(spread * rng.standard_normal(events + 20))
        seen = [RecoveryEvent("driver_kill", 1, 0.0, float(d), math.inf) for d in drawn[:events]]
        low, high = DowntimeModel.fit(seen).quantiles("driver_kill", [0.05, 0.95])
        shares.append(np.mean((drawn[events:] >= low) & (drawn[events:] <= high)))
    return 100.0 * float(np.mean(shares))


def measure() -> Iterable[Figure]:
    base = median_ms(integral(SIZES, PATHS, STEPS))
    yield Figure("integral, 256 scale-outs × 200 paths × 1080 s", base, "ms")
    for what, more in (
        ("twice the scale-outs", (2 * SIZES, PATHS, STEPS)),
        ("twice the paths", (SIZES, 2 * PATHS, STEPS)),
        ("twice the horizon", (SIZES, PATHS, 2 * STEPS)),
    ):
        yield Figure(f"integral, growth with {what}", median_ms(integral(*more)) / base, "×")
    alone = integral(SIZES, PATHS, STEPS, own_downtime=True)
    yield Figure("integral, a downtime of its own for each of 51 200", median_ms(alone, times=2), "ms")
    for trigger_s, limit in ((5.0, 20_000.0), (0.0, 2_000.0), (0.0, math.inf)):
        name = f"batches, trigger {trigger_s:g} s, limit {limit:g}"
        base = median_ms(in_batches(SIZES, PATHS, STEPS, trigger_s=trigger_s, limit=limit), times=3)
        yield Figure(f"{name}, 256 × 200 × 1080 s", base, "ms")
        twice = median_ms(in_batches(SIZES, 2 * PATHS, STEPS, trigger_s=trigger_s, limit=limit), times=3)
        yield Figure(f"{name}, growth with twice the paths", twice / base, "×")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    yield Figure("peak memory of the process", peak_mb, "MB")
    for events in (0, 1):
        yield Figure(f"downtime: covered by the 90 % interval after {events} events", covered(events), "%")
    for events in (3, 10, 30):
        share = covered(events)
        name = f"downtime: covered by the 90 % interval after {events} events"
        yield Figure(name, share, "%", at_most=95.0, at_least=85.0)
