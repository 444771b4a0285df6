"""One drill: cause a failure, measure downtime and recovery.

    undisturbed window -> inject -> watch until it has recovered (or `longest_s` is over) -> clear

The failure is cleared in every case, also on Ctrl-C, or after a crash before the next drill. A drill has a
recovery, which may be inf, or it is *invalid* with a reason: a second disturbance, or a source that does not
keep its rate, makes it invalid.

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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any, Literal

import numpy as np

from models.arguments import Array, number
from models.errors import HeadroomError, NotReady
from models.ports import Clock, Failures, Injection, Source
from models.probing import lag_slope
from models.quantities import RecoveryEvent, Unknown, executors
from models.recovery import recovered_at, recovery_band_s

from ..telemetry.timeline import Timeline, Watch

WINDOW_S = 60.0
WINDOW_BATCHES = 10
HOLD_S = 15.0
HOLD_BATCHES = 3
RISING = 0.01  # of the rate: a slower rise adds less than a second in the minute before; judgement
SAMPLE_S = 0.5  # judgement: recoveries are compared to 15 % of 20 s
LONGEST_S = 600.0  # judgement: three times the default target
SHORT_SHARE = 0.97  # of the rate, below which the source was short; judgement
QUICK = ("executor_kill", "broker_restart")  # may pass unnoticed between two looks
PHASES = ("detection_s", "restart_s", "state_load_s", "first_batch_s")
UNREPORTED = "when the first batch began was not reported"
LONGEST_WINDOW = 5  # times the shortest window until ten batches must have been committed; judgement


def not_reported(batch: int) -> Unknown:
    """For jobs that do not report when a batch began."""
    return Unknown("batches are not reported")


@dataclass(frozen=True)
class Settings:
    """How a drill is run and judged."""

    max_lag_s: float
    trigger_s: float = 0.0
    longest_s: float = LONGEST_S
    recorded: Mapping[str, str] = field(default_factory=dict)
    """What must be known to compare drills: Spark's time-outs above all."""

    def __post_init__(self) -> None:
        for name in ("max_lag_s", "longest_s"):
            number(f"drill.{name}", getattr(self, name), above=0.0)


@dataclass(frozen=True)
class Outcome:
    """One drill. `event` is what the models learn from; an invalid drill has none."""

    kind: str
    scale_out: int
    rate_rps: float | Unknown
    event: RecoveryEvent | Unknown
    details: Mapping[str, Any]
    not_cleared: HeadroomError | None = None
    """Why the failure could not be put right: to be raised as soon as the drill is kept."""

    @property
    def valid(self) -> bool:
        return not isinstance(self.event, Unknown)


@dataclass(frozen=True)
class Undisturbed:
    """State of a job before its failure."""

    rate_rps: float
    largest_lag_s: float
    lag_records: float
    """On average, right after a commit and right before one alike."""
    batch_s: float
    band_s: float
    hold_s: float


@dataclass
class Marks:
    """Moments of a recovery, as far as they were seen."""

    noticed_s: float | None = None
    """The failure was noticed: the driver is gone, the executor is lost."""
    back_s: float | None = None
    """Driver and executors are there again."""
    first_batch_began_s: float | None = None
    """The batch that was committed first had begun."""


