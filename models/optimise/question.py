"""Input and output of a decision: the question, the verdict on each size, the decision, and their wording.

**Candidates.** Slots process tasks in waves: with `tasks` partitions, s executors need w(s) = ⌈tasks / s⌉
waves, and a size with as many waves as a smaller one is not faster. So the candidates are the smallest size
of each w.

**Cost of a change.** It costs the executors that are idle during the downtime D, and lag, which rises to D
seconds of input and is gone after the recovery r: about D·r/2 lag-seconds. One second with a lag of the whole
target R is priced like one second of the whole job:

    cost  = s · (D + D·r / (2R))        s = the larger of both sizes, in executor-seconds
    saved = (s_now − s_then) · (time until the next likely change)

Nothing here has a memory; the window of past recommendations belongs to `models.control`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

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
    """Savings and costs of a change to fewer executors, in executor-seconds."""

    saved: float
    idle: float
    """Executors that are paid while nothing is processed."""
    lag: float
    """The lag, priced in executor-seconds."""

    @property
    def worth(self) -> bool:
        """Whether it saves more than it costs."""
        return self.saved > self.idle + self.lag


def change_cost(
    *, current: int, to: int, downtime_s: float, recovery_s: float, target_s: float, stay_s: float = STAY_S
) -> ChangeCost:
    """Savings and costs of a change from `current` to `to` executors; a larger size never saves."""
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
    """Downtime per kind of event; implemented by `models.downtime.DowntimeModel`."""

    def samples(self, kind: str, *, paths: int, seed: int) -> Array | Unknown: ...


class KnowsLatency(Protocol):
    """Latency per size and rate; implemented by `models.latency.LatencyModel`."""

    def predict(self, scale_out: int, rate_rps: float) -> Interval | Unknown: ...
    def is_normal(self, scale_out: int, rate_rps: float) -> bool | Unknown: ...


@dataclass(frozen=True, kw_only=True)
class Question:
    """One job at one moment, and the sizes to choose from."""

    candidates: tuple[int, ...]
    current: int
    promise: Promise
    forecast: Forecast | Unknown
    """From now on, at least `moments_s` plus the target."""
    observed_rps: float | Unknown
    """Mean arrival rate since the last evaluation."""
    lag_records: float | Unknown
    capacity: Mapping[int, Interval | Unknown]
    downtime: KnowsDowntime | Unknown
    kinds: tuple[str, ...]
    """The failure kinds that the promise covers."""
    moments_s: float
    """Until the next decision can have taken effect: evaluation interval plus time to take effect."""
    engine: Engine | Unknown = NO_ENGINE
    rescale: Literal["live", "restart"] = "live"
    latency: KnowsLatency | Unknown = NO_LATENCY_MODEL
    latency_bound_ms: float | None = None
    stay_s: float = STAY_S
    """Time until the next likely change: from the job's history, or an hour."""
    seed: int = 0
    """Fixed by job and model version, so that the same situation is decided the same way."""

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
        """Every size that gets a verdict: the candidates and the current size."""
        return tuple(sorted({int(s) for s in self.candidates} | {int(self.current)}))

    @property
    def allowed(self) -> tuple[int, ...]:
        """Sizes that may be chosen; not the current one if the bounds have moved and exclude it."""
        return tuple(s for s in self.sizes if min(self.candidates) <= s <= max(self.candidates))

    def capacity_of(self, scale_out: int) -> Interval | Unknown:
        """The capacity at this size, if it is known."""
        return self.capacity.get(scale_out, Unknown(f"no capacity was given for {executors(scale_out)}"))

    @property
    def missing(self) -> tuple[Unknown, ...]:
        """Inputs that are unknown and without which nothing can be decided."""
        asked: tuple[Any, ...] = (self.forecast, self.observed_rps, self.lag_records, self.engine)
        return tuple(value for value in asked if isinstance(value, Unknown))

    @property
    def arrivals(self) -> Array:
        """Paths of the forecast over the horizon of the promise: (paths, steps)."""
        assert not isinstance(self.forecast, Unknown)
        steps = int(np.ceil((self.moments_s + self.promise.target_s) / self.forecast.step_s - 1e-9))
        result: Array = np.asarray(self.forecast.paths, dtype=np.float64)[:, :steps]
        return result


Status = Literal["feasible", "infeasible", "unknown"]
Condition = Literal["capacity", "recovery", "observed", "forecast", "latency", "rescale"]


@dataclass(frozen=True)
class Excuse:
    """A condition that a size does not meet, or that cannot be judged, in one sentence with its numbers."""

    condition: Condition
    sentence: str
    measure: str | None = None
    """Set where the condition cannot be judged: the measurement that would decide it."""


