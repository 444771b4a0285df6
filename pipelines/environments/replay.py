"""Recordings and replays, and the events that a replay sends to a copy of a job.

Each is a process or a pod of its own, with a small Spark in it (`local[N]`): the source of a probe does not
take slots from the job, and dies neither with it nor with the cluster. Both end by themselves, and both are
the owner's, found again by their role.

    source = RunningReplay(LocalTask(owner, "replay.orders-profile")).start(plan)
    source.set_rate(1200.0); …; source.achieved(from_s, to_s); source.stop()

The events are those that the settings name, else the newest recording. One replay per input topic sends its
share of the rate.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from models.errors import HeadroomError, Misconfigured, NotReady
from models.ports import Clock, Source
from models.quantities import Misuse, Unknown
from profiling_jobs.brokers import Brokers
from profiling_jobs.jobs import JOBS
from profiling_jobs.recording import driver as recording
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.recorder import Request
from profiling_jobs.replay.replay_plan import Achieved, Control, Replay, Schedule

from ..settings.schema import JobSettings, TimeUnit
from .base import RealClock

if TYPE_CHECKING:
    from profiling_jobs.replay.sources import Source as Records

START_S = 300.0  # judgement: 8 s on an idle machine, two minutes with thirty processes per processor
STOP_S = 15.0  # what has been handed over reaches the broker, then Spark ends
LOOK_S = 0.5
KAFKA_TIMESTAMP = "kafka-timestamp"
"""The `event_time` of a job whose windows are on the timestamp that Kafka has for each record."""
FOREVER_S = 20 * 86_400.0
EventTime = tuple[str | None, TimeUnit]
"""The field of an event that holds its time, if any does, and what it counts."""


class Task(Protocol):
    """One run of a module of ours, with a small Spark of its own: a process of this machine, or a pod."""

    @property
    def role(self) -> str:
        """`replay.COPY` or `recording.JOB.INPUT`."""

    @property
    def folder(self) -> Path:
        """The owner's."""

    @property
    def log(self) -> str:
        """Where its output can be read."""

    def conf(self) -> dict[str, str]:
        """What its Spark needs to run there."""

    def start(self, module: str, file: Path, brokers: Brokers) -> None:
        """Run `python -m module file`. Unsafe where it runs already."""

    @property
    def alive(self) -> bool:
        """Whether it runs, also when an earlier owner of the folder has started it."""

    @property
    def frozen(self) -> bool:
        """Whether it was stopped by a signal, so that it cannot end by itself."""

    def stop(self) -> None:
        """End it. Stopping what does not run is not an error."""

    def said(self) -> tuple[int | None, str]:
        """How it ended, where that is known, and what this run has written."""


class RunningReplay:
    """One source, at a rate that can be changed while it runs. A `Source`."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.folder = task.folder / "replays" / task.role.removeprefix("replay.")
        self._control = Control(self.folder)

    def start(self, plan: Replay) -> RunningReplay:
        """Start it, and return once its schedule has begun. Its folder is ours, whatever the plan says."""
        if not self._task.alive:  # else its folder is in use, and `start` refuses
            shutil.rmtree(self.folder, ignore_errors=True)
            plan = replace(plan, folder=self.folder, conf={**self._task.conf(), **plan.conf})
            plan.write()
        self._task.start("profiling_jobs.replay.driver", self.folder / "replay.json", plan.brokers)
        until = time.monotonic() + START_S
        try:
            while self._control.started_s is None:
                self._check()
                if time.monotonic() > until:
                    raise NotReady(
                        f"{self._task.role} did not start within {START_S:.0f} s: see {self._task.log}"
                    )
                time.sleep(0.05)
        except BaseException:  # the caller has nothing yet that it could stop
            self._task.stop()
            raise
        return self

    def set_rate(self, rate_rps: float) -> float:
        """Another rate, from the moment that is returned (epoch seconds)."""
        self._check()
        return self._control.set_rate(rate_rps)

    def achieved(self, from_s: float, to_s: float) -> Achieved:
        """What was sent between two moments, beside what was commanded. Also after its end."""
        return self._control.achieved(from_s, to_s)

    def wait(self, timeout_s: float) -> bool:
        """Whether it has come to its end within the time."""
        until = time.monotonic() + timeout_s
        while self._task.alive:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def stop(self) -> None:
        """Let it send what is due and end; or end it. Stopping what does not run is not an error."""
        if not self._task.alive:
            return
        try:
            if self._control.started_s is not None and not self._task.frozen:
                self._control.finish()
                self.wait(STOP_S)
        finally:  # also where the disk is full
            self._task.stop()

    def _check(self) -> None:
        if self._task.alive:
            return
        how, reason = self._control.ended or ("killed", f"see {self._task.log}")
        if how == "refused":
            setting, _, problem = reason.partition(": ")
            raise Misconfigured(setting, problem)
        raise NotReady(f"{self._task.role} does not run ({how}): {reason}")


class Together:
    """The sources of a job with several input topics: each topic gets its share of the rate. A `Source`."""

    def __init__(self, parts: Sequence[tuple[Source, float]]) -> None:
        total = sum(share for _, share in parts)
        if not parts or total <= 0.0 or any(share < 0.0 for _, share in parts):
            raise Misuse("parts", "needs shares of at least 0, not all of them zero")
        self._parts = [(source, share / total) for source, share in parts]

    def set_rate(self, rate_rps: float) -> float:
        """From the moment on that the last of them has changed."""
        return max(source.set_rate(rate_rps * share) for source, share in self._parts)

    def achieved(self, from_s: float, to_s: float) -> Achieved:
        reports = [source.achieved(from_s, to_s) for source, _ in self._parts]
        commanded = sum(one.commanded_rps for one in reports)
        achieved = 0.0
        for one in reports:
            if isinstance(one.achieved_rps, Unknown):
                return Achieved(one.achieved_rps, commanded)
            achieved += one.achieved_rps
        return Achieved(achieved, commanded)

    def stop(self) -> None:
        """Stop all of them, also where one cannot be; a problem is raised afterwards."""
        with ExitStack() as all_of_them:
            for source, _ in reversed(self._parts):
                all_of_them.callback(source.stop)


def start_recording(task: Task, request: Request, brokers: Brokers) -> None:
    """Begin to record a live topic, or go on with what lies in the request's folder."""
    folder = task.folder / "recordings" / f"{task.role}.orders"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    request = replace(request, folder=request.folder.resolve())
    conf = {**task.conf(), "spark.master": f"local[{recording.FILES}]", "spark.ui.enabled": "false"}
    path = recording.RecordingFile(request, brokers, conf).write(folder / "orders.json")
    task.start("profiling_jobs.recording.driver", path, brokers)


