"""A simulated streaming job: it plans batches, finishes them, and comes back after a failure.

A batch is written down before it runs and again when it is done; so a driver
that dies repeats it with the very same offsets, and the sink gets some records twice. With a trigger interval
a batch starts at a boundary, and at once when it is late. Records that retention has deleted before they were
read fail the job for good, as Spark's Kafka source does by default (failOnDataLoss).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np

from ..observation import ExecutorLoss
from ..ports import Plan
from .batches import Batch, Behaviour, Checkpoint, Executor, Platform, position, share_out
from .topics import Topics, Whole

POLL_S = 0.01  # a caught-up query looks for new data this often (spark.sql.streaming.pollingDelay)


class Job:
    """One deployment."""

    def __init__(
        self, plan: Plan, *, behaviour: Behaviour, platform: Platform, topics: Topics, checkpoint: Checkpoint
    ) -> None:
        self.plan = plan
        self.declared = self.marked = int(plan.scale_out)
        self.epoch = -1
        self.state: Literal["starting", "running", "restarting", "stopped", "failed"] = "stopped"
        self.reason = ""
        self.runs = 0
        self.executors: list[Executor] = []
        self.checkpoint = checkpoint
        self.batch: Batch | None = None
        self.frozen_s: float | None = None
        self.behaviour = behaviour
        self._platform = platform
        self._topics = topics
        self._driver_due_s: float | None = None
        self._stopping = False
        self._next_start_s = 0.0
        self._started = 0
        self._reload_s = 0.0
        self.losses: dict[str, ExecutorLoss] = {}
        """Executors that were lost -> as its driver says."""

    # -------------------------------------------------------- what others see

    @property
    def driver_up(self) -> bool:
        return self.state == "running"

    @property
    def ours(self) -> bool:
        """Whether the declared size still carries our mark."""
        return self.declared == self.marked

    @property
    def run_id(self) -> str:
        return f"{self.plan.name}-run-{self.runs}"

    def registered(self, at_s: float) -> list[Executor]:
        return [executor for executor in self.executors if executor.registers_s <= at_s]

    @property
    def group(self) -> str:
        """The consumer group that holds the offsets of finished batches."""
        return f"headroom.{self.plan.job if self.plan.role == 'live' else self.plan.name}"

    # --------------------------------------------------------- what is done to it

    def start(self, at_s: float) -> None:
        self.state, self.reason, self._stopping = "starting", "", False
        self._driver_due_s = at_s + self._platform.driver_start_s

    def scale(self, scale_out: int, at_s: float) -> None:
        self.declared = scale_out
        if self.driver_up:
            for executor in self.executors[scale_out:]:  # the newest have the coldest workers
                self._lose(executor, at_s)
            self._fill(at_s)

    def ask_to_stop(self) -> None:
        self._stopping = True

    def stop_now(self, at_s: float) -> None:
        self._end_run(at_s)
        self.state, self.reason = "stopped", "stopped between batches"
        self._driver_due_s = None

    def kill_driver(self, at_s: float) -> None:
        self._end_run(at_s)
        self.state, self.reason = "restarting", "the driver was killed"
        self._driver_due_s = at_s + self._platform.driver_notice_s + self._platform.driver_start_s

    def freeze_driver(self, at_s: float) -> None:
        self.frozen_s = at_s

    def wake_driver(self) -> None:
        self.frozen_s = None

    def kill_executor(self, executor: Executor, at_s: float) -> None:
        self._lose(executor, at_s)
        self._fill(at_s)

    # ---------------------------------------------------------------- time

    def progress(self, from_s: float, to_s: float) -> None:
        if self.batch is not None and not self._topics.away:
            self.batch.progress(from_s, to_s, self.behaviour)

    def act(self, at_s: float) -> None:
        while self._one_step(at_s):
            pass

    def next_s(self, at_s: float) -> float:
        """When the next event is due."""
        if self.frozen_s is not None:
            return self.frozen_s + self._platform.driver_timeout_s
        if self._driver_due_s is not None:
            return self._driver_due_s
        if not self.driver_up:
            return math.inf
        moments = [self._start_s(at_s) if self.batch is None else math.inf]
        if self.batch is not None and not self._topics.away:
            moments.append(self.batch.next_s(at_s, self.behaviour))
        for executor in self.executors:
            if executor.registers_s > at_s:
                moments.append(executor.registers_s)
            if executor.frozen_s is not None:
                moments.append(executor.frozen_s + self._platform.executor_timeout_s)
        return min(moments)

    def _one_step(self, at_s: float) -> bool:
        if self.frozen_s is not None:
            if at_s < self.frozen_s + self._platform.driver_timeout_s:
                return False
            self.kill_driver(at_s)
            self.reason = f"the driver was silent for {self._platform.driver_timeout_s:.0f} s"
            return True
        if self._driver_due_s is not None and at_s >= self._driver_due_s:
            self._begin_run(at_s)
            return True
        if not self.driver_up:
            return False
        for executor in self.executors:
            if (
                executor.frozen_s is not None
                and at_s >= executor.frozen_s + self._platform.executor_timeout_s
            ):
                self.kill_executor(executor, at_s)
                return True
            if not executor.seen and executor.registers_s <= at_s:
                executor.seen = True
                if self.batch is not None and self.batch.has_waiting_tasks():
                    self.batch.join(executor, at_s=at_s, warm_up_s=self.behaviour.warm_up_s)
                return True
        if self._topics.away:
            return False
        if self.batch is not None:
            return self.batch.is_done(at_s) and self._finish(self.batch, at_s)
        if self._stopping:
            self.stop_now(at_s)
            return False
        return self._begin_batch(at_s)

    # ------------------------------------------------------------------ runs

    def _begin_run(self, at_s: float) -> None:
        self._driver_due_s = None
        absent = [topic for topic in self._wanted_topics() if topic not in self._topics]
        if absent:
            self.state = "failed"
            wrong = f"job.{self.plan.job}.inputs: there is no topic '{absent[0]}'"
            self.reason = f"{wrong}: create it, or correct the name"
            return
        self.state, self._next_start_s, self._started = "running", at_s, 0
        self._reload_s = self.behaviour.state_load_s if self.checkpoint.batch >= 0 else 0.0
        self.runs += 1
        self.checkpoint.begin(self._positions())
        self._fill(at_s)

    def _end_run(self, at_s: float) -> None:
        if self.batch is not None:
            self._write(self.batch.written, at_s)  # at least once: the next run writes it again
        self.executors, self.batch, self.frozen_s = [], None, None

    def _wanted_topics(self) -> list[str]:
        outputs = [topic for topic in self.plan.outputs.values() if "/" not in topic]
        return [*self.plan.inputs.values(), *outputs]

    def _fill(self, at_s: float) -> None:
        while self.driver_up and len(self.executors) < self.declared:
            due_s = at_s + self._platform.executor_start_s
            self.executors.append(Executor(f"{self.run_id}/{self._started}", due_s))
            self._started += 1

    def _lose(self, executor: Executor, at_s: float) -> None:
        self.executors.remove(executor)
        silent_s = 0.0 if executor.frozen_s is None else at_s - executor.frozen_s
        self.losses[executor.id] = ExecutorLoss(at_s, silent_s)
        if self.batch is not None:
            self.batch.lose(executor, at_s=at_s)

    # --------------------------------------------------------------- batches

    def _begin_batch(self, at_s: float) -> bool:
        members = [executor for executor in self.executors if executor.seen]
        if at_s < self._next_start_s or not members:
            return False
        positions = self._positions()
        ends = self.checkpoint.planned
        if ends is None:
            heads = {topic: self._topics[topic].end(at_s) for topic in positions}
            ends = share_out(positions, heads, limit=self.plan.max_offsets_per_trigger)
            if all(np.array_equal(ends[topic], positions[topic]) for topic in positions):
                self._next_start_s = self._boundary(at_s)
                return False
        if lost := self._deleted(ends):
            self._fail(lost, at_s)
            return False
        counts = np.concatenate([np.maximum(0, ends[t] - positions[t][: ends[t].size]) for t in ends])
        tasks = max(len(members), int(np.count_nonzero(counts)))
        self.batch = Batch(
            number=self.checkpoint.batch + 1,
            ends=ends,
            records=int(counts.sum()),
            begun_s=at_s,
            works_from_s=at_s + self.behaviour.overhead_s + self._reload_s,
            task=float(counts.sum()) / tasks,
            left=float(counts.sum()),
        )
        self._reload_s = 0.0
        for executor in members:
            self.batch.join(executor, at_s=at_s, warm_up_s=self.behaviour.warm_up_s)
        self.checkpoint.planned = dict(ends)
        return True

    def _deleted(self, ends: Mapping[str, Whole]) -> str:
        for topic, end in ends.items():
            from_, starts = self.checkpoint.committed[topic], self._topics[topic].starts
            for part in range(from_.size):
                if from_[part] < min(starts[part], end[part]):
                    return f"offsets {from_[part]} to {starts[part]} of {topic}-{part}"
        return ""

    def _fail(self, lost: str, at_s: float) -> None:
        self._end_run(at_s)
        self.state = "failed"
        self.reason = (
            f"{lost} were deleted before they were read: keep records for longer, use a new checkpoint"
        )

    def _finish(self, batch: Batch, at_s: float) -> bool:
        self.checkpoint.commit(
            batch.number, at_s, before=self._positions(), after=batch.ends, planned_at_s=batch.begun_s
        )
        self._write(batch.written, at_s)
        self._topics.commit_all(self.group, batch.ends)
        self._next_start_s = max(at_s, self._boundary(batch.begun_s))
        self.batch = None
        return True

    def _write(self, records: int, at_s: float) -> None:
        """To every topic that it writes, spread evenly."""
        count = round(records * self.behaviour.output_ratio)
        for name in self.plan.outputs.values():
            if name in self._topics:
                topic = self._topics[name]
                topic.add(at_s, np.diff(np.arange(topic.partitions + 1) * count // topic.partitions))

    def _positions(self) -> dict[str, Whole]:
        return {t: position(self.checkpoint, t, self._topics[t].starts) for t in self.plan.inputs.values()}

    def _boundary(self, at_s: float) -> float:
        trigger = float(self.plan.trigger_s)
        if trigger <= 0.0:
            return at_s
        return (math.floor(at_s / trigger + 1e-9) + 1) * trigger

    def _start_s(self, at_s: float) -> float:
        """When the next batch can start; only while there is none."""
        if self._topics.away or not any(executor.seen for executor in self.executors):
            return math.inf
        if at_s < self._next_start_s:
            return self._next_start_s
        due = [
            self._topics[topic].arrived_s(part, int(offset))
            for topic, positions in self._positions().items()
            for part, offset in enumerate(positions)
        ]
        return max(at_s + POLL_S, min(due, default=math.inf))