@dataclass
class DrillRun:
    """One drill on a job that runs at its rate and has been warmed up."""

    watch: Watch
    kind: str
    on: Literal["copy", "live"] = field(kw_only=True)
    failures: Failures = field(kw_only=True)
    clock: Clock = field(kw_only=True)
    settings: Settings = field(kw_only=True)
    source: Source | None = None
    """Of a copy; the input of the live job is what it is."""
    batch_began_s: Callable[[int], float | Unknown] = not_reported
    """Number of a batch -> when it began, by the job's own reports."""
    may_cause: Callable[[str], None] = lambda kind: None
    """Raises where a failure of this kind must not be caused at this moment."""
    left_s: Callable[[], float] = lambda: inf
    """Until the budget ends."""
    say: Callable[[str], None] = lambda line: None
    """Gets a line for each step."""
    marks: Marks = field(default_factory=Marks)
    failed_s: float = inf

    def run(self) -> Outcome:
        clear_left_over(self.failures)
        self.say(f"{self.watch.name}: undisturbed for {WINDOW_S:.0f} s at least")
        before = self._wait_undisturbed()
        if isinstance(before, str):
            return self._invalid(before, Unknown("the rate before the failure is unknown"), {})
        try:
            outcome = self._hurt(before)
        except BaseException:
            self._clear()
            raise
        try:
            self._clear()
        except HeadroomError as problem:  # what was measured by then stands
            return replace(outcome, not_cleared=problem)
        return outcome

    def _hurt(self, before: Undisturbed) -> Outcome:
        run_id = self.watch.status.run_id
        try:
            self.may_cause(self.kind)
            injection = self.failures.inject(self.watch.name, self.kind)
        except NotReady as error:
            return self._invalid(f"the failure could not be caused: {error}", before.rate_rps, {})
        self.failed_s = injection.at_s
        try:
            problem = self._observe(before, run_id, injection)
        except NotReady as error:
            problem = f"its recovery could not be followed: {error}"
        return self._judge(before, injection, problem)

    def _wait_undisturbed(self) -> Undisturbed | str:
        timeline, start_s = self.watch.timeline, self.clock.now_s()
        while True:
            self._pass()
            now_s = self.clock.now_s()
            if doubt := self.watch.doubt(start_s):
                return f"the job was disturbed before the failure: {doubt}"
            if handled := self._handled():
                return f"{handled} before the failure"
            if self.left_s() <= 0.0:
                return "the budget ended before the failure was caused"
            batches = len(timeline.commits(start_s, now_s))
            if now_s - start_s >= WINDOW_S and batches >= WINDOW_BATCHES:
                break
            if now_s - start_s >= LONGEST_WINDOW * WINDOW_S:
                return f"only {batches} batches were committed in {now_s - start_s:.0f} s before the failure"
        return undisturbed(
            timeline,
            start_s,
            now_s,
            trigger_s=self.settings.trigger_s,
            max_lag_s=self.settings.max_lag_s,
        )

    def _observe(self, before: Undisturbed, run_id: str | Unknown, injection: Injection) -> str:
        """Sample until the job has recovered or is given up. Returns why the drill is invalid, or nothing."""
        works = False
        self.say(
            f"{self.kind} caused: it has recovered when its lag stays below {before.band_s:.1f} s of input "
            f"for {before.hold_s:.0f} s"
        )
        while self.clock.now_s() - self.failed_s < self.settings.longest_s:
            self._pass()
            self._mark(run_id)
            if not works and self.marks.noticed_s is not None and isfinite(self._downtime_s()):
                works = True
                self.say(f"it works again after {self._downtime_s():.1f} s, and catches up")
            if disturbed := self._disturbed(injection):
                return disturbed
            if self._is_over(before):
                break
            if self.left_s() <= 0.0:
                return "the budget ended before it had recovered"
        return ""

    def _disturbed(self, injection: Injection) -> str:
        """What else has happened since the failure; nothing where the job was left alone with it."""
        active = self.failures.active()
        if injection.id not in [one.id for one in active]:
            return "the failure was cleared from elsewhere before the job had recovered"
        for other in active:  # one of the broker hits every job
            here = other.kind == "broker_restart" or other.deployment == self.watch.name
            if here and other.id != injection.id and other.at_s > injection.at_s:
                return f"another failure was caused meanwhile: {other.kind} of {other.deployment}"
        return f"{handled} meanwhile" if (handled := self._handled()) else ""

    def _handled(self) -> str:
        """What was done to the job itself meanwhile: it is then another one than the drill began with."""
        status = self.watch.status
        if status.state == "stopped":
            return "the job was stopped"
        declared = status.declared_scale_out
        if isinstance(declared, Unknown) or declared == self.watch.scale_out:
            return ""
        return f"the job was rescaled to {executors(declared)}"

    def _is_over(self, before: Undisturbed) -> bool:
        if self.clock.now_s() - self.failed_s < before.hold_s:
            return False
        # A lag that has not left its band yet looks recovered from the first moment on: it is not over until
        # the failure was noticed, or a batch was done in spite of it.
        noticed = self.marks.noticed_s is not None or self.kind in QUICK
        return noticed and isfinite(self._recovery_s(before)) and isfinite(self._downtime_s())

    def _mark(self, run_id: str | Unknown) -> None:
        now_s, watch, marks = self.clock.now_s(), self.watch, self.marks
        status = watch.status
        alive = status.state == "running" and status.executors_alive == watch.scale_out
        if self.kind.startswith("driver_"):
            known = not isinstance(status.run_id, Unknown)
            noticed = status.state != "running" or (known and status.run_id != run_id)
            back = alive and known and status.run_id != run_id
        elif self.kind.startswith("executor_"):
            noticed, back = bool(watch.doubt(self.failed_s)), alive
        else:
            gaps = watch.timeline.gaps
            noticed = bool(watch.doubt(self.failed_s))
            back = alive and (not gaps or gaps[-1].at_s < now_s)
        if noticed and marks.noticed_s is None:
            marks.noticed_s = now_s
        if marks.noticed_s is not None and marks.back_s is None and back:
            marks.back_s = now_s

    def _clear(self) -> None:
        mine = [one for one in self.failures.active() if one.deployment == self.watch.name]
        clear_each(mine, self.failures.clear)

    def _judge(self, before: Undisturbed, injection: Injection, problem: str) -> Outcome:
        failed_s, now_s = injection.at_s, self.clock.now_s()
        down_s, back_s = self._downtime_s(), self._recovery_s(before)
        lag = self.watch.timeline.lag_s(failed_s, now_s, arrival_rps=before.rate_rps)
        first = self.watch.timeline.first_commit_after(failed_s)
        if not isinstance(first, Unknown) and isinstance(first.batch, int):
            began = self.batch_began_s(first.batch)
            self.marks.first_batch_began_s = None if isinstance(began, Unknown) else began
        details: dict[str, Any] = {
            "schema": 1,
            "on": self.on,
            "deployment": self.watch.name,
            "victim": injection.victim,
            "rate_rps": before.rate_rps,
            "lag_before_records": before.lag_records,
            "largest_lag_before_s": before.largest_lag_s,
            "batch_s": before.batch_s,
            "band_s": before.band_s,
            "hold_s": before.hold_s,
            "sample_s": SAMPLE_S,
            "longest_s": self.settings.longest_s,
            "downtime": phases(self.marks, failed_at_s=failed_s, downtime_s=down_s),
            "peak_lag_s": max((float(one) for one in lag if one == one), default=inf),
            "recorded": dict(self.settings.recorded),
        }
        contradicted = contradiction(
            before, downtime_s=down_s, recovery_s=back_s, peak_lag_s=details["peak_lag_s"]
        )
        if reason := problem or self._source_was_short(before, failed_s, now_s) or contradicted:
            return self._invalid(reason, before.rate_rps, details)
        event = RecoveryEvent(self.kind, self.watch.scale_out, failed_s, down_s, back_s)
        return Outcome(self.kind, self.watch.scale_out, before.rate_rps, event, details)

    def _source_was_short(self, before: Undisturbed, failed_s: float, now_s: float) -> str:
        arrived = self.watch.timeline.arrival_rps(failed_s, now_s, clip=True)
        if self.source is None:
            return ""
        if isinstance(arrived, Unknown):
            return f"the input after the failure is unknown: {arrived.reason}"
        if arrived < SHORT_SHARE * before.rate_rps:
            return (
                f"the source was short: {arrived:,.0f} of {before.rate_rps:,.0f} records/s after the failure"
            )
        return ""

    def _recovery_s(self, before: Undisturbed) -> float:
        now_s = self.clock.now_s()
        return recovery_s(self.watch.timeline, before, failed_at_s=self.failed_s, until_s=now_s)

    def _downtime_s(self) -> float:
        return downtime_s(self.watch.timeline, failed_at_s=self.failed_s)

    def _pass(self) -> None:
        self.clock.sleep(SAMPLE_S)
        self.watch.look(self.clock.now_s())

    def _invalid(self, reason: str, rate: float | Unknown, details: Mapping[str, Any]) -> Outcome:
        return Outcome(self.kind, self.watch.scale_out, rate, Unknown(reason), details)


