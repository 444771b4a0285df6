"""A series of drills on copies of one job, within a budget of executor-seconds.

A plan is kinds × scale-outs × rates × repeats, every cell once before any twice, cut where the budget ends.
The drills of a scale-out share a copy as long as it comes back; one that has just come back at the rate of
the next drill is ready for it. Each result is in the store before the next drill begins, with what was
predicted for it; a plan that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from models import codec
from models.arguments import number, whole
from models.errors import HeadroomError, NotReady
from models.ports import Failures, Plan
from models.probing import Probe
from models.quantities import Misuse, Unknown, executors

from . import drill, drill_prediction
from .copies import Copies, Copy, ExperimentContext
from .drill import Outcome, clear_left_over
from .drill_prediction import Models
from .probe import STOP_S, ProbeRun, Rules, finish

DOCUMENT = "drills"
DRILL_S = 180.0  # judgement: getting ready, a minute undisturbed, a recovery and its hold
RETRIES = 2  # of an invalid drill: what disturbs one on a busy machine may disturb the next; judgement
Say = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One drill that is to be done."""

    kind: str
    scale_out: int
    rate_rps: float
    repeat: int = 1


@dataclass(frozen=True)
class DrillPlan:
    """The drills in their order, and how many the budget has no room for."""

    cells: tuple[Cell, ...]
    left_out: int
    executor_seconds: float


def planned(
    *,
    kinds: Sequence[str],
    rates_rps: Mapping[int, Sequence[float]],
    repeats: int,
    budget_executor_seconds: float = math.inf,
) -> DrillPlan:
    """Every kind at every scale-out and rate, `repeats` times, as far as the budget goes."""
    whole("repeats", repeats)
    budget = budget_executor_seconds
    if not budget > 0.0:
        raise Misuse("budget_executor_seconds", f"must be above 0, got {budget}")
    points = [
        (whole("rates_rps", size), number("rates_rps", rate, above=0.0), kind)
        for size in sorted(rates_rps)
        for rate in sorted(rates_rps[size])
        for kind in kinds
    ]
    everything = (  # one by one: `repeats` has no bound, but the budget is soon used up
        Cell(kind, size, rate, repeat) for repeat in range(1, repeats + 1) for size, rate, kind in points
    )
    cells: list[Cell] = []
    cost = 0.0
    for cell in everything:
        if cost + cell.scale_out * DRILL_S > budget:
            break
        cost += cell.scale_out * DRILL_S
        cells.append(cell)
    return DrillPlan(tuple(cells), repeats * len(points) - len(cells), cost)


