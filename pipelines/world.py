"""Where do jobs run, and what belongs to it: real processes of this machine, or a simulation?

    with opened(settings, folder) as world: …

is the one place that decides. Everything comes behind the ports, so whoever uses it does not know which.
Whatever was started is stopped on leaving; what was running before is left alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from models.quantities import Unknown
from profiling_jobs.brokers import Brokers
from profiling_jobs.errors import Misconfigured, NotReady
from profiling_jobs.ports import Broker, Clock, Deployments, Failures, Metrics, Plan, Source, Store
from profiling_jobs.probing.copies import BESIDE, Surroundings
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.recorder import Recorder, Request
from profiling_jobs.replay.together import Together
from profiling_jobs.signals import stage_times
from profiling_jobs.signals.stage_times import StageTime

from .owner import Owner
from .settings import BrokerSettings, JobSettings, Settings

if TYPE_CHECKING:
    from .resources.simulated_time import Pace

STORE = "headroom.sqlite"
DEFAULT_PARTITIONS = 12  # divisible by 1, 2, 3, 4, 6 and 12; where the live topics are not there yet
FOREVER_S = 20 * 86_400.0
SIMULATED_PARTITIONS = 4
RECORDING_S = 120.0  # judgement: beside its duration, for a Spark session on a busy machine
Say = Callable[[str], None]


class Recording(Protocol):
    """What copies a live topic into a folder: its name, what is asked for, whose time it is."""

    def __call__(self, name: str, request: Request, *, clock: Clock, say: Say) -> Recorded: ...


@dataclass(frozen=True)
class World:
    """All ports, and how copies of a job get their records."""

    kind: str
    deployments: Deployments
    metrics: Metrics
    broker: Broker
    failures: Failures
    store: Store
    clock: Clock
    open_source: Callable[[str, JobSettings, str, Mapping[str, str]], Source]
    """Job, its settings, copy, the copy's input topics -> a source that runs."""
    forget: Callable[[str], None]
    checkpoint: Callable[[str], str]
    batch_began_s: Callable[[str, int], float | Unknown]
    """Deployment and number of a batch -> when it began."""
    record: Recording
    stages: Callable[[str], tuple[StageTime, ...]] | None = None
    own_topics: bool = True
    """Whether topics that are missing may be made: the broker is ours."""
    taking_part: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Held by every thread that works by the clock: simulated time stands still while it works."""
    hurried: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Somebody waits: simulated time that goes with the wall clock may run ahead of it."""
    owner: Owner | None = None
    """Of the folder, where processes belong to it."""
    flow: Callable[[str, float], None] | None = None
    """Simulated only: a live topic -> how fast records arrive in it from now on."""
    pace: Pace | None = None
    """Simulated only: how fast its time passes, where that is bounded."""

    def around(self, name: str, job: JobSettings) -> Surroundings:
        """What profiling and drills of one job need."""
        return Surroundings(
            deployments=self.deployments,
            metrics=self.metrics,
            broker=self.broker,
            store=self.store,
            clock=self.clock,
            open_source=lambda copy, inputs: self.open_source(name, job, copy, inputs),
            checkpoint=self.checkpoint,
            forget=self.forget,
            stages=self.stages,
        )

    def partitions(self, plan: Plan) -> dict[str, int]:
        """Of the live topics, by the job's names; capacity depends on them."""
        there = self.broker.topics()
        inputs = {own: there.get(topic, DEFAULT_PARTITIONS) for own, topic in plan.inputs.items()}
        most = max(inputs.values())
        return inputs | {own: there.get(topic, most) for own, topic in plan.outputs.items()}


@contextmanager
def opened(
    settings: Settings,
    folder: Path,
    *,
    say: Say = lambda text: None,
    owner: Owner | None = None,
    since_s: float | None = None,
) -> Iterator[World]:
    """The world of `[deployment] kind`.

    `owner`: who has the folder already, and ends what runs there; otherwise it is taken, and given up on
    leaving. `since_s`: when a simulated world begins, whose time then passes as real time does; without it,
    as fast as it can be computed.
    """
    if settings.deployment.kind == "simulated":
        with _simulated(settings, folder, since_s=since_s) as world:
            yield replace(world, owner=owner)
    else:
        with _local(settings, folder, say, owner) as world:
            yield world


# ------------------------------------------------------------------------------------------- simulated


