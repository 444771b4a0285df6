"""What has to be known to decide on a size?

Which scale-outs are worth asking about?

Slots take tasks in waves: with `tasks` partitions, s executors need w(s) = ⌈tasks / s⌉ waves, and a size with
as many waves as a smaller one is not faster, only dearer. So the candidates are the smallest size of each w.

Is a smaller size worth the move?

Moving costs the executors that do no work while the job is down, and the lag everybody waits through. It
rises to D seconds of input at the end of the downtime D and is gone after the recovery r: about D·r/2
lag-seconds. A lag as long as the whole target R, for one second, is priced like the whole job for a second:

    cost  = s · (D + D·r / (2R))        s = the larger of both sizes, in executor-seconds
    saved = (s_now − s_then) · (time until the next likely change)

No memory: how often sizes really changed, and the window of past recommendations, belong to `models.control`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from ..arguments import Array, number, numbers, whole
from ..promise import Promise
from ..quantities import FAILURE_KINDS, Interval, Misuse, Unknown, executors
from .engine import BatchEngine, ContinuousEngine, Engine

if TYPE_CHECKING:
    from ..workload import Forecast


def aligned_scale_outs(low: int, high: int, *, tasks: int | None = None) -> tuple[int, ...]:
    """The sizes from `low` to `high` at which the number of waves changes, and both bounds."""
    first, last = whole("low", low), whole("high", high)
    if last < first:
        raise Misuse("high", f"must be >= low, got {last} < {first}")
    sizes = range(first, last + 1)
    if tasks is None:
        return tuple(sizes)
    count = whole("tasks", tasks)
    return tuple(s for s in sizes if s in (first, last) or -(-count // s) < -(-count // (s - 1)))


STAY_S = 3600.0  # judgement: a daily load moves by an executor in about an hour; better the job's own record


@dataclass(frozen=True)
class ChangeCost:
    """What a move to fewer executors saves and costs, in executor-seconds."""

    saved: float
    idle: float
    """Executors paid while nothing is processed."""
    lag: float
    """The lag-seconds at their price."""

    @property
    def worth(self) -> bool:
        """Does it save more than it costs?"""
        return self.saved > self.idle + self.lag


def change_cost(
    *, current: int, to: int, downtime_s: float, recovery_s: float, target_s: float, stay_s: float = STAY_S
) -> ChangeCost:
    """What would the move from `current` to `to` executors save and cost? Never worth it to grow."""
    now, then = whole("current", current), whole("to", to)
    down = number("downtime_s", downtime_s, at_least=0.0)
    target = number("target_s", target_s, above=0.0)
    stay = number("stay_s", stay_s, at_least=0.0)
    size = max(now, then)
    never = recovery_s == math.inf
    back = recovery_s if never else number("recovery_s", recovery_s, at_least=0.0)
    lag_seconds = math.inf if never else down * back / 2.0
    return ChangeCost(saved=(now - then) * stay, idle=size * down, lag=size * lag_seconds / target)


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
