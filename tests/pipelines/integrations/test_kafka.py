"""A real broker: what it has acknowledged is there after everything that happens to it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import kafka
import pytest
from brokers_outside import values
from open_broker import OpenBroker
from waiting import until

from models.errors import NotReady, Unsafe
from pipelines.integrations import jars, ports
from pipelines.integrations.embedded_kafka import NODE_PASSWORD, EmbeddedBroker
from pipelines.integrations.java import Java
from pipelines.integrations.kafka_broker import KafkaBroker
from pipelines.processes.owner import Owner
from profiling_jobs.brokers import Brokers

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def broker(owner: Owner) -> EmbeddedBroker:
    """Its cluster has a name that begins with a dash, as one in 64 has."""
    broker = EmbeddedBroker(owner)
    dash = uuid.UUID(bytes=b"\xf8" + bytes(15))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.integrations.embedded_kafka.uuid.uuid4", lambda: dash)
        broker.start()
    assert "cluster.id=-" in (broker.folder / "data" / "meta.properties").read_text()
    return broker


def create(brokers: Brokers, topic: str) -> None:
    with KafkaBroker(brokers) as there:
        there.create(topic, partitions=3)


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
        until(lambda: len(acknowledged) >= 2000)
        consumer = KafkaConsumer(**brokers.client(), group_id="headroom.orders", enable_auto_commit=False)
        part = TopicPartition("orders", 0)
        consumer.assign([part])
        consumer.commit({part: OffsetAndMetadata(7, "", -1)})
        consumer.close()
        before = len(acknowledged)
        broker.stop(kill=True)
        broker.start(keep_ports=True)
        assert broker.brokers == brokers  # clients find it again
        # The same producer goes on after the restart.
        until(lambda: len(acknowledged) >= before + 1000)
    finally:
        stop.set()
        thread.join(timeout=120)
        producer.close()
    missing = set(acknowledged) - set(values(brokers, "orders"))
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
            *("--producer.config", str(broker.folder / "client.properties")),
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


AS_ANOTHER_USER = """
import json, sys
from kafka import KafkaAdminClient
from kafka.structs import OffsetAndMetadata, TopicPartition
asked = json.loads(sys.argv[1])
patience_ms = int(sys.argv[2])
admin = KafkaAdminClient(**asked, bootstrap_timeout_ms=patience_ms, request_timeout_ms=patience_ms)
forged = {TopicPartition("forged", 0): OffsetAndMetadata(9, "", -1)}
moved = admin.alter_group_offsets("headroom.orders", forged)
print("let in", admin.list_topics(), moved)
"""


def as_another_user(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run with the libraries of this test, whose folder others may not be able to enter."""
    with tempfile.TemporaryDirectory(prefix="libraries-") as place:
        os.chmod(place, 0o755)
        shutil.copytree(Path(kafka.__file__).parent, Path(place, "kafka"))
        return subprocess.run(
            ["/usr/bin/env", "python3", "-W", "ignore", "-c", code, *words],
            user=65534,
            group=65534,
            extra_groups=[],
            env={"PYTHONPATH": place, "PATH": os.environ["PATH"]},
            cwd="/",
            capture_output=True,
            text=True,
        )


