"""What did this failure cost: when did the job work again, and when had it caught up?

    band       1.25 × the largest lag, in seconds of input, of the undisturbed window, plus one sampling step;
               at least two trigger intervals or two median batches, at most max_lag_s
    hold       three median batches, at least 15 s, and longer than the band is wide: without any commit lag
               takes as long as that to leave it
    recovered  the first instant after the failure from which lag stays inside the band for the hold
               (models.recovery.recovered_at, as for predictions)
    downtime   failure -> first new commit = detection + restart + state load + first batch

The undisturbed window is at least 60 s and ten batches long. A job that was behind before (lag above
max_lag_s), or fell behind (lag rising), shows nothing about the failure: such a drill is invalid. So is one
whose lag left the band after all, though it had been back to stay before its first new commit.

To how long a standstill does this failure amount?

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
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, isinf
from typing import Any

import numpy as np

from models.arguments import number
from models.probing import lag_slope
from models.quantities import Misuse, RecoveryEvent, Unknown
from models.recovery import batch_recovery_seconds, recovered_at

from ..telemetry.timeline import Done, Timeline
from .drill_prediction import Models, engine

WINDOW_S = 60.0
WINDOW_BATCHES = 10
BAND_SHARE = 1.25
HOLD_S = 15.0
HOLD_BATCHES = 3
RISING = 0.01  # of the rate: a slower rise adds less than a second in the minute before; judgement


@dataclass(frozen=True)
class Undisturbed:
    """What a job was like before its failure."""

    rate_rps: float
    largest_lag_s: float
    lag_records: float
    """On average, right after a commit and right before one alike."""
    batch_s: float
    band_s: float
    hold_s: float


@dataclass(frozen=True)
class Phases:
    """A downtime in its parts. Unknown where the parts cannot be told apart; they add up to the whole."""

    detection_s: float | Unknown
    restart_s: float | Unknown
    state_load_s: float | Unknown
    first_batch_s: float | Unknown

    def to_json(self) -> dict[str, Any]:
        """Seconds; a reason where they are unknown."""
        return {
            name: value.reason if isinstance(value, Unknown) else value for name, value in vars(self).items()
        }


@dataclass
class Marks:
    """Moments of a recovery, as far as they were seen."""

    noticed_s: float | None = None
    """Somebody knows: the driver is gone, the executor is lost."""
    back_s: float | None = None
    """Driver and executors are there again."""
    first_batch_began_s: float | None = None
    """The batch that was committed first had begun."""


def undisturbed(
    timeline: Timeline, start_s: float, end_s: float, *, sample_s: float, trigger_s: float, max_lag_s: float
) -> Undisturbed | str:
    """What is normal for this job; or why a drill would show nothing."""
    number("max_lag_s", max_lag_s, above=0.0)
    rate = timeline.arrival_rps(start_s, end_s, clip=True)
    if isinstance(rate, Unknown):
        return f"the input before the failure is unknown: {rate.reason}"
    if rate <= 0.0:
        return "there was no input before the failure"
    lag = timeline.lag_s(start_s, end_s, arrival_rps=rate)
    if not lag.size or np.isnan(lag).any():
        return "the lag before the failure is not known throughout"
    largest = float(lag.max())
    if largest > max_lag_s:
        return f"the job was {largest:.1f} s behind before the failure, more than max_lag_s = {max_lag_s:g} s"
    times_s, spread = timeline.spread_lag(start_s, end_s)
    slope = lag_slope(times_s, spread)
    if isinstance(slope, Unknown):
        return f"whether lag was rising cannot be told: {slope.reason}"
    if slope.above_zero and slope.rps > RISING * rate:
        return f"lag was rising before the failure, by {slope.rps:,.0f} records/s at {rate:,.0f} records/s"
    batch_s = median_batch_s(timeline.commits(start_s, end_s))
    # Two batches where they come back to back, two triggers where those are longer.
    least = 2.0 * max(trigger_s, batch_s)
    band_s = min(max(BAND_SHARE * largest + sample_s, least), max_lag_s)
    return Undisturbed(
        rate_rps=rate,
        largest_lag_s=largest,
        lag_records=float(np.mean(lag)) * rate,
        batch_s=batch_s,
        band_s=band_s,
        hold_s=max(HOLD_S, HOLD_BATCHES * max(batch_s, trigger_s), band_s + sample_s),
    )


def median_batch_s(done: tuple[Done, ...]) -> float:
    """The usual time from commit to commit."""
    gaps = sorted(two.at_s - one.at_s for one, two in pairwise(done))
    return gaps[len(gaps) // 2] if gaps else 0.0


def recovery_s(timeline: Timeline, before: Undisturbed, *, failed_at_s: float, until_s: float) -> float:
    """Failure -> lag back in its band to stay; inf when that was not seen. Unseen is outside."""
    times = timeline.times_s(failed_at_s, until_s)
    lag = timeline.lag_s(failed_at_s, until_s, arrival_rps=before.rate_rps)
    missed = np.asarray([gap.at_s for gap in timeline.gaps if failed_at_s <= gap.at_s <= until_s])
    times = np.concatenate([times, missed])
    lag = np.concatenate([np.where(np.isnan(lag), np.inf, lag), np.full(missed.size, np.inf)])
    times, first = np.unique(times, return_index=True)
    if not times.size:
        return float("inf")
    at_s = recovered_at(
        times, lag[first], failed_at_s=failed_at_s, band_s=before.band_s, hold_s=before.hold_s
    )
    return at_s - failed_at_s


def downtime_s(timeline: Timeline, *, failed_at_s: float) -> float:
    """Failure -> first new commit; inf when there was none."""
    first = timeline.first_commit_after(failed_at_s)
    return float("inf") if isinstance(first, Unknown) else first.at_s - failed_at_s


def contradiction(before: Undisturbed, *, downtime_s: float, recovery_s: float, peak_lag_s: float) -> str:
    """Why nobody can tell when this job had recovered; or nothing, as of a lag that never left its band."""
    if recovery_s >= downtime_s or peak_lag_s <= before.band_s:
        return ""
    return (
        f"lag was back in its band of {before.band_s:.1f} s after {recovery_s:.1f} s, before the first new "
        f"commit after {downtime_s:.1f} s, and yet reached {peak_lag_s:.1f} s: the batches before the "
        "failure were too uneven to tell when it had recovered"
    )


def phases(marks: Marks, *, failed_at_s: float, downtime_s: float) -> Phases:
    """The parts of a downtime. A moment after the first commit was not part of it: work went on without."""
    if not np.isfinite(downtime_s):
        never = Unknown("no batch was committed any more")
        return Phases(never, never, never, never)
    if failed_at_s < 0:
        raise Misuse("failed_at_s", "must be in epoch seconds")
    whole_s = downtime_s
    noticed = whole_s if marks.noticed_s is None else min(max(marks.noticed_s - failed_at_s, 0.0), whole_s)
    back = whole_s if marks.back_s is None else min(max(marks.back_s - failed_at_s, noticed), whole_s)
    if marks.first_batch_began_s is None:
        why = Unknown("when the first batch began was not reported")
        return Phases(noticed, back - noticed, why, why if back < whole_s else 0.0)
    began = min(max(marks.first_batch_began_s - failed_at_s, back), whole_s)
    return Phases(noticed, back - noticed, began - back, whole_s - began)


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
