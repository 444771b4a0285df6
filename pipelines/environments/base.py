"""The environment of `[deployment] kind`: real processes of this machine, or a simulation, behind the ports.

    with opened(settings, folder) as environment: …

What it starts is stopped on leaving; what was running before is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from models.ports import Broker, Clock, Deployments, Failures, Metrics, Plan, Query, Source, Store
from models.quantities import Unknown
from profiling_jobs.experiments.copies import ExperimentContext
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.recorder import Request
from profiling_jobs.telemetry.spark_page import StageTime

from ..processes.owner import Owner
from ..settings.schema import JobSettings, Settings

if TYPE_CHECKING:
    from .simulated.time import Pace

Say = Callable[[str], None]


class RealClock:
    """The clock of this machine."""

    def now_s(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


class Recording(Protocol):
    """Copies a live topic into a folder."""

    def __call__(self, name: str, request: Request, *, clock: Clock, say: Say) -> Recorded: ...


@dataclass(frozen=True)
class Environment:
    """The ports of one environment, and what else commands and the server need of it."""

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
    brokers: str = ""
    """`host:port[,host:port]` of Kafka; empty where it is simulated."""
    own_topics: bool = True
    """Whether topics that are missing may be made: the broker is ours."""
    removed_jobs: tuple[str, ...] = ()
    """Those that ran here once and are not in the settings any more; copies of them may be left."""
    taking_part: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Held by every thread that works by the clock: simulated time stands still while it works."""
    hurried: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Held while a call waits: simulated time that goes with the wall clock may run ahead of it."""
    owner: Owner | None = None
    """Of the folder, where processes belong to it."""
    flow: Callable[[str, float], None] | None = None
    """Simulated only: a live topic -> how fast records arrive in it from now on."""
    pace: Pace | None = None
    """Simulated only: how fast its time passes, where that is bounded."""

    def around(self, name: str, job: JobSettings) -> ExperimentContext:
        """What profiling and drills of one job need."""
        return ExperimentContext(
            deployments=self.deployments,
            metrics=self.metrics,
            broker=self.broker,
            store=self.store,
            clock=self.clock,
            open_source=lambda copy, inputs: self.open_source(name, job, copy, inputs),
            checkpoint=self.checkpoint,
            forget=self.forget,
            stages=self.stages,
            rescales_live=job.rescale == "live",
        )

    def partitions(self, plan: Plan, job: JobSettings) -> dict[str, int]:
        """Of the live topics, by the job's names; as the settings want them where they are not there yet."""
        there = self.broker.topics()
        inputs = {own: there.get(topic, job.topic_partitions) for own, topic in plan.inputs.items()}
        most = max(inputs.values())
        return inputs | {own: there.get(topic, most) for own, topic in plan.outputs.items()}


def removed(deployments: Deployments, jobs: Container[str]) -> tuple[Query, ...]:
    """Live jobs that run, or should, although the settings do not name them any more."""
    plans = map(deployments.plan, deployments.names())
    return tuple(plan for plan in plans if plan.job not in jobs)


KINDS: Mapping[str, str] = {
    "simulated": "simulated.environment",
    "local": "local.environment",
    "kubernetes": "kubernetes.environment",
}
"""`[deployment] kind` -> the module below this package whose `opened`, called as the one here, opens it."""


def opened(
    settings: Settings,
    folder: Path,
    *,
    say: Say = lambda text: None,
    owner: Owner | None = None,
    since_s: float | None = None,
) -> AbstractContextManager[Environment]:
    """Open the environment of `[deployment] kind`.

    `owner`: of the folder, where it is taken already; it ends what runs there. Otherwise the folder is taken,
    and released on leaving. `since_s`: when a simulated environment begins; its time then passes as real time
    does, and without it as fast as it can be computed.
    """
    module = import_module(f".{KINDS[settings.deployment.kind]}", __package__)
    found: AbstractContextManager[Environment] = module.opened(
        settings, folder, say=say, owner=owner, since_s=since_s
    )
    return found
