"""Situations to decide on, with known answers: used by the tests and by the benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from models.optimise.question import ContinuousEngine, Question
from models.promise import Promise
from models.quantities import Interval


@dataclass(frozen=True)
class Paths:
    """A forecast with nothing but its paths."""

    paths: Any
    step_s: float = 1.0

    @cached_property
    def mid(self) -> Any:
        return np.median(self.paths, axis=0)


@dataclass(frozen=True)
class Downtimes:
    """Log-normal downtimes: median seconds per kind, and their common spread."""

    median_s: dict[str, float]
    spread: float = 0.15

    def samples(self, kind: str, *, paths: int, seed: int) -> Any:
        return np.random.default_rng(seed).lognormal(np.log(self.median_s[kind]), self.spread, paths)


DOWNTIMES = Downtimes(
    {
        "executor_kill": 60.0,
        "driver_kill": 90.0,
        "live_out": 10.0,
        "live_in": 10.0,
        "restart_out": 40.0,
        "restart_in": 40.0,
    }
)


def load(*, mean_rps: float, paths: int, steps: int, seed: int = 0, noise: float = 0.03) -> Any:
    """A daily wave's rising part around the mean, with a level and a noise of each path's own."""
    rng = np.random.default_rng(seed)
    wave = 1.0 + 0.1 * np.sin(np.arange(steps) / steps * np.pi)
    level = rng.lognormal(0.0, 0.05, (paths, 1))
    return mean_rps * wave * level * rng.lognormal(0.0, noise, (paths, steps))


def question(
    *,
    sizes: int = 12,
    per_executor_rps: float = 1000.0,
    mean_rps: float = 3000.0,
    paths: int = 60,
    moments_s: float = 120.0,
    target_s: float = 180.0,
    lag_s: float = 0.0,
    current: int = 6,
    error: float = 0.05,
    **changed: Any,
) -> Question:
    """Linear capacity with a relative error, one failure kind, live rescales."""
    capacity = {
        s: Interval(
            s * per_executor_rps * (1 - error), s * per_executor_rps, s * per_executor_rps * (1 + error), 0.9
        )
        for s in range(1, sizes + 1)
    }
    steps = int(np.ceil(moments_s + target_s))
    asked: dict[str, Any] = {
        "candidates": tuple(range(1, sizes + 1)),
        "current": current,
        "promise": Promise(target_s),
        "forecast": Paths(load(mean_rps=mean_rps, paths=paths, steps=steps)),
        "observed_rps": mean_rps,
        "lag_records": lag_s * mean_rps,
        "capacity": capacity,
        "downtime": DOWNTIMES,
        "kinds": ("executor_kill",),
        "moments_s": moments_s,
        "engine": ContinuousEngine(),
    }
    return Question(**(asked | changed))
