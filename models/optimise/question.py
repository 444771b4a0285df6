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

**Engines.** A continuous engine follows the integral form of `models.recovery`. Spark follows the batch
form, from which the integral differs by 38 to 122 %; for Spark the integral only scans the sizes, at the
rate that batches of at most N records sustain,

    T' = min( N / (o + N / T),  N / Δ )       N = limit per batch, o = overhead, Δ = trigger interval

and the figures that are shown or promised come from stepping batches, from now through the failure to the
end of the recovery. At a steady rate f one cycle takes c = max(Δ, o / (1 − f/T)) and its batch
b = o + f c / T: the lag is at most c + b seconds of input, and of that the band of a recovered lag is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np

from ..arguments import Array, number, numbers, whole
from ..promise import Input, Promise, backlog_records
from ..quantities import FAILURE_KINDS, Interval, Misuse, Unknown, executors, percent
from ..recovery import (
    BUSIEST,
    RATE_S,
    STEADY_CYCLES,
    Batches,
    Index,
    recovered_in_batches,
    recovery_band_s,
    recovery_seconds,
    uncommitted_records,
)

if TYPE_CHECKING:
    from ..workload import Forecast

LONGEST_BAND = 0.5  # of the target: the default of max_lag_s
STILL_BEHIND_S = 5.0  # judgement: a continuous engine with less lag than this is not behind
LATE_IN_BATCH = np.array([0.95, 0.8, 0.9, 1.0, 1.05, 1.1])
"""Shares of the first batch at the middle of the capacity, where a failure is looked at, the likeliest
worst first (judgement)."""
NEVER = 1e-9  # stands for a capacity of zero where one divides by it


@dataclass(frozen=True)
class ContinuousEngine:
    """Processes record by record; after a failure it replays the input since the last checkpoint."""

    replay_s: float = 0.0
    band_s: float = STILL_BEHIND_S

    in_batches = False

    def __post_init__(self) -> None:
        number("ContinuousEngine.replay_s", self.replay_s, at_least=0.0)
        number("ContinuousEngine.band_s", self.band_s, at_least=0.0)

    def sustained_rps(self, capacity_rps: Array, *, scale_out: int) -> Array:
        """The highest rate at which lag does not grow."""
        return capacity_rps

    def usual_lag_s(self, rate_rps: float, *, scale_out: int, capacity_rps: float, target_s: float) -> float:
        """Lag, in seconds of input, up to which the job is not behind."""
        return self.band_s

    def recoveries_s(self, events: Events, *, scale_out: int, target_s: float, reach_s: float) -> Array:
        """Until each event is caught up with, what was read since the last checkpoint included."""
        input_, moments = events.input, np.rint(events.moments_s / events.input.grid_s).astype(np.intp)
        length = math.ceil(reach_s / input_.grid_s)
        columns = np.minimum(moments[:, None] + np.arange(length), input_.rates_rps.shape[1] - 1)
        # Divided by its own capacity every draw has capacity 1, and the same recovery.
        capacity = np.maximum(events.capacity_rps, NEVER)
        owed = [self._owed(events, float(at)) / capacity for at in events.moments_s]
        taken = recovery_seconds(
            input_.rates_rps[events.path[:, None, None], columns] / capacity[:, None, None],
            capacity_rps=1.0,
            downtime_s=events.downtime_s[:, None],
            lag_records=np.stack(owed, axis=1),
            step_s=input_.grid_s,
        )
        return taken.T

    def _owed(self, events: Events, moment_s: float) -> Array:
        behind = backlog_records(
            events.input, capacity_rps=events.sustained_rps, lag_records=events.lag_records,
            moment_s=moment_s, path=events.path,
        )  # fmt: skip
        ends = np.array([moment_s, moment_s - self.replay_s])
        repeated: Array = -np.diff(events.input.at(ends), axis=1)[events.path, 0]
        return behind + repeated


