"""A broker for the benchmarks of recording and replay, and Kafka's own producer to compare with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.errors import Misconfigured
from pipelines.integrations import jars, java
from pipelines.integrations.embedded_kafka import EmbeddedBroker
from pipelines.processes.owner import Owner
from profiling_jobs.brokers import Brokers


def missing_java(benchmark: str) -> bool:
    """Whether there is none; then one line says so."""
    try:
        java.find()
    except Misconfigured as error:
        print(f"  {benchmark} skipped: {error}", file=sys.stderr, flush=True)
        return True
    return False


@contextmanager
def kafka(topics: dict[str, dict[str, str]], *, partitions: int = 4) -> Iterator[tuple[Owner, Brokers]]:
    """A broker with these topics (name -> configuration), gone afterwards."""
    from kafka import KafkaAdminClient

    with tempfile.TemporaryDirectory() as folder, Owner(Path(folder) / ".headroom") as owner:
        brokers = EmbeddedBroker(owner).start()
        admin = KafkaAdminClient(**brokers.client())
        admin.create_topics(
            {
                name: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
                for name, configs in topics.items()
            },
            wait_for_metadata=True,
        )
        admin.close()
        yield owner, brokers


def producer(brokers: Brokers, topic: str, *, records: int, bytes_each: int, rate_rps: float) -> list[str]:
    """The command of kafka-producer-perf-test; a rate of -1 is as fast as it can."""
    found = jars.fetch("broker", "tools")
    return [
        str(java.find().command),
        *("-cp", os.pathsep.join(map(str, found)), "org.apache.kafka.tools.ProducerPerformance"),
        *("--topic", topic, "--num-records", str(records), "--record-size", str(bytes_each)),
        *("--throughput", f"{rate_rps:.0f}", "--producer-props", f"bootstrap.servers={brokers.bootstrap}"),
        *("--producer.config", str(Path(brokers.password_file or "").with_name("client.properties"))),
    ]


def produced_rps(command: list[str]) -> float:
    """Run it, and what it says of itself."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found = re.findall(r"sent, ([\d.]+) records/sec", done.stdout)
    return float(found[-1])