# --------------------------------------------------------------------------------------------- figures


def undisturbed(
    timeline: Timeline, start_s: float, end_s: float, *, trigger_s: float, max_lag_s: float
) -> Undisturbed | str:
    """State of the job before the failure, or why a drill would be invalid."""
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
        return f"it is not known whether lag was rising: {slope.reason}"
    if slope.above_zero and slope.rps > RISING * rate:
        return f"lag was rising before the failure, by {slope.rps:,.0f} records/s at {rate:,.0f} records/s"
    batch_s = timeline.batch_s(start_s, end_s)
    return normal(lag, rate_rps=rate, batch_s=batch_s, trigger_s=trigger_s, max_lag_s=max_lag_s)


def normal(
    lag_s: Array,
    *,
    rate_rps: float,
    batch_s: float,
    trigger_s: float,
    max_lag_s: float,
    sample_s: float = SAMPLE_S,
) -> Undisturbed:
    """Band and hold of a job with this lag before its failure."""
    # Two batches where they come back to back, two triggers where those are longer.
    largest, least_s = float(lag_s.max()), max(trigger_s, batch_s)
    band_s = float(recovery_band_s(largest, trigger_s=least_s, longest_s=max_lag_s, sample_s=sample_s))
    return Undisturbed(
        rate_rps=rate_rps,
        largest_lag_s=largest,
        lag_records=float(np.mean(lag_s)) * rate_rps,
        batch_s=batch_s,
        band_s=band_s,
        hold_s=max(HOLD_S, HOLD_BATCHES * least_s, band_s + sample_s),
    )


