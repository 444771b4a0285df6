"""How long does this job really take to come back, when this happens to it?

    undisturbed window -> inject -> watch until it has recovered (or `longest_s` is over) -> clear

Cleared in every case, also on Ctrl-C; what a crash of ours has left is cleared before the next drill begins.
A drill has a recovery, which may be inf, or it is *invalid* with a reason. Nothing else happens to the job
meanwhile: a second disturbance, or a source that does not keep its rate, makes it invalid.

How are failures put right again, whatever is the matter with one of them?

An executor that is frozen must not stay so because the broker does not start: every failure is tried, and
what went wrong is raised after the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any, Literal

from models.arguments import number
from models.errors import HeadroomError, Misconfigured, NotReady
from models.ports import Clock, Failures, Injection, Source
from models.quantities import FAILURE_KINDS, RecoveryEvent, Unknown, executors

from ..telemetry.watching import Watch
from . import drill_figures
from .drill_figures import WINDOW_BATCHES, WINDOW_S, Marks, Undisturbed


def clear_each(injections: Iterable[Injection], clear: Callable[[str], None]) -> None:
    """All of them; the first problem is raised when all were tried."""
    problems: list[HeadroomError] = []
    for injection in injections:
        try:
            clear(injection.id)
        except HeadroomError as error:
            problems.append(error)
    if problems:
        raise problems[0]


def clear_left_over(failures: Failures) -> tuple[Injection, ...]:
    """Clear what a crash of ours has left; what another drill has in hand is its own to clear."""
    left = failures.left_over()
    clear_each(left, failures.clear)
    return left


SAMPLE_S = 0.5  # judgement: recoveries are compared to 15 % of 20 s
LONGEST_S = 600.0  # judgement: three times the default target
SHORT_SHARE = 0.97  # of the rate, below which the source was short; judgement
LONGEST_WINDOW = 5  # times the shortest window until ten batches must have been committed; judgement


@dataclass(frozen=True)
class Settings:
    """How a drill is run and judged."""

    max_lag_s: float
    trigger_s: float = 0.0
    sample_s: float = SAMPLE_S
    longest_s: float = LONGEST_S
    window_s: float = WINDOW_S
    recorded: Mapping[str, str] = field(default_factory=dict)
    """What must be known to compare drills: Spark's time-outs above all."""

    def __post_init__(self) -> None:
        for name in ("max_lag_s", "sample_s", "longest_s", "window_s"):
            number(f"drill.{name}", getattr(self, name), above=0.0)


@dataclass(frozen=True)
class Subject:
    """The job that is hurt: a copy with its source, or the live job, whose input is what it is."""

    job: str
    watch: Watch
    on: Literal["copy", "live"]
    source: Source | None = None
    batch_began_s: Callable[[int], float | Unknown] = lambda batch: Unknown("batches are not reported")
    """Number of a batch -> when it began, from the job's own reports."""


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
        """Whether it shows anything."""
        return not isinstance(self.event, Unknown)


