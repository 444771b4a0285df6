"""Has the job kept up with this rate, has it not, or can this probe not be believed?

With offered rate λ (what the source really emitted), processed rate μ and lag L(t):

    valid          λ >= 99 % of the rate commanded, warm-up over, no restart, and the counts add up:
                   dL/dt = λ - μ within the tolerance
    not sustained  dL/dt above zero, and μ < 99 % of λ or no doubt about the rise
    sustained      μ >= 99 % of λ, and dL/dt not above zero, or in doubt and below 1 % of λ
    undecided      the one without the other: invalid, and to be watched for longer

"Above zero" is the test of `lag`, which errs one time in twenty: of a job at ease with uneven batches it
alone would call two probes in a hundred not sustained (simulated; with this rule one in two hundred). Where
less than 1 % of the rate is not kept up with, the value is right in either case: what was processed.

A source that never left its start rate makes a job look saturated, and a stretch that cuts a batch at its
edge makes it look so too (count between commits: `processed_rps`): such a probe has no value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..quantities import Unknown
from .lag import lag_slope
from .probe import Probe, Result

SUSTAINED_SHARE = 0.99  # processed of offered: StreamBed §4.2, mean_threshold of its code
REACHED_SHARE = 0.99  # achieved of commanded: below it the sustained test could not be passed by any job
SLOPE_IMMATERIAL = 0.001  # of the offered rate: a tenth of the 1 % bracket; judgement
COUNTS_DISAGREE = 0.02  # of the offered rate: twice what the verdict turns on; judgement


@dataclass(frozen=True)
class Facts:
    """What was seen in the measured stretch of one probe, before anybody judges it."""

    achieved_rps: float | Unknown
    processed_rps: float | Unknown
    """Best counted from commit to commit (`processed_rps`): half a batch may turn the verdict."""
    lag_times_s: Sequence[float]
    lag_records: Sequence[float]
    warm_up_over: bool
    restarted: bool
    latency_ms: float | None = None
    standard_error_rps: float | None = None
    executor_seconds: float | None = None
    measured_s: float | None = None
    """How long the stretch was, where it was not as planned."""


def judge(probe: Probe, facts: Facts) -> Result:
    """What does this probe show: kept up, did not keep up, or not to be believed?"""

    def invalid(reason: str) -> Result:
        # The achieved rate is kept: it says what the source can do, nothing about the job.
        offered = _rate(facts.achieved_rps)
        return Result(
            probe=probe,
            verdict="invalid",
            offered_rps=offered if math.isfinite(offered) and offered >= 0.0 else None,
            executor_seconds=facts.executor_seconds,
            measured_s=facts.measured_s,
            reason=reason,
        )

    if facts.restarted:
        return invalid("the job restarted while it was being watched")
    if not facts.warm_up_over:
        return invalid("the warm-up was not over when the stretch began; allow a longer warm_up_s")
    achieved, processed = _rate(facts.achieved_rps), _rate(facts.processed_rps)
    for what, seen, rate in (
        ("the source", facts.achieved_rps, achieved),
        ("the job", facts.processed_rps, processed),
    ):
        if not (math.isfinite(rate) and rate >= 0.0):
            return invalid(f"the rate of {what} is unknown: {getattr(seen, 'reason', seen)}")
    if achieved < REACHED_SHARE * probe.rate_rps:
        return invalid(
            f"the source never reached its rate: {achieved:,.0f} of {probe.rate_rps:,.0f} records/s; "
            "a faster source or a lower highest_rate_rps is needed"
        )
    if processed == 0.0:
        return invalid("the job processed nothing at all")
    slope = lag_slope(facts.lag_times_s, facts.lag_records)
    if isinstance(slope, Unknown):
        return invalid(slope.reason)
    missing = achieved - processed
    tolerance = max(COUNTS_DISAGREE * achieved, 3.0 * slope.standard_error_rps, slope.edge_rps)
    if abs(missing - slope.rps) > tolerance:
        return invalid(
            f"the counts do not add up: offered minus processed is {missing:,.0f} records/s, but lag changed "
            f"by {slope.rps:,.0f} ± {slope.standard_error_rps:,.0f}; watch for longer (probe_s), or "
            "check the signals"
        )
    behind = processed < SUSTAINED_SHARE * achieved
    rising = slope.above_zero and slope.rps > SLOPE_IMMATERIAL * achieved
    if behind and not rising:
        return invalid(
            f"processed {processed:,.0f} of {achieved:,.0f} records/s while lag did not rise: the stretch is "
            "too short for the job's batches; a longer probe_s is needed"
        )
    fell_behind = rising and (behind or slope.certain)
    if rising and not fell_behind and slope.rps >= (1.0 - SUSTAINED_SHARE) * achieved:
        return invalid(
            f"lag rises by {slope.rps:,.0f} ± {slope.standard_error_rps:,.0f} records/s although "
            f"{processed:,.0f} of {achieved:,.0f} are processed: watch for longer (probe_s)"
        )
    return Result(
        probe=probe,
        verdict="not sustained" if fell_behind else "sustained",
        offered_rps=achieved,
        # What is worked off from an earlier backlog was not kept up with: it is no part of a sustained rate.
        throughput_rps=processed if fell_behind else min(processed, achieved),
        latency_ms=facts.latency_ms,
        standard_error_rps=facts.standard_error_rps,
        executor_seconds=facts.executor_seconds,
        measured_s=facts.measured_s,
    )


def _rate(seen: float | Unknown) -> float:
    return math.nan if isinstance(seen, Unknown) else float(seen)
