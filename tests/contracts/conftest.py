"""The worlds that the contract suites run in: one that is computed, and this machine.

A world offers what happens outside the ports (records arrive, time passes, a topic grows), so that one text
serves both: `until` steps the clock of the one and waits in the other. The real things are started once for
all suites, and everything is ended with them.
"""

from __future__ import annotations

import gc
import itertools
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import waiting
from brokers_outside import KafkaOutside, TwinOutside

from models.errors import HeadroomError
from models.ports import Broker, Deployments, Failures, Function, Metrics, Plan, Status
from models.quantities import Unknown
from models.simulation.batches import Behaviour, Platform
from models.simulation.cluster import SimulatedFailures
from models.simulation.sampling import SimulatedMetrics
from pipelines.environments.simulated.time import SharedCluster
from pipelines.integrations.embedded_kafka import EmbeddedBroker
from pipelines.integrations.kafka_broker import KafkaBroker
from pipelines.processes.owner import Owner, cleanup
from pipelines.settings.schema import SparkSettings
from profiling_jobs.brokers import Brokers

SLOTS = 4
FREEZE_S = 20  # as by default; a busy machine must still send its heartbeats
PARTITIONS = 4
JOB = '''
def build(spark, topics):
    """What comes in goes out."""
    return topics.write("alerts", topics.read("events").select("key", "value"))
'''


class World(ABC):
    """The ports, and what happens outside them."""

    deployments: Deployments
    failures: Failures
    metrics: Metrics
    broker: Broker
    plan: Callable[..., Plan]
    """A live job with a name, topics and a checkpoint of its own; the topics are there."""

    @abstractmethod
    def now_s(self) -> float: ...

    @abstractmethod
    def pass_time(self, seconds: float) -> None: ...

    @abstractmethod
    def until(self, condition: Callable[[], bool], *, timeout_s: float = 240.0) -> None:
        """Let time pass until it holds."""

    @abstractmethod
    def flow(self, topic: str, rate_rps: float) -> None:
        """From now on records arrive, evenly over the partitions it was made with."""

    @abstractmethod
    def produce(self, topic: str, counts: Mapping[int, int]) -> None:
        """Partition -> so many records, there when it returns."""

    @abstractmethod
    def expire(self, topic: str, before: Mapping[int, int]) -> None: ...

    @abstractmethod
    def grow(self, topic: str, partitions: int) -> None: ...

    def launch(self, plan: Plan) -> str:
        """Launch it and wait until it runs in full size."""
        self.deployments.launch(plan)
        self.settle(plan.name)
        return plan.name

    def settle(self, name: str, *, behind: float = 500.0) -> None:
        """Wait until a job runs with all that was declared, and is hardly behind."""

        def has_settled() -> bool:
            status = self.deployments.status(name)
            assert status.state != "failed", status.reason
            if status.state != "running" or isinstance(status.executors_alive, Unknown):
                return False
            return status.executors_alive == status.declared_scale_out and self.behind(name) <= behind

        self.until(has_settled)

    def answered(self, name: str) -> Status:
        """Status of a job that runs, from a driver that answers: a busy one is silent for a moment."""
        found = self.deployments.status(name)

        def has_answered() -> bool:
            nonlocal found
            found = self.deployments.status(name)
            return not isinstance(found.run_id, Unknown) and not isinstance(found.executors_alive, Unknown)

        self.until(has_answered)
        return found

    def count(self, topic: str) -> int:
        return sum(self.broker.ends([topic]).values())

    def committed(self, name: str) -> int:
        """Records that are done. The consumer group may miss the last batch of a job that was stopped."""
        done = self.metrics.sample(name).committed
        return 0 if isinstance(done, Unknown) else sum(done.values())

    def behind(self, name: str) -> float:
        lag = self.metrics.sample(name).lag_records
        return math.inf if isinstance(lag, Unknown) else lag


class Plans:
    """Plans with names that nobody else has."""

    def __init__(self, broker: Broker, checkpoints: Path) -> None:
        self._broker = broker
        self._checkpoints = checkpoints
        self._numbers = itertools.count(1)

    def plan(self, **changes: Any) -> Plan:
        name = changes.pop("name", f"contract-{next(self._numbers)}")
        plan = Plan(
            name=name,
            job=name,
            role="live",
            program=Function("contract_job:build"),
            scale_out=1,
            inputs={"events": f"{name}-in"},
            outputs={"alerts": f"{name}-out"},
            checkpoint=str(self._checkpoints / name),
            max_offsets_per_trigger=5000,
        )
        plan = replace(plan, **changes)
        for topic in {f"{name}-in", f"{name}-out"} - set(self._broker.topics()):
            self._broker.create(topic, partitions=PARTITIONS)
        return plan


class TwinWorld(TwinOutside, World):
    """Everything is computed; time is stepped."""

    STEP_S = 0.2

    def __init__(self, folder: Path) -> None:
        platform = Platform(slots=SLOTS, executor_timeout_s=FREEZE_S, driver_timeout_s=FREEZE_S)
        self.cluster = SharedCluster(_EveryJob(), platform, now_s=1.7e9)
        self.broker = self.cluster.topics
        self.deployments = self.cluster
        self.failures = SimulatedFailures(self.cluster)
        self.metrics = SimulatedMetrics(self.cluster)
        self.plan = Plans(self.broker, folder).plan

    def until(self, condition: Callable[[], bool], *, timeout_s: float = 240.0) -> None:
        limit = self.cluster.now_s + timeout_s
        while not condition():
            assert self.cluster.now_s < limit, "the condition was not reached"
            self.cluster.advance(self.STEP_S)

    def flow(self, topic: str, rate_rps: float) -> None:
        self.cluster.topics.flow(topic, rate_rps, at_s=self.cluster.now_s)