class Drilling:
    """Drills on copies of one job."""

    def __init__(
        self,
        template: Plan,
        around: ExperimentContext,
        *,
        failures: Failures,
        partitions: Mapping[str, int],
        rules: Rules,
        settings: drill.Settings,
        batch_began_s: Callable[[str, int], float | Unknown] = lambda name, batch: drill.not_reported(batch),
        may_cause: Callable[[str], None] = lambda kind: None,
        say: Say = lambda text: None,
    ) -> None:
        """`may_cause`: raises where a failure of this kind must not be caused at the moment."""
        self.job = template.job
        self._around, self._failures, self._rules, self._settings = around, failures, rules, settings
        self._batch_began_s, self._may_cause, self._say = batch_began_s, may_cause, say
        self._copies = Copies(template, around, partitions=partitions, purpose="d")
        self._copy: Copy | None = None
        self._ready: tuple[int, float] | None = None
        """Scale-out and rate at which that copy has recovered."""
        self.outcomes: list[Outcome] = []
        """Every drill so far, also where `run` was interrupted."""
        self._spent = 0.0

    def run(
        self, plan: DrillPlan, *, models: Models | None = None, budget_executor_seconds: float = math.inf
    ) -> tuple[Outcome, ...]:
        """All drills of the plan that were not done yet. Nothing is left running, also after an exception."""
        done = self._begin(plan)
        self.outcomes, self._spent = [], 0.0
        try:
            if problems := self._put_away():
                raise NotReady(f"an earlier run has left something behind that would not go: {problems[0]}")
            for cell in plan.cells:
                if cell in done:
                    continue
                if not self._drilled(cell, models, budget=budget_executor_seconds):
                    self._say(
                        f"the budget is used up: {self._spent:,.0f} of {budget_executor_seconds:,.0f} "
                        f"executor-seconds are spent, {cell.kind} with {executors(cell.scale_out)} may take "
                        f"{cell.scale_out * DRILL_S:,.0f}; the next drills go on from there"
                    )
                    break
                done.append(cell)
                document = {"schema": 1, "plan": codec.to_json(plan.cells), "done": codec.to_json(done)}
                self._around.store.save_document(self.job, DOCUMENT, document)
            return tuple(self.outcomes)
        finally:
            for problem in self._put_away():
                self._say(f"left behind: {problem}")

    def _put_away(self) -> tuple[str, ...]:
        """Stop the copies, also where a failure cannot be cleared; what could not be stopped."""
        try:
            clear_left_over(self._failures)
        finally:
            self._copy = self._ready = None
            problems = self._copies.clear()
        return problems

    def _drilled(self, cell: Cell, models: Models | None, *, budget: float) -> bool:
        """Drill one cell until a drill is valid; False where the budget has no room for that."""
        for _ in range(1 + RETRIES):
            if self._spent + cell.scale_out * DRILL_S > budget:
                return False
            clock, began_s = self._around.clock, self._around.clock.now_s()
            until_s = began_s + (budget - self._spent) / cell.scale_out - STOP_S
            outcome = self._one(cell, models, until_s=until_s)
            self.outcomes.append(outcome)
            self._spent += cell.scale_out * (clock.now_s() - began_s)
            if outcome.not_cleared is not None:
                raise outcome.not_cleared
            if outcome.valid:
                break
        return True

    def _one(self, cell: Cell, models: Models | None, *, until_s: float) -> Outcome:
        """`until_s`: when the budget ends."""

        def left_s() -> float:
            return until_s - self._around.clock.now_s()

        copy, problem = self._made_ready(cell, left_s)
        if problem:
            self._drop()
            return Outcome(cell.kind, cell.scale_out, cell.rate_rps, Unknown(problem), {})
        name, began_s = copy.plan.name, self._batch_began_s
        outcome = drill.DrillRun(
            copy.watch,
            cell.kind,
            on="copy",
            source=copy.source,
            batch_began_s=lambda batch: began_s(name, batch),
            failures=self._failures,
            may_cause=self._may_cause,
            clock=self._around.clock,
            settings=self._settings,
            left_s=left_s,
            say=self._say,
        ).run()
        outcome = with_prediction(outcome, models)
        keep(self._around, self.job, outcome)
        self._say(described(outcome))
        if isinstance(outcome.event, Unknown) or math.isinf(outcome.event.recovery_s):
            self._drop()
        elif cell.kind.endswith("_kill"):  # what was frozen may still have to go
            self._ready = cell.scale_out, cell.rate_rps
        return outcome

    def _made_ready(self, cell: Cell, left_s: Callable[[], float]) -> tuple[Copy, str]:
        """A copy that runs at the rate of the drill; what went wrong, or nothing."""
        spare, ready = self._copy, self._ready
        self._copy = self._ready = None
        at = f"{executors(cell.scale_out)} at {cell.rate_rps:,.0f} records/s"
        if spare is not None and ready == (cell.scale_out, cell.rate_rps):
            self._say(f"{cell.kind}: {spare.plan.name} has recovered with {at}, and is drilled again")
            self._copy = spare
            return spare, ""
        self._say(f"{cell.kind}: a copy with {at} gets ready")
        copy = self._copy = self._copies.sized(cell.scale_out, spare)
        probe = Probe(0, cell.scale_out, cell.rate_rps, warm_up_s=0.0, probe_s=1.0)
        clock = self._around.clock
        run = ProbeRun(probe, copy, clock=clock, rules=self._rules, left_s=left_s)
        problem = finish(run.ready(), clock)
        copy.measured = True
        return copy, problem

    def _drop(self) -> None:
        copy, self._copy, self._ready = self._copy, None, None
        if copy is not None:
            with suppress(HeadroomError):  # it stays written down, and is put away at the end
                self._copies.stop(copy)

    def _begin(self, plan: DrillPlan) -> list[Cell]:
        kept = self._around.store.document(self.job, DOCUMENT)
        if kept is None or kept["plan"] != codec.to_json(plan.cells):
            return []
        done = [Cell(**cell) for cell in kept["done"]]
        return [] if len(done) == len(plan.cells) else done


def with_prediction(outcome: Outcome, models: Models | None) -> Outcome:
    """The drill with the prediction of models that have not seen it."""
    if models is None or isinstance(outcome.event, Unknown) or isinstance(outcome.rate_rps, Unknown):
        return outcome
    found = drill_prediction.of_drill(
        models, outcome.kind, scale_out=outcome.scale_out, details=outcome.details
    )
    said = {"reason": found.reason} if isinstance(found, Unknown) else dict(vars(found))
    return replace(outcome, details={**outcome.details, "predicted_recovery_s": said})


def keep(around: ExperimentContext, job: str, outcome: Outcome) -> None:
    """Store a drill, from which the models learn. An invalid drill is not stored."""
    if not isinstance(outcome.event, Unknown):
        around.store.add_event(job, outcome.event, details=outcome.details)


def described(outcome: Outcome) -> str:
    """A drill in one line."""
    rate = "" if isinstance(outcome.rate_rps, Unknown) else f" at {outcome.rate_rps:,.0f} records/s"
    text = f"{outcome.kind}, {executors(outcome.scale_out)}{rate}: "
    if isinstance(outcome.event, Unknown):
        return f"{text}invalid, {outcome.event.reason}"
    event = outcome.event
    if math.isinf(event.recovery_s):
        text += f"not recovered within {outcome.details['longest_s']:.0f} s"
    else:
        text += f"down {event.downtime_s:.1f} s, recovered after {event.recovery_s:.1f} s"
    said = outcome.details.get("predicted_recovery_s")
    if said is not None:
        text += f", predicted {said['mid']:.1f} s" if "mid" in said else f", no prediction: {said['reason']}"
    return text