def run(
    subject: Subject,
    kind: str,
    *,
    failures: Failures,
    clock: Clock,
    settings: Settings,
    left_s: Callable[[], float] = lambda: inf,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """One drill on a job that runs at its rate and has been warmed up. `left_s`: until its budget ends.

    `say` gets a line for each step.
    """
    if kind not in failures.kinds():
        there = ", ".join(sorted(failures.kinds()))
        what = "cannot be caused here" if kind in FAILURE_KINDS else "is no kind of failure"
        raise Misconfigured("kind", f"'{kind}' {what}; there is {there}")
    clear_left_over(failures)
    return _Drill(subject, kind, failures, clock, settings, left_s, say).run()


class _Drill:
    def __init__(
        self,
        subject: Subject,
        kind: str,
        failures: Failures,
        clock: Clock,
        settings: Settings,
        left_s: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._subject, self._kind, self._failures = subject, kind, failures
        self._clock, self._settings, self._left_s, self._say = clock, settings, left_s, say
        self._watch = subject.watch
        self._marks = Marks()
        self._failed_s = inf

    def run(self) -> Outcome:
        self._say(f"{self._watch.name}: undisturbed for {self._settings.window_s:.0f} s at least")
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
        run_id = self._watch.status.run_id
        try:
            injection = self._failures.inject(self._watch.name, self._kind)
            self._failed_s = injection.at_s
            problem = self._observe(before, run_id, injection)
        except NotReady as error:
            return self._invalid(f"the failure could not be caused: {error}", before.rate_rps, {})
        return self._judge(before, injection, problem)

    def _wait_undisturbed(self) -> Undisturbed | str:
        timeline, start_s = self._watch.timeline, self._clock.now_s()
        while True:
            self._pass()
            now_s = self._clock.now_s()
            if doubt := self._watch.doubt(start_s):
                return f"the job was disturbed before the failure: {doubt}"
            if handled := self._handled():
                return f"{handled} before the failure"
            if self._left_s() <= 0.0:
                return "the budget ended before the failure was caused"
            batches = len(timeline.commits(start_s, now_s))
            if now_s - start_s >= self._settings.window_s and batches >= WINDOW_BATCHES:
                break
            if now_s - start_s >= LONGEST_WINDOW * self._settings.window_s:
                return f"only {batches} batches were committed in {now_s - start_s:.0f} s before the failure"
        return drill_figures.undisturbed(
            timeline,
            start_s,
            now_s,
            sample_s=self._settings.sample_s,
            trigger_s=self._settings.trigger_s,
            max_lag_s=self._settings.max_lag_s,
        )

    def _observe(self, before: Undisturbed, run_id: str | Unknown, injection: Injection) -> str:
        """Until it has recovered, or is given up; why it shows nothing, or nothing."""
        failed_s, works = self._failed_s, False
        self._say(
            f"{self._kind} caused: it has recovered when its lag stays below {before.band_s:.1f} s of input "
            f"for {before.hold_s:.0f} s"
        )
        while self._clock.now_s() - failed_s < self._settings.longest_s:
            self._pass()
            self._mark(run_id)
            if not works and self._marks.noticed_s is not None and isfinite(self._downtime_s(failed_s)):
                works = True
                self._say(f"it works again after {self._downtime_s(failed_s):.1f} s, and catches up")
            if disturbed := self._disturbed(injection):
                return disturbed
            if self._is_over(before):
                break
            if self._left_s() <= 0.0:
                return "the budget ended before it had recovered"
        return ""

    def _disturbed(self, injection: Injection) -> str:
        """What else has happened since the failure; nothing where the job was left alone with it."""
        active = self._failures.active()
        if injection.id not in [one.id for one in active]:
            return "somebody else has cleared the failure before the job had recovered"
        for other in active:  # one of the broker hits every job
            here = other.kind == "broker_restart" or other.deployment == self._watch.name
            if here and other.id != injection.id and other.at_s > injection.at_s:
                return f"another failure was caused meanwhile: {other.kind} of {other.deployment}"
        return f"{handled} meanwhile" if (handled := self._handled()) else ""

    def _handled(self) -> str:
        """What somebody has done to the job itself, which is then another one than the drill began with."""
        status = self._watch.status
        if status.state == "stopped":
            return "the job was stopped"
        declared = status.declared_scale_out
        if isinstance(declared, Unknown) or declared == self._watch.scale_out:
            return ""
        return f"the job was rescaled to {executors(declared)}"

    def _is_over(self, before: Undisturbed) -> bool:
        failed_s = self._failed_s
        if self._clock.now_s() - failed_s < before.hold_s:
            return False
        # A lag that has not left its band yet looks recovered from the first moment on: until somebody
        # has noticed the failure, or a batch was done in spite of it, it is not over.
        noticed = self._marks.noticed_s is not None or self._quick
        back_s = self._recovery_s(before, failed_s)
        return noticed and isfinite(back_s) and isfinite(self._downtime_s(failed_s))

    @property
    def _quick(self) -> bool:
        """Kinds that may pass unnoticed between two looks."""
        return self._kind in ("executor_kill", "broker_restart")

    def _mark(self, run_id: str | Unknown) -> None:
        now_s, watch, marks = self._clock.now_s(), self._watch, self._marks
        status = watch.status
        alive = status.state == "running" and status.executors_alive == watch.scale_out
        if self._kind.startswith("driver_"):
            known = not isinstance(status.run_id, Unknown)
            noticed = status.state != "running" or (known and status.run_id != run_id)
            back = alive and known and status.run_id != run_id
        elif self._kind.startswith("executor_"):
            noticed, back = bool(watch.doubt(self._failed_s)), alive
        else:
            gaps = watch.timeline.gaps
            noticed = bool(watch.doubt(self._failed_s))
            back = alive and (not gaps or gaps[-1].at_s < now_s)
        if noticed and marks.noticed_s is None:
            marks.noticed_s = now_s
        if marks.noticed_s is not None and marks.back_s is None and back:
            marks.back_s = now_s

    def _clear(self) -> None:
        mine = [one for one in self._failures.active() if one.deployment == self._watch.name]
        clear_each(mine, self._failures.clear)

    def _judge(self, before: Undisturbed, injection: Injection, problem: str) -> Outcome:
        failed_s, now_s = injection.at_s, self._clock.now_s()
        down_s, back_s = self._downtime_s(failed_s), self._recovery_s(before, failed_s)
        first = self._watch.timeline.first_commit_after(failed_s)
        if not isinstance(first, Unknown) and isinstance(first.batch, int):
            began = self._subject.batch_began_s(first.batch)
            self._marks.first_batch_began_s = None if isinstance(began, Unknown) else began
        details: dict[str, Any] = {
            "schema": 1,
            "on": self._subject.on,
            "deployment": self._watch.name,
            "victim": injection.victim,
            "rate_rps": before.rate_rps,
            "lag_before_records": before.lag_records,
            "largest_lag_before_s": before.largest_lag_s,
            "batch_s": before.batch_s,
            "band_s": before.band_s,
            "hold_s": before.hold_s,
            "sample_s": self._settings.sample_s,
            "longest_s": self._settings.longest_s,
            "downtime": drill_figures.phases(self._marks, failed_at_s=failed_s, downtime_s=down_s).to_json(),
            "peak_lag_s": self._peak_lag_s(before, failed_s, now_s),
            "recorded": dict(self._settings.recorded),
        }
        contradicted = drill_figures.contradiction(
            before, downtime_s=down_s, recovery_s=back_s, peak_lag_s=details["peak_lag_s"]
        )
        if reason := problem or self._source_was_short(before, failed_s, now_s) or contradicted:
            return self._invalid(reason, before.rate_rps, details)
        event = RecoveryEvent(self._kind, self._watch.scale_out, failed_s, down_s, back_s)
        return Outcome(self._kind, self._watch.scale_out, before.rate_rps, event, details)

    def _source_was_short(self, before: Undisturbed, failed_s: float, now_s: float) -> str:
        arrived = self._watch.timeline.arrival_rps(failed_s, now_s, clip=True)
        if self._subject.source is None:
            return ""
        if isinstance(arrived, Unknown):
            return f"the input after the failure is unknown: {arrived.reason}"
        if arrived < SHORT_SHARE * before.rate_rps:
            return (
                f"the source was short: {arrived:,.0f} of {before.rate_rps:,.0f} records/s after the failure"
            )
        return ""

    def _recovery_s(self, before: Undisturbed, failed_s: float) -> float:
        return drill_figures.recovery_s(
            self._watch.timeline, before, failed_at_s=failed_s, until_s=self._clock.now_s()
        )

    def _downtime_s(self, failed_s: float) -> float:
        return drill_figures.downtime_s(self._watch.timeline, failed_at_s=failed_s)

    def _peak_lag_s(self, before: Undisturbed, failed_s: float, now_s: float) -> float:
        lag = self._watch.timeline.lag_s(failed_s, now_s, arrival_rps=before.rate_rps)
        known = [float(one) for one in lag if one == one]
        return max(known, default=inf)

    def _pass(self) -> None:
        self._clock.sleep(self._settings.sample_s)
        self._watch.look(self._clock.now_s())

    def _invalid(self, reason: str, rate: float | Unknown, details: Mapping[str, Any]) -> Outcome:
        return Outcome(self._kind, self._watch.scale_out, rate, Unknown(reason), details)
