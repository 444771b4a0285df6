"""The simulated environment: a queueing twin behind every port, on a clock of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import HeadroomError
from models.ports import Clock, Function, Plan, Source
from models.quantities import Unknown
from profiling_jobs.periodic import Periodic
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.recorder import Recorder, Request

from ...processes.owner import Owner, unwritable
from ...settings.schema import JobSettings, Settings
from ..base import Environment, Say

if TYPE_CHECKING:
    from models.simulation.cluster import Cluster

    from ..attached import Attached


EVERY_S = 5.0  # judgement: smooth beside batches of seconds
MEAN_RPS = 800.0  # what one executor of the twin's default job does
SWING = 0.5
PERIOD_S = 3600.0


def simulated_load(environment: Environment, settings: Settings) -> Periodic:
    """Records for every topic that a job reads: λ(t) = MEAN · (1 + SWING · sin 2πt/PERIOD)."""
    topics = {topic for job in settings.jobs.values() for topic in job.inputs.values()}

    def work() -> None:
        assert environment.flow is not None
        now_s = environment.clock.now_s()
        rate_rps = MEAN_RPS * (1.0 + SWING * math.sin(2.0 * math.pi * now_s / PERIOD_S))
        with suppress(HeadroomError):  # the broker is away: producers wait
            for topic in topics & set(environment.broker.topics()):
                environment.flow(topic, rate_rps)

    return Periodic(
        work,
        every_s=EVERY_S,
        name="simulated-load",
        clock=environment.clock,
        taking_part=environment.taking_part,
    )


@contextmanager
def opened(
    settings: Settings, folder: Path, *, say: Say, owner: Owner | None, since_s: float | None
) -> Iterator[Environment]:
    """The simulation; its time begins at `since_s` and is bounded then, or is as fast as it is computed."""
    from models.simulation.batches import Platform
    from models.simulation.cluster import SimulatedClock, SimulatedFailures, SimulatedSource
    from models.simulation.sampling import SimulatedMetrics

    from ...integrations.stores.opening import open_store
    from ..attached import Attached, theirs
    from .records import TopicOffsets, copier
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
            offsets=TopicOffsets(broker, request.topic),
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
    with open_store(settings.store, folder) as store:
        yield Environment(
            kind="simulated",
            deployments=attached.deployments(cluster),
            metrics=attached.metrics(SimulatedMetrics(cluster)),
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
            owner=owner,
            hurried=nullcontext if pace is None else pace.hurried,
            flow=flow,
            pace=pace,
        )


def _run_by_their_owner(cluster: Cluster, attached: Attached, settings: Settings) -> None:
    """Attached jobs are simulated, too."""
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
                program=Function("attached:job"),
                scale_out=job.scale_out,
                inputs=their.inputs,
                outputs={},
                checkpoint=their.checkpoint,
                trigger_s=job.trigger_s,
                max_offsets_per_trigger=job.max_offsets_per_trigger,
            )
        )