@contextmanager
def _simulated(settings: Settings, folder: Path, *, since_s: float | None) -> Iterator[World]:
    from models.simulation.behaviour import Platform

    from .resources.simulated import (
        SimulatedBroker,
        SimulatedClock,
        SimulatedDeployments,
        SimulatedFailures,
        SimulatedMetrics,
    )
    from .resources.simulated_records import copier, offsets_of
    from .resources.simulated_source import SimulatedSource
    from .resources.simulated_time import Pace, SharedCluster
    from .resources.sqlite_store import SqliteStore

    cluster = SharedCluster(
        platform=Platform(slots=settings.spark.slots), now_s=time.time() if since_s is None else since_s
    )
    pace = None if since_s is None else Pace(cluster, usual=1.0)
    clock = SimulatedClock(cluster)
    broker = SimulatedBroker(cluster)

    def source(name: str, job: JobSettings, copy: str, inputs: Mapping[str, str]) -> Source:
        found = SimulatedSource(cluster, dict.fromkeys(inputs.values(), 1.0))
        found.set_rate(1.0)
        return found

    def record(name: str, request: Request, *, clock: Clock, say: Say) -> Recorded:
        return Recorder(
            request,
            offsets=offsets_of(broker, request.topic),
            copy=copier(cluster, request.topic),
            now_s=clock.now_s,
            sleep=clock.sleep,
            say=say,
        ).run()

    def flow(topic: str, rate_rps: float) -> None:
        with cluster.turn:
            cluster.topics.flow(topic, rate_rps, at_s=cluster.now_s)

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with SqliteStore(folder / STORE) as store:
        yield World(
            kind="simulated",
            deployments=SimulatedDeployments(cluster),
            metrics=SimulatedMetrics(cluster),
            broker=broker,
            failures=SimulatedFailures(cluster),
            store=store,
            clock=clock,
            open_source=source,
            forget=lambda name: None,
            checkpoint=lambda name: str(folder.resolve() / "checkpoints" / name),
            batch_began_s=lambda name, batch: Unknown("a simulated job reports no batches"),
            record=record,
            taking_part=cluster.taking_part,
            hurried=nullcontext if pace is None else pace.hurried,
            flow=flow,
            pace=pace,
        )


# ----------------------------------------------------------------------------------------------- local


