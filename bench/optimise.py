"""Time of a decision and its growth: 256 scale-outs, 200 paths, failures second by second."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bench import Figure
from bench._truths_optimise import Paths, question
from models.optimise import decide
from models.optimise.question import BatchEngine, Question

REPEATS = 9
MEMORY_MB = 300.0
MEDIAN_MS = 50.0
BEHIND_MS = 120.0


def situation(*, sizes: int = 256, paths: int = 200, moments_s: float = 900.0, **changed: Any) -> Question:
    """Each draw has its own downtime and capacity factor; the answer lies in the middle of the sizes."""
    return question(
        sizes=sizes,
        paths=paths,
        moments_s=moments_s,
        per_executor_rps=256_000.0 / sizes,
        mean_rps=60_000.0,
        current=sizes // 2,
        **changed,
    )


def median_ms(asked: Question, *, clock: Callable[[], float] = time.perf_counter) -> float:
    decide(asked)
    times = []
    for _ in range(REPEATS):
        started = clock()
        decide(asked)
        times.append(clock() - started)
    return statistics.median(times) * 1e3


def with_burst(asked: Question) -> Question:
    """30 s at two and a half times the rate: a lag builds up before many of the failures."""
    paths = np.array(asked.forecast.paths)
    paths[:, 500:530] *= 2.5
    return replace(asked, forecast=Paths(paths))


def measure() -> Iterable[Figure]:
    base = median_ms(situation())
    yield Figure("decide, 256 scale-outs, 200 paths, no lag: warm median", base, "ms", at_most=MEDIAN_MS)
    behind = median_ms(situation(lag_s=120.0))
    yield Figure(
        "decide, 256 scale-outs, 200 paths, 120 s of lag: warm median", behind, "ms", at_most=MEDIAN_MS
    )
    for what, lag_s in (("no lag", 0.0), ("120 s of lag", 120.0)):  # what a busy machine does not change
        used = median_ms(situation(lag_s=lag_s), clock=time.process_time)
        yield Figure(f"decide, 256 scale-outs, 200 paths, {what}: processor time", used, "ms")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Figure("decide, the same: peak memory of the process", peak, "MB", at_most=MEMORY_MB)
    yield Figure("decide, twice the scale-outs", median_ms(situation(sizes=512)) / base, "× the time")
    yield Figure("decide, twice the paths", median_ms(situation(paths=400)) / base, "× the time")
    yield Figure("decide, twice the moments", median_ms(situation(moments_s=1800.0)) / base, "× the time")
    yield Figure("decide, a burst that leaves a lag: warm median", median_ms(with_burst(situation())), "ms")
    batches = BatchEngine(overhead_s=2.0, trigger_s=10.0)
    yield Figure("decide, micro-batches: warm median", median_ms(situation(engine=batches)), "ms")
    behind = median_ms(situation(engine=batches, lag_s=120.0))
    yield Figure("decide, micro-batches, 120 s of lag: warm median", behind, "ms", at_most=BEHIND_MS)
    short = replace(batches, limit_records=1_200_000.0)
    hopeless = median_ms(situation(engine=short, lag_s=120.0))
    yield Figure(
        "decide, limited micro-batches that no size brings back: warm median",
        hopeless,
        "ms",
        at_most=BEHIND_MS,
    )