@dataclass(frozen=True)
class Recoveries(Interval):
    """5, 50 and 95 % quantiles of the recovery."""

    promised: float
    """Time within which the promised share of recoveries ends; this is compared with the target."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one size, with its numbers."""

    scale_out: int
    excuses: tuple[Excuse, ...]
    capacity: Interval | Unknown
    """Sustained records/s; for a batch engine in full batches."""
    probability: float | Unknown
    """Of a recovery in time, at the worst moment and for the worst kind of failure."""
    worst_moment_s: float | Unknown
    worst_kind: str | Unknown
    load_probability: float | Unknown
    """Of a capacity that covers the forecast maximum."""
    rescale_probability: float | Unknown
    """Of a change to this size that is itself recovered in time; 1 for the current size."""
    latency_ms: Interval | Unknown
    recovery_s: Recoveries | Unknown
    """At the worst moment, for the chosen size and its neighbours."""

    status: Status = field(init=False)

    def __post_init__(self) -> None:
        failed = any(e.measure is None for e in self.excuses)
        status = "infeasible" if failed else "unknown" if self.excuses else "feasible"
        object.__setattr__(self, "status", status)

    def failed(self, *conditions: str) -> tuple[Excuse, ...]:
        """The excuses of these conditions that failed, as opposed to those that cannot be judged."""
        return tuple(e for e in self.excuses if e.condition in conditions and e.measure is None)

    def fails(self, *conditions: str) -> bool:
        """Whether one of these conditions failed."""
        return bool(self.failed(*conditions))

    def excuses_beside(self, *conditions: str) -> tuple[Excuse, ...]:
        """The excuses of all other conditions."""
        return tuple(e for e in self.excuses if e.condition not in conditions)


@dataclass(frozen=True)
class Decision:
    """The size to take now, with a verdict on every other one."""

    schema: ClassVar[int] = 1
    current: int
    scale_out: int | Unknown
    feasible: bool
    """Whether `scale_out` meets every condition."""
    reason: str
    alarm: str | None
    verdicts: tuple[Verdict, ...]
    utilisation_limit: float | Unknown
    """The highest utilisation the promise allows, (R − D)/(R + I), D at the promised confidence."""
    smallest_feasible: int | Unknown
    cost: ChangeCost | Unknown
    """Of the change to fewer executors, where one was considered."""
    notes: tuple[str, ...] = ()
    """Conditions that were not judged, and why."""

    def of(self, scale_out: int) -> Verdict | Unknown:
        """The verdict on this size."""
        found = [v for v in self.verdicts if v.scale_out == scale_out]
        return found[0] if found else Unknown(f"{executors(scale_out, 'were')} not among the candidates")


def rate(rps: float) -> str:
    """A rate for people: 950, 36k, 1.2M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rps >= 0.9995 * size:
            shown = rps / size
            return f"{shown:.0f}{unit}" if shown >= 9.95 else f"{shown:.2g}{unit}"
    return f"{rps:.3g}"


def span(low: str, high: str) -> str:
    """A range for people: 31–36k, or 36k where both ends read the same."""
    if low == high:
        return high
    return f"{low[:-1] if low[-1] == high[-1] and low[-1] in 'kM' else low}–{high}"


def percent(share: float) -> str:
    """A share in percent, rounded down so that it never reads as kept when it is not."""
    return f"{math.floor(share * 1000 + 1e-9) / 10:g} %"


def seconds(value: float) -> str:
    """Whole seconds, or tenths below ten."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def against_promise(taken: Recoveries, share: float, promise: Promise) -> str:
    """`95 % of recoveries within 112 s ≤ 120 s`: the comparison that was made, with its numbers.

    Comparing the share that is in time with the promised share is the same as comparing the time within which
    the promised share ends with the target. Where that time lies beyond the horizon, or where the size was
    judged by its neighbour, the shares themselves are written.
    """
    target, kept = promise.target_s, promise.keeps(share)
    sure = f"{100 * promise.confidence:g} %"
    if math.isinf(taken.promised) or (taken.promised <= target) != kept:
        return f"recovery within {target:g} s in {percent(share)} {'≥' if kept else '<'} {sure}"
    text = seconds(taken.promised)
    if (float(text) <= target) != kept:  # rounded across the target
        text = f"{(math.floor if kept else math.ceil)(10 * taken.promised) / 10:.1f}"
    return f"{sure} of recoveries within {text} s {'≤' if kept else '>'} {target:g} s"
