"""The local environment: real Kafka, Spark and drivers as processes of this machine.

What was running before is left alone; whatever else was started ends on leaving. Who has taken the folder
before (`headroom serve`) keeps its jobs running, and starts those that should run and that the settings name;
a command that comes and goes starts none of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import Misconfigured, NotReady, Unsafe
from models.ports import Clock, Source
from models.quantities import Unknown
from profiling_jobs.brokers import Brokers
from profiling_jobs.experiments.copies import BESIDE
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.request import Request
from profiling_jobs.telemetry import spark_page

from ...processes.owner import Owner
from ...settings import job_plans
from ...settings.schema import BrokerSettings, JobSettings, Settings
from ..base import STORE, Say, World
from .replays import replay

if TYPE_CHECKING:
    from .deployments import LeftOver, LocalDeployments

RECORDING_S = 120.0  # judgement: beside its duration, for a Spark session on a busy machine


class RealClock:
    """Time itself."""

    def now_s(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


@contextmanager
def local(settings: Settings, folder: Path, say: Say, owner: Owner | None) -> Iterator[World]:
    """Kafka where the settings name none, Spark, and what drives them. `owner`: of a folder that is taken."""
    from profiling_jobs.periodic import Periodic

    from ...integrations.embedded_kafka import EmbeddedBroker
    from ...integrations.kafka_broker import KafkaBroker
    from ...integrations.spark import LocalSpark
    from ...integrations.sqlite_store import SqliteStore
    from ..attached import Attached, AttachedDeployments, AttachedFailures, AttachedMetrics, theirs
    from .broker_watch import LOOK_S, BrokerWatch
    from .deployments import LocalDeployments
    from .executors import LocalExecutors
    from .failures import LocalFailures
    from .metrics import LocalMetrics

    comes_and_goes = owner is None
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
        if any(job.copyable for job in settings.jobs.values()):  # else nothing could run on it
            say("starting Spark")
            spark.ensure()
        broker = stack.enter_context(KafkaBroker(brokers))
        deployments = LocalDeployments(owner, spark, brokers, settings=settings.spark)
        attached = Attached(theirs(settings.jobs), now_s=time.time)
        for name in sorted(attached.jobs.keys() & set(deployments.names())):
            raise Unsafe(
                f"job.{name}.attach = true says that another system runs it, but it was launched here and "
                "should still run: end it with `headroom cleanup`, or leave attach out"
            )
        for line in _changed(deployments, settings, owner.folder):
            say(line)
        left_over: tuple[LeftOver, ...] = ()
        if comes_and_goes:
            deployments.leave_the_dead()
        else:
            left_over = deployments.stand_down(settings.jobs)
        for line in _told(left_over):
            say(line)
        stack.enter_context(deployments)
        executors = LocalExecutors(owner, spark)
        stack.callback(executors.close)
        guarded = AttachedDeployments(deployments, attached)
        metrics = stack.enter_context(LocalMetrics(broker, guarded, executors))
        failures = stack.enter_context(LocalFailures(owner, deployments, broker=embedded))
        if embedded is not None:
            watch = BrokerWatch(embedded, restarting=failures.restarting, say=say)
            stack.enter_context(Periodic(watch.look, every_s=LOOK_S, name="broker-watch"))
        store = stack.enter_context(SqliteStore(owner.folder / STORE))
        checkpoints = owner.folder / "checkpoints"

        def forget(name: str) -> None:
            with suppress(Misconfigured):  # it was never launched
                plan = deployments.plan(name)
                if plan.role == "live" and plan.name == plan.job:
                    raise Unsafe(f"{name} is a job itself and no copy of one: its checkpoint is left alone")
            for process in owner.running():
                if process.role == f"replay.{name}" or process.role.startswith(f"replay.{name}."):
                    owner.stop(process)
            with suppress(Misconfigured):  # it was never launched
                deployments.forget(name)
            metrics.forget(name)
            executors.forget(name)
            replays = owner.folder / "replays"
            files = checkpoints / f"{name}{BESIDE}"
            for left in (replays / name, *replays.glob(f"{name}.*"), checkpoints / name, files):
                shutil.rmtree(left, ignore_errors=True)

        def source(name: str, job: JobSettings, copy: str, inputs: Mapping[str, str]) -> Source:
            return replay(owner, settings, brokers, name=name, job=job, copy=copy, inputs=inputs)

        def record(name: str, request: Request, *, clock: Clock, say: Say) -> Recorded:
            return _recorded(owner, settings, brokers, name=name, request=request, clock=clock)

        yield World(
            kind="local",
            brokers=brokers.bootstrap,
            deployments=guarded,
            metrics=AttachedMetrics(metrics, attached),
            broker=broker,
            failures=AttachedFailures(failures, attached),
            store=store,
            clock=RealClock(),
            open_source=source,
            forget=forget,
            checkpoint=lambda name: str(checkpoints / name),
            batch_began_s=lambda name, batch: _batch_began_s(deployments.folder(name), batch),
            stages=lambda name: spark_page.read(*executors.page(name)),
            record=record,
            own_topics=embedded is not None,
            removed_jobs=tuple(sorted({one.plan.job for one in left_over})),
            owner=owner,
        )


@contextmanager
def _ours(folder: Path) -> Iterator[Owner]:
    """The folder; on leaving everything ends, but for a live job that ran before and what it needs.

    By its role: a driver or a broker that had to be replaced meanwhile is no less needed. Whatever else a
    killed command has left is adopted, and ends with us.
    """
    from ...integrations.spark import MASTER, WORKER
    from .records import Records

    owner = Owner(folder).take_over()
    live = {
        f"driver.{record.name}"
        for record in Records(owner.folder / "deployments").all()
        if record.plan.role == "live" and record.wanted == "running"
    }
    needed = live | {"kafka", MASTER, WORKER} if live else live
    before = any(process.role in needed for process in owner.running())
    try:
        yield owner
    finally:
        try:
            if before:
                for process in owner.running():
                    if process.role not in needed:
                        owner.stop(process)
            else:
                owner.stop_all()
        finally:
            owner.release()


def _changed(deployments: LocalDeployments, settings: Settings, folder: Path) -> Iterator[str]:
    """Jobs that run on with what they were launched with: a checkpoint may not bear anything else."""
    for name in deployments.names():
        job = settings.jobs.get(name)
        if job is None or deployments.status(name).state == "failed":
            continue
        if changed := job_plans.changed(
            deployments.plan(name), job_plans.live_plan(name, job, folder=folder)
        ):
            yield (
                f"{name} runs with the settings it was launched with, which differ from today's in "
                f"{', '.join(changed)}: to take them over, end it with `headroom cleanup` and launch it again"
            )


def _told(left_over: Iterable[LeftOver]) -> Iterator[str]:
    """Live jobs that the settings do not name any more; their copies are cleared, and reported, elsewhere."""
    for one in left_over:
        name = one.plan.name
        if one.plan.role == "live" and one.runs:
            yield (
                f"{name} is not in headroom.toml any more, and still runs: it is left running, but not "
                f"started again; `headroom stop {name}` ends it"
            )
        elif one.plan.role == "live" and one.wanted:
            yield f"{name} is not in headroom.toml any more: it is not started again"


def _recorded(
    owner: Owner, settings: Settings, brokers: Brokers, *, name: str, request: Request, clock: Clock
) -> Recorded:
    """A Spark driver of its own does it; a cancelled order ends it where it stands."""
    from .replay import LocalRecording

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
    """Brokers that another system runs."""
    return Brokers(**settings.model_dump())


def _batch_began_s(folder: Path, batch: int) -> float | Unknown:
    """Spark's own report of the batch: when its trigger fired."""
    from datetime import datetime

    from profiling_jobs.driver import progress

    for event in progress.read(folder / "progress.jsonl"):
        report = event.get("progress")
        if event["event"] == "progress" and report and report.get("batchId") == batch:
            return datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00")).timestamp()
    return Unknown(f"batch {batch} is not in the driver's reports")
