"""The local environment: real Kafka, Spark and drivers as processes of this machine.

What was running before is left alone; whatever else was started ends on leaving. Who has taken the folder
before (`headroom serve`) keeps its jobs running, and starts those that should run and that the settings name;
a command that comes and goes starts none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...processes.owner import Owner
from ...settings.schema import Settings
from ..base import Environment, Say
from ..real import assembled, changed_settings, check_attached, is_replay_of, yours
from .tasks import LocalTask

if TYPE_CHECKING:
    from .deployments import LeftOver


@contextmanager
def opened(
    settings: Settings, folder: Path, *, say: Say, owner: Owner | None, since_s: float | None
) -> Iterator[Environment]:
    """Kafka where the settings name none, Spark, and what drives them."""
    from profiling_jobs.periodic import Periodic

    from ...integrations.embedded_kafka import EmbeddedBroker
    from ...integrations.kafka_broker import KafkaBroker
    from ...integrations.spark import LocalSpark
    from .broker_watch import LOOK_S, BrokerWatch
    from .deployments import LocalDeployments
    from .executors import LocalExecutors
    from .failures import LocalFailures

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
        check_attached(settings, deployments)
        for line in changed_settings(deployments, settings, owner.folder):
            say(line)
        left_over: tuple[LeftOver, ...] = ()
        if comes_and_goes:
            deployments.leave_the_dead()
        else:
            left_over = deployments.stand_down(settings.jobs)
        for line in _told(left_over):
            say(line)
        stack.enter_context(deployments)
        executors = LocalExecutors(spark)
        failures = stack.enter_context(LocalFailures(owner, deployments, broker=embedded))
        if embedded is not None:
            watch = BrokerWatch(embedded, restarting=failures.restarting, say=say)
            stack.enter_context(Periodic(watch.look, every_s=LOOK_S, name="broker-watch"))

        def stop_tasks(copy: str) -> None:
            for process in owner.running():
                if is_replay_of(process.role, copy):
                    owner.stop(process)

        yield assembled(
            settings,
            owner,
            stack,
            brokers=brokers,
            broker=broker,
            deployments=deployments,
            executors=executors,
            failures=failures,
            task=lambda role: LocalTask(owner, role, settings.spark),
            stop_tasks=stop_tasks,
            own_topics=embedded is not None,
            removed_jobs=tuple(sorted({one.plan.job for one in left_over})),
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
    try:
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
            if before:
                for process in owner.running():
                    if process.role not in needed:
                        owner.stop(process)
            else:
                owner.stop_all()
    finally:
        owner.release()


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
