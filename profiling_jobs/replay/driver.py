"""How does a source reach a commanded rate of hundreds of thousands of records a second, and keep it?

`python -m profiling_jobs.replay.driver FOLDER/replay.json` is a Spark driver with one long batch job on
local[N]: its `mapInArrow` yields each slice when it is due, and the Kafka sink writes it. (A job per slice
costs 70 ms, and a Python producer ends at 30 000 records/s.) All tasks follow one schedule, which may be
changed while they run; they draw the same records and share them out by key. The process ends by itself with
its schedule.

Once a second the driver asks the broker for its end offsets and writes what was achieved beside what was
commanded: what a task has handed over may still be on its way.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from models.quantities import Misuse

from ..driver.orders import read_json, write_json
from ..errors import HeadroomError, Misconfigured, NotReady
from ..recording.driver import say, session
from ..signals.log_offsets import LogOffsets
from . import event_time, replay_plan
from .pacing import Pace
from .rates import MICROS, Schedule
from .replay_plan import Replay
from .resampling import draw
from .sources import Source, open_source
from .tape import WANTED, Records, Tape

REPORT_US = MICROS
START_IN_S = 0.5  # judgement: every task has seen by then when it begins
READY_S = 300.0  # judgement: a session takes 8 s on an idle machine, minutes on one that is busy
OVERTIME_S = 150.0  # Kafka's producer gives a record up after 120 s
SPARK_TYPES = {
    "key": "key binary",
    "value": "value binary",
    "headers": "headers array<struct<key:string,value:binary>>",
    "partition": "partition int",
}
SINK = {  # as the Java producer's defaults, but for a batch that is worth sending
    "kafka.linger.ms": "5",
    "kafka.batch.size": "131072",
}


@dataclass(frozen=True)
class Work:
    """What every task is given."""

    replay: Replay
    source: Source
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One task: its number comes in, its records go out when they are due."""
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from Task(self, int(task)).records()


class Task:
    """One of the tasks that send."""

    def __init__(self, work: Work, number: int) -> None:
        self._work, self._number, self._folder = work, number, work.replay.folder
        self._pace = Pace(task=number, tasks=work.replay.tasks, slice_us=work.replay.slice_us)
        self._tape = Tape(work.source, task=number, tasks=work.replay.tasks)
        name, unit = work.replay.event_time, work.replay.event_time_unit
        self._shift = event_time.shift_by(name, unit=unit) if name else None
        self._schedule_file = ScheduleFile(self._folder)
        self._sent = self._given_up = 0
        self._told_us = 0

    def records(self) -> Iterator[pa.RecordBatch]:
        """What is due, when it is due, until the schedule is over."""
        for _ in self._tape.take(np.zeros(1, dtype=np.int64)):  # have something in memory before it begins
            pass
        start_us = self._start_us()
        slice_us, number, last_us = self._pace.slice_us, 0, 0
        while number * slice_us < (schedule := self._schedule_file.read()).end_us:
            now_us = time.time_ns() // 1000 - start_us
            leaves_us = self._pace.leaves_us(number, last_us=last_us)
            if now_us < leaves_us:
                self._tell(now_us, number)
                time.sleep((leaves_us - now_us) / MICROS)
                continue  # the schedule may have changed meanwhile
            goes_on = self._pace.resumes(number, now_us=now_us)
            if goes_on > number:
                self._given_up += schedule.due(goes_on * slice_us) - schedule.due(number * slice_us)
                number = goes_on
            yield from self._slice(schedule, number, start_us)
            number, last_us = number + 1, now_us
            self._tell(now_us, number)
        self._tell(sys.maxsize, number)

    def _slice(self, schedule: Schedule, number: int, start_us: int) -> Iterator[pa.RecordBatch]:
        begin_us, end_us = number * self._pace.slice_us, (number + 1) * self._pace.slice_us
        before, due = schedule.due(begin_us), schedule.due(end_us)
        if due == before:
            return
        source, copies = self._work.source, self._work.replay.exact_copies
        position = source.position(begin_us, before, copies=copies)
        chosen = draw(
            position=position,
            advance=source.position(end_us, due, copies=copies) - position,
            count=due - before,
            seed=self._work.replay.seed,
            number=number,
        )
        now_ms = (start_us + end_us) // 1000
        for records in self._tape.take(chosen):
            self._sent += records.batch.num_rows
            yield self._outgoing(records, now_ms)

    def _outgoing(self, records: Records, now_ms: int) -> pa.RecordBatch:
        batch = records.batch
        columns = {name: batch.column(batch.schema.get_field_index(name)) for name in self._work.columns}
        if self._shift is not None:
            by_ms = np.where(records.at_ms >= 0, now_ms - records.at_ms, 0)
            columns["value"] = self._shift(columns["value"], by_ms)
        return pa.record_batch(list(columns.values()), names=list(columns))

    def _start_us(self) -> int:
        (self._folder / f"ready.{self._number}").touch()
        until = time.monotonic() + READY_S
        while (found := read_json(self._folder / "start.json")) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"nobody gave the start within {READY_S:.0f} s")
            time.sleep(0.01)
        return int(found["start_us"])

    def _tell(self, now_us: int, number: int) -> None:
        if now_us < self._told_us + REPORT_US:
            return
        self._told_us = now_us
        path = self._folder / f"task-{self._number}.json"
        late_us = self._pace.late_us(number, now_us=now_us) if now_us < sys.maxsize else 0
        text = json.dumps({"sent": self._sent, "given_up": self._given_up, "late_s": late_us / MICROS})
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").replace(path)


