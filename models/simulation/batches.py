"""Micro-batches of a simulated job: offsets, progress, and executors that come, go, freeze and warm up.

A batch is a pool of records, processed at T(k) by the k executors that work. An executor that is frozen, or
whose Python workers still start, holds one task, which waits for it; the batch ends when the pool is empty
and no task is held. The task of a lost executor is repeated, half of it on average:

    records of a task  = records / max(partitions with new records, executors)
    dn/dt              = T(k)   while  left > held · task,     else 0

`Behaviour` and `Platform` are the truth that profiling has to find: nothing outside the simulation may read
them. The defaults were measured with the job `enrichment` (about 1 ms of waiting per record) on a local
Spark: 800, 1 420, 2 480 and 3 000 records/s at 1, 2, 4 and 6 executors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..arguments import number, whole
from .topics import Whole


def contended(executors: int, *, one_rps: float = 800.0, contention: float = 0.12) -> float:
    """T(s) = λ s / (1 + σ (s − 1)): 800, 1 429, 2 353, 3 000 at 1, 2, 4, 6 executors."""
    return one_rps * executors / (1.0 + contention * (executors - 1))


@dataclass(frozen=True)
class Behaviour:
    """One job. A batch of n records on s warm executors takes overhead_s + n / capacity_rps(s)."""

    capacity_rps: Callable[[int], float] = contended
    overhead_s: float = 0.3  # judgement: planning and commit of a stateless batch
    warm_up_s: float = 8.0  # measured: 6.7–9.7 s of the first batch with new Python workers
    state_load_s: float = 0.0
    """Added to the first batch of a restarted driver."""
    output_ratio: float = 1.0
    """Records written per record read."""
    cpu_share: float = 0.1  # judgement: a job that waits for look-ups
    """CPU time per busy second."""

    def __post_init__(self) -> None:
        for name in ("overhead_s", "warm_up_s", "state_load_s", "output_ratio"):
            number(f"Behaviour.{name}", getattr(self, name), at_least=0.0)
        number("Behaviour.cpu_share", self.cpu_share, at_least=0.0, at_most=1.0)

    def rate(self, executors: int) -> float:
        """Records/s of so many warm executors."""
        return max(0.0, self.capacity_rps(executors)) if executors > 0 else 0.0


@dataclass(frozen=True)
class Platform:
    """Platform of the jobs: slots, and durations of its operations."""

    slots: int = 8
    driver_start_s: float = 7.0  # measured: a Spark session on an idle machine
    executor_start_s: float = 5.0  # measured: 3.4–9.5 s from the request until it is registered
    driver_notice_s: float = 0.2  # as the local deployments look after their drivers
    driver_timeout_s: float = 20.0  # a silent driver is given up after Spark's network time-out
    executor_timeout_s: float = 20.0  # heartbeats, as the local Spark is set
    scale_timeout_s: float = 60.0  # judgement
    stop_timeout_s: float = 60.0  # a batch that takes longer is cut short
    broker_restart_s: float = 8.0  # measured: 5–10 s

    def __post_init__(self) -> None:
        whole("Platform.slots", self.slots)
        for name, value in vars(self).items():
            number(f"Platform.{name}", value, at_least=0.0)


KEPT_S = 1800.0  # judgement: commits that are older are not asked for
TRIMMED = 256  # judgement: how many may be too old before they are dropped together


@dataclass(frozen=True)
class Commit:
    """A finished batch: its number, when it ended, and its start and end offsets."""

    batch: int
    at_s: float
    before: Mapping[str, Whole]
    after: Mapping[str, Whole]
    planned_at_s: float


@dataclass(eq=False)
class Checkpoint:
    """The offsets of the batch that is planned and of those that are done."""

    job: str
    inputs: frozenset[str]
    committed: dict[str, Whole] = field(default_factory=dict)
    planned: Mapping[str, Whole] | None = None
    batch: int = -1
    committed_at_s: float = -math.inf
    commits: list[Commit] = field(default_factory=list)

    def begin(self, positions: Mapping[str, Whole]) -> None:
        for topic, begin in positions.items():
            self.committed.setdefault(topic, begin)

    def commit(
        self,
        batch: int,
        at_s: float,
        *,
        before: Mapping[str, Whole],
        after: Mapping[str, Whole],
        planned_at_s: float,
    ) -> None:
        self.commits.append(Commit(batch, at_s, before, after, planned_at_s))
        if len(self.commits) > TRIMMED and self.commits[TRIMMED].at_s < at_s - KEPT_S:
            del self.commits[:TRIMMED]
        self.committed.update(after)
        self.planned, self.batch, self.committed_at_s = None, batch, at_s


def position(checkpoint: Checkpoint, topic: str, starts: Whole) -> Whole:
    """The next start offsets: after the committed ones, and not below the start of the log.

    Partitions that are new are read from their start.
    """
    committed = checkpoint.committed.get(topic)
    if committed is None:
        return starts.copy()
    if committed.size < starts.size:
        committed = np.pad(committed, (0, starts.size - committed.size))
    return np.maximum(committed, starts)


def share_out(
    positions: Mapping[str, Whole], heads: Mapping[str, Whole], *, limit: int | None
) -> dict[str, Whole]:
    """End offsets of a batch; the limit is shared by the waiting records of each partition."""
    waiting = {topic: np.maximum(0, heads[topic] - begin) for topic, begin in positions.items()}
    total = int(sum(counts.sum() for counts in waiting.values()))
    if limit is None or total <= limit:
        return {topic: begin + waiting[topic] for topic, begin in positions.items()}
    exact = np.concatenate(list(waiting.values())) * (limit / total)
    taken = np.floor(exact).astype(np.int64)
    most_cut = np.argsort(taken - exact, kind="stable")[: limit - int(taken.sum())]
    taken[most_cut] += 1
    edges = np.cumsum([counts.size for counts in waiting.values()])[:-1]
    return {t: positions[t] + part for t, part in zip(waiting, np.split(taken, edges), strict=True)}


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
        """Give an executor a task, which cold Python workers hold for a while first."""
        if not executor.warm:
            executor.holds_until_s = max(at_s, self.works_from_s) + warm_up_s
            executor.warm = True
        self.members.append(executor)

    def has_waiting_tasks(self) -> bool:
        return not self.members or self.left > self.task * len(self.members)

    def lose(self, executor: Executor, *, at_s: float) -> None:
        if executor in self.members:
            self.members.remove(executor)
            if not executor.holds(at_s):
                again = min(REPEATED * self.task, self.records - self.left)
                self.left += again
                self.repeated += again

    def free(self, at_s: float) -> float:
        """Records that are not held by an executor without progress."""
        held = sum(1 for executor in self.members if executor.holds(at_s))
        return max(0.0, self.left - held * self.task) if held else self.left

    def at_work(self, at_s: float) -> list[Executor]:
        return [executor for executor in self.members if not executor.holds(at_s)]

    def progress(self, from_s: float, to_s: float, behaviour: Behaviour) -> None:
        """Progress over a stretch in which the executors do not change."""
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
        """When it is done or stuck if nothing else happens."""
        begin_s = max(at_s, self.works_from_s)
        free, rate = self.free(begin_s), behaviour.rate(len(self.at_work(begin_s)))
        wakes = min((e.holds_until_s for e in self.members if e.holds_until_s > at_s), default=math.inf)
        if self.left <= NOTHING:
            return begin_s
        return min(wakes, begin_s + free / rate if rate > 0.0 and free > NOTHING else math.inf)

    @property
    def written(self) -> int:
        """Records that reached the sink, repeated ones included."""
        return math.floor(self.records - self.left + self.repeated + NOTHING)
