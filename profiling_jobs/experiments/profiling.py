"""A search for the capacity of a job: which probes run, and on which copies.

    while the search (models.probing) asks for probes:
        each gets a copy of its scale-out: one that is free (if need be rescaled), or a new one; they run side
        by side
        a result goes to the search and to the store before anything else happens
        a copy is deleted when nothing more is asked of it, when it is far behind, or when its probe was
        invalid, but not for an unsteady warm-up, as a new one would be colder; one that has sustained a
        step of the grid waits for the next
        a probe whose copy has no room (slots, a quota) waits for others to end, and is invalid after a while

The store's document "profiling" holds the search after every step: the next run goes on there. The budget
counts executors from the launch of a copy to its end; a probe that would go beyond it is ended and has no
value. At the end, and on any exception, every copy is stopped and its topics deleted. Only what belongs to
the copies is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from models import probing
from models.errors import HeadroomError, NoRoom, NotReady
from models.ports import Plan
from models.probing import Done, Probe, Result, Settings, State
from models.quantities import Unknown, executors

from ..telemetry import spark_page
from .copies import Copies, Copy, ExperimentContext
from .probe import SAMPLE_S, STOP_S, ProbeRun, Rules, finish
from .profiling_record import Record

Dealt = list[tuple[Probe, Copy | None]]


def dealt(probes: Sequence[Probe], free: Sequence[Copy]) -> tuple[Dealt, list[Copy]]:
    """Each probe with its copy (None: a new one), in the order to begin them; and the copies not needed.

    One of its size; or else the smallest probe gets the largest copy that is left. So, changed in this order,
    the copies never hold more executors than they do before or after: no slot is missing on the way.
    """
    left = sorted(free, key=lambda copy: -copy.plan.scale_out)
    found: Dealt = []
    others: list[Probe] = []
    for probe in sorted(probes, key=lambda probe: probe.scale_out):
        same = next((copy for copy in left if copy.plan.scale_out == probe.scale_out), None)
        if same is None:
            others.append(probe)
        else:
            left.remove(same)
            found.append((probe, same))
    return found + list(zip_longest(others, left[: len(others)])), left[len(others) :]


RELAUNCH_S = 45.0  # measured: what a new copy takes until it is as far as a running one, beside its warm-up
ROOM_S = 60.0  # judgement: a copy of another job ends within minutes, and each size is tried three times
AGAIN_S = 15.0  # judgement: each attempt makes and deletes the topics of a copy
FIRST_RPS = 1000.0  # judgement: it doubles as long as the copy keeps up
Progress = Callable[[State, str], None]


@dataclass
class Spending:
    """What may still be spent, in executor-seconds, while several probes spend at once."""

    budget: float
    spent: float
    running: dict[int, tuple[float, int, float]] = field(default_factory=dict)
    """Probe -> since when, executors, what it was planned to cost."""
    waiting: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Copy between two probes -> since when, executors."""

    def left_s(self, number: int, now_s: float) -> float:
        """How long this probe may still run, if the others cost what was planned, or what they have cost."""
        if not math.isfinite(self.budget):
            return math.inf
        others = sum(
            max(planned, size * (now_s - since_s))
            for other, (since_s, size, planned) in self.running.items()
            if other != number
        )
        others += sum(size * (now_s - since_s) for since_s, size in self.waiting.values())
        since_s, size, _ = self.running[number]
        return (self.budget - self.spent - others) / size - (now_s - since_s) - STOP_S

    def waited(self, name: str, now_s: float) -> float:
        """What this copy has cost between two probes; it no longer waits."""
        since_s, size = self.waiting.pop(name, (now_s, 0))
        return size * (now_s - since_s)


@dataclass
class _Running:
    """One probe that is under way."""

    probe: Probe
    copy: Copy
    run: ProbeRun
    steps: Generator[None, None, Result]
    charged_from_s: float


