"""How far is a micro-batch, while executors come, go, freeze and warm up?

A batch is a pool of records. The k executors at work empty it at T(k). An executor that is frozen, or whose
Python workers still start, holds one task, which waits for it; the batch ends when the pool is empty and
nobody holds a task. A lost executor's task is done anew, half of it on average:

    records of a task  = records / max(partitions with new records, executors)
    dn/dt              = T(k)   while  left > held · task,     else 0
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .behaviour import Behaviour
from .topics import Whole

NOTHING = 1e-6  # of a record
REPEATED = 0.5  # of a task, when its executor is lost


@dataclass(eq=False)
class Executor:
    """One executor process, as its driver sees it."""

    id: str
    registers_s: float
    seen: bool = False
    """Whether the driver has taken note of it."""
    warm: bool = False
    holds_until_s: float = -math.inf
    frozen_s: float | None = None
    busy_s: float = 0.0
    cpu_s: float = 0.0
    records: float = 0.0

    def holds(self, at_s: float) -> bool:
        """Whether its task makes no progress."""
        return self.frozen_s is not None or self.holds_until_s > at_s


@dataclass(eq=False)
class Batch:
    """One micro-batch at work."""

    number: int
    ends: Mapping[str, Whole]
    records: int
    begun_s: float
    works_from_s: float
    """The overhead is over."""
    task: float
    members: list[Executor] = field(default_factory=list)
    left: float = 0.0
    repeated: float = 0.0

    def join(self, executor: Executor, *, at_s: float, warm_up_s: float) -> None:
        """It takes a task; with cold Python workers it holds that one for a while first."""
        if not executor.warm:
            executor.holds_until_s = max(at_s, self.works_from_s) + warm_up_s
            executor.warm = True
        self.members.append(executor)

    def has_waiting_tasks(self) -> bool:
        """Whether a newcomer finds something to do."""
        return not self.members or self.left > self.task * len(self.members)

    def lose(self, executor: Executor, *, at_s: float) -> None:
        if executor in self.members:
            self.members.remove(executor)
            if not executor.holds(at_s):
                again = min(REPEATED * self.task, self.records - self.left)
                self.left += again
                self.repeated += again

    def free(self, at_s: float) -> float:
        """Records that somebody at work can get at."""
        held = sum(1 for executor in self.members if executor.holds(at_s))
        return max(0.0, self.left - held * self.task) if held else self.left

    def at_work(self, at_s: float) -> list[Executor]:
        return [executor for executor in self.members if not executor.holds(at_s)]

    def progress(self, from_s: float, to_s: float, behaviour: Behaviour) -> None:
        """Nobody joins, leaves, freezes or wakes up within this stretch."""
        begin_s = max(from_s, self.works_from_s)
        if to_s <= begin_s:
            return
        workers, free = self.at_work(begin_s), self.free(begin_s)
        rate = behaviour.rate(len(workers))
        for executor in self.members:
            if executor.holds(begin_s):  # its task runs; workers that start compute, frozen ones do not
                executor.busy_s += to_s - begin_s
                executor.cpu_s += (to_s - begin_s) * (executor.frozen_s is None)
        if rate > 0.0 and free > 0.0:
            done = min(free, rate * (to_s - begin_s))
            self.left -= done
            for executor in workers:
                executor.busy_s += done / rate
                executor.cpu_s += done / rate * behaviour.cpu_share
                executor.records += done / len(workers)

    def is_done(self, at_s: float) -> bool:
        return at_s >= self.works_from_s and self.left <= NOTHING

    def next_s(self, at_s: float, behaviour: Behaviour) -> float:
        """When is it done, or stuck, if nothing else happens?"""
        begin_s = max(at_s, self.works_from_s)
        free, rate = self.free(begin_s), behaviour.rate(len(self.at_work(begin_s)))
        wakes = min((e.holds_until_s for e in self.members if e.holds_until_s > at_s), default=math.inf)
        if self.left <= NOTHING:
            return begin_s
        return min(wakes, begin_s + free / rate if rate > 0.0 and free > NOTHING else math.inf)

    @property
    def written(self) -> int:
        """Records that reached the sink, with those that were repeated."""
        return math.floor(self.records - self.left + self.repeated + NOTHING)
