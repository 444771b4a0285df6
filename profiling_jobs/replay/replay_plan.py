"""A replay: its folder, its schedule, the pace of its slices, and how it is controlled while it runs.

    replay.json      the plan
    schedule.json    the rate for every moment; written again whole to change it, seen with the next slice
    ready.0 …        one per task, once it has its first records in memory
    start.json       when the schedule began
    task-0.json …    what each task has sent
    achieved.jsonl   once a second: what reached the broker, and what the tasks have sent or given up
    ended.json       how it came to its end

With rate r(u), constant on each stretch, due(t) = ⌊∫₀ᵗ r(u) du⌋. Times are whole microseconds and rates whole
millirecords per second, so the integral is an integer in units of 10⁻⁹ records: nothing drifts. What was due
before a change of the schedule stays due.

Slice s holds what falls due in [s·Δ, (s+1)·Δ) and leaves when that is over. Task i of n leaves i·Δ/n later,
so that the slices of the tasks interleave. A late source does not burst: slices follow each other at Δ / 1.15
until it has caught up. What is more than two seconds late is given up, and counted, or a source that cannot
reach its rate would be late for ever. In its first seconds it may be ten late, while classes are loaded and
connections made.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from models import codec
from models.arguments import number, whole
from models.quantities import Misuse, Unknown

from ..brokers import Brokers
from ..driver.launch_file import read_json, write_json

Unit = Literal["s", "ms", "us", "iso"]
SCHEDULE = "schedule.json"


CATCH_UP = 1.15  # judgement: within the 20 % that a slice may be off
PATIENCE_US = 2_000_000  # judgement: longer than a garbage collection, shorter than any probe
FIRST_US = 10_000_000  # judgement: the first records took 0.3 s, and 5 s on a machine that was busy
SLICE_US = 20_000  # measured: five to each 100 ms, 2 × 50 batches/s through Arrow cost a tenth of a core


@dataclass(frozen=True)
class Pace:
    """The rhythm of one task."""

    task: int = 0
    tasks: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.task < self.tasks:
            raise Misuse("task", f"must lie within 0 and {self.tasks - 1}, got {self.task}")

    def falls_due_us(self, number: int) -> int:
        """When the slice leaves, if all goes well."""
        return (number + 1) * SLICE_US + self.task * SLICE_US // self.tasks

    def leaves_us(self, number: int, *, last_us: int) -> int:
        """When it leaves after the one before has left at `last_us`."""
        return max(self.falls_due_us(number), last_us + int(SLICE_US / CATCH_UP))

    def resumes(self, number: int, *, now_us: int) -> int:
        """The slice to go on with: this one, or the newest that is due when it is too late for this one."""
        due_us = self.falls_due_us(number)
        patience_us = max(PATIENCE_US, FIRST_US - due_us)
        late_us = now_us - due_us
        return number if late_us <= patience_us else number + late_us // SLICE_US


MICROS = 1_000_000
UNIT = 1_000_000_000  # a millirecord per second for a microsecond is 10⁻⁹ records
LONGEST_S = 30 * 86_400.0  # judgement: a source that outlives its job by a month was forgotten
HIGHEST_RPS = 1e7  # judgement: far above any one machine


@dataclass(frozen=True)
class Schedule:
    """A rate for every moment from 0 to the end."""

    schema: ClassVar[int] = 1
    stretches: tuple[tuple[int, int], ...]
    """(from µs, millirecords per second), the first from 0, ascending."""
    end_us: int

    def __post_init__(self) -> None:
        starts = [start for start, _ in self.stretches]
        if not starts or starts[0] != 0:
            raise Misuse("stretches", "must begin at 0")
        if any(later <= earlier for earlier, later in pairwise(starts)):
            raise Misuse("stretches", "must ascend")
        if any(not 0 <= rate <= HIGHEST_RPS * 1000 for _, rate in self.stretches):
            raise Misuse("stretches", f"rates must lie within 0 and {HIGHEST_RPS:g} records/s")
        if not starts[-1] <= self.end_us <= LONGEST_S * MICROS:
            raise Misuse("end_us", f"must lie between the last stretch and {LONGEST_S:,.0f} s")

    @classmethod
    def constant(cls, rate_rps: float, *, duration_s: float) -> Self:
        return cls.steps([(duration_s, rate_rps)])

    @classmethod
    def steps(cls, steps: Iterable[tuple[float, float]]) -> Self:
        """(seconds, records/s), one after the other."""
        stretches, at_us = [], 0
        for index, (duration_s, rate_rps) in enumerate(steps):
            stretches.append((at_us, _milli(f"steps[{index}] rate", rate_rps)))
            at_us += micros(number(f"steps[{index}] duration", duration_s, at_least=1e-6, at_most=LONGEST_S))
        if not stretches:
            raise Misuse("steps", "must not be empty")
        return cls(tuple(stretches), at_us)

    def due(self, at_us: int) -> int:
        """Records due from 0 until this moment. After the end it stays as it is."""
        at_us = min(at_us, self.end_us)
        if at_us <= 0:
            return 0
        place = bisect_right(self._starts, at_us) - 1
        start, rate = self.stretches[place]
        return (self._before[place] + rate * (at_us - start)) // UNIT

    def mean_rps(self, from_us: int, to_us: int) -> float:
        if to_us <= from_us:
            raise Misuse("to_us", "must be after from_us")
        return (self.due(to_us) - self.due(from_us)) * MICROS / (to_us - from_us)

    def changed(self, rate_rps: float, *, at_us: int) -> Self:
        """The same until `at_us`, and from then on another rate; what stood after it falls away."""
        at_us = max(at_us, 0)
        if at_us >= self.end_us:
            raise Misuse("at_us", f"the schedule is over after {self.end_us / MICROS:,.0f} s")
        kept = tuple(stretch for stretch in self.stretches if stretch[0] < at_us)
        return type(self)((*kept, (at_us, _milli("rate_rps", rate_rps))), self.end_us)

    def ended(self, *, at_us: int) -> Self:
        at_us = min(max(at_us, 0), self.end_us)
        kept = tuple(stretch for stretch in self.stretches if stretch[0] < at_us)
        return type(self)(kept or ((0, 0),), at_us)

    @classmethod
    def read(cls, folder: Path) -> Self:
        return codec.from_json(cls, json.loads((folder / SCHEDULE).read_text()))

    def write(self, folder: Path, *, still: Callable[[], bool] = lambda: True) -> bool:
        return write_json(folder / SCHEDULE, codec.to_json(self), still=still)

    @cached_property
    def _starts(self) -> list[int]:
        return [start for start, _ in self.stretches]

    @cached_property
    def _before(self) -> list[int]:
        """What is due when each stretch begins, in 10⁻⁹ records."""
        sums = [0]
        for (start, rate), (end, _) in pairwise(self.stretches):
            sums.append(sums[-1] + rate * (end - start))
        return sums


def micros(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * MICROS)


def _milli(name: str, rate_rps: float) -> int:
    return round(number(name, rate_rps, at_least=0.0, at_most=HIGHEST_RPS) * 1000)


LEAD_S = 0.25  # judgement: every task has polled by then, so all change with the same slice
STALE_S = 3.0  # a broker that is asked every second and has not answered three times


@dataclass(frozen=True)
class Replay:
    """What one replay process has to do."""

    schema: ClassVar[int] = 1
    topic: str
    source: str
    """A recording, a Parquet path, or generator:NAME."""
    schedule: Schedule = field(metadata=codec.GIVEN)
    brokers: Brokers
    folder: Path = field(metadata=codec.GIVEN)
    tasks: int = 2
    seed: int = 0
    event_time: str | None = None
    """The JSON field, or the codec, that is moved to now. None: values stay as they are."""
    event_time_unit: Unit = "ms"
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's."""

    def __post_init__(self) -> None:
        whole("tasks", self.tasks)
        whole("seed", self.seed, at_least=0)

    def write(self) -> Path:
        path = self.folder / "replay.json"
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(path, codec.to_json(self))
        self.schedule.write(self.folder)
        return path

    @classmethod
    def read(cls, path: Path) -> Replay:
        folder = path.parent
        return codec.from_json(
            cls, json.loads(path.read_text()), schedule=Schedule.read(folder), folder=folder
        )