class ScheduleFile:
    """The schedule as it stands; read again only when somebody has written it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "schedule.json"
        self._seen: tuple[int, int] | None = None
        self._schedule = Schedule.constant(0, duration_s=1)

    def read(self) -> Schedule:
        """For each slice."""
        stat = self._path.stat()
        if (stat.st_ino, stat.st_mtime_ns) != self._seen:
            self._seen = stat.st_ino, stat.st_mtime_ns
            self._schedule = Schedule.from_json(json.loads(self._path.read_text()))
        return self._schedule


class Director(threading.Thread):
    """Gives the start once every task is ready, and reports every second what has reached the broker."""

    def __init__(self, replay: Replay, offsets: LogOffsets) -> None:
        super().__init__(name="headroom-replay", daemon=True)
        self._replay, self._offsets = replay, offsets
        self._schedule_file = ScheduleFile(replay.folder)
        self._over = threading.Event()
        self._base: dict[int, int] = {}
        self._start_s = 0.0
        self._before: tuple[float, int] | None = None

    def run(self) -> None:
        ready = [self._replay.folder / f"ready.{task}" for task in range(self._replay.tasks)]
        while not all(path.exists() for path in ready):
            if self._over.wait(0.02):
                return
        self._base = self._offsets.ends()
        self._start_s = time.time() + START_IN_S
        self._write({"at_s": self._start_s, "head": 0})
        write_json(self._replay.folder / "start.json", {"schema": 1, "start_us": int(self._start_s * MICROS)})
        beat = 0
        while not self._over.wait(max(0.0, self._start_s + beat - time.time())):
            beat = int(time.time() - self._start_s) + 1
            self.report()
            over_s = self._start_s + self._schedule_file.read().end_us / MICROS + OVERTIME_S
            if time.time() > over_s:
                replay_plan.end(
                    self._replay.folder, "threw", f"the broker took no records for {OVERTIME_S:.0f} s"
                )
                os._exit(1)

    def finish(self) -> None:
        """The last report."""
        self._over.set()
        self.join(timeout=10.0)
        if self._start_s:
            self.report()

    def report(self) -> None:
        """What is there now, beside what should be."""
        began_s, head = time.time(), None
        with suppress(NotReady):
            head = sum(end - self._base.get(part, 0) for part, end in self._offsets.ends().items())
        at_s = (began_s + time.time()) / 2
        if at_s <= self._start_s:
            return
        self._write({"at_s": at_s, "head": head})
        if head is not None:
            self._before = at_s, head

    def _write(self, seen: dict[str, Any]) -> None:
        told = [read_json(self._replay.folder / f"task-{n}.json") or {} for n in range(self._replay.tasks)]
        line: dict[str, Any] = {
            **seen,
            "sent": sum(one.get("sent", 0) for one in told),
            # Every task counts all the records of a slice it has given up, its share of them is not known.
            "given_up": sum(one.get("given_up", 0) for one in told) // self._replay.tasks,
            "late_s": max((one.get("late_s", 0.0) for one in told), default=0.0),
        }
        if self._before is not None and seen["head"] is not None:
            then_s, before = self._before
            schedule = self._schedule_file.read()
            span_us = [int((moment - self._start_s) * MICROS) for moment in (then_s, seen["at_s"])]
            line["achieved_rps"] = (seen["head"] - before) / (seen["at_s"] - then_s)
            line["commanded_rps"] = schedule.mean_rps(*span_us)
        elif self._before is None and seen["head"] is not None:
            self._before = seen["at_s"], seen["head"]
        with (self._replay.folder / "achieved.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def prepared(replay: Replay, partitions: int) -> Work:
    """The plan with its records found and checked, before Spark is started."""
    source = open_source(replay.source, folder=replay.folder, seed=replay.seed)
    if replay.event_time and "timestamp" not in source.columns:
        raise Misconfigured(
            "event_time", f"{replay.source} has no column `timestamp`, by which event times would be moved"
        )
    if isinstance(replay.event_time, str):
        shift = event_time.shift_by(replay.event_time, unit=replay.event_time_unit)
        if isinstance(shift, event_time.JsonField):
            for records in Tape(source).take(np.arange(min(source.records, event_time.SAMPLE))):
                shift.check(records.batch.column("value"))
                break
    kept = replay.keep_partitions
    if kept is None:
        kept = source.partitions == partitions
    elif kept and "partition" not in source.columns:
        raise Misconfigured("keep_partitions", f"{replay.source} has no column `partition`")
    if kept and source.partitions is not None and source.partitions > partitions:
        raise Misconfigured(
            "keep_partitions",
            f"{replay.topic} has {partitions} partitions, {source.partitions} were recorded",
        )
    dropped = set() if kept else {"partition"}
    return Work(replay, source, tuple(name for name in WANTED if name in source.columns - dropped))


def send(spark: Any, work: Work, offsets: LogOffsets) -> None:
    """Run the replay on this session, until it is over."""
    director = Director(work.replay, offsets)
    director.start()
    try:
        tasks = work.replay.tasks
        spelt = ", ".join(SPARK_TYPES[name] for name in work.columns)
        frame = spark.range(0, tasks, 1, tasks).mapInArrow(mapped(work), spelt)
        writer = frame.write.format("kafka").options(**work.replay.brokers.spark()).options(**SINK)
        if "headers" in work.columns:
            writer = writer.option("includeHeaders", "true")
        writer.option("topic", work.replay.topic).save()
    finally:
        director.finish()


def mapped(work: Work) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """As a function: Spark wants one."""

    def slices(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from work(batches)

    return slices


def conf(replay: Replay) -> dict[str, str]:
    """What the session needs, whatever else it is told."""
    return {
        "spark.master": f"local[{replay.tasks}]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **replay.conf,
        # Otherwise a slice would wait in Python until 64 kB have come together.
        "spark.sql.execution.pandas.udf.buffer.size": "64",
    }


def main(arguments: list[str]) -> int:
    """Replay what the plan says."""
    replay = Replay.read(Path(arguments[0]))
    try:
        offsets = LogOffsets(replay.brokers, topic=replay.topic)
        work = prepared(replay, len(offsets.ends()))
        pa.default_memory_pool().release_unused()  # of a generator, which is not asked again
        say(f"{work.source.records:,} records of {replay.source} to {replay.topic}, {replay.tasks} tasks")
        send(session(f"replay-{replay.topic}", conf(replay)), work, offsets)
    except (HeadroomError, Misuse) as error:
        replay_plan.end(replay.folder, "refused", str(error))
        say(str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - whatever Spark or Kafka throws is the end of it
        reason = f"{type(error).__name__}: {error}"[:2000]
        replay_plan.end(replay.folder, "threw", reason)
        say(reason)
        return 1
    replay_plan.end(replay.folder, "finished", "the schedule is over")
    return 0


if __name__ == "__main__":
    # Not as __main__: what the tasks unpickle must be found under its own name.
    from profiling_jobs.replay import driver as named

    code = named.main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # whatever threads Spark has left behind