def recovery_s(timeline: Timeline, before: Undisturbed, *, failed_at_s: float, until_s: float) -> float:
    """Failure -> lag back in its band to stay; inf when that was not seen. Unseen is outside."""
    times = timeline.times_s(failed_at_s, until_s)
    lag = timeline.lag_s(failed_at_s, until_s, arrival_rps=before.rate_rps)
    missed = np.asarray([gap.at_s for gap in timeline.gaps if failed_at_s <= gap.at_s <= until_s])
    times = np.concatenate([times, missed])
    lag = np.concatenate([np.where(np.isnan(lag), inf, lag), np.full(missed.size, inf)])
    times, first = np.unique(times, return_index=True)
    if not times.size:
        return inf
    band_s, hold_s = before.band_s, before.hold_s
    return (
        recovered_at(times, lag[first], failed_at_s=failed_at_s, band_s=band_s, hold_s=hold_s) - failed_at_s
    )


def downtime_s(timeline: Timeline, *, failed_at_s: float) -> float:
    """Failure -> first new commit; inf when there was none."""
    first = timeline.first_commit_after(failed_at_s)
    return inf if isinstance(first, Unknown) else first.at_s - failed_at_s


def contradiction(before: Undisturbed, *, downtime_s: float, recovery_s: float, peak_lag_s: float) -> str:
    """Why it is not known when this job had recovered; empty where it is, also of a lag within its band."""
    if recovery_s >= downtime_s or peak_lag_s <= before.band_s:
        return ""
    return (
        f"lag was back in its band of {before.band_s:.1f} s after {recovery_s:.1f} s, before the first new "
        f"commit after {downtime_s:.1f} s, and yet reached {peak_lag_s:.1f} s: the batches before the "
        "failure were too uneven to say when it had recovered"
    )


def phases(marks: Marks, *, failed_at_s: float, downtime_s: float) -> dict[str, float | str]:
    """The parts of a downtime, which add up to the whole; a reason where a part was not seen.

    A moment after the first commit was not part of it: work went on without.
    """
    if not isfinite(downtime_s):
        return dict.fromkeys(PHASES, "no batch was committed any more")

    def within(moment_s: float | None, least_s: float) -> float:
        return downtime_s if moment_s is None else min(max(moment_s - failed_at_s, least_s), downtime_s)

    noticed = within(marks.noticed_s, 0.0)
    back = within(marks.back_s, noticed)
    began = within(marks.first_batch_began_s, back)
    parts: list[float | str] = [noticed, back - noticed, began - back, downtime_s - began]
    if marks.first_batch_began_s is None:
        parts[2:] = [UNREPORTED, UNREPORTED if back < downtime_s else 0.0]
    return dict(zip(PHASES, parts, strict=True))


# -------------------------------------------------------------------------------------------- clearing


def clear_each(injections: Iterable[Injection], clear: Callable[[str], None]) -> None:
    """Clear all failures; the first problem is raised when all were tried."""
    problems: list[HeadroomError] = []
    for injection in injections:
        try:
            clear(injection.id)
        except HeadroomError as error:
            problems.append(error)
    if problems:
        raise problems[0]


def clear_left_over(failures: Failures) -> tuple[Injection, ...]:
    """Clear what a crash of Headroom has left; what another drill has in hand is its own to clear."""
    left = failures.left_over()
    clear_each(left, failures.clear)
    return left
