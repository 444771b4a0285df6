"""What is a replay told, how is its rate changed while it runs, and what did it really send?

A replay is a folder:

    replay.json      the plan
    schedule.json    the rate for every moment; written again whole to change it, seen with the next slice
    ready.0 …        one per task, once it has its first records in memory
    start.json       when the schedule began
    task-0.json …    what each task has sent
    achieved.jsonl   once a second: what reached the broker, beside what was commanded
    ended.json       how it came to its end
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from models.arguments import number, whole
from models.quantities import Misuse, Unknown

from ..brokers import Brokers
from ..driver.orders import read_json, write_json
from .pacing import SLICE_US
from .rates import MICROS, Schedule, micros

if TYPE_CHECKING:
    from .event_time import Unit  # with Arrow, of which whoever commands a replay has no use

LEAD_S = 0.25  # judgement: every task has polled by then, so all change with the same slice
STALE_S = 3.0  # a broker that is asked every second and has not answered three times
REACHED_SHARE = 0.99  # as in the verdict on a probe


@dataclass(frozen=True)
class Replay:
    """What one replay process has to do."""

    topic: str
    source: str
    """A recording, a Parquet path, or generator:NAME."""
    schedule: Schedule
    brokers: Brokers
    folder: Path
    tasks: int = 2
    seed: int = 0
    copies: float | None = None
    """How often each record appears. None: what keeps a recording's own time at the commanded rate; 1: every
    record once and in turn, as a source without timestamps has it anyway."""
    event_time: str | None = None
    """The JSON field, or the codec, that is moved to now. None: values stay as they are."""
    event_time_unit: Unit = "ms"
    keep_partitions: bool | None = None
    """Into the partition that a record came from. None: where the topics have as many of them."""
    slice_us: int = SLICE_US
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's."""

    def __post_init__(self) -> None:
        whole("tasks", self.tasks)
        whole("seed", self.seed, at_least=0)
        if self.copies is not None:
            number("copies", self.copies, above=0.0, at_most=1e6)

    @property
    def exact_copies(self) -> Fraction | None:
        """`copies`, such that positions can be reckoned in whole numbers."""
        return None if self.copies is None else Fraction(self.copies).limit_denominator(1_000_000)

    def write(self) -> Path:
        """Where the plan is then."""
        path = self.folder / "replay.json"
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        plain = {
            key: value for key, value in vars(self).items() if key not in ("schedule", "brokers", "folder")
        }
        write_json(path, {"schema": 1, **plain, "conf": dict(self.conf), "brokers": self.brokers.to_json()})
        write_json(self.folder / "schedule.json", self.schedule.to_json())
        return path

    @classmethod
    def read(cls, path: Path) -> Replay:
        """What `write` has written."""
        data = {key: value for key, value in json.loads(path.read_text()).items() if key != "schema"}
        return cls(
            **{
                **data,
                "schedule": Schedule.from_json(json.loads((path.parent / "schedule.json").read_text())),
                "brokers": Brokers.from_json(data["brokers"]),
                "folder": path.parent,
            }
        )


@dataclass(frozen=True)
class Achieved:
    """What a source was to send in some time, and what arrived at the broker."""

    achieved_rps: float | Unknown
    commanded_rps: float
    given_up: int = 0
    """Records that were so late, up to the end of this time, that they were never sent."""

    @property
    def reached(self) -> bool | Unknown:
        """Whether the source reached its rate; if not, a probe says nothing about the job."""
        if isinstance(self.achieved_rps, Unknown):
            return self.achieved_rps
        return self.achieved_rps >= REACHED_SHARE * self.commanded_rps


class Control:
    """A replay's folder, seen by whoever commands it."""

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
        """The rate for every moment, as it stands now."""
        return Schedule.from_json(json.loads((self.folder / "schedule.json").read_text()))

    def set_rate(self, rate_rps: float, *, now_s: float | None = None) -> float:
        """Another rate from a moment on that is returned (epoch seconds). Before the start: from there on."""
        at_us = self._soon(now_s)
        write_json(self.folder / "schedule.json", self.schedule.changed(rate_rps, at_us=at_us).to_json())
        return (self.started_s or time.time()) + at_us / MICROS

    def follow(self, schedule: Schedule, *, now_s: float | None = None) -> float:
        """Another schedule from a moment on that is returned; the end stays within the old one's."""
        at_us, kept = self._soon(now_s), self.schedule
        if at_us >= kept.end_us:
            raise Misuse("schedule", f"the replay is over after {kept.end_us / MICROS:,.0f} s")
        past = tuple(one for one in kept.stretches if one[0] < at_us)
        coming = tuple((start + at_us, rate) for start, rate in schedule.stretches)
        coming = tuple(one for one in coming if one[0] < kept.end_us)
        end_us = min(kept.end_us, at_us + schedule.end_us)
        write_json(
            self.folder / "schedule.json", replace(kept, stretches=past + coming, end_us=end_us).to_json()
        )
        return (self.started_s or time.time()) + at_us / MICROS

    def finish(self, *, now_s: float | None = None) -> None:
        """Let it end by itself, with the records that are due by now."""
        schedule = self.schedule
        write_json(
            self.folder / "schedule.json",
            schedule.ended(at_us=min(self._soon(now_s), schedule.end_us)).to_json(),
        )

    def achieved(self, from_s: float, to_s: float) -> Achieved:
        """What was sent between two moments (epoch seconds), from the broker's end offsets."""
        started_s = self.started_s
        if started_s is None:
            return Achieved(Unknown("the source has not started yet"), 0.0)
        begin_us, end_us = micros(from_s - started_s), micros(to_s - started_s)
        commanded = self.schedule.mean_rps(begin_us, end_us)
        reports = self.reports()
        # Reckoned from the beginning of the schedule, when nothing had been sent.
        known = [(one["at_s"], one["head"]) for one in reports if one["head"] is not None]
        given_up = max((one["given_up"] for one in reports if one["at_s"] <= to_s + 1.0), default=0)
        heads = [_interpolated(known, at_s) for at_s in (from_s, to_s)]
        for head in heads:
            if isinstance(head, Unknown):
                return Achieved(head, commanded, given_up)
        before, after = (float(head) for head in heads if not isinstance(head, Unknown))
        return Achieved((after - before) / (to_s - from_s), commanded, given_up)

    def reports(self) -> tuple[Mapping[str, Any], ...]:
        """What it has said of itself, once a second."""
        path = self.folder / "achieved.jsonl"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read_to)
                text = file.read()
            complete = text[: text.rfind(b"\n") + 1]
            self._read_to += len(complete)
            self._reports += [json.loads(line) for line in complete.splitlines()]
        return tuple(self._reports)

    def _soon(self, now_s: float | None) -> int:
        started_s = self.started_s
        if started_s is None:
            return 0
        return max(0, micros((time.time() if now_s is None else now_s) - started_s + LEAD_S))


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
