"""What is a world of which nothing is real? The queueing twin behind every port, on a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from models.quantities import Unknown
from profiling_jobs.ports import Clock, Function, Plan, Source
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.recorder import Recorder
from profiling_jobs.recording.request import Request

from .owner import unwritable
from .settings import JobSettings, Settings
from .world import STORE, Say, World

if TYPE_CHECKING:
    from models.simulation.cluster import Cluster

    from .resources.attached import Attached


@contextmanager
def simulated(settings: Settings, folder: Path, *, since_s: float | None) -> Iterator[World]:
    """The twin; its time begins at `since_s` and is bounded then, or runs as fast as it is computed."""
    from models.simulation.behaviour import Platform

    from .resources.attached import Attached, theirs
    from .resources.hands_off import AttachedDeployments, AttachedFailures, AttachedMetrics
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

    attached = Attached(theirs(settings.jobs), now_s=clock.now_s)
    _run_by_their_owner(cluster, attached, settings)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    with SqliteStore(folder / STORE) as store:
        yield World(
            kind="simulated",
            deployments=AttachedDeployments(SimulatedDeployments(cluster), attached),
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