class Profiling:
    """One search, from wherever it stands to its end."""

    def __init__(
        self,
        template: Plan,
        settings: Settings,
        around: ExperimentContext,
        *,
        partitions: Mapping[str, int],
        rules: Rules,
        progress: Progress = lambda state, text: None,
    ) -> None:
        self.job = template.job
        self._around, self._rules, self._progress = around, rules, progress
        self._copies = Copies(template, around, partitions=partitions)
        self._running: dict[int, _Running] = {}
        self.light: tuple[Result, ...] = ()
        """What was measured below the capacity of a size, for its latency."""
        self._over = False
        """The budget is used up: nothing new is begun."""
        self._no_room: dict[int, float] = {}
        """Probe that waits for room -> since when no other probe of this search could make some."""
        self._room_again_s = -math.inf
        """When these are tried again."""
        self._record = Record(self.job, around.store, around.clock)
        self.state, self.resumed = self._record.begin(settings)
        # What was running when we died has cost something too; no more is known of it.
        self._carried = sum(probe.executor_seconds for probe in self.state.pending) if self.resumed else 0.0
        """Executor-seconds that no result has been charged with yet."""
        budget = settings.budget_executor_seconds
        self._spending = Spending(math.inf if budget is None else budget, self.state.spent + self._carried)

    def run(self) -> State:
        """Search to the end. Everything that was started is stopped when it returns, or raises."""
        try:
            if problems := self._copies.clear():
                raise NotReady(f"an earlier run has left something behind that would not go: {problems[0]}")
            if not self.resumed:
                self._scout()
            self._record.save(self.state)
            while not isinstance(asked := probing.ask(self.state), Done):
                for probe, spare in self._dealt(self._ready(asked)):
                    self._start(probe, spare)
                self._step()
                if self._running or (self._no_room and not self._over):
                    self._around.clock.sleep(SAMPLE_S)
                elif self._over:
                    self.state = replace(self.state, pending=(), done="the budget is used up")
                    self._record.save(self.state)
            return self.state
        finally:
            for problem in self._copies.clear():
                self._progress(self.state, f"left behind: {problem}")

    # ------------------------------------------------------------------------------------------- inside

    def _scout(self) -> None:
        """One single-slot run, whose stages show about where to begin."""
        settings, clock = self.state.settings, self._around.clock
        if settings.strategy != "adaptive" or settings.first_guess is not None or not self._around.stages:
            return
        began_s = clock.now_s()
        rate = settings.first_rate_rps or FIRST_RPS
        probe = Probe(0, 1, rate, warm_up_s=settings.warm_up_s, probe_s=settings.probe_s)
        self._spending.running[0] = (began_s, 1, probe.executor_seconds)
        self._progress(self.state, "a single executor shows where to begin")
        try:
            copy = self._copies.sized(1)
            run = self._run_of(probe, copy)
            problem = finish(run.ready(at_rate=False), clock)
            useless = problem and not run.unsteady
            stages = () if useless else self._around.stages(copy.plan.name)
            found = (
                Unknown(problem)
                if useless
                else spark_page.guesses(stages, settings.scale_outs, one_rps=run.capacity_rps)
            )
            copy.measured = not problem
            if isinstance(found, Unknown):
                self._progress(self.state, f"it shows nothing: {found.reason}")
            else:
                self.state = probing.start(replace(settings, first_guess=found))
            if useless:
                self._drop(copy)
        except (NoRoom, NotReady) as error:
            self._progress(self.state, f"it shows nothing: {error}")
        self._spending.running.clear()
        self._carry(clock.now_s() - began_s)

    def _run_of(self, probe: Probe, copy: Copy, *, latency: bool = False) -> ProbeRun:
        clock = self._around.clock
        return ProbeRun(
            probe,
            copy,
            clock=clock,
            rules=self._rules,
            latency=latency,
            left_s=lambda: self._spending.left_s(probe.number, clock.now_s()),
        )

    def _to_begin(self, asked: Sequence[Probe]) -> list[Probe]:
        return [] if self._over else [probe for probe in asked if probe.number not in self._running]

    def _ready(self, asked: Sequence[Probe]) -> list[Probe]:
        """Those to begin now: what waits for room is tried again after a while."""
        waits = self._around.clock.now_s() < self._room_again_s
        return [one for one in self._to_begin(asked) if not (waits and one.number in self._no_room)]

    def _dealt(self, to_begin: Sequence[Probe]) -> Dealt:
        if not to_begin and not self._over:  # a step is not over, and what waits is wanted in the next one
            return []
        found, needless = dealt(to_begin, self._free())
        for copy in needless:
            self._drop(copy)
        return found

    def _start(self, probe: Probe, spare: Copy | None) -> None:
        now_s = self._around.clock.now_s()
        if spare is not None:
            self._carry(self._spending.waited(spare.plan.name, now_s))
        self._spending.running[probe.number] = (now_s, probe.scale_out, probe.executor_seconds)
        try:
            copy = self._copies.sized(probe.scale_out, spare)
        except (NoRoom, NotReady) as error:
            if isinstance(error, NoRoom) and self._waits_for_room(probe, error, now_s):
                return
            self._no_room.pop(probe.number, None)
            self._tell(Result(probe, "invalid", reason=f"no copy could be started: {error}"), now_s)
            return
        self._no_room.pop(probe.number, None)
        run = self._run_of(probe, copy, latency=self._wants_latency(probe.scale_out))
        self._running[probe.number] = _Running(probe, copy, run, run.steps(), now_s)
        self._progress(
            self.state,
            f"probe {probe.number}: {executors(probe.scale_out)} at {probe.rate_rps:,.0f} records/s",
        )

    def _waits_for_room(self, probe: Probe, error: NoRoom, now_s: float) -> bool:
        """Whether to try again later: other probes end, and what others hold is given back."""
        since_s = self._no_room.get(probe.number, now_s)
        if now_s - since_s >= ROOM_S:
            return False
        if probe.number not in self._no_room:
            self._progress(self.state, f"probe {probe.number}: {executors(probe.scale_out, 'wait')}: {error}")
        self._no_room[probe.number] = now_s if self._running else since_s
        self._room_again_s = now_s + AGAIN_S
        self._spending.running.pop(probe.number)
        return True

    def _wants_latency(self, scale_out: int) -> bool:
        """Once for each size; the rates of a grid show the latency by themselves."""
        known = self.state.valid(scale_out) or any(one.probe.scale_out == scale_out for one in self.light)
        return self.state.settings.strategy == "adaptive" and not known

    def _free(self) -> list[Copy]:
        busy = {one.copy.plan.name for one in self._running.values()}
        return [copy for copy in self._copies.running if copy.plan.name not in busy]

    def _step(self) -> None:
        for number, one in list(self._running.items()):
            try:
                next(one.steps)
            except StopIteration as finished:
                del self._running[number]
                self._room_again_s = -math.inf
                one.copy.measured = not one.run.unsteady
                for light in one.run.light:
                    self._record.keep(light)
                    self.light = (*self.light, light)
                    said = f"{light.probe.rate_rps:,.0f} records/s: latency {light.latency_ms:,.0f} ms"
                    self._progress(self.state, f"{executors(one.probe.scale_out)} at {said}")
                if finished.value.valid:
                    self._record.note_batches(one.probe.scale_out, one.run.batches)
                self._tell(finished.value, one.charged_from_s)
                self._over = self._over or one.run.out_of_budget
                if self._is_done_with(one, finished.value):
                    self._drop(one.copy)
                else:
                    plan = one.copy.plan
                    self._spending.waiting[plan.name] = (self._around.clock.now_s(), plan.scale_out)

    def _tell(self, result: Result, since_s: float) -> None:
        now_s, probe = self._around.clock.now_s(), result.probe
        cost = probe.scale_out * (now_s - since_s) + self._carried
        self._carried = 0.0
        result = replace(result, executor_seconds=cost)
        self.state = probing.tell(self.state, result)
        self._spending.running.pop(probe.number, None)
        self._spending.spent = self.state.spent
        self._record.keep(result)
        self._record.save(self.state)
        text = f"probe {probe.number}: {executors(probe.scale_out)} at {probe.rate_rps:,.0f} records/s: "
        if result.throughput_rps is None:
            text += f"invalid, {result.reason}"
        else:
            text += f"{result.verdict}, {result.throughput_rps:,.0f} records/s"
        self._progress(self.state, text)

    def _is_done_with(self, one: _Running, result: Result) -> bool:
        if not result.valid and not one.run.unsteady:
            return True
        coming = probing.ask(self.state)
        if isinstance(coming, Done) or self._over:
            return True
        to_begin = self._to_begin(coming)
        if not to_begin:  # only what has sustained its rate is in the grid's next step
            return self.state.settings.strategy != "stepped" or not result.sustained
        if not result.valid:
            return False
        lag = one.copy.watch.lag_records
        if isinstance(lag, Unknown):
            return True
        # What has piled up would have to be worked off; a new copy would have to be started and warmed up.
        per_executor_rps = result.value_rps / one.probe.scale_out
        slowest_rps = min(min(probe.rate_rps, per_executor_rps * probe.scale_out) for probe in to_begin)
        return lag / slowest_rps > RELAUNCH_S + self._rules.warm_up_s

    def _drop(self, copy: Copy) -> None:
        began_s = self._around.clock.now_s()
        self._carry(self._spending.waited(copy.plan.name, began_s))
        try:
            self._copies.stop(copy)
        except HeadroomError as error:  # it stays written down, and `clear` comes back to it
            self._progress(self.state, f"{copy.plan.name} would not go: {error}")
        self._carry(copy.plan.scale_out * (self._around.clock.now_s() - began_s))

    def _carry(self, executor_seconds: float) -> None:
        """Charged with the next result; until then the budget must know of it."""
        self._carried += executor_seconds
        self._spending.spent += executor_seconds
