"""A real broker: what it has acknowledged is there after everything that happens to it."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import NotReady, Unsafe
from pipelines.environments.local.broker_watch import LOOK_S, BrokerWatch
from pipelines.integrations import jars, ports
from pipelines.integrations.embedded_kafka import EmbeddedBroker
from pipelines.integrations.java import Java
from pipelines.processes.owner import Owner, cleanup
from profiling_jobs.brokers import Brokers
from profiling_jobs.periodic import Periodic

pytestmark = [
    pytest.mark.real,
    # kafka-python reads its schemas that way while it is imported.
    pytest.mark.filterwarnings("ignore:(open|read)_text is deprecated:DeprecationWarning"),
    # And it leaves the sockets of refused connections to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, real_java: Java) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("kafka") / ".headroom"
    yield path
    cleanup(path, end_owner=True)
    gc.collect()  # kafka-python's sockets, while we do not mind


@pytest.fixture(scope="module")
def owner(folder: Path) -> Iterator[Owner]:
    with Owner(folder) as owner:
        yield owner


@pytest.fixture(scope="module")
def broker(owner: Owner) -> EmbeddedBroker:
    """Its cluster has a name that begins with a dash, as one in 64 has."""
    broker = EmbeddedBroker(owner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "pipelines.integrations.embedded_kafka.uuid.uuid4", lambda: uuid.UUID(bytes=b"\xf8" + bytes(15))
        )
        broker.start()
    assert "cluster.id=-" in (broker.folder / "data" / "meta.properties").read_text()
    return broker


def create(brokers: Brokers, topic: str, partitions: int = 3) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic

    admin = KafkaAdminClient(**brokers.client())
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()


def read_all(brokers: Brokers, topic: str) -> list[bytes]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(**brokers.client(), auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        parts = [TopicPartition(topic, part) for part in consumer.partitions_for_topic(topic)]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        values: list[bytes] = []
        until = time.monotonic() + 60
        while any(consumer.position(part) < ends[part] for part in parts):
            assert time.monotonic() < until, "the records did not come"
            values += [record.value for records in consumer.poll(500).values() for record in records]
        return values
    finally:
        consumer.close()


def test_no_acknowledged_record_is_lost_when_the_broker_is_killed(
    owner: Owner, broker: EmbeddedBroker
) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    brokers = broker.brokers
    create(brokers, "orders")
    producer = KafkaProducer(**brokers.client(), acks="all", retries=1000, linger_ms=5)
    acknowledged: list[bytes] = []
    stop = threading.Event()

    def produce() -> None:
        number = 0
        while not stop.is_set():
            batch = [b"%d" % (number + one) for one in range(200)]
            futures = [producer.send("orders", value) for value in batch]
            number += len(batch)
            for value, future in zip(batch, futures, strict=True):
                try:
                    future.get(timeout=60)
                    acknowledged.append(value)
                except KafkaError:
                    pass  # never acknowledged: may be lost

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        until = time.monotonic() + 60
        while len(acknowledged) < 2000 and time.monotonic() < until:
            time.sleep(0.05)
        consumer = KafkaConsumer(**brokers.client(), group_id="headroom.orders", enable_auto_commit=False)
        part = TopicPartition("orders", 0)
        consumer.assign([part])
        consumer.commit({part: OffsetAndMetadata(7, "", -1)})
        consumer.close()
        before = len(acknowledged)
        broker.restart(kill=True)
        assert broker.brokers == brokers  # clients find it again
        until = time.monotonic() + 60
        while len(acknowledged) < before + 1000 and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        stop.set()
        thread.join(timeout=120)
        producer.close()
    assert len(acknowledged) >= before + 1000, "the same producer goes on after the restart"
    missing = set(acknowledged) - set(read_all(brokers, "orders"))
    assert not missing
    consumer = KafkaConsumer(**brokers.client(), group_id="headroom.orders")
    assert consumer.committed(TopicPartition("orders", 0)) == 7
    consumer.close()
    assert "ClassNotFound" not in owner.log("kafka").read_text()


def test_an_unknown_topic_is_not_created_by_asking(broker: EmbeddedBroker) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(**broker.brokers.client())
    assert consumer.partitions_for_topic("nowhere") in (None, set())
    assert "nowhere" not in consumer.topics()
    consumer.close()


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy", "gzip"])
def test_the_java_producer_and_every_codec_work(
    owner: Owner, broker: EmbeddedBroker, real_java: Java, codec: str
) -> None:
    create(broker.brokers, f"codec-{codec}")
    role = f"perf-{codec}"
    process = owner.start(
        role,
        [
            *(real_java.command, "-Xmx128m", "-XX:TieredStopAtLevel=1"),
            *("-cp", os.pathsep.join(map(str, jars.fetch("broker", "tools")))),
            *("org.apache.kafka.tools.ProducerPerformance", "--topic", f"codec-{codec}"),
            *("--num-records", "1000", "--record-size", "100", "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={broker.brokers.bootstrap}"),
            *(f"compression.type={codec}", "acks=all"),
        ],
    )
    assert process.wait(90), "the producer did not end"
    assert owner.exit_code(process) == 0, owner.log(role).read_text()
    assert "1000 records sent" in owner.log(role).read_text()


def test_a_second_one_is_refused_on_the_same_folder(owner: Owner, broker: EmbeddedBroker) -> None:
    process = broker.process
    assert process is not None
    with pytest.raises(Unsafe, match=f"already runs on .*kafka .process {process.pid}.: stop it first"):
        EmbeddedBroker(owner).start()
    assert process.alive
    assert broker.ensure() == broker.brokers
    assert broker.process == process


def test_the_next_owner_finds_and_adopts_it(owner: Owner, broker: EmbeddedBroker) -> None:
    process = broker.process
    owner.release()  # as if we had died
    owner.acquire()
    later = EmbeddedBroker(owner)
    assert later.process == process
    with pytest.raises(Unsafe, match="already runs"):
        later.start()
    assert later.ensure() == broker.brokers
    assert later.process == process


def test_one_that_dies_is_started_again_on_its_ports_with_its_records(broker: EmbeddedBroker) -> None:
    from kafka import KafkaProducer

    brokers, died = broker.brokers, broker.process
    assert died is not None
    create(brokers, "outlives")
    producer = KafkaProducer(**brokers.client(), acks="all")
    producer.send("outlives", b"before").get(timeout=60)
    said: list[str] = []
    watch = BrokerWatch(broker, restarting=threading.Lock(), say=said.append)
    with Periodic(watch.look, every_s=LOOK_S, name="kafka-watch"):
        died.signal(signal.SIGKILL)
        until = time.monotonic() + 150
        while not said or "runs again" not in said[-1]:
            assert time.monotonic() < until, said
            time.sleep(0.1)
    assert said == [
        f"Kafka has ended (see {broker.log}): it is started again",
        f"Kafka runs again on {brokers.bootstrap}",
    ]
    assert broker.process not in (None, died)
    producer.send("outlives", b"after").get(timeout=60)
    producer.close()
    assert sorted(read_all(brokers, "outlives")) == [b"after", b"before"]


def test_another_has_taken_the_ports_meanwhile(owner: Owner, broker: EmbeddedBroker) -> None:
    brokers = broker.brokers
    create(brokers, "kept")
    broker.stop()
    assert broker.process is None
    broker.stop()  # twice is not an error
    with socket.socket() as other:
        port = int(brokers.bootstrap.rpartition(":")[2])
        assert ports.wait_until_free((port,), timeout_s=30)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((ports.HOST, port))
        other.listen()
        with pytest.raises(NotReady, match=f"another program listens on the broker's ports {port}"):
            broker.start(keep_ports=True)
        assert broker.start() != brokers
        from kafka import KafkaAdminClient

        admin = KafkaAdminClient(**broker.brokers.client())
        assert "kept" in admin.list_topics()
        admin.close()


def test_start_is_tried_again_when_somebody_is_quicker(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind((ports.HOST, 0))
        other.listen()
        taken = other.getsockname()[1]
        offers = iter([(taken, *ports.free_ports(1)), ports.free_ports(2)])
        monkeypatch.setattr(ports, "free_ports", lambda count: next(offers))
        quick = EmbeddedBroker(owner, name="kafka-quick")
        assert not quick.start().bootstrap.endswith(f":{taken}")
        quick.stop()
    assert owner.running("kafka-quick") == ()