@dataclass(frozen=True)
class Achieved:
    """What a source was to send in some time, and what arrived at the broker."""

    achieved_rps: float | Unknown
    commanded_rps: float


class Control:
    """A replay's folder, as its commander sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reports: list[Mapping[str, Any]] = []
        self._read_to = 0

    @property
    def started_s(self) -> float | None:
        """When the schedule began, in epoch seconds; None before."""
        found = read_json(self.folder / "start.json")
        return None if found is None else found["start_us"] / MICROS

    @property
    def ended(self) -> tuple[str, str] | None:
        """How it ended and why; None while it runs, and when it was killed."""
        found = read_json(self.folder / "ended.json")
        return None if found is None else (found["how"], found["reason"])

    @property
    def schedule(self) -> Schedule:
        return Schedule.read(self.folder)

    def set_rate(self, rate_rps: float) -> float:
        """Another rate from a moment on that is returned (epoch seconds). Before the start: from there on."""
        at_us = self._change(lambda schedule, at_us: schedule.changed(rate_rps, at_us=at_us))
        return (self.started_s or time.time()) + at_us / MICROS

    def finish(self) -> None:
        """Let it end by itself, with the records that are due by now."""
        self._change(lambda schedule, at_us: schedule.ended(at_us=at_us))

    def achieved(self, from_s: float, to_s: float) -> Achieved:
        """What was sent between two moments (epoch seconds), from the broker's end offsets."""
        started_s = self.started_s
        if started_s is None:
            return Achieved(Unknown("the source has not started yet"), 0.0)
        begin_us, end_us = micros(from_s - started_s), micros(to_s - started_s)
        commanded = self.schedule.mean_rps(begin_us, end_us)
        # Reckoned from the beginning of the schedule, when nothing had been sent.
        known = [(one["at_s"], one["head"]) for one in self.reports() if one["head"] is not None]
        heads = [_interpolated(known, at_s) for at_s in (from_s, to_s)]
        for head in heads:
            if isinstance(head, Unknown):
                return Achieved(head, commanded)
        before, after = (float(head) for head in heads if not isinstance(head, Unknown))
        return Achieved((after - before) / (to_s - from_s), commanded)

    def reports(self) -> tuple[Mapping[str, Any], ...]:
        path = self.folder / "achieved.jsonl"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read_to)
                text = file.read()
            complete = text[: text.rfind(b"\n") + 1]
            self._read_to += len(complete)
            self._reports += [json.loads(line) for line in complete.splitlines()]
        return tuple(self._reports)

    def _change(self, changed: Callable[[Schedule, int], Schedule]) -> int:
        """Change the schedule from a moment on, which is returned.

        A disk may take longer for the file than the lead. Tasks would have passed slices by then that the new
        schedule counts as sent: what fell due in them would never leave.
        """
        lead_s = LEAD_S
        while True:
            at_us = self._soon(lead_s)
            if changed(self.schedule, at_us).write(self.folder, still=partial(self._is_ahead, at_us)):
                return at_us
            lead_s *= 2

    def _is_ahead(self, at_us: int) -> bool:
        return self._soon(LEAD_S / 2) <= at_us

    def _soon(self, lead_s: float) -> int:
        started_s = self.started_s
        if started_s is None:
            return 0
        return max(0, micros(time.time() - started_s + lead_s))


Mark = Literal["finished", "refused", "threw"]


def end(folder: Path, how: Mark, reason: str) -> None:
    """Write down how a replay ended."""
    write_json(folder / "ended.json", {"schema": 1, "how": how, "reason": reason})


def _interpolated(known: list[tuple[float, int]], at_s: float) -> float | Unknown:
    """The broker's end at this moment, between two answers that are not too far from it."""
    if not known:
        return Unknown("the broker has not answered yet")
    if at_s < known[0][0] - 1e-3:
        return Unknown("the source had not started then")
    after = next((index for index, (then, _) in enumerate(known) if then >= at_s), None)
    if after is None:
        return Unknown(f"the broker's last answer was {at_s - known[-1][0]:.1f} s before that moment")
    if after == 0:
        return float(known[0][1])
    (left_s, left), (right_s, right) = known[after - 1], known[after]
    if max(at_s - left_s, right_s - at_s) > STALE_S:
        return Unknown(f"the broker did not answer for {right_s - left_s:.0f} s around that moment")
    return left + (right - left) * (at_s - left_s) / (right_s - left_s)
