"""Restarts drivers that have died or fallen silent.

Spark replaces lost executors, but not drivers. The watch does: one that was killed is started at
once from its checkpoint; one that falls silent, as when it is frozen, is ended after the network time-out
and started again. Silent is one whose channel does not answer and whose batches do not go on either.
The cluster under them is mended the same way. A pause that doubles stands between starts
that finish no batch. Left alone are a program that came to its end, a setting that is wrong, and a job that
never finished a batch and would fail again. One that has worked is tried again for as long as it takes:
whatever is away, a broker, a store of objects, comes back one day.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from models.errors import HeadroomError
from profiling_jobs.driver.launch_file import Ended
from profiling_jobs.periodic import Periodic

from .drivers import LocalDrivers
from .records import Record, Records

POLL_S = 0.2  # judgement: a dead driver is seen within this
PULSE_S = 2.0  # judgement: how often a driver is asked whether it still answers
ANSWER_S = (
    1.0  # judgement: `status` takes milliseconds; one frozen driver must not hide the others for longer
)
UNASKED_S = 3.0  # judgement: beyond the pulse, time without a question is not the driver's silence
MISSED = 3  # judgement: one answer may be late on a busy machine, so many in a row are no accident
START_S = 120.0  # judgement: a driver listens within a second; a machine may be very busy
FRUITLESS = 5  # judgement: a job that has never worked is left alone after so many more attempts
QUERY_FAILED = 1  # judgement: as above, where the query says what is wrong: the same again, most likely
PAUSE_S = 60.0  # judgement: the longest pause between two starts
TAIL_BYTES = 200_000  # judgement: several reports of a batch


@dataclass
class _Pulse:
    """What one incarnation has answered so far."""

    incarnation: int
    asked_s: float
    answered_s: float
    """Its silence counts from here; later than its last answer where no question was asked for long."""
    missed: int = 0
    """Questions in a row without an answer."""
    traces: tuple[int, ...] | None = None
    """What it had written when it was asked last, since it does not answer."""


class DriverWatch:
    """Keeps the drivers of one folder alive, in a thread. Only the folder's owner may."""

    def __init__(
        self, drivers: LocalDrivers, records: Records, *, silence_s: Callable[[Record], float]
    ) -> None:
        self._drivers = drivers
        self._records = records
        self._silence_s = silence_s
        self._spared: set[str] = set()
        self._thread = Periodic(self._look, every_s=POLL_S, name="driver-watch")
        self._mended_s = -math.inf
        self._pulses: dict[str, _Pulse] = {}
        self._due: dict[tuple[str, int], float] = {}
        self._ended: dict[tuple[str, int], str] = {}
        self._excused: set[tuple[str, int]] = set()
        """Incarnations that we ended, or that ended while there was no watch: no fault of theirs."""
        self._starts: dict[tuple[str, int], int] = {}
        """Incarnations that we started -> how many in a row that is, without a finished batch."""

    @property
    def running(self) -> bool:
        """Whether it watches."""
        return self._thread.running

    def start(self) -> None:
        """Watch from now on."""
        if not self.running:
            self._excuse_the_dead()
            self._thread.start()

    def close(self) -> None:
        """Stop watching. Running processes go on."""
        self._thread.close()

    def spare(self, name: str, spared: bool = True) -> None:
        """This driver is being ended on purpose, and started again by the same caller."""
        (self._spared.add if spared else self._spared.discard)(name)
        if spared and (record := self._records.find(name)) is not None:
            self._excused.add((name, record.incarnation))

    def hopeless(self, record: Record) -> bool:
        """Whether a driver that has ended would only end again."""
        ended = self._drivers.ended(record)
        if ended is not None and ended.how == "refused":
            return True
        if record.progressed or self._progressed(record, ended):
            return False
        if (record.name, record.incarnation) in self._excused:
            return False
        if ended is None:
            return record.fruitless >= FRUITLESS
        # Neither a broker that is away nor a restart that was cut short says anything about the job. A query
        # that fails once may have been cut short by others, or by what it reads; a program may not.
        return ended.how == "threw" or (ended.how == "query failed" and record.fruitless >= QUERY_FAILED)

    def tend(self, name: str) -> None:
        """Check one deployment, and restart its driver where needed."""
        with self._records.changing:
            record = self._records.find(name)
            if record is None or record.wanted != "running" or record.failed or name in self._spared:
                return
            if self._drivers.process(name) is None:
                self._revive(record)
                return
        self._feel_pulse(record)

    def _look(self) -> None:
        records: list[Record] = []
        with suppress(HeadroomError, OSError):  # a record that cannot be read now may be so in a moment
            records = [record for record in self._records.all() if record.wanted == "running"]
        if records and time.monotonic() - self._mended_s > PULSE_S:
            self._mended_s = time.monotonic()
            self._try(records, self._mend)
        for record in records:
            self._try([record], partial(self.tend, record.name))

    def _try(self, records: list[Record], do: Callable[[], None]) -> None:
        """What goes wrong is the reason that these do not run, and is tried again."""
        try:
            do()
        except Exception as error:  # noqa: BLE001 - jobs are watched for days: nothing may end that
            for record in records:
                with suppress(HeadroomError, OSError):
                    self._records.change(record.name, reason=str(error))

    def _mend(self) -> None:
        """Restart what has died of the Spark cluster. Jobs without their master would wait for ever."""
        with self._records.changing:
            if self._drivers.mend_cluster():
                for record in self._records.all():
                    if record.wanted == "running" and not record.failed:
                        self._excused.add((record.name, record.incarnation))
                        self._end(record, "the Spark master had died")

    def _end(self, record: Record, reason: str) -> None:
        self._ended[record.name, record.incarnation] = reason
        for process in self._drivers.processes(record.name):
            process.signal(signal.SIGKILL)

    def _revive(self, record: Record) -> None:
        ended = self._drivers.ended(record)
        progressed = self._progressed(record, ended)
        key = record.name, record.incarnation
        if progressed:
            self._starts.pop(key, None)
            record = replace(record, progressed=True, fruitless=0)
        killed = f"the driver was killed: see {self._drivers.log(record.name)}"
        ours = self._ended.get(key, killed)
        record = replace(record, reason=ended.reason if ended else ours)
        if ended is not None and ended.how == "finished":
            self._records.save(replace(record, wanted="stopped"))
        elif self.hopeless(record):
            self._records.save(replace(record, failed=True))
        else:
            starts = self._starts.get(key, 0)
            if time.monotonic() >= self._due.setdefault(key, time.monotonic() + pause_s(starts)):
                self._due.pop(key)
                said_why = ended is not None and ended.how != "query failed"
                counts = not said_why and not progressed and key not in self._excused
                started = self._drivers.start(replace(record, fruitless=record.fruitless + counts))
                self._starts.pop(key, None)
                self._starts[record.name, started.incarnation] = starts + 1

    def _excuse_the_dead(self) -> None:
        """Count no failure for drivers that ended with an earlier owner or with the machine."""
        for record in self._records.all():
            if record.wanted == "running" and self._drivers.process(record.name) is None:
                self._excused.add((record.name, record.incarnation))

    def _progressed(self, record: Record, ended: Ended | None) -> bool:
        """Whether this incarnation finished a batch; a killed one has left its file of events."""
        if ended is not None:
            return ended.batches > 0
        mark = f'"incarnation": {record.incarnation}, '.encode()
        with suppress(OSError), (self._records.folder(record.name) / "progress.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            return any(mark in line and b'"addBatch"' in line for line in file)
        return False

    def _feel_pulse(self, record: Record) -> None:
        now_s = time.monotonic()
        pulse = self._pulses.get(record.name)
        if pulse is None or pulse.incarnation != record.incarnation:
            pulse = self._pulses[record.name] = _Pulse(record.incarnation, now_s, now_s)
        elif now_s - pulse.asked_s < PULSE_S:
            return
        # One thread does everything: it waits for locks, mends Spark, revives others, may itself be stopped.
        pulse.answered_s += max(0.0, now_s - pulse.asked_s - PULSE_S - UNASKED_S)
        pulse.asked_s = now_s
        try:
            said = self._drivers.client(record).status(timeout_s=ANSWER_S)
        except HeadroomError:
            pulse.missed += 1
            traces = self._drivers.traces(record)
            if pulse.traces not in (None, traces):  # a channel may be clogged: its batches go on
                pulse.answered_s, pulse.missed = time.monotonic(), 0
            pulse.traces = traces
        else:
            pulse.answered_s, pulse.missed, pulse.traces = time.monotonic(), 0, None
            self._note_batches(record, said)
        patience_s = self._silence_s(record) if self._drivers.listening(record) else START_S
        if pulse.missed < MISSED or time.monotonic() - pulse.answered_s <= patience_s:
            return
        with self._records.changing:
            if self._records.known(record.name).incarnation == record.incarnation:
                self._end(record, f"the driver was silent for {patience_s:.0f} s")

    def _note_batches(self, record: Record, said: dict[str, Any]) -> None:
        """Note that batches were done. At once, as the reports of an idle driver do not show it any more."""
        if not said.get("batches"):
            return
        self._starts.pop((record.name, record.incarnation), None)
        if record.progressed and not record.fruitless:
            return
        with self._records.changing:
            if self._records.known(record.name).incarnation == record.incarnation:
                self._records.change(record.name, progressed=True, fruitless=0)


def pause_s(starts: int) -> float:
    """How long to wait after so many starts in a row without a finished batch."""
    if not starts:
        return 0.0
    # A number that grows for weeks is too large a power long before.
    return min(PAUSE_S, 2.0 ** min(starts, 10))