class _EveryJob(dict[str, Behaviour]):
    """A job that copies records is quick, and has no Python workers to start."""

    def get(self, name: str, default: Any = None) -> Behaviour:
        return Behaviour(lambda executors: 20_000.0 * executors, warm_up_s=0.5)


class RealWorld(KafkaOutside, World):
    """Real brokers and real time; what runs the jobs is chosen by those below."""

    failures: Any
    deployments: Any
    _executors: Any

    def __init__(self, brokers: Brokers, checkpoints: Path) -> None:
        self.brokers = brokers
        self.broker = KafkaBroker(brokers, patience_s=30.0)
        self.plan = Plans(self.broker, checkpoints).plan
        self._rates: dict[str, float] = {}
        self._flowing: threading.Thread | None = None
        self._closing = threading.Event()

    def until(self, condition: Callable[[], bool], *, timeout_s: float = 240.0) -> None:
        waiting.until(condition, timeout_s=timeout_s, every_s=0.2)

    def flow(self, topic: str, rate_rps: float) -> None:
        self._rates[topic] = rate_rps
        if self._flowing is None:
            self._flowing = threading.Thread(target=self._flow, name="contract-flow", daemon=True)
            self._flowing.start()

    def _flow(self) -> None:
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        due: dict[str, float] = {}
        turn, last_s = itertools.count(), time.monotonic()
        with KafkaProducer(**self.brokers.client(), retries=1000) as producer:
            while not self._closing.wait(0.1):
                passed_s = time.monotonic() - last_s
                last_s += passed_s
                for topic, rate in list(self._rates.items()):
                    due[topic] = due.get(topic, 0.0) + passed_s * rate
                    while due[topic] >= 1.0:
                        due[topic] -= 1.0
                        with suppress(KafkaError):
                            producer.send(topic, b"x", partition=next(turn) % PARTITIONS)

    def close(self) -> None:
        self._closing.set()
        if self._flowing is not None:
            self._flowing.join(timeout=30)
        self.failures.clear_all()
        for name in self.deployments.names():
            with suppress(HeadroomError):
                self.deployments.stop(name)
        self.metrics.close()
        self._executors.close()
        self.broker.close()


class LocalWorld(RealWorld):
    """A real Kafka and a real Spark on this machine."""

    def __init__(self, owner: Owner, embedded: EmbeddedBroker, folder: Path) -> None:
        from pipelines.environments.local.deployments import LocalDeployments
        from pipelines.environments.local.executors import LocalExecutors
        from pipelines.environments.local.failures import LocalFailures
        from pipelines.environments.metrics import JobMetrics
        from pipelines.integrations.spark import LocalSpark

        super().__init__(embedded.brokers, folder / "checkpoints")
        settings = SparkSettings(slots=SLOTS, network_timeout_s=FREEZE_S, heartbeat_s=2)
        (folder / "contract_job.py").write_text(JOB)
        spark = LocalSpark(owner, settings)
        self.deployments = LocalDeployments(owner, spark, self.brokers, settings=settings, project=folder)
        self.deployments.watch()
        self.failures = LocalFailures(owner, self.deployments, broker=embedded)
        self._executors = LocalExecutors(spark)
        self.metrics = JobMetrics(self.broker, self.deployments, self._executors)

    def close(self) -> None:
        super().close()
        self.deployments.close()


@pytest.fixture(scope="package")
def real_owner(tmp_path_factory: pytest.TempPathFactory, real_java: Any) -> Iterator[Owner]:
    """The owner of everything real that these suites start.

    It ends with these suites: the jobs they keep running would take a processor from all later tests.
    """
    folder = tmp_path_factory.mktemp("contracts") / ".headroom"
    try:
        with Owner(folder) as owner:
            yield owner
    finally:
        cleanup(folder, end_owner=True)
        gc.collect()  # kafka-python's sockets, while we do not mind


@pytest.fixture(scope="package")
def real_broker(real_owner: Owner) -> EmbeddedBroker:
    broker = EmbeddedBroker(real_owner)
    broker.start()
    return broker


@pytest.fixture(scope="package")
def local_world(real_owner: Owner, real_broker: EmbeddedBroker) -> Iterator[LocalWorld]:
    world = LocalWorld(real_owner, real_broker, real_owner.folder.parent)
    try:
        yield world
    finally:
        world.close()


@pytest.fixture(params=["twin", pytest.param("local", marks=pytest.mark.real)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "twin":
        return TwinWorld(tmp_path)
    return request.getfixturevalue("local_world")


@pytest.fixture
def settled(world: World) -> str:
    """A live job on two executors with 100 records/s that has caught up with them.

    In the real world there is one for all tests: each leaves it able to run.
    """
    name = "settled"
    if name not in world.deployments.names():
        world.deployments.launch(world.plan(name=name, scale_out=2))
        world.flow(f"{name}-in", 100.0)
    world.settle(name)
    return name
