"""Engines: how a continuous engine and Spark's micro-batches work off a backlog.

A continuous engine follows the integral form of `models.recovery`. Spark follows the batch form, from which
the integral differs by 38 to 122 %; for Spark the integral only scans the sizes, at the rate that batches
of at most N records sustain,

    T' = min( N / (o + N / T),  N / Δ )       N = limit per batch, o = overhead, Δ = trigger interval

and the figures that are shown or promised come from stepping batches. At a steady rate f one cycle takes
c = max(Δ, o / (1 − f/T)) and its batch b = o + f c / T. A failure at phase φ of the cycle finds the input of
φ seconds (φ ≥ b) or of c + φ seconds (φ < b) read but not committed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arguments import Array, number
from ..quantities import Interval, Misuse
from ..recovery import batch_recovery_seconds, first_batch_start_s, recovery_seconds

LONGEST_BAND = 0.5  # of the target: the default of max_lag_s
BAND_MARGIN = 1.25  # over the largest lag of an undisturbed job, as drills are measured
STILL_BEHIND_S = 5.0  # judgement: a continuous engine with less lag than this is not behind
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

    def dead_s(self, downtime_s: Array, *, rate_rps: float) -> Array:
        """Seconds from the failure until processing continues."""
        return downtime_s

    def usual_lag_s(self, rate_rps: float, *, scale_out: int, capacity_rps: float, target_s: float) -> float:
        """Lag, in seconds of input, up to which the job is not behind."""
        return self.band_s

    def unread_records(self, rate_rps: Array, *, capacity_rps: Array, scale_out: int, phase: Array) -> Array:
        """Records that are read but not committed when a failure strikes."""
        return np.zeros_like(rate_rps)

    def recovery_s(
        self,
        arrivals_rps: Array,
        *,
        capacity_rps: Array,
        downtime_s: Array,
        lag_records: Array,
        scale_out: int,
        target_s: float,
        step_s: float,
    ) -> Array:
        """Recovery of each draw (draws, steps); `lag_records` is the backlog and the replayed input."""
        # Divided by its own capacity every draw has capacity 1, and the same recovery.
        capacity = np.maximum(capacity_rps, NEVER)
        return recovery_seconds(
            arrivals_rps / capacity[:, None],
            capacity_rps=1.0,
            downtime_s=downtime_s,
            lag_records=lag_records / capacity,
            step_s=step_s,
        )


@dataclass(frozen=True)
class BatchEngine:
    """Spark micro-batches: overhead per batch, records per batch at most, trigger interval (0: at once).

    Lag is counted from commits, which exclude the batch in progress, so nothing is replayed. Downtimes run
    from the failure to the first new commit, as drills measure them.
    """

    overhead_s: float | Mapping[int, float] = 0.0
    """One number, or one per scale-out; in between, that of the next smaller scale-out."""
    limit_records: float = math.inf
    trigger_s: float = 0.0
    band_s: float | None = None
    """Lag inside this band counts as recovered; by default 1.25 × the lag of the job's own batches, at least
    two triggers and at most half the target."""
    learnt_at_utilisation: float = 0.4
    """Utilisation at which downtimes were measured; they include the first batch, whose length depends on it.
    Judgement: promises of three minutes allow 0.26 to 0.47; a lower value is more careful."""

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
        number("BatchEngine.learnt_at_utilisation", self.learnt_at_utilisation, above=0.0, at_most=1.0)
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

    def dead_s(self, downtime_s: Array, *, rate_rps: float) -> Array:
        """Seconds from the failure until the first batch starts."""
        # Not the capacity of the current size: the answer must not depend on the current size.
        least = min(self.overhead_s.values()) if isinstance(self.overhead_s, Mapping) else self.overhead_s
        return first_batch_start_s(
            downtime_s,
            arrival_rps=rate_rps,
            capacity_rps=max(rate_rps / self.learnt_at_utilisation, NEVER),
            overhead_s=least,
            limit_records=self.limit_records,
        )

    def usual_lag_s(self, rate_rps: float, *, scale_out: int, capacity_rps: float, target_s: float) -> float:
        """Lag, in seconds of input, that batches cause in normal operation."""
        return float(self._band_s(np.array(rate_rps), np.array(capacity_rps), scale_out, target_s))

    def unread_records(self, rate_rps: Array, *, capacity_rps: Array, scale_out: int, phase: Array) -> Array:
        """Records read but not committed when a failure strikes at `phase` (0…1) of a cycle."""
        cycle, batch = self._cycle_s(rate_rps, capacity_rps, scale_out)
        into = phase * cycle
        span = np.where(into < batch, cycle + into, into)
        result: Array = np.where(
            np.isfinite(cycle), rate_rps * span, 0.0
        )  # otherwise the backlog includes them
        return result

    def recovery_s(
        self,
        arrivals_rps: Array,
        *,
        capacity_rps: Array,
        downtime_s: Array,
        lag_records: Array,
        scale_out: int,
        target_s: float,
        step_s: float,
    ) -> Array:
        """Recovery of each draw (draws, steps): until its lag stays in the band."""
        capacity = np.maximum(capacity_rps, NEVER)
        busiest = largest_bin_mean(arrivals_rps)
        return batch_recovery_seconds(
            arrivals_rps / capacity[:, None],
            capacity_rps=1.0,
            overhead_s=self.overhead_at(scale_out),
            limit_records=self.limit_records / capacity,
            trigger_s=self.trigger_s,
            downtime_s=downtime_s,
            lag_records=lag_records / capacity,
            band_s=self._band_s(busiest, capacity, scale_out, target_s),
            step_s=step_s,
        )

    def _cycle_s(self, rate_rps: Array, capacity_rps: Array, scale_out: int) -> tuple[Any, Any]:
        overhead = self.overhead_at(scale_out)
        used = rate_rps / np.maximum(capacity_rps, NEVER)
        with np.errstate(divide="ignore", invalid="ignore"):
            cycle = np.where(used < 1.0, np.maximum(self.trigger_s, overhead / (1.0 - used)), np.inf)
            return cycle, np.where(used < 1.0, overhead + used * cycle, np.inf)

    def _band_s(self, rate_rps: Array, capacity_rps: Array, scale_out: int, target_s: float) -> Array:
        if self.band_s is not None:
            return np.full(np.shape(rate_rps), self.band_s)
        cycle, batch = self._cycle_s(rate_rps, capacity_rps, scale_out)
        band: Array = np.maximum(2.0 * self.trigger_s, BAND_MARGIN * (cycle + batch))
        result: Array = np.minimum(band, LONGEST_BAND * target_s)
        return result


Engine = ContinuousEngine | BatchEngine


def largest_bin_mean(rates_rps: Array, *, bins: int = 5) -> Array:
    """The projected rate: the largest mean of five equal parts of the last axis (Phoebe §III-D)."""
    parts = np.array_split(rates_rps, min(bins, rates_rps.shape[-1]), axis=-1)
    result: Array = np.max([part.mean(axis=-1) for part in parts], axis=0)
    return result


def sustained(capacity: Interval, engine: Engine, *, scale_out: int) -> Interval:
    """Interval of the sustained rate, from the interval of the bare processing rate."""
    ends = np.array([capacity.low, capacity.mid, capacity.high])
    low, mid, high = engine.sustained_rps(ends, scale_out=scale_out).tolist()
    return Interval(low, mid, high, capacity.confidence)
