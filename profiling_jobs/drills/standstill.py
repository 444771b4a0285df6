"""To how long a standstill does this failure amount?

Downtime, failure to first new commit, is not all that a failure costs: the batch that is committed first may
be worked off by the executors that are left, and those that come new are slow at first. What such a failure
costs shows in its recovery. So a drill teaches the downtime that, as a standstill with the full capacity
before and after it, has the recovery that was measured:

    d   with  batch_recovery_seconds(d) = measured recovery              the start of the first batch
    D = d + o + min(N, L + f·d) / T                                      its commit, as downtimes are learnt

with the overhead o, the limit N, the capacity T, the lag L before and the rate f of the drill. An error of
the capacity model is in D with the opposite sign, and mostly goes out again where the same model foretells. A
job that never came back, or whose recovery was not seen to its end, teaches its downtime as it is; so does
one whose lag never left its band, which is recovered from the first moment on, however long it stood still.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, isinf
from typing import Any

import numpy as np

from models.quantities import RecoveryEvent, Unknown
from models.recovery import batch_recovery_seconds

from .drill_prediction import Models, engine

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
