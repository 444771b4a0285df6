"""Downtime per kind of event, from a failure or rescale until work begins again.

Learnt per kind of event as a distribution. With y = log(D + 1 s) normal among the events of one kind, and a
prior that is worth κ₀ events on its mean μ₀ and ν₀ events on its spread σ₀ (normal–inverse-gamma), n events
with mean ȳ and squared deviations S give the next one a Student-t with ν = ν₀ + n degrees of freedom around

    μ = (κ₀ μ₀ + n ȳ) / (κ₀ + n),    scale² = (1 + 1/(κ₀ + n)) · (ν₀ σ₀² + S + κ₀ n (ȳ − μ₀)²/(κ₀ + n)) / ν

so few events are shrunk to the prior, and many outweigh it. A prior that the events contradict loses weight:
where z² = (ȳ − μ₀)²/(σ₀² (1/κ₀ + 1/n)) exceeds Z², its weight κ₀ is cut to κ₀ Z²/z². The 1 s keeps a
downtime of zero a value. An event after which the job never came back (downtime inf) leaves the distribution
a share of inf, lost/(n + lost + 1): no scale-out can promise that away.

For micro-batches that is the START of the first batch: how long this batch takes depends on the load, and
`RecoveryEvent.first_batch_s` says how long it took at the load of the event. Where it does not, the downtime
ends with the first commit, which is longer. Events whose downtime is known count even if recovery is not.

**Priors.** One per kind of event, log-normal in D + 1 s: a typical value, the spread between events of one
job, and the number of events that each of the two is worth. Where Spark's settings decide (a frozen
executor is noticed only after the heartbeat time-out), the prior is a function of them.

"Measured" below: one machine, standalone and Kubernetes, 1 ms per record, batches of 1–2 s.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from .arguments import Array, number, numbers, whole
from .quantities import EVENT_KINDS, MOST_PATHS, Interval, Misuse, RecoveryEvent, student_quantiles

SPARK_HEARTBEAT_TIMEOUT_S = 120.0
"""spark.network.timeout as Spark sets it."""

COLD_START_S = 37.0
"""Measured: executors 5–12 s after the driver, then a first batch of 14–46 s (middle 25 s); in the drills of
bench.real 38.1–41.6 s."""

TYPICAL_WEIGHT = 1.0
SPREAD_WEIGHT = 4.0
"""Events the typical value and the spread are worth: judgement, then measured (bench/recovery.py). For jobs
whose typical downtime is off by a factor 1.6 and whose events spread by 0.2–0.8, the 90 % interval covers
92 % before any event and 89–90 % after 1 to 30. Among them a spread of 0.2 is nearly always covered,
and one of 0.7 in some 80 % after three events: that is what shrinking costs."""


@dataclass(frozen=True)
class DowntimePrior:
    """Prior of one kind of event; `spread` is the standard deviation of log(D + 1 s)."""

    typical_s: float
    spread: float
    typical_weight: float = TYPICAL_WEIGHT
    spread_weight: float = SPREAD_WEIGHT

    def __post_init__(self) -> None:
        number("DowntimePrior.typical_s", self.typical_s, at_least=0.0)
        number("DowntimePrior.spread", self.spread, above=0.0)
        number("DowntimePrior.typical_weight", self.typical_weight, above=0.0)
        number("DowntimePrior.spread_weight", self.spread_weight, at_least=1.0)


def downtime_priors(
    *, heartbeat_timeout_s: float = SPARK_HEARTBEAT_TIMEOUT_S, cold_start_s: float = COLD_START_S
) -> Mapping[str, DowntimePrior]:
    """Priors of all kinds of event, from the heartbeat time-out and the duration of a cold start."""
    silence = number("heartbeat_timeout_s", heartbeat_timeout_s, at_least=0.0)
    cold = number("cold_start_s", cold_start_s, at_least=0.0)
    typical_and_spread = {
        "executor_kill": (8.0, 0.4),  # measured: 2.4, 8.0, 8.2, 8.3 (bench.real), 9.8, 9.8, 14.9 s elsewhere
        "executor_freeze": (silence, 0.2),  # measured (bench.real): 18.2–20.7 s with a time-out of 20 s
        "driver_kill": (cold, 0.4),  # measured
        "driver_freeze": (silence + cold, 0.4),  # judgement: first missed, then restarted
        "broker_restart": (12.0, 0.5),  # measured: accepts connections after 6 s; clients retry; judgement
        "node_loss": (silence + 12.0, 0.4),  # measured on Kubernetes: executors run after 12 s
        "straggler": (2.0, 0.6),  # judgement: batches get slower, none is lost
        "pod_failure": (15.0, 0.7),  # judgement
        "network_partition": (silence, 0.4),  # judgement: like a freeze, with retries
        "network_delay": (3.0, 0.7),  # judgement
        "network_loss": (5.0, 0.8),  # judgement
        "cpu_stress": (2.0, 0.6),  # judgement
        "memory_stress": (5.0, 0.8),  # judgement: slow, or an executor is lost
        "live_out": (8.0, 0.25),  # measured: first batch after growing 6.7, 8.2, 10 s
        "live_in": (7.0, 0.35),  # measured: 5.4, 5.8, 9.7 s, the batch in flight is run again
        "restart_out": (cold, 0.35),  # measured, as driver_kill but without the time to notice it
        "restart_in": (cold, 0.35),
    }
    weights = {"executor_kill": 0.5}  # from 2 to 15 s: a first event counts twice as much as the prior
    return MappingProxyType(
        {
            kind: DowntimePrior(*typical_and_spread[kind], weights.get(kind, TYPICAL_WEIGHT))
            for kind in EVENT_KINDS
        }
    )


CONTRADICTED = 2.0
"""Z²: how far, in squared standard deviations, events may lie from the prior before its weight is cut
(judgement: beyond √2 deviations six kills of 40 s against a belief in 3 s must not read as 130 s)."""

SHIFT_S = 1.0
"""Added before the logarithm: what sampling can tell apart anyway (judgement)."""


@dataclass(frozen=True)
class Seen:
    """Observed events of one kind: mean and squared deviations of y, and the events without recovery."""

    returned: int = 0
    mean: float = 0.0
    squares: float = 0.0
    lost: int = 0

    def __post_init__(self) -> None:
        whole("Seen.returned", self.returned, at_least=0)
        number("Seen.mean", self.mean, at_least=0.0)
        number("Seen.squares", self.squares, at_least=0.0)
        whole("Seen.lost", self.lost, at_least=0)

    def plus(self, downtime_s: float) -> Seen:
        """With one more event (Welford)."""
        if math.isinf(downtime_s):
            return Seen(self.returned, self.mean, self.squares, self.lost + 1)
        y = math.log(downtime_s + SHIFT_S)
        count = self.returned + 1
        mean = self.mean + (y - self.mean) / count
        return Seen(count, mean, self.squares + (y - self.mean) * (y - mean), self.lost)


@dataclass(frozen=True)
class DowntimeModel:
    """The downtime of every kind of event, as a distribution."""

    schema: ClassVar[int] = 1
    priors: Mapping[str, DowntimePrior] = field(default_factory=downtime_priors)
    seen: Mapping[str, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("priors", "seen"):
            for kind in getattr(self, name):
                _known(name, kind)
        object.__setattr__(self, "priors", MappingProxyType({**downtime_priors(), **self.priors}))
        object.__setattr__(self, "seen", MappingProxyType(dict(self.seen)))

    @classmethod
    def fit(
        cls, events: Iterable[RecoveryEvent] = (), *, priors: Mapping[str, DowntimePrior] | None = None
    ) -> DowntimeModel:
        """Learn from events in any order; `priors` replace the default ones of their kinds."""
        return cls(priors={} if priors is None else priors).with_events(events)

    def with_events(self, events: Iterable[RecoveryEvent]) -> DowntimeModel:
        seen = dict(self.seen)
        for event in events:
            if not isinstance(event, RecoveryEvent):
                raise Misuse("events", f"must be RecoveryEvents, got {event!r}")
            seen[event.kind] = seen.get(event.kind, Seen()).plus(event.started_s)
        return DowntimeModel(priors=self.priors, seen=seen)

    def update(self, event: RecoveryEvent) -> DowntimeModel:
        return self.with_events([event])

    def events(self, kind: str) -> int:
        seen = self.seen.get(_known("kind", kind), Seen())
        return seen.returned + seen.lost

    def lost_share(self, kind: str) -> float:
        seen = self.seen.get(_known("kind", kind), Seen())
        return seen.lost / (seen.returned + seen.lost + 1.0)

    def quantiles(self, kind: str, probabilities: Any) -> Array:
        """Downtime of the next event that is not exceeded with these probabilities, each in (0, 1)."""
        p = numbers("probabilities", probabilities)
        if bool(((p <= 0) | (p >= 1)).any()):
            raise Misuse("probabilities", "must be in (0, 1)")
        back = 1.0 - self.lost_share(kind)
        mean, scale, degrees = self._posterior(kind)
        # Only the share that comes back has a finite downtime; the rest of the probability lies at inf.
        inside = np.clip(p / back, None, np.nextafter(1.0, 0.0))
        t = student_quantiles(inside, degrees=degrees)
        with np.errstate(over="ignore"):  # a far tail may be longer than any float: it is inf
            finite = np.exp(mean + scale * t) - SHIFT_S
        return np.where(p < back, np.maximum(finite, 0.0), np.inf)

    def interval(self, kind: str) -> Interval:
        """The downtime of the next event of this kind, with 90 % confidence."""
        low, mid, high = self.quantiles(kind, [0.05, 0.5, 0.95])
        return Interval(float(low), float(mid), float(high), 0.9)

    def samples(self, kind: str, *, paths: int, seed: int) -> Array:
        """Downtimes of `paths` possible events, the same for the same (kind, paths, seed).

        Evenly spaced quantiles in shuffled order, so that a decision on the same facts is the same;
        independent between kinds.
        """
        count = whole("paths", paths, at_most=MOST_PATHS)
        stream = [whole("seed", seed, at_least=0), zlib.crc32(_known("kind", kind).encode())]
        levels = (np.arange(count) + 0.5) / count
        return np.random.default_rng(stream).permutation(self.quantiles(kind, levels))

    def describe(self, kind: str) -> str:
        """One line for people: the downtime of this kind, and how much of it was measured."""
        interval, count, lost = self.interval(kind), self.events(kind), self.seen.get(kind, Seen()).lost
        learnt = f"learnt from {count} event{'s' * (count != 1)}" if count else "no event seen, prior only"
        never = f", {lost} of them without return" if lost else ""
        return f"{kind}: down {interval.low:.1f}–{interval.high:.1f} s (90 %), {learnt}{never}"

    def _posterior(self, kind: str) -> tuple[float, float, float]:
        """Mean and scale of log(D + 1 s) of the next event, and the degrees of freedom."""
        prior, seen = self.priors[kind], self.seen.get(kind, Seen())
        n, k0, nu0 = seen.returned, prior.typical_weight, prior.spread_weight
        believed = math.log(prior.typical_s + SHIFT_S)
        if n:
            deviations = (seen.mean - believed) ** 2 / (prior.spread**2 * (1.0 / k0 + 1.0 / n))
            k0 *= min(1.0, CONTRADICTED / deviations) if deviations > 0 else 1.0
        mean = (k0 * believed + n * seen.mean) / (k0 + n)
        off = k0 * n * (seen.mean - believed) ** 2 / (k0 + n)
        squares = nu0 * prior.spread**2 + seen.squares + off
        scale = math.sqrt((1.0 + 1.0 / (k0 + n)) * squares / (nu0 + n))
        return mean, scale, nu0 + n


def _known(argument: str, kind: str) -> str:
    if kind not in EVENT_KINDS:
        raise Misuse(argument, f"must be one of {', '.join(EVENT_KINDS)}, got {kind!r}")
    return kind
