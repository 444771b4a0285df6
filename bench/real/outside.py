"""A running job as it is seen, and hurt, from outside of Headroom.

`Hand` sends signals to processes that it finds in the process table, so that Headroom is not told of the
failure. `Observer` shares no code with what Headroom measures by. Every LOOK_S it reads the files that Spark
writes into the checkpoint, and with kafka-python the end offsets of the input:

    lag       = Σ end offsets − Σ offsets of the newest committed batch
    band      = 1.25 × the largest lag, in seconds of input, of WINDOW_S before; at least two triggers
    downtime  = failure → first new commit
    recovery  = failure → lag back in its band for HOLD_S, not before that commit

A commit happened when its file was written. Lag that could not be read for GAP_S counts as outside its band.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from models.errors import NotReady
from models.ports import Plan
from pipelines.environments.base import Environment
from profiling_jobs.periodic import Periodic

LOOK_S = 0.25
WINDOW_S = 60.0
HOLD_S = 15.0  # as of a drill
GAP_S = 2.0  # judgement: a reading takes milliseconds
BAND_SHARE = 1.25
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
LASTS_S = {"broker_restart": 12.0, "driver_freeze": 30.0}
"""How long a process stays frozen, where it is woken by itself; a silent driver is replaced before."""


@dataclass(frozen=True)
class Batch:
    """A committed batch: its number, when its file was written, and the sum of its end offsets."""

    number: int
    at_s: float
    records: int


@dataclass(frozen=True)
class Ended:
    """The sum of the end offsets of the input at one moment."""

    at_s: float
    records: int


@dataclass(frozen=True)
class Seen:
    """One failure; inf is what was not seen to end."""

    downtime_s: float
    recovery_s: float
    band_s: float


def seen(
    batches: Sequence[Batch],
    ends: Sequence[Ended],
    *,
    failed_at_s: float,
    trigger_s: float,
    calm_since_s: float = -math.inf,
) -> Seen:
    """What a failure at this moment has cost a job that was undisturbed since some moment before."""
    start_s = max(failed_at_s - WINDOW_S, calm_since_s)
    before = [one for one in ends if start_s <= one.at_s < failed_at_s]
    if len(before) < 2 or before[-1].records <= before[0].records:
        raise NotReady("nothing arrived before the failure: its lag in seconds is unknown")
    rate_rps = (before[-1].records - before[0].records) / (before[-1].at_s - before[0].at_s)
    largest_s = max((lag / rate_rps for _, lag in lags(batches, before)), default=0.0)
    band_s = max(BAND_SHARE * largest_s, 2.0 * trigger_s)
    first_s = min((one.at_s for one in batches if one.at_s > failed_at_s), default=math.inf)
    after = [(at_s, lag / rate_rps) for at_s, lag in lags(batches, ends) if at_s >= failed_at_s]
    back_s = max(back_at_s(after, band_s=band_s, from_s=first_s), first_s)
    return Seen(first_s - failed_at_s, back_s - failed_at_s, band_s)


def lags(batches: Sequence[Batch], ends: Sequence[Ended]) -> list[tuple[float, int]]:
    """Records that wait, whenever the ends were read; not before the first commit that is known."""
    found, newest = [], -1
    for end in ends:
        while newest + 1 < len(batches) and batches[newest + 1].at_s <= end.at_s:
            newest += 1
        if newest >= 0:
            found.append((end.at_s, max(0, end.records - batches[newest].records)))
    return found


def back_at_s(lag_s: Sequence[tuple[float, float]], *, band_s: float, from_s: float) -> float:
    """The first moment not before `from_s` from which lag is in its band for HOLD_S; inf without."""
    since_s, before_s = math.inf, from_s
    for at_s, waiting_s in lag_s:
        if at_s < from_s:
            continue
        if waiting_s > band_s or at_s - before_s > GAP_S:
            since_s = math.inf
        if waiting_s <= band_s:
            since_s = min(since_s, at_s)
            if at_s - since_s >= HOLD_S:
                return since_s
        before_s = at_s
    return math.inf


def difference(learnt_s: float, seen_s: float) -> float:
    """Share of what was seen. One second is less than samples of every second can tell: no difference."""
    if math.isinf(learnt_s) or math.isinf(seen_s):
        return 0.0 if learnt_s == seen_s else 1.0
    return 0.0 if abs(learnt_s - seen_s) <= 1.0 else abs(learnt_s - seen_s) / max(seen_s, 1.0)


# ----------------------------------------------------------------------------------------- what is read


class Reader:
    """The checkpoint of one query, and the ends of its input."""

    def __init__(self, here: Environment, plan: Plan) -> None:
        self._here = here
        self._folder = Path(plan.checkpoint)
        self._topics = tuple(plan.inputs.values())
        self._consumer: Any = None

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def batches(self, after: int) -> list[Batch]:
        """Those that were committed after this one, oldest first."""
        found = []
        for number in _numbers(self._folder / "commits"):
            if number > after:
                written = (self._folder / "commits" / str(number)).stat().st_mtime
                found.append(Batch(number, written, _records(self._folder / "offsets" / str(number))))
        return found

    def planned(self) -> int:
        """The newest batch that has begun; -1 before the first."""
        return max(_numbers(self._folder / "offsets"), default=-1)

    def ended(self) -> int | None:
        """Records that have ever arrived; None while the broker does not answer."""
        from kafka import KafkaConsumer, TopicPartition
        from kafka.errors import KafkaError

        from pipelines.integrations.kafka_broker import KafkaBroker

        assert isinstance(self._here.broker, KafkaBroker)
        try:
            if self._consumer is None:
                self._consumer = KafkaConsumer(**self._here.broker.brokers.client(), enable_auto_commit=False)
            parts = [
                TopicPartition(topic, part)
                for topic in self._topics
                for part in self._consumer.partitions_for_topic(topic) or ()
            ]
            ends: dict[TopicPartition, int] = self._consumer.end_offsets(parts) if parts else {}
            return sum(ends.values()) if ends else None
        except KafkaError:
            return None


def _numbers(folder: Path) -> list[int]:
    with suppress(FileNotFoundError):
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    return []


def _records(offsets: Path) -> int:
    """Sum of the end offsets of a batch: a line for the version, one for the batch, one for each source."""
    sources = [json.loads(line[line.index("{") :]) for line in offsets.read_text().splitlines()[2:]]
    return sum(offset for source in sources for parts in source.values() for offset in parts.values())


class Observer:
    """What was read of one job, in two threads: the checkpoint can be read while the broker is silent."""

    def __init__(self, here: Environment, reader: Reader) -> None:
        self.batches: list[Batch] = []
        self.ends: list[Ended] = []
        self._clock, self._reader = here.clock, reader
        self._threads = [
            Periodic(look, every_s=LOOK_S, name=name, clock=here.clock, taking_part=here.taking_part)
            for name, look in (("outside-commits", self._commits), ("outside-ends", self._ends))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for thread in self._threads:
            thread.close()
        self._reader.close()

    def await_batch(self, *, patience_s: float) -> None:
        """Until a batch has just begun, which a failure can hit; or until that was waited for long enough."""
        until_s, before = self._clock.now_s() + patience_s, self._reader.planned()
        while self._reader.planned() == before and self._clock.now_s() < until_s:
            self._clock.sleep(LOOK_S / 5.0)

    def _commits(self) -> None:
        newest = self.batches[-1].number if self.batches else -1
        with suppress(FileNotFoundError):  # Spark has just cleared an old one
            self.batches += self._reader.batches(newest)

    def _ends(self) -> None:
        records = self._reader.ended()
        if records is not None:
            self.ends.append(Ended(self._clock.now_s(), records))


# ----------------------------------------------------------------------------------------- what is done


class Hand:
    """Signals to the processes of one folder, which carry its mark and their role in their environment."""

    def __init__(self, here: Environment) -> None:
        assert here.owner is not None
        self._owner = here.owner.id
        self._frozen: list[psutil.Process] = []
        self._timers: list[threading.Timer] = []

    def strike(self, job: str, kind: str) -> float:
        """Cause a failure now; when that was. What is frozen for a time wakes up by itself."""
        try:
            victims = self._victims(job, kind)
        except psutil.Error as error:  # one has ended while it was looked at
            raise NotReady(f"the processes of {job} are just changing: {error}") from error
        at_s = time.time()
        for process in victims:
            with suppress(psutil.NoSuchProcess):  # a child ends with its parent
                if kind.endswith("_kill"):
                    process.kill()
                else:
                    self._frozen.append(process)
                    process.suspend()
        if kind in LASTS_S:
            timer = threading.Timer(LASTS_S[kind], _wake, [victims])
            self._timers.append(timer)
            timer.start()
        return at_s

    def heal(self) -> None:
        """Wake what is still frozen."""
        for timer in self._timers:
            timer.cancel()
        _wake(self._frozen)
        self._timers.clear()
        self._frozen.clear()

    def _victims(self, job: str, kind: str) -> list[psutil.Process]:
        if kind == "broker_restart":
            found = self._marked("kafka")
        elif kind.startswith("driver_"):
            found = self._marked(f"driver.{job}")
        else:
            running = [one for one in self._marked(f"executor.{job}") if EXECUTOR in one.cmdline()]
            newest = max((_option(one, "--app-id") for one in running), default="")
            running = [one for one in running if _option(one, "--app-id") == newest]
            oldest = sorted(running, key=lambda one: int(_option(one, "--executor-id")))[:1]
            found = [each for one in oldest for each in (one, *one.children(recursive=True))]
        if not found:
            raise NotReady(f"there is no process of {job} that could fail by {kind}")
        return found

    def _marked(self, role: str) -> list[psutil.Process]:
        wanted = {"HEADROOM_OWNER": self._owner, "HEADROOM_ROLE": role}
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # ended meanwhile, or another user's
                if wanted.items() <= process.environ().items():
                    found.append(process)
        return found


def _option(process: psutil.Process, name: str) -> str:
    words = process.cmdline()
    return words[words.index(name) + 1]


def _wake(processes: Sequence[psutil.Process]) -> None:
    for process in reversed(processes):
        with suppress(psutil.NoSuchProcess):
            process.resume()


def possible(here: Environment) -> bool:
    """Only processes of this machine can be seen and hurt from outside."""
    return here.kind == "local"
