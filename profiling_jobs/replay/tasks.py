"""One task of a replay: it sends what is due, when it is due.

All tasks follow one schedule, which may be changed while they run; they draw the same records and share them
out by key. A task is given its number and yields each slice when it leaves: Spark's sink writes it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..driver.launch_file import read_json
from . import event_time
from .replay_plan import MICROS, SCHEDULE, SLICE_US, Pace, Replay, Schedule
from .sources import Source, draw
from .tape import Records, Tape

REPORT_US = MICROS
READY_S = 300.0  # judgement: a session takes 8 s on an idle machine, minutes on one that is busy


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
        self._pace = Pace(task=number, tasks=work.replay.tasks)
        self._tape = Tape(work.source, task=number, tasks=work.replay.tasks)
        name, unit = work.replay.event_time, work.replay.event_time_unit
        self._shift = event_time.shift_by(name, unit=unit) if name else None
        self._schedule_file = ScheduleFile(self._folder)
        self._sent = self._given_up = 0
        self._told_us = 0

    def records(self) -> Iterator[pa.RecordBatch]:
        for _ in self._tape.take(np.zeros(1, dtype=np.int64)):  # have something in memory before it begins
            pass
        start_us = self._start_us()
        number, last_us = 0, 0
        while True:
            # Before the schedule is read: one that is changed meanwhile is changed from a later moment on.
            now_us = time.time_ns() // 1000 - start_us
            schedule = self._schedule_file.read()
            if number * SLICE_US >= schedule.end_us:
                break
            leaves_us = self._pace.leaves_us(number, last_us=last_us)
            if now_us < leaves_us:
                self._tell(now_us)
                time.sleep((leaves_us - now_us) / MICROS)
                continue  # the schedule may have changed meanwhile
            goes_on = self._pace.resumes(number, now_us=now_us)
            if goes_on > number:
                self._given_up += schedule.due(goes_on * SLICE_US) - schedule.due(number * SLICE_US)
                number = goes_on
            yield from self._slice(schedule, number, start_us)
            number, last_us = number + 1, now_us
            self._tell(now_us)
        self._tell(sys.maxsize)

    def _slice(self, schedule: Schedule, number: int, start_us: int) -> Iterator[pa.RecordBatch]:
        begin_us, end_us = number * SLICE_US, (number + 1) * SLICE_US
        before, due = schedule.due(begin_us), schedule.due(end_us)
        if due == before:
            return
        source = self._work.source
        position = source.position(begin_us, before)
        chosen = draw(
            position=position,
            advance=source.position(end_us, due) - position,
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
                raise TimeoutError(f"the replay was not started within {READY_S:.0f} s")
            time.sleep(0.01)
        return int(found["start_us"])

    def _tell(self, now_us: int) -> None:
        if now_us < self._told_us + REPORT_US:
            return
        self._told_us = now_us
        path = self._folder / f"task-{self._number}.json"
        text = json.dumps({"sent": self._sent, "given_up": self._given_up})
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").replace(path)


class ScheduleFile:
    """The schedule as it stands; read again only when it was written."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SCHEDULE
        self._seen: tuple[int, int] | None = None
        self._schedule = Schedule.constant(0, duration_s=1)

    def read(self) -> Schedule:
        stat = self._path.stat()
        if (stat.st_ino, stat.st_mtime_ns) != self._seen:
            self._seen = stat.st_ino, stat.st_mtime_ns
            self._schedule = Schedule.read(self._path.parent)
        return self._schedule