@dataclass(frozen=True)
class BatchEngine:
    """Spark micro-batches: overhead per batch, records per batch at most, trigger interval (0: at once).

    Lag is counted from commits, which exclude the batch in progress, so nothing is replayed. Downtimes run
    from the failure to the start of the first batch (models.downtime).
    """

    overhead_s: float | Mapping[int, float] = 0.0
    """One number, or one per scale-out; in between, that of the next smaller scale-out."""
    limit_records: float = math.inf
    trigger_s: float = 0.0
    band_s: float | None = None
    """Lag inside this band counts as recovered; by default 1.25 × the lag of the job's own batches, at least
    two triggers and at most half the target."""

    in_batches = True
    replay_s = 0.0

    def __post_init__(self) -> None:
        values = self.overhead_s.values() if isinstance(self.overhead_s, Mapping) else [self.overhead_s]
        if not values:
            raise Misuse("BatchEngine.overhead_s", "must not be empty")
        for value in values:
            number("BatchEngine.overhead_s", value, at_least=0.0)
        if not self.limit_records > 0:
            raise Misuse(
                "BatchEngine.limit_records", f"must be > 0 (inf: no limit), got {self.limit_records}"
            )
        number("BatchEngine.trigger_s", self.trigger_s, at_least=0.0)
        if self.band_s is not None:
            number("BatchEngine.band_s", self.band_s, above=0.0)

    def overhead_at(self, scale_out: int) -> float:
        """Seconds that a batch takes beside the processing of its records."""
        if not isinstance(self.overhead_s, Mapping):
            return self.overhead_s
        known = [s for s in self.overhead_s if s <= scale_out] or [min(self.overhead_s)]
        return self.overhead_s[max(known)]

    def sustained_rps(self, capacity_rps: Array, *, scale_out: int) -> Array:
        """The highest rate at which lag does not grow: full batches back to back, or one per trigger."""
        if math.isinf(self.limit_records):
            return capacity_rps
        full_s = self.overhead_at(scale_out) + self.limit_records / np.maximum(capacity_rps, NEVER)
        result: Array = self.limit_records / np.maximum(full_s, self.trigger_s)
        return result

    def losing_moments_s(
        self, capacity_rps: float, *, scale_out: int, rate_rps: float, lag_records: float
    ) -> Array:
        """Moments at which a failure loses most of a lag: about the end of the first batch that takes it."""
        jobs = self._batches(np.array(capacity_rps), scale_out)
        if lag_records <= self._own_lag_s(np.array(rate_rps), jobs) * rate_rps:
            return np.empty(0)
        first = min(lag_records, self.limit_records) / max(capacity_rps, NEVER)
        result: Array = (self.overhead_at(scale_out) + first) * LATE_IN_BATCH
        return result

    def usual_lag_s(self, rate_rps: float, *, scale_out: int, capacity_rps: float, target_s: float) -> float:
        """Lag, in seconds of input, that batches cause in normal operation."""
        jobs = self._batches(np.array(capacity_rps), scale_out)
        return float(self._band_s(np.array(rate_rps), jobs, target_s))

    def recoveries_s(self, events: Events, *, scale_out: int, target_s: float, reach_s: float) -> Array:
        """Until the lag stays in its band after each event: batch by batch from now on."""
        grid_s, path = events.input.grid_s, events.path
        lead = grid_s * math.ceil((LONGEST_BAND * target_s + RATE_S) / grid_s)
        inflow = events.input.inflow(lead_s=lead)
        one = self._batches(np.maximum(events.capacity_rps, NEVER), scale_out)
        now = inflow.rate(path, np.full(len(path), lead), over_s=RATE_S)
        usual = events.lag_records <= self._own_lag_s(now, one) * now
        failed = np.repeat(events.moments_s[:, None], len(path), axis=1)
        cycle, _ = one.cycle_s(inflow.rate(path, lead + failed, over_s=RATE_S))
        steady_s = STEADY_CYCLES * np.where(np.isfinite(cycle), cycle, 0.0)
        begin = events.input.last_caught_up_s(
            path,
            capacity_rps=events.sustained_rps,
            lag_records=np.where(usual, 0.0, events.lag_records),
            until_s=np.maximum(failed - steady_s, 0.0),
        )
        shape = failed.shape
        path = np.broadcast_to(path, shape).ravel()
        phase = np.broadcast_to(events.phase, shape).ravel()
        down = np.broadcast_to(events.downtime_s, shape).ravel()
        failed, begin = lead + failed.ravel(), begin.ravel()
        jobs = self._batches(np.broadcast_to(one.capacity_rps, shape).ravel(), scale_out)
        behind = np.isnan(begin)  # ever since now: the batches are followed from now on
        waiting = uncommitted_records(
            inflow,
            path,
            jobs,
            begin_s=lead + np.where(behind, 0.0, begin),
            waiting=np.where(behind, events.lag_records, np.inf),
            phase=phase,
            at_s=failed,
        )
        # The highest rate over any minute of what may be the recovery, looked at every half minute.
        halves = 2 + max(1, math.ceil((target_s - 2.0 * RATE_S + 1.0) / RATE_S))
        arrived = np.array([inflow.by(path, failed + RATE_S * i) for i in range(halves)])
        busiest = (arrived[2:] - arrived[:-2]).max(axis=0) / (2.0 * RATE_S)
        back = recovered_in_batches(
            inflow,
            path,
            jobs,
            start_s=failed + down,
            ahead=waiting - inflow.by(path, failed),
            band_s=self._band_s(busiest, jobs, target_s),
            until_s=failed + reach_s,
        )
        result: Array = (back - failed).reshape(shape)
        return result

    def _batches(self, capacity_rps: Array, scale_out: int) -> Batches:
        alike = (self.overhead_at(scale_out), self.limit_records, self.trigger_s)
        return Batches(capacity_rps, *map(np.array, alike))

    def _band_s(self, rate_rps: Array, jobs: Batches, target_s: float) -> Array:
        if self.band_s is not None:
            return np.full(np.shape(rate_rps), self.band_s)
        own_s = self._own_lag_s(rate_rps, jobs)
        return recovery_band_s(own_s, trigger_s=self.trigger_s, longest_s=LONGEST_BAND * target_s)

    def _own_lag_s(self, rate_rps: Array, jobs: Batches) -> Array:
        """The largest lag that steady batches cause; beyond its capacity a job has none of its own."""
        cycle, batch = jobs.cycle_s(np.minimum(rate_rps, BUSIEST * jobs.capacity_rps))
        largest: Array = cycle + batch
        return largest