class RealClock:
    """Time itself."""

    def now_s(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


@contextmanager
def _local(settings: Settings, folder: Path, say: Say, owner: Owner | None) -> Iterator[World]:
    from .resources.kafka import EmbeddedBroker
    from .resources.kafka_broker import KafkaBroker
    from .resources.local_deployments import LocalDeployments
    from .resources.local_executors import LocalExecutors
    from .resources.local_failures import LocalFailures
    from .resources.local_metrics import LocalMetrics
    from .resources.spark import LocalSpark
    from .resources.sqlite_store import SqliteStore

    with ExitStack() as stack:
        owner = owner or stack.enter_context(_ours(folder))
        embedded: EmbeddedBroker | None = None
        if settings.brokers.bootstrap is None:
            embedded = EmbeddedBroker(owner)
            say("starting Kafka")
            brokers = embedded.ensure()
        else:
            brokers = yours(settings.brokers)
        spark = LocalSpark(owner, settings.spark)
        say("starting Spark")
        spark.ensure()
        broker = stack.enter_context(KafkaBroker(brokers))
        deployments = LocalDeployments(owner, spark, brokers, settings=settings.spark)
        stack.enter_context(deployments)
        executors = LocalExecutors(owner, spark)
        stack.callback(executors.close)
        metrics = stack.enter_context(LocalMetrics(broker, deployments, executors))
        failures = stack.enter_context(LocalFailures(owner, deployments, broker=embedded))
        store = stack.enter_context(SqliteStore(owner.folder / STORE))
        checkpoints = owner.folder / "checkpoints"

        def forget(name: str) -> None:
            for process in owner.running():
                if process.role == f"replay.{name}" or process.role.startswith(f"replay.{name}."):
                    owner.stop(process)
            with suppress(Misconfigured):  # it was never launched
                deployments.forget(name)
            replays = owner.folder / "replays"
            files = checkpoints / f"{name}{BESIDE}"
            for left in (replays / name, *replays.glob(f"{name}.*"), checkpoints / name, files):
                shutil.rmtree(left, ignore_errors=True)

        def source(name: str, job: JobSettings, copy: str, inputs: Mapping[str, str]) -> Source:
            return _replay(owner, settings, brokers, name=name, job=job, copy=copy, inputs=inputs)

        def record(name: str, request: Request, *, clock: Clock, say: Say) -> Recorded:
            return _recorded(owner, settings, brokers, name=name, request=request, clock=clock)

        yield World(
            kind="local",
            deployments=deployments,
            metrics=metrics,
            broker=broker,
            failures=failures,
            store=store,
            clock=RealClock(),
            open_source=source,
            forget=forget,
            checkpoint=lambda name: str(checkpoints / name),
            batch_began_s=lambda name, batch: _batch_began_s(deployments.folder(name), batch),
            stages=lambda name: stage_times.read(*executors.page(name)),
            record=record,
            own_topics=embedded is not None,
            owner=owner,
        )


@contextmanager
def _ours(folder: Path) -> Iterator[Owner]:
    """The folder; on leaving everything ends, but for a live job that ran before and what it needs.

    Whatever else a killed command has left is adopted, and ends with us.
    """
    from .resources.deployment_records import Records

    owner = Owner(folder).acquire()
    live = any(
        record.plan.role == "live" and record.wanted == "running"
        for record in Records(owner.folder / "deployments").all()
    )
    before = owner.running() if live else ()
    try:
        yield owner
    finally:
        try:
            if before:
                known = {(one.pid, one.started_ticks) for one in before}
                for process in owner.running():
                    if (process.pid, process.started_ticks) not in known:
                        owner.stop(process)
            else:
                owner.stop_all()
        finally:
            owner.release()


def _recorded(
    owner: Owner, settings: Settings, brokers: Brokers, *, name: str, request: Request, clock: Clock
) -> Recorded:
    """A Spark driver of its own does it; a cancelled order ends it where it stands."""
    from .resources.local_replay import LocalRecording

    recording = LocalRecording(owner, name=name, settings=settings.spark)
    recording.start(request, brokers)
    until_s = clock.now_s() + request.duration_s + RECORDING_S
    try:
        while recording.process is not None and clock.now_s() < until_s:
            clock.sleep(0.5)
        if recording.process is not None:
            raise NotReady(f"recording {name} was not over in time: run it again to go on")
    finally:
        recording.stop()
    found = Recorded.read(request.folder)
    if not found.ended:
        raise NotReady(f"recording {name} was cut short: see {owner.log(f'recording.{name}')}")
    return found


def yours(settings: BrokerSettings) -> Brokers:
    """Brokers that somebody else runs."""
    names = {field.name for field in fields(Brokers)}
    return Brokers(**{name: value for name, value in vars(settings).items() if name in names})


def _replay(
    owner: Owner,
    settings: Settings,
    brokers: Brokers,
    *,
    name: str,
    job: JobSettings,
    copy: str,
    inputs: Mapping[str, str],
) -> Source:
    """One source per input topic, with as large a share of the rate as it has of the records."""
    from profiling_jobs.replay.sources import open_source

    if len(inputs) == 1:
        own, topic = next(iter(inputs.items()))
        events = _events(owner.folder, name, job, own, several=False)
        return _replay_one(owner, settings, brokers, copy=copy, topic=topic, events=events)
    parts: list[tuple[Source, float]] = []
    folder = owner.folder / "replays" / f"{copy}.shares"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        for number, (own, topic) in enumerate(inputs.items()):
            events = _events(owner.folder, name, job, own, several=True)
            records = open_source(events, folder=folder).records
            part = _replay_one(owner, settings, brokers, copy=f"{copy}.{number}", topic=topic, events=events)
            parts.append((part, float(records)))
        return Together(parts)
    except BaseException:
        for part, _ in parts:
            part.stop()
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _replay_one(
    owner: Owner, settings: Settings, brokers: Brokers, *, copy: str, topic: str, events: str
) -> Source:
    from profiling_jobs.jobs.fixed_settings import EVENT_TIMES
    from profiling_jobs.replay.rates import Schedule
    from profiling_jobs.replay.replay_plan import Replay

    from .resources.local_replay import LocalReplay

    # Only of the generators we know which field is the time of an event.
    generated = events.removeprefix("generator:").partition("?")[0].partition("/")[0]
    plan = Replay(
        topic=topic,
        source=events,
        schedule=Schedule.constant(1.0, duration_s=FOREVER_S),
        brokers=brokers,
        folder=owner.folder / "replays" / copy,
        tasks=1,
        event_time=EVENT_TIMES.get(generated, "event_time") if events.startswith("generator:") else None,
    )
    return LocalReplay(owner, name=copy, settings=settings.spark).start(plan)


def _events(folder: Path, name: str, job: JobSettings, own: str, *, several: bool) -> str:
    """Where the events of one input come from: what the settings say, or else the newest recording of it."""
    if job.events is not None:
        return _events_of(job.events, own) if several else job.events
    recordings = folder / "recordings" / name
    found = {}
    for each in recordings.glob(f"*-{own}"):
        began_s = each.name.removesuffix(f"-{own}")
        if began_s.isdigit() and Recorded.is_one(each) and Recorded.read(each).ended:
            found[int(began_s)] = each
    if not found:
        raise Misconfigured(
            f"job.{name}.events",
            f"is not set, and nothing of {own} was recorded: launch `record` on Dagster's page first, or "
            "name a Parquet path or generator:NAME",
        )
    return str(found[max(found)])


def _events_of(events: str, own: str) -> str:
    """generator:NAME?options -> generator:NAME/INPUT?options; a folder -> the folder in it."""
    if not events.startswith("generator:"):
        return str(Path(events) / own)
    name, mark, options = events.partition("?")
    return f"{name}/{own}{mark}{options}"


def _batch_began_s(folder: Path, batch: int) -> float | Unknown:
    """Spark's own report of the batch: when its trigger fired."""
    from datetime import datetime

    from profiling_jobs.driver import progress

    for event in progress.read(folder / "progress.jsonl"):
        report = event.get("progress")
        if event["event"] == "progress" and report and report.get("batchId") == batch:
            return datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00")).timestamp()
    return Unknown(f"batch {batch} is not in the driver's reports")
