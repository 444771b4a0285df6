"""The recovery that the models predict for a failure, and the downtime that a measured recovery teaches them.

Predicted in the batch form, at the rate and in the band of the drill: downtimes of this kind as they were
learnt, each carried from its commit to the start of its batch, then batches stepped until lag is back in the
band. The interval holds 90 % of these, or what is asked for.

Downtime, failure to first new commit, is not all that a failure costs: the batch that is committed first may
be worked off by the executors that are left, and new ones are slow at first. So a drill teaches the downtime
that, as a standstill with the full capacity before and after it, has the recovery that was measured:

    d   with  batch_recovery_seconds(d) = measured recovery              the start of the first batch
    D = d + o + min(N, L + f·d) / T                                      its commit, as downtimes are learnt

with the overhead o, the limit N, the capacity T, the lag L before and the rate f of the drill. An error of
the capacity model is in D with the opposite sign, and mostly cancels where the same model predicts. A job
that never came back, or whose recovery was not seen to its end, teaches its downtime as it is; so does one
whose lag never left its band, which is recovered from the first moment on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf, isinf
from typing import Any, Protocol

import numpy as np

from models.downtime import DowntimeModel
from models.quantities import Interval, RecoveryEvent, Unknown
from models.recovery import batch_recovery_seconds, first_batch_start_s

from ..telemetry.batch_costs import bare_capacity_rps, overhead_now_s

PATHS = 200
CONFIDENCE = 0.9


class Capacity(Protocol):
    """A model of what a scale-out sustains."""

    def predict(self, scale_out: int) -> Interval | Unknown: ...


@dataclass(frozen=True)
class Models:
    """The models of a job, which have not seen the drill that is to be predicted."""

    capacity: Capacity
    downtime: DowntimeModel
    overhead_s: Mapping[int, float]
    limit_records: float = inf
    trigger_s: float = 0.0
    seed: int = 0


def engine(models: Models, scale_out: int) -> tuple[float, float] | Unknown:
    """Bare capacity in records/s, and the overhead of a batch in seconds."""
    sustained = models.capacity.predict(scale_out)
    if isinstance(sustained, Unknown):
        return sustained
    if not models.overhead_s:
        return Unknown("the overhead of a batch is unknown: profile the job")
    known = [size for size in models.overhead_s if size <= scale_out] or [min(models.overhead_s)]
    overhead = models.overhead_s[max(known)]
    capacity = bare_capacity_rps(sustained.mid, overhead_s=overhead, limit_records=models.limit_records)
    return capacity if isinstance(capacity, Unknown) else (capacity, overhead)


def paced(models: Models, scale_out: int, *, rate_rps: float, batch_s: float) -> Models:
    """The same models with the overhead that the batches of the last minute show, where they show it.

    On a machine with other work to do it is seldom that of the profile, and lag at rest is twice a batch:
    with too large an overhead a predicted lag never comes back into its band.
    """
    sustained = models.capacity.predict(scale_out)
    if isinstance(sustained, Unknown) or models.trigger_s > 0.0:
        return models
    overhead = overhead_now_s(
        batch_s, rate_rps=rate_rps, sustained_rps=sustained.mid, limit_records=models.limit_records
    )
    return models if isinstance(overhead, Unknown) else replace(models, overhead_s={scale_out: overhead})


def at_its_pace(models: Models, scale_out: int, details: Mapping[str, Any]) -> Models:
    """The same models at the pace that a drill had found before it began, where that was written down."""
    rate, batch = details.get("rate_rps"), details.get("batch_s")
    if not isinstance(rate, int | float) or not isinstance(batch, int | float):
        return models
    return paced(models, scale_out, rate_rps=rate, batch_s=batch)


def of_drill(models: Models, kind: str, *, scale_out: int, details: Mapping[str, Any]) -> Interval | Unknown:
    """The recovery to expect of a drill, from what was seen before its failure and nothing after it."""
    return recovery_s(
        at_its_pace(models, scale_out, details),
        kind,
        scale_out=scale_out,
        rate_rps=details["rate_rps"],
        lag_records=details["lag_before_records"],
        band_s=details["band_s"],
        horizon_s=details["longest_s"],
    )


def recovery_s(
    models: Models,
    kind: str,
    *,
    scale_out: int,
    rate_rps: float,
    lag_records: float,
    band_s: float,
    horizon_s: float,
    confidence: float = CONFIDENCE,
) -> Interval | Unknown:
    """How long a recovery takes. Its ends may be inf: not within the horizon."""
    known = engine(models, scale_out)
    if isinstance(known, Unknown):
        return known
    capacity, overhead = known
    down = models.downtime.samples(kind, paths=PATHS, seed=models.seed)
    starts = first_batch_start_s(
        down,
        arrival_rps=rate_rps,
        capacity_rps=capacity,
        overhead_s=overhead,
        limit_records=models.limit_records,
        lag_records=lag_records,
    )
    found = np.sort(
        batch_recovery_seconds(
            np.full(int(np.ceil(horizon_s)), rate_rps),
            capacity_rps=capacity,
            overhead_s=overhead,
            limit_records=models.limit_records,
            trigger_s=models.trigger_s,
            downtime_s=starts,
            lag_records=lag_records,
            band_s=band_s,
        )
    )
    tail = (1.0 - confidence) / 2.0
    low, mid, high = (float(found[int(share * (PATHS - 1))]) for share in (tail, 0.5, 1.0 - tail))
    return Interval(low, mid, high, confidence)


STEP_S = 0.05  # a tenth of what drills are sampled at


def lesson(event: RecoveryEvent, details: Mapping[str, Any], models: Models) -> RecoveryEvent | Unknown:
    """The same event with the downtime that it amounts to; Unknown where the models cannot say."""
    if isinf(event.recovery_s) or isinf(event.downtime_s) or event.recovery_s < event.downtime_s:
        return event
    known = engine(models, event.scale_out)
    if isinstance(known, Unknown):
        return known
    capacity, overhead = known
    limit, rate, lag = models.limit_records, details["rate_rps"], details["lag_before_records"]
    starts = np.arange(0.0, event.recovery_s + STEP_S, STEP_S)
    recoveries = batch_recovery_seconds(
        np.full(ceil(event.recovery_s) + 1, rate),
        capacity_rps=capacity,
        overhead_s=overhead,
        limit_records=limit,
        trigger_s=models.trigger_s,
        downtime_s=starts,
        lag_records=lag,
        band_s=details["band_s"],
    )
    # The shortest that is long enough: a recovery ends with a batch, so that it grows in small steps.
    long_enough = recoveries >= event.recovery_s - STEP_S
    start = float(starts[int(np.argmax(long_enough))]) if bool(long_enough.any()) else event.recovery_s
    return replace(event, downtime_s=start + overhead + min(limit, lag + rate * start) / capacity)
