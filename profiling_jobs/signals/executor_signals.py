"""How much of its time does each executor compute, and how much of it is it at work?

Two readings of each executor, at least every five seconds, make one sample:

    cpu   = Δ(CPU seconds of the JVM and its Python workers) / (Δt · slots · processors per slot)
    busy  = Δ(seconds of finished tasks + age of the running ones) / (Δt · slots)
    rate  = Δ(records read) / Δt

A slot counts as one processor, but on a machine that has promised more slots than it has processors as its
share of them: cpu = 1 then still means that there is no more to have. A job that computes has cpu ≈ busy; one
that waits (for a look-up, a lock, a disk) is busy without computing, and only `busy` tells how much it has
left. An executor warms up until ten seconds after its first task: its Python workers are still importing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from models.quantities import Unknown

from ..ports import ExecutorSample

WARM_UP_S = 10.0  # measured: the first 10 s after growing, 575 instead of 1 420 records/s
SHORTEST_S = 0.5  # judgement: CPU time is counted in hundredths of a second
LOST_SHOWN_S = 60.0  # judgement: the evaluation interval, so that every tick sees a loss
COMPUTES = 0.7  # judgement: Δcpu/Δbusy from which a job is limited by the processor
WAITS = 0.5  # judgement: below, it waits for most of the time
ONCE = Unknown("the executor was read once: wait for the next reading")


@dataclass(frozen=True)
class ExecutorReading:
    """The counters of one executor at one moment; they only grow while it lives."""

    executor: str
    """Unique over restarts of the application: application and number."""
    started_at_s: float
    slots: int
    cpu_at_s: float
    cpu_s: float | Unknown
    task_at_s: float
    """The two are read at different places and moments."""
    task_s: float | Unknown
    """Seconds of finished tasks, and of the running ones so far."""
    records: int | Unknown
    first_task_at_s: float | Unknown
    """When it had finished a first task, or was first seen to have; Unknown before."""


class ExecutorMeter:
    """Turns readings into samples."""

    def __init__(self) -> None:
        self._before: dict[str, ExecutorReading] = {}
        self._before_s = 0.0
        self._samples: tuple[ExecutorSample, ...] = ()
        self._lost: dict[str, float] = {}

    def update(
        self, at_s: float, readings: Sequence[ExecutorReading], *, processors_per_slot: float = 1.0
    ) -> tuple[ExecutorSample, ...]:
        """The samples since the readings before; of a first reading only the state is known."""
        if self._before and at_s - self._before_s < SHORTEST_S:
            return self._samples
        now = {one.executor: one for one in readings}
        self._lost.update({name: at_s for name in self._before if name not in now})
        self._lost = {n: t for n, t in self._lost.items() if n not in now and at_s - t <= LOST_SHOWN_S}
        found = [_sample(at_s, one, self._before.get(one.executor), processors_per_slot) for one in readings]
        gone = Unknown("the executor is lost")
        found += [ExecutorSample(name, "lost", gone, gone, gone) for name in self._lost]
        self._before, self._before_s, self._samples = now, at_s, tuple(found)
        return self._samples


def limit(samples: Sequence[ExecutorSample]) -> Literal["cpu", "waiting"] | Unknown:
    """What limits this job, the processor or what it waits for? From executors that have work."""
    cpu = busy = 0.0
    for one in samples:
        if one.state == "running" and not isinstance(one.cpu, Unknown) and not isinstance(one.busy, Unknown):
            cpu, busy = cpu + one.cpu, busy + one.busy
    if busy < 0.1:  # judgement: the rest is the JVM's own doing
        return Unknown("the executors have hardly worked: look again under load")
    share = cpu / busy
    if share >= COMPUTES:
        return "cpu"
    if share <= WAITS:
        return "waiting"
    return Unknown(
        f"tasks compute for {share:.0%} of their time: neither the processor ({COMPUTES:.0%}) nor waiting "
        f"({WAITS:.0%}) clearly limits this job; look at both shares"
    )


def _sample(
    at_s: float, now: ExecutorReading, before: ExecutorReading | None, processors_per_slot: float
) -> ExecutorSample:
    first = now.first_task_at_s
    warm = not isinstance(first, Unknown) and at_s - first >= WARM_UP_S
    if before is None:
        before = replace(now, cpu_s=ONCE, task_s=ONCE, records=ONCE)
    cpu = _rate(now.cpu_s, before.cpu_s, now.cpu_at_s - before.cpu_at_s)
    busy = _rate(now.task_s, before.task_s, now.task_at_s - before.task_at_s)
    return ExecutorSample(
        executor=now.executor,
        state="running" if warm else "warming_up",
        cpu=cpu if isinstance(cpu, Unknown) else min(1.0, cpu / (now.slots * processors_per_slot)),
        busy=busy if isinstance(busy, Unknown) else min(1.0, busy / now.slots),
        records_rps=_rate(now.records, before.records, now.task_at_s - before.task_at_s),
    )


def _rate(now: float | Unknown, before: float | Unknown, elapsed_s: float) -> float | Unknown:
    """Counters that are read at slightly different moments may go back a little: that is no work."""
    if isinstance(now, Unknown):
        return now
    if isinstance(before, Unknown):
        return before if before is ONCE else Unknown("could not be read the time before: wait for the next")
    return max(0.0, (now - before) / elapsed_s) if elapsed_s > 0.0 else ONCE
