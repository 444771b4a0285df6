"""A probe, its result, and the verdict on what was seen.

A probe is a scale-out, a rate and a time. *Sustained* makes its rate a lower bound of the capacity, *not
sustained* makes what was processed an estimate of it, *invalid* has a reason but no value. With offered rate
λ (what the source really emitted), processed rate μ and lag L(t):

    valid          λ >= 99 % of the rate commanded, warm-up over, no restart, and the counts add up:
                   dL/dt = λ - μ within the tolerance
    not sustained  dL/dt above zero, and μ < 99 % of λ or no doubt about the rise
    sustained      μ >= 99 % of λ, and dL/dt not above zero, or in doubt and below 1 % of λ
    undecided      the one without the other: invalid, and to be watched for longer

dL/dt is the least-squares slope of the lag samples, above zero by a one-sided t-test at 5 %, and at 0.1 %
where nothing else confirms it: of a job at ease with uneven batches the former alone would call two probes in
a hundred not sustained (simulated; with this rule one in two hundred). Lag under micro-batches is a saw, so
its samples are not independent: n is reduced to n (1 - r) / (1 + r), r the lag-1 correlation of the
residuals.

Processed records arrive a batch at a time; counted between two commits, no batch is cut at the edges. A
source that never left its start rate makes a job look saturated: such a probe has no value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..arguments import number, numbers, whole
from ..quantities import Measurement, Misuse, Unknown

FEWEST_COMMITS = 4  # three whole batches: of fewer, one slow batch is the rate; judgement
SLOPE_ERROR = 0.05  # false alarms of the slope test; judgement
CERTAIN_ERROR = 0.001  # where nothing confirms the slope: a search is some dozens of probes; judgement
FEWEST_LAG_SAMPLES = 8  # a slope from fewer says nothing once its samples are correlated; judgement


@dataclass(frozen=True)
class Slope:
    """How fast the lag changes, and whether that is above zero by the test."""

    rps: float
    standard_error_rps: float
    above_zero: bool
    certain: bool
    """The same beyond doubt."""
    edge_rps: float
    """The largest batch over the stretch: by so much a rate is off that was not counted between commits."""


def processed_rps(commit_times_s: Sequence[float], committed_records: Sequence[float]) -> float | Unknown:
    """Records/s from the first to the last commit of a stretch; `committed_records` are cumulated."""
    times = numbers("commit_times_s", commit_times_s)
    committed = numbers("committed_records", committed_records, at_least=0.0)
    if times.shape != committed.shape or times.ndim != 1:
        raise Misuse(
            "committed_records", f"needs one value per time, got {committed.shape} for {times.shape}"
        )
    if times.size < FEWEST_COMMITS:
        return Unknown(f"only {times.size} commits in the stretch; {FEWEST_COMMITS} are needed for a rate")
    if bool((np.diff(times) < 0.0).any()) or bool((np.diff(committed) < 0.0).any()):
        return Unknown("commits or their times went backwards")
    if times[-1] <= times[0]:
        return Unknown("all commits carry the same time")
    return float((committed[-1] - committed[0]) / (times[-1] - times[0]))


def lag_slope(times_s: Sequence[float], lag_records: Sequence[float]) -> Slope | Unknown:
    """Least-squares slope of the lag, with a one-sided t-test on as many samples as are independent."""
    from scipy.special import stdtrit

    times, lag = (
        numbers("lag_times_s", times_s, missing_allowed=True),
        numbers("lag_records", lag_records, missing_allowed=True),
    )
    if times.shape != lag.shape or times.ndim != 1:
        raise Misuse("lag_records", f"needs one value per time, got {lag.shape} for {times.shape}")
    seen = np.isfinite(times) & np.isfinite(lag)
    times, lag = times[seen], lag[seen]
    n = times.size
    if n < FEWEST_LAG_SAMPLES:
        return Unknown(f"only {n} lag samples; {FEWEST_LAG_SAMPLES} are needed to tell whether lag rises")
    order = np.argsort(times, kind="stable")
    times, lag = times[order] - times.mean(), lag[order]
    spread = float(times @ times)
    if spread <= 0.0:
        return Unknown("all lag samples carry the same time")
    slope = float(times @ lag) / spread
    rest = lag - lag.mean() - slope * times
    power = float(rest @ rest)
    correlation = float(rest[1:] @ rest[:-1]) / power if power > 0.0 else 0.0
    correlation = min(max(correlation, 0.0), 0.99)
    independent = max(3.0, n * (1.0 - correlation) / (1.0 + correlation))
    error = math.sqrt(power / n * independent / (independent - 2.0) / (spread * independent / n))

    def above(error_share: float) -> bool:
        return slope > max(0.0, error * float(stdtrit(independent - 2.0, 1.0 - error_share)))

    edge = max(0.0, -float(np.diff(lag).min())) / float(times[-1] - times[0])
    return Slope(
        rps=slope,
        standard_error_rps=error,
        above_zero=above(SLOPE_ERROR),
        certain=above(CERTAIN_ERROR),
        edge_rps=edge,
    )


Verdict = Literal["sustained", "not sustained", "invalid"]
VERDICTS: tuple[Verdict, ...] = ("sustained", "not sustained", "invalid")

CLEARLY = 0.95  # processed of offered, below which a shortfall cannot be a probe's noise alone; judgement


@dataclass(frozen=True)
class Probe:
    """Run the job at this scale-out under this rate: warm up, then watch for `probe_s`."""

    number: int
    scale_out: int
    rate_rps: float
    warm_up_s: float
    probe_s: float
    attempt: int = 1

    def __post_init__(self) -> None:
        whole("Probe.number", self.number, at_least=0)
        whole("Probe.scale_out", self.scale_out)
        whole("Probe.attempt", self.attempt)
        number("Probe.rate_rps", self.rate_rps, above=0.0)
        number("Probe.warm_up_s", self.warm_up_s, at_least=0.0)
        number("Probe.probe_s", self.probe_s, above=0.0)

    @property
    def executor_seconds(self) -> float:
        """Its planned cost: executors × (warm-up + watching)."""
        return self.scale_out * (self.warm_up_s + self.probe_s)


@dataclass(frozen=True)
class Result:
    """What a probe has shown. An invalid one carries a reason and no throughput."""

    probe: Probe
    verdict: Verdict
    offered_rps: float | None = None
    throughput_rps: float | None = None
    latency_ms: float | None = None
    executor_seconds: float | None = None
    """What it really cost, where that is known; otherwise what the probe was planned to cost."""
    measured_s: float | None = None
    """How long the stretch was, where that is known."""
    reason: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise Misuse("Result.verdict", f"must be one of {', '.join(VERDICTS)}, got {self.verdict!r}")
        for name in (
            "offered_rps",
            "latency_ms",
            "executor_seconds",
            "throughput_rps",
            "measured_s",
        ):
            if (value := getattr(self, name)) is not None:
                number(f"Result.{name}", value, at_least=0.0)
        if self.verdict == "invalid":
            if self.throughput_rps is not None:
                raise Misuse("Result.throughput_rps", "an invalid probe has no throughput")
            if not self.reason:
                raise Misuse("Result.reason", "an invalid probe needs a reason")
        elif self.throughput_rps is None or self.throughput_rps <= 0.0:
            raise Misuse("Result.throughput_rps", f"a {self.verdict} probe needs one above 0")

    @property
    def valid(self) -> bool:
        return self.verdict != "invalid"

    @property
    def sustained(self) -> bool:
        return self.verdict == "sustained"

    @property
    def clear(self) -> bool:
        """Whether the job fell short by more than noise explains."""
        return self.verdict == "not sustained" and self.value_rps <= CLEARLY * self.rate_rps

    @property
    def value_rps(self) -> float:
        """The rate this probe stands for: kept up with, or the most that was processed."""
        if self.throughput_rps is None:
            raise Misuse("Result", f"an invalid probe has no value ({self.reason})")
        return self.throughput_rps

    @property
    def rate_rps(self) -> float:
        """What was really offered, where that is known; otherwise what was asked for."""
        return self.probe.rate_rps if self.offered_rps is None else self.offered_rps

    @property
    def cost(self) -> float:
        return self.probe.executor_seconds if self.executor_seconds is None else self.executor_seconds

    @property
    def duration_s(self) -> float:
        """For how long it was watched: twice as long as planned where the first half decided nothing."""
        return self.probe.probe_s if self.measured_s is None else self.measured_s

    @property
    def measurement(self) -> Measurement:
        """What a valid probe has measured, as the models take it."""
        return Measurement(
            scale_out=self.probe.scale_out,
            offered_rps=self.rate_rps,
            throughput_rps=self.value_rps,
            sustained=self.sustained,
            latency_ms=self.latency_ms,
            duration_s=self.duration_s,
            executor_seconds=self.cost,
        )


SUSTAINED_SHARE = 0.99  # processed of offered: StreamBed §4.2, mean_threshold of its code
REACHED_SHARE = 0.99  # achieved of commanded: below it the sustained test could not be passed by any job
SLOPE_IMMATERIAL = 0.001  # of the offered rate: a tenth of the 1 % bracket; judgement
COUNTS_DISAGREE = 0.02  # of the offered rate: twice what the verdict turns on; judgement


@dataclass(frozen=True)
class Facts:
    """What was seen in the measured stretch of one probe."""

    achieved_rps: float | Unknown
    processed_rps: float | Unknown
    """Best counted from commit to commit (`processed_rps`): half a batch may turn the verdict."""
    lag_times_s: Sequence[float]
    lag_records: Sequence[float]
    warm_up_over: bool
    restarted: bool
    latency_ms: float | None = None
    executor_seconds: float | None = None
    measured_s: float | None = None
    """How long the stretch was, where it was not as planned."""


def judge(probe: Probe, facts: Facts) -> Result:
    """The verdict: the job kept up, did not keep up, or the probe is invalid."""

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
            "a faster source is needed"
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
        # What is worked off from an earlier backlog was not kept up with, and no lag rises where more is
        # processed than arrives: no rate is above what was offered.
        throughput_rps=min(processed, achieved),
        latency_ms=facts.latency_ms,
        executor_seconds=facts.executor_seconds,
        measured_s=facts.measured_s,
    )


def _rate(seen: float | Unknown) -> float:
    return math.nan if isinstance(seen, Unknown) else float(seen)
