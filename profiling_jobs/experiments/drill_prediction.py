"""The recovery that the models predict for a failure, and the downtime that a measured recovery teaches them.

Predicted is what a decision would say of this failure at the load and lag of the drill
(`models.optimise.recovery_at`).

Downtime, failure to first new commit, is not all that a failure costs: the batch that is committed first may
be worked off by the executors that are left, and new ones are slow at first. So a drill teaches the downtime
that, as a standstill with the full capacity before and after it, has the recovery that was measured:

    d   with  batch_recovery_seconds(d) = measured recovery              the start of the first batch
    D = d + b,   b = o + min(N, L + f·d) / T                             its commit

with the overhead o, the limit N, the capacity T, the lag L before and the rate f of the drill. An error of
the capacity model is in d with the opposite sign, and mostly cancels where the same model predicts. Where the
recovery was not seen, or lag never left its band, d follows from the first commit alone:

    d = max(D − o − N/T, (D − o − L/T) / (1 + f/T))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, isinf
from typing import Any

import numpy as np

from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.optimise import recovery_at
from models.optimise.judging import FIGURES_REACH
from models.promise import Promise
from models.quantities import Interval, RecoveryEvent, Unknown
from models.recovery import batch_recovery_seconds, first_batch_start_s

from ..telemetry.batch_costs import BareCapacity, EngineInputs, PredictsCapacity


@dataclass(frozen=True)
class Models:
    """The models of a job, which have not seen the drill that is to be predicted."""

    capacity: PredictsCapacity
    downtime: DowntimeModel
    engine: EngineInputs
    seed: int = 0

    def at(self, scale_out: int) -> tuple[float, float] | Unknown:
        """Bare capacity in records/s, and the overhead of a batch in seconds."""
        found = BareCapacity(self.capacity, self.engine).predict(scale_out)
        return found if isinstance(found, Unknown) else (found.mid, self.engine.overhead_at(scale_out))

    def is_bound(self, scale_out: int) -> bool:
        """Whether the capacity may be far higher than what it predicts."""
        return isinstance(self.capacity, CapacityModel) and self.capacity.is_bound(scale_out)


def of_drill(models: Models, kind: str, *, scale_out: int, details: Mapping[str, Any]) -> Interval | Unknown:
    """The recovery to expect of a drill, from what was seen before its failure and nothing after it."""
    return recovery_s(
        models,
        kind,
        scale_out=scale_out,
        rate_rps=details["rate_rps"],
        lag_records=details["lag_before_records"],
        longest_s=details["longest_s"],
    )


def recovery_s(
    models: Models, kind: str, *, scale_out: int, rate_rps: float, lag_records: float, longest_s: float
) -> Interval | Unknown:
    """How long a recovery takes. Its ends may be inf: far beyond `longest_s`."""
    found = recovery_at(
        kind,
        scale_out=scale_out,
        rate_rps=rate_rps,
        lag_records=lag_records,
        capacity=BareCapacity(models.capacity, models.engine).predict(scale_out),
        engine=models.engine.engine(),
        downtime=models.downtime,
        promise=Promise(_target_s(longest_s)),
        seed=models.seed,
    )
    if isinstance(found, Unknown):
        return found
    return Interval(found.low, found.mid, found.high, found.confidence)


def _target_s(longest_s: float) -> float:
    """The target for which a decision looks at recoveries as long as this at first."""
    return longest_s / FIGURES_REACH[0]


STEP_S = 0.05  # a tenth of what drills are sampled at


def lesson(event: RecoveryEvent, details: Mapping[str, Any], models: Models) -> RecoveryEvent | Unknown:
    """The same event with the downtime that it amounts to, and its first batch; Unknown where models lack."""
    known, rate = models.at(event.scale_out), details["rate_rps"]
    if isinstance(known, Unknown):
        return known
    if isinf(event.downtime_s):
        return event
    (capacity, overhead), engine = known, models.engine.engine()
    lag = details.get("lag_before_records", 0.0)
    alike: dict[str, Any] = {
        "capacity_rps": capacity,
        "overhead_s": overhead,
        "limit_records": engine.limit_records,
        "lag_records": lag,
    }
    if "longest_s" not in details or isinf(event.recovery_s) or event.recovery_s < event.downtime_s:
        start = float(first_batch_start_s(event.downtime_s, arrival_rps=rate, **alike))
        return replace(event, rate_rps=rate, first_batch_s=event.downtime_s - start)
    # The band that it was measured by: one a little narrower is reached one batch later, which a shorter
    # standstill would have to make up for.
    band_s = details.get("band_s") or engine.usual_lag_s(
        rate, scale_out=event.scale_out, capacity_rps=capacity, target_s=_target_s(details["longest_s"])
    )
    starts = np.arange(0.0, event.recovery_s + STEP_S, STEP_S)
    recoveries = batch_recovery_seconds(
        np.full(ceil(event.recovery_s) + 1, rate),
        trigger_s=engine.trigger_s,
        downtime_s=starts,
        band_s=band_s,
        **alike,
    )
    # The shortest that is long enough: a recovery ends with a batch, so that it grows in small steps.
    long_enough = recoveries >= event.recovery_s - STEP_S
    start = float(starts[int(np.argmax(long_enough))]) if bool(long_enough.any()) else event.recovery_s
    first = overhead + min(engine.limit_records, lag + rate * start) / capacity
    return replace(event, downtime_s=start + first, rate_rps=rate, first_batch_s=first)


def as_reported(event: RecoveryEvent, details: Mapping[str, Any], models: Models) -> RecoveryEvent:
    """The same event with its first batch as the job has reported it, or else as the overhead of one."""
    reported = details.get("downtime", {}).get("first_batch_s")
    first_s = reported if isinstance(reported, int | float) else models.engine.overhead_at(event.scale_out)
    return replace(event, rate_rps=details["rate_rps"], first_batch_s=min(first_s, event.downtime_s))
