"""What has to be known to decide on a size?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from ..arguments import Array, number, numbers, whole
from ..promise import Promise
from ..quantities import FAILURE_KINDS, Interval, Misuse, Unknown
from ..wording import executors
from .change_cost import STAY_S
from .engine import BatchEngine, ContinuousEngine, Engine

if TYPE_CHECKING:
    from ..workload import Forecast


NO_ENGINE = Unknown("the engine was not described")
NO_LATENCY_MODEL = Unknown("there is no latency model yet")


class KnowsDowntime(Protocol):
    """Anything that knows how long an event of a kind stops the job; `models.downtime.DowntimeModel`."""

    def samples(self, kind: str, *, paths: int, seed: int) -> Array | Unknown: ...


class KnowsLatency(Protocol):
    """Anything that knows how late records are; `models.latency.LatencyModel`."""

    def predict(self, scale_out: int, rate_rps: float) -> Interval | Unknown: ...
    def is_normal(self, scale_out: int, rate_rps: float) -> bool | Unknown: ...


@dataclass(frozen=True, kw_only=True)
class Question:
    """One job, one moment, and the sizes that may be taken."""

    candidates: tuple[int, ...]
    current: int
    promise: Promise
    forecast: Forecast | Unknown
    """From now on, at least `moments_s` plus the target long."""
    observed_rps: float | Unknown
    """Mean arrival rate since the last evaluation."""
    lag_records: float | Unknown
    capacity: Mapping[int, Interval | Unknown]
    downtime: KnowsDowntime | Unknown
    kinds: tuple[str, ...]
    """The failures the promise is about."""
    moments_s: float
    """Until the next decision can have taken effect: evaluation interval plus time to take effect."""
    engine: Engine | Unknown = NO_ENGINE
    rescale: Literal["live", "restart"] = "live"
    latency: KnowsLatency | Unknown = NO_LATENCY_MODEL
    latency_bound_ms: float | None = None
    stay_s: float = STAY_S
    """Until the next likely change: the job's own record, or an hour."""
    seed: int = 0
    """Fixed by job and model version: with the same draws the same situation is decided the same way."""

    def __post_init__(self) -> None:
        if not self.candidates:
            raise Misuse("candidates", "must not be empty")
        for scale_out in self.candidates:
            whole("candidates", scale_out)
        whole("current", self.current)
        if not self.kinds:
            raise Misuse("kinds", "must name at least one kind of failure")
        for kind in self.kinds:
            if kind not in FAILURE_KINDS:
                raise Misuse("kinds", f"must be among {', '.join(FAILURE_KINDS)}, got {kind!r}")
        if self.rescale not in ("live", "restart"):
            raise Misuse("rescale", f"must be 'live' or 'restart', got {self.rescale!r}")
        for name in ("observed_rps", "lag_records"):
            if not isinstance(getattr(self, name), Unknown):
                number(name, getattr(self, name), at_least=0.0)
        number("moments_s", self.moments_s, above=0.0)
        number("stay_s", self.stay_s, at_least=0.0)
        whole("seed", self.seed, at_least=0)
        if self.latency_bound_ms is not None:
            number("latency_bound_ms", self.latency_bound_ms, above=0.0)
        if not isinstance(self.engine, ContinuousEngine | BatchEngine | Unknown):
            raise Misuse("engine", f"must be a ContinuousEngine or BatchEngine, got {self.engine!r}")
        if isinstance(self.forecast, Unknown):
            return
        paths = numbers("forecast.paths", self.forecast.paths, at_least=0.0)
        if paths.ndim != 2 or not paths.size:
            raise Misuse("forecast.paths", f"must be (paths, steps), got shape {paths.shape}")
        reach, needed = paths.shape[1] * self.forecast.step_s, self.moments_s + self.promise.target_s
        if reach < needed * (1 - 1e-9):
            raise Misuse("forecast", f"reaches {reach:g} s, but the promise looks {needed:g} s ahead")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Every size that gets a verdict: the candidates and the present one."""
        return tuple(sorted({int(s) for s in self.candidates} | {int(self.current)}))

    @property
    def allowed(self) -> tuple[int, ...]:
        """Those that may be chosen: not a present one that lies beyond all others, for bounds were moved."""
        return tuple(s for s in self.sizes if min(self.candidates) <= s <= max(self.candidates))

    def capacity_of(self, scale_out: int) -> Interval | Unknown:
        """What is known of the capacity at this size."""
        return self.capacity.get(scale_out, Unknown(f"no capacity was given for {executors(scale_out)}"))

    @property
    def missing(self) -> tuple[Unknown, ...]:
        """What has to be read before anything can be decided."""
        asked: tuple[Any, ...] = (self.forecast, self.observed_rps, self.lag_records, self.engine)
        return tuple(value for value in asked if isinstance(value, Unknown))

    @property
    def arrivals(self) -> Array:
        """The forecast's paths as far as the promise looks: (paths, steps)."""
        assert not isinstance(self.forecast, Unknown)
        steps = int(np.ceil((self.moments_s + self.promise.target_s) / self.forecast.step_s - 1e-9))
        result: Array = np.asarray(self.forecast.paths, dtype=np.float64)[:, :steps]
        return result
