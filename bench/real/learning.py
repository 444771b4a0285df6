"""What the control loop learns from failures that nobody has announced.

Every failure is a signal to processes that were found in the process table (`outside.Hand`): the loop has to
name it by its symptoms, as it has to name a failure in production.

    cells      `enrichment`, live, in six situations of tests/stories/test_learning_stories.py: what was
               learnt, under which name, or why nothing, beside what that table says
    stranger   a user's script (`sales`), which Headroom runs and knows no more of than its table in
               headroom.toml: five failures, each timed by an observer that shares no code with Headroom

A failure hits a batch that has just begun. Between two failures the job is calm for three evaluations, which
is what learning needs. Learnt is right where the name is, and downtime and recovery differ from those seen
from outside by at most a fifth, or by at most one second, which samples of every second cannot tell.
No models are needed for any of this, and none are fitted: the size of `enrichment` is pinned, and `sales` is
only observed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from bench import Figure
from models.errors import HeadroomError, NotReady
from models.ports import Directive, Source
from pipelines.server.in_process import InProcessServer
from pipelines.settings.job_plans import BACK_TO_BACK_S
from profiling_jobs.orders import run_order

from . import outside
from .journal import Journal
from .lab import LIVE, PATIENCE_S, SALES, SETTLED_LAG_S, Lab, Lengths
from .report import Report

NAME = "learning"
ASKS = "What is learnt from failures that nobody has announced"
STEADY, CHANGING, OVERLAPPING = "steady", "during a change of its size", "during another recovery"
RESTARTED, IDLE = "just after a restart of Headroom", "without input"
CALM_TICKS = 3
LEAST_S = 25.0  # judgement: until then a frozen process has not been missed
UNNOTICED_S = 60.0  # judgement: what has not shown by then will not
LONGEST_S = 240.0
LATER_S = 60.0
LAUNCH_S, CASE_S = 75.0, 95.0  # judgement, from drills: settling, the failure, and the hold of its recovery


@dataclass(frozen=True)
class Case:
    """One failure of one job."""

    job: str
    kind: str
    when: str = STEADY
    teaches: str = ""
    """The name under which it is learnt; empty: nothing is."""

    @property
    def piece(self) -> str:
        return f"{self.job}: {self.kind} {self.when}"


CELLS = (
    Case(LIVE, "executor_kill", STEADY, teaches="executor_kill"),
    Case(LIVE, "executor_freeze", STEADY, teaches="executor_freeze"),
    Case(LIVE, "executor_kill", OVERLAPPING),
    Case(LIVE, "driver_kill", RESTARTED),
    Case(LIVE, "driver_kill", CHANGING),
    Case(LIVE, "driver_kill", IDLE),  # the last one: its input has ended then
)
STRANGERS = tuple(
    Case(SALES, kind, teaches=kind)
    for kind in ("executor_kill", "executor_freeze", "driver_kill", "driver_freeze", "broker_restart")
)


def seconds(lengths: Lengths) -> float:
    return 2.0 * LAUNCH_S + CASE_S * len(CELLS + STRANGERS)


def run(lab: Lab) -> None:
    if not outside.possible(lab.environment):
        lab.say("there are no processes in this environment that could be seen and hurt from outside")
        return
    for cases, rate_rps in ((CELLS, lab.lengths.live_rps), (STRANGERS, lab.lengths.sales_rps)):
        wanted = [case for case in cases if not lab.journal.has(NAME, case.piece)]
        if wanted:
            with lab.environment.taking_part(), _launched(lab, wanted[0].job, rate_rps) as subject:
                for case in wanted:
                    lab.say(case.piece)
                    row = subject.through(case)
                    lab.say(_line(row))
                    lab.journal.add(NAME, case.piece, row)


@contextmanager
def _launched(lab: Lab, name: str, rate_rps: float) -> Iterator[_Subject]:
    """The live job under its load; everything of it ends again, and what was frozen wakes up."""
    lab.clear()
    here, job = lab.environment, lab.job(name)
    with suppress(HeadroomError):  # of a run that was killed
        here.deployments.stop(name)
    subject = _Subject(lab, name)
    try:
        run_order(subject.server, "launch", name, say=lab.say, sleep=here.clock.sleep)
        subject.source = here.open_source(name, job, f"{name}-input", dict(job.inputs))
        subject.source.set_rate(rate_rps)
        subject.observer.start()
        yield subject
    finally:
        subject.end()


class _Subject:
    """A live job that is evaluated while it is made to fail."""

    source: Source | None = None

    def __init__(self, lab: Lab, name: str) -> None:
        self._lab, self._here, self.name = lab, lab.environment, name
        self._job = lab.job(name)
        self.hand = outside.Hand(self._here)
        self.observer = outside.Observer(self._here, outside.Reader(self._here, lab.plan(name)))
        self.ticks: list[Mapping[str, Any]] = []
        self._interval: int | None = None
        self.pin(self._job.scale_out)
        self.server = self._started()

    def _started(self) -> InProcessServer:
        return InProcessServer(self._here, self._lab.settings, self._lab.folder).start()

    def end(self) -> None:
        """Nothing is frozen any more, and nothing of the job runs."""
        with ExitStack() as stack:  # each of them, whatever becomes of the others
            stack.callback(self._meanwhile, self.server.close)
            stack.callback(self._stop)
            stack.callback(self._meanwhile, self.observer.close)
            if self.source is not None:
                stack.callback(self.source.stop)
            stack.callback(self.hand.heal)

    def _stop(self) -> None:
        clock = self._here.clock
        self._here.store.resume(self.name, who=NAME, why="it is over", now_s=clock.now_s())
        with suppress(HeadroomError):
            run_order(self.server, "stop", self.name, say=self._lab.say, sleep=clock.sleep)

    def _meanwhile(self, close: Callable[[], object]) -> None:
        """Simulated time has to go on for threads that are waited for."""
        closing = threading.Thread(target=close, name="closing")
        closing.start()
        while closing.is_alive():
            self._here.clock.sleep(0.1)

    # ---------------------------------------------------------------------------------- what is done to it

    def pin(self, size: int) -> None:
        """Keep this size, or order it where another one is declared."""
        store, now_s = self._here.store, self._here.clock.now_s()
        store.resume(self.name, who=NAME, why="the next failure", now_s=now_s)
        store.direct(Directive(self.name, "pin", who=NAME, why="sizes stay", since_s=now_s, value=size))

    def restart_server(self) -> None:
        """It has sampled the job for some seconds, and its first evaluation comes some seconds later."""
        clock, every_s = self._here.clock, self._job.evaluation_interval_s
        self._meanwhile(self.server.close)
        self.server = self._started()
        clock.sleep(2.0)
        left_s = every_s - self._now_s % every_s
        if left_s < 0.7 * every_s:
            clock.sleep(left_s + 0.5)
        self._interval = math.floor(self._now_s / every_s)

    def order_change(self) -> None:
        """One executor more, until that is being carried out."""
        self.pin(self._job.scale_out + 1)
        until_s = self._now_s + PATIENCE_S
        while not (self.ticks and self.ticks[-1]["change"]):
            self.step(until_s=until_s)
        self.wait(1.0)

    def kill_driver(self) -> None:
        """Until all executors are there again, and have been seen to be; it has not caught up then."""
        self.hand.strike(self.name, "driver_kill")
        self.wait(2.0)
        until_s = self._now_s + PATIENCE_S
        while not self._is_whole():
            self.step(until_s=until_s)
        self.wait(5.0)

    def stop_input(self) -> None:
        assert self.source is not None
        self.source.stop()
        self._settle(lambda tick: tick["observation"]["lag_records"] == 0)

    # ---------------------------------------------------------------------------------------- what it does

    def through(self, case: Case) -> dict[str, Any]:
        """One failure, from a calm job to the end of its recovery; what was learnt of it."""
        calm_since_s = self._settle(_is_calm)
        first, began_s = len(self.ticks), self._now_s
        prepare = {
            CHANGING: self.order_change,
            OVERLAPPING: self.kill_driver,
            RESTARTED: self.restart_server,
            IDLE: self.stop_input,
        }.get(case.when)
        if prepare is None:
            self.observer.await_batch(patience_s=10.0)
        else:
            prepare()
        try:
            failed_at_s = self.hand.strike(self.name, case.kind)
            self._follow(failed_at_s)
            seen = self._watch_on(failed_at_s, calm_since_s)
        finally:
            self.hand.heal()
        learnt = [
            {"kind": event.kind, "downtime_s": event.downtime_s, "recovery_s": event.recovery_s}
            | {"late_s": event.failed_at_s - failed_at_s}
            for event, details in self._here.store.events(self.name)
            if details.get("learnt_at_s", -math.inf) > began_s
        ]
        if case.when == CHANGING:
            self.pin(self._declared)
        lines = [line for tick in self.ticks[first:] for line in tick["trouble"]]
        return {
            "job": case.job,
            "kind": case.kind,
            "when": case.when,
            "teaches": case.teaches,
            "learnt": learnt,
            "why": [line for line in lines if line.startswith("nothing was learnt")],
            "seen": None if seen is None else {"downtime_s": seen.downtime_s, "recovery_s": seen.recovery_s},
        }

    def step(self, *, until_s: float = math.inf) -> None:
        """One second, and the evaluation that is due in it."""
        if self._now_s > until_s:
            why = self.ticks[-1]["instruction"]["reason"] if self.ticks else "it was never evaluated"
            raise NotReady(f"{self.name} was waited for in vain: {why}")
        self._here.clock.sleep(1.0)
        interval = math.floor(self._now_s / self._job.evaluation_interval_s)
        if interval == self._interval:
            return
        self._interval = interval
        with suppress(NotReady):
            self.ticks.append(self.server.evaluate(self.name))
            if change := self.ticks[-1]["apply"]:
                with suppress(HeadroomError):  # the next tick asks again
                    self.server.begin("apply", self.name, epoch=change["epoch"], to=change["to"])

    def wait(self, seconds: float) -> None:
        """Evaluate meanwhile, too."""
        until_s = self._now_s + seconds
        while self._now_s < until_s:
            self.step()

    def _settle(self, good: Callable[[Mapping[str, Any]], bool]) -> float:
        """Until some evaluations in a row were good; when the first of them was."""
        first, until_s = len(self.ticks), self._now_s + PATIENCE_S
        while not all(map(good, last := self.ticks[first:][-CALM_TICKS:])) or len(last) < CALM_TICKS:
            self.step(until_s=until_s)
        return float(last[0]["at_s"])

    def _follow(self, failed_at_s: float) -> None:
        """Until the loop takes the job for recovered, or has not noticed anything for long."""
        noticed = False
        while (since_s := self._now_s - failed_at_s) < LONGEST_S:
            self.step()
            tick = self.ticks[-1] if self.ticks else {}
            if tick.get("at_s", -math.inf) <= failed_at_s:
                continue
            busy = tick["recovering"] is not None or tick["change"] is not None
            noticed = noticed or tick["recovering"] is not None
            if since_s >= (LEAST_S if noticed else UNNOTICED_S) and not busy:
                return

    def _watch_on(self, failed_at_s: float, calm_since_s: float) -> outside.Seen | None:
        """What the observer has seen, who may see the job recover later than the loop does."""
        until_s = self._now_s + LATER_S
        while True:
            try:
                found = outside.seen(
                    self.observer.batches,
                    self.observer.ends,
                    failed_at_s=failed_at_s,
                    trigger_s=self._job.trigger_s or BACK_TO_BACK_S,
                    calm_since_s=calm_since_s,
                )
            except NotReady:  # without input
                return None
            if math.isfinite(found.recovery_s) or self._now_s > until_s:
                return found
            self.step()

    @property
    def _now_s(self) -> float:
        return self._here.clock.now_s()

    @property
    def _declared(self) -> int:
        found = self._here.deployments.status(self.name).declared_scale_out
        return found if isinstance(found, int) else self._job.scale_out

    def _is_whole(self) -> bool:
        status = self._here.deployments.status(self.name)
        return status.state == "running" and status.executors_alive == status.declared_scale_out


def _is_calm(tick: Mapping[str, Any]) -> bool:
    """It has all of its executors, is not behind, and neither recovers nor changes."""
    lag_s, alive = tick["lag_s"], tick["observation"]["executors_alive"]
    calm = isinstance(lag_s, int | float) and lag_s <= SETTLED_LAG_S
    whole = isinstance(alive, int) and alive == tick["scale_out"]
    return calm and whole and tick["recovering"] is None and tick["change"] is None


# ------------------------------------------------------------------------------------------- the report


def report(journal: Journal) -> Report | None:
    pieces = journal.of(NAME)
    if not pieces:
        return None
    cells = [row for row in pieces.values() if row["job"] == LIVE]
    strangers = [row for row in pieces.values() if row["job"] == SALES]
    figures = [
        Figure(
            "situations that have taught what the table says",
            sum(map(is_right, cells)),
            "",
            at_least=len(CELLS),
        ),
        Figure(
            "failures of a stranger's job that were learnt under their own name",
            sum(map(is_right, strangers)),
            "",
            at_least=len(STRANGERS),
        ),
    ]
    figures += [
        Figure(
            f"largest difference of the {what} from the one seen from outside",
            100.0 * max(difference(row, f"{what}_s") for row in strangers),
            "%",
            at_most=20.0,
        )
        for what in ("downtime", "recovery")
        if strangers
    ]
    columns = ("job", "failure", "when", "to be learnt", "learnt", "why not")
    columns += ("downtime, s (seen from outside)", "recovery, s (seen from outside)")
    return Report(ASKS, figures, columns, [_row(row) for row in (*cells, *strangers)])


def is_right(row: Mapping[str, Any]) -> bool:
    """Whether the names that were learnt are those of the table; where there are none, nothing must be."""
    return [one["kind"] for one in row["learnt"]] == ([row["teaches"]] if row["teaches"] else [])


def difference(row: Mapping[str, Any], what: str) -> float:
    """Of what was learnt from what was seen; a whole one where either is missing."""
    named = [one for one in row["learnt"] if one["kind"] == row["teaches"]]
    if not named or row["seen"] is None:
        return 1.0
    return outside.difference(named[0][what], row["seen"][what])


def _row(row: Mapping[str, Any]) -> tuple[str, ...]:
    learnt: Sequence[Mapping[str, Any]] = row["learnt"]
    why = "; ".join(line.removeprefix("nothing was learnt from ") for line in row["why"])
    return (
        row["job"],
        row["kind"],
        row["when"],
        row["teaches"] or "nothing",
        ", ".join(one["kind"] for one in learnt) or "nothing",
        why or "–",
        *(_told(row, what) for what in ("downtime_s", "recovery_s")),
    )


def _told(row: Mapping[str, Any], what: str) -> str:
    learnt = ", ".join(_seconds(one[what]) for one in row["learnt"]) or "–"
    return f"{learnt} ({'–' if row['seen'] is None else _seconds(row['seen'][what])})"


def _seconds(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.1f}"


def _line(row: Mapping[str, Any]) -> str:
    learnt = ", ".join(one["kind"] for one in row["learnt"]) or "nothing"
    wanted = row["teaches"] or "nothing"
    times = f"downtime {_told(row, 'downtime_s')} s, recovery {_told(row, 'recovery_s')} s"
    return f"learnt {learnt}, expected {wanted}; {times}; {'; '.join(row['why']) or 'no reason given'}"