def record(
    task: Task, request: Request, brokers: Brokers, *, timeout_s: float, clock: Clock | None = None
) -> Recorded:
    """Record a live topic to the end; NotReady with the words of the recording where it is cut short.

    `clock`: whose `sleep` may raise; the recording ends then where it stands, and can go on later.
    """
    clock = clock or RealClock()
    start_recording(task, request, brokers)
    until_s = clock.now_s() + timeout_s
    try:
        while task.alive:
            if clock.now_s() > until_s:
                raise NotReady(f"{task.role} was not over after {timeout_s:.0f} s: give the order again")
            clock.sleep(LOOK_S)
        code, said = task.said()
    finally:
        task.stop()
    if code == 0 and (found := Recorded.read(request.folder)).ended:
        return found
    reasons = [line.removeprefix("headroom: ") for line in said.splitlines() if line.startswith("headroom: ")]
    raise NotReady(reasons[-1] if reasons else f"{task.role} was cut short: see {task.log}")


def replay(
    task: Callable[[str], Task],
    brokers: Brokers,
    *,
    folder: Path,
    name: str,
    job: JobSettings,
    copy: str,
    inputs: Mapping[str, str],
) -> Source:
    """One source per input topic, with the share of the rate that its records have of what arrives.

    `task`: what runs under a role. `folder`: the owner's.
    """

    def one(copy: str, topic: str, events: str) -> Source:
        field, unit = event_time_of(job, events)
        plan = Replay(
            topic=topic,
            source=events,
            schedule=Schedule.constant(1.0, duration_s=FOREVER_S),
            brokers=brokers,
            folder=folder / "replays" / copy,
            tasks=1,
            event_time=field,
            event_time_unit=unit,
        )
        return RunningReplay(task(f"replay.{copy}")).start(plan)

    if len(inputs) == 1:
        own, topic = next(iter(inputs.items()))
        return one(copy, topic, events_for(folder, name, job, own, several=False))
    from profiling_jobs.replay.sources import open_source

    parts: list[Source] = []
    opened: list[Records] = []
    shares = folder / "replays" / f"{copy}.shares"
    shares.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with ExitStack() as started:
            for number, (own, topic) in enumerate(inputs.items()):
                events = events_for(folder, name, job, own, several=True)
                opened.append(open_source(events, folder=shares))
                parts.append(one(f"{copy}.{number}", topic, events))
                started.callback(_put_away, parts[-1])
            together = Together(list(zip(parts, _shares(opened), strict=True)))
            started.pop_all()  # they are the caller's from now on
            return together
    finally:
        shutil.rmtree(shares, ignore_errors=True)


def _put_away(source: Source) -> None:
    """Stop one of several of which another could not be started: that is the error to report."""
    with suppress(HeadroomError, OSError):
        source.stop()


def _shares(opened: Sequence[Records]) -> list[float]:
    """Records per time: one recording may have ended at its size while the others went on."""
    if all(one.span_us > 0 for one in opened):
        return [one.records / one.span_us for one in opened]
    return [float(one.records) for one in opened]


def event_time_of(job: JobSettings, events: str) -> EventTime:
    """The field of these events that holds their time, and its unit: a replay moves it to now."""
    if job.event_time == KAFKA_TIMESTAMP:
        return None, "ms"  # it is the moment of sending, in a replay as well
    if job.event_time is not None:
        return job.event_time, job.event_time_unit
    if events.startswith("generator:"):
        generated = events.removeprefix("generator:").partition("?")[0].partition("/")[0]
        return (JOBS[generated].event_time if generated in JOBS else "event_time"), "ms"
    return None, "ms"


def events_for(folder: Path, name: str, job: JobSettings, own: str, *, several: bool) -> str:
    """The events of one input: what the settings name, else the newest recording of it."""
    if job.events is not None:
        events = events_of(job.events, own) if several else job.events
        # The replay runs in another folder; the path is relative to headroom.toml.
        return events if events.startswith("generator:") else str(folder.resolve().parent / events)
    recordings = folder / "recordings" / name
    found = {}
    for each in recordings.glob(f"*-{own}"):
        began_s = each.name.removesuffix(f"-{own}")
        if began_s.isdigit() and Recorded.is_one(each) and Recorded.read(each).ended:
            found[int(began_s)] = each
    if not found:
        raise Misconfigured(
            f"job.{name}.events",
            f"is not set, and nothing of {own} was recorded: run `headroom record {name}` first, or name a "
            "Parquet path or generator:NAME",
        )
    return str(found[max(found)])


def events_of(events: str, own: str) -> str:
    """generator:NAME?options -> generator:NAME/INPUT?options; a folder -> the folder in it."""
    if not events.startswith("generator:"):
        return str(Path(events) / own)
    name, mark, options = events.partition("?")
    return f"{name}/{own}{mark}{options}"