def test_another_user_of_the_machine_is_not_let_in(broker: EmbeddedBroker) -> None:
    """The offsets of a group, forged by anybody, hid 100,400 records of lag."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    create(broker.ensure(), "forged")
    ports_ = ports.kept(broker.folder) or ()
    knows = broker.brokers.client()
    without = {"security_protocol": "PLAINTEXT", "sasl_mechanism": None}
    guesses = [
        {**knows, **guess, "bootstrap_servers": f"{ports.HOST}:{port}"}
        for port in ports_  # the controller's, too
        for guess in (
            without,
            {"sasl_plain_password": "guessed"},
            {"sasl_mechanism": "PLAIN", "sasl_plain_password": "guessed"},
            {"sasl_mechanism": "PLAIN"},  # the password of SCRAM is of no use there
        )
    ]
    with KafkaBroker(broker.brokers) as ours:
        for guess in guesses:
            done = as_another_user(AS_ANOTHER_USER, json.dumps(guess), "3000")
            assert "let in" not in done.stdout, guess
            assert "KafkaTimeoutError" in done.stderr, done.stderr
            assert ours.committed("headroom.orders", ["forged"]) == {}
        assert "let in" in as_another_user(AS_ANOTHER_USER, json.dumps(knows), "60000").stdout
        assert ours.committed("headroom.orders", ["forged"]) == {("forged", 0): 9}


def test_nobody_else_reads_the_password(owner: Owner, broker: EmbeddedBroker) -> None:
    password = (broker.folder / "password").read_text()
    node = NODE_PASSWORD.search((broker.folder / "server.properties").read_text())
    assert node is not None
    for name in ("password", "client.properties", "server.properties"):
        assert stat.S_IMODE((broker.folder / name).stat().st_mode) == 0o600, name
    for process in owner.running():
        line = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert password not in line
        assert node[1] not in line
    for log in (owner.folder / "logs").iterdir():
        assert password not in log.read_text()
        assert node[1] not in log.read_text()


def test_a_program_that_listens_on_its_port_is_not_told_the_password(
    owner: Owner, broker: EmbeddedBroker
) -> None:
    """While the broker is down, any user may."""
    password = (broker.folder / "password").read_bytes()
    heard = b""
    with socket.create_server((ports.HOST, 0)) as impostor:
        there = replace(broker.brokers, bootstrap=f"{ports.HOST}:{impostor.getsockname()[1]}")

        def ask() -> None:
            with KafkaBroker(there, patience_s=10.0) as client, suppress(NotReady):
                client.topics()

        asking = threading.Thread(target=ask)
        asking.start()
        impostor.settimeout(60)
        connection, _ = impostor.accept()
        with connection:
            heard = answered(connection)
        asking.join(60)
    assert b"SCRAM-SHA-512" in heard
    assert b"n=headroom" in heard
    assert password not in heard


def answered(connection: socket.socket) -> bytes:
    """What a client says to somebody who agrees to everything."""
    from struct import pack, unpack

    heard = b""
    connection.settimeout(5)
    with suppress(OSError, IndexError):
        while True:
            size = connection.recv(4)
            if len(size) < 4:
                break
            request = connection.recv(unpack(">i", size)[0])
            heard += request
            key, version, number = unpack(">hhi", request[:8])
            if key == 18:  # ApiVersions: not this version, but 0
                body = pack(">hi", 0, 4) + b"".join(pack(">hhh", *one) for one in APIS)
                body = (
                    body
                    if version == 0
                    else pack(">hi", 35, 4) + b"".join(pack(">hhh", *one) for one in APIS)
                )
            elif key == 17:  # SaslHandshake
                body = pack(">hi", 0, 1) + pack(">h", 13) + b"SCRAM-SHA-512"
            else:
                break
            connection.sendall(pack(">ii", len(body) + 4, number) + body)
    return heard


APIS = ((18, 0, 0), (17, 0, 1), (36, 0, 0), (3, 0, 5))


def test_one_that_an_earlier_version_left_open_is_shut(owner: Owner) -> None:
    open_broker = OpenBroker(owner, name="kafka-before")
    before = open_broker.start()
    create(before, "kept")
    later = EmbeddedBroker(owner, name="kafka-before")
    after = later.ensure()
    assert (after.bootstrap, after.security_protocol) == (before.bootstrap, "SASL_PLAINTEXT")
    with KafkaBroker(after) as ours:
        assert "kept" in ours.topics()
    later.stop()


def test_a_password_that_was_deleted_is_made_anew(owner: Owner) -> None:
    broker = EmbeddedBroker(owner, name="kafka-anew")
    broker.start()
    before = (broker.folder / "password").read_text()
    (broker.folder / "password").unlink()
    broker.stop()
    broker.start(keep_ports=True)
    assert (broker.folder / "password").read_text() != before
    with KafkaBroker(broker.brokers) as ours:
        assert ours.topics() == {}
    broker.stop()


def test_an_owner_that_died_before_the_broker_knew_the_password_is_made_up_for(owner: Owner) -> None:
    broker = EmbeddedBroker(owner, name="kafka-halfway")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedBroker, "_admit", lambda self: True)
        patch.setattr(EmbeddedBroker, "_serves", lambda self: True)
        broker.start()
    later = EmbeddedBroker(owner, name="kafka-halfway")
    with KafkaBroker(later.ensure()) as ours:
        assert ours.topics() == {}
    later.stop()