@dataclass(frozen=True, eq=False)
class Events:
    """The same draws of one kind of event at several moments."""

    input: Input
    path: Index
    """Of the forecast, for each draw."""
    capacity_rps: Array
    sustained_rps: Array
    downtime_s: Array
    phase: Array
    lag_records: float
    moments_s: Array


Engine = ContinuousEngine | BatchEngine


def largest_bin_mean(rates_rps: Array) -> Array:
    """The projected rate: the largest mean of five equal parts of the last axis (Phoebe §III-D)."""
    parts = np.array_split(rates_rps, min(5, rates_rps.shape[-1]), axis=-1)
    result: Array = np.max([part.mean(axis=-1) for part in parts], axis=0)
    return result


def sustained(capacity: Interval, engine: Engine, *, scale_out: int) -> Interval:
    """Interval of the sustained rate, from the interval of the bare processing rate."""
    ends = np.array([capacity.low, capacity.mid, capacity.high])
    low, mid, high = engine.sustained_rps(ends, scale_out=scale_out).tolist()
    return Interval(low, mid, high, capacity.confidence)


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
    likely: int | None = None
    """The smallest size that keeps the promise, as far as is known: the search begins there, and is short."""
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
        if self.likely is not None:
            whole("likely", self.likely)
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
        low, high = min(self.candidates), max(self.candidates)
        return tuple(s for s in self.sizes if low <= s <= high)

    def capacity_of(self, scale_out: int) -> Interval | Unknown:
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
    """Of a capacity that covers the forecast in every stretch as long as the target."""
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
        return bool(self.failed(*conditions))

    def excuses_beside(self, *conditions: str) -> tuple[Excuse, ...]:
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
    smallest_feasible: int | Unknown

    def of(self, scale_out: int) -> Verdict | Unknown:
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
    """A range for people: 31–36k, 1.0–1.2k, or 36k where both ends read the same."""
    if low == high:
        return high
    if low[-1] != high[-1] or low[-1] not in "kM":
        return f"{low}–{high}"
    number = low[:-1]
    return f"{number}.0–{high}" if "." in high and "." not in number else f"{number}–{high}"


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
