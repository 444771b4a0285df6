"""What is a world of which nothing is real? The queueing twin behind every port, on a clock of its own.

What arrives in the live topics of a simulated world? Whatever a made-up curve says, until it is closed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from models.errors import HeadroomError
from models.ports import Clock, Function, Plan, Source
from models.quantities import Unknown
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.recorder import Recorder
from profiling_jobs.recording.request import Request

from ...processes.owner import unwritable
from ...settings.schema import JobSettings, Settings
from ..base import STORE, Say, World

if TYPE_CHECKING:
    from models.simulation.cluster import Cluster

    from ..attached import Attached


EVERY_S = 5.0  # judgement: smooth beside batches of seconds
Curve = Callable[[float], float]


@dataclass(frozen=True)
class Wave:
    """λ(t) = mean · (1 + swing · sin 2πt/period), t in epoch seconds."""

    mean_rps: float = 800.0  # what one executor of the twin's default job does
    swing: float = 0.5
    period_s: float = 3600.0

    def __call__(self, at_s: float) -> float:
        return self.mean_rps * (1.0 + self.swing * math.sin(2.0 * math.pi * at_s / self.period_s))


def of_every_job(settings: Settings, curve: Curve) -> Mapping[str, Curve]:
    """The same curve for every topic that a job reads."""
    return {topic: curve for job in settings.jobs.values() for topic in job.inputs.values()}


class SimulatedLoad:
    """Records arrive for as long as it is open."""

    def __init__(self, world: World, curves: Mapping[str, Curve]) -> None:
        self._world, self._curves = world, curves
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="headroom-simulated-load", daemon=True)

    def __enter__(self) -> SimulatedLoad:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        world = self._world
        assert world.flow is not None
        with world.taking_part():
            while not self._closing.is_set():
                now_s = world.clock.now_s()
                with suppress(HeadroomError):  # the broker is away: producers wait
                    there = world.broker.topics()
                    for topic, curve in self._curves.items():
                        if topic in there:
                            world.flow(topic, max(0.0, curve(now_s)))
                world.clock.sleep(EVERY_S)


@contextmanager
def simulated(settings: Settings, folder: Path, *, since_s: float | None) -> Iterator[World]:
    """The twin; its time begins at `since_s` and is bounded then, or runs as fast as it is computed."""
    from models.simulation.batches import Platform
    from models.simulation.cluster import SimulatedClock, SimulatedFailures, SimulatedSource
    from models.simulation.sampling import SimulatedMetrics

    from ...integrations.sqlite_store import SqliteStore
    from ..attached import Attached, AttachedDeployments, AttachedFailures, AttachedMetrics, theirs
    from .records import copier, offsets_of
    from .time import Pace, SharedCluster

    cluster = SharedCluster(
        platform=Platform(slots=settings.spark.slots), now_s=time.time() if since_s is None else since_s
    )
    pace = None if since_s is None else Pace(cluster, usual=1.0)
    clock = SimulatedClock(cluster)
    broker = cluster.topics

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

    attached = Attached(theirs(settings.jobs), now_s=clock.now_s)
    _run_by_their_owner(cluster, attached, settings)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    with SqliteStore(folder / STORE) as store:
        yield World(
            kind="simulated",
            deployments=AttachedDeployments(cluster, attached),
            metrics=AttachedMetrics(SimulatedMetrics(cluster), attached),
            broker=broker,
            failures=AttachedFailures(SimulatedFailures(cluster), attached),
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


def _run_by_their_owner(cluster: Cluster, attached: Attached, settings: Settings) -> None:
    """Where everything is made up, so is whoever runs the attached jobs."""
    for name, their in attached.jobs.items():
        job = settings.jobs[name]
        for topic in their.inputs.values():
            if topic not in cluster.topics:
                cluster.topics.create(topic, partitions=job.topic_partitions, at_s=cluster.now_s)
        cluster.launch(
            Plan(
                name=name,
                job=name,
                role="live",
                program=Function("somebody:else"),
                scale_out=job.scale_out,
                inputs=their.inputs,
                outputs={},
                checkpoint=their.checkpoint,
                trigger_s=job.trigger_s,
                max_offsets_per_trigger=job.max_offsets_per_trigger,
            )
        )
