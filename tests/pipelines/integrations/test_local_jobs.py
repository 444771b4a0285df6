"""Real jobs on a real Spark and Kafka: rescaled under load, and what a script may and may not do."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest
from brokers_outside import values
from waiting import until

from models.ports import Function, Plan, Script
from pipelines.environments.local.deployments import LocalDeployments
from pipelines.environments.local.executors import LocalExecutors
from pipelines.environments.local.failures import LocalFailures
from pipelines.integrations.embedded_kafka import EmbeddedBroker
from pipelines.integrations.kafka_broker import KafkaBroker
from pipelines.integrations.spark import LocalSpark
from pipelines.processes.owner import Owner
from pipelines.settings.schema import SparkSettings
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver import progress
from profiling_jobs.driver.batch_files import read_batches
from profiling_jobs.jobs import enrichment
from profiling_jobs.telemetry.checkpoint import Checkpoint, Position

pytestmark = pytest.mark.real
SETTINGS = SparkSettings(slots=5)

# As somebody has it: a session of its own, a module beside it, a hard-wired master, a query that is awaited.
SCRIPT = """
import sys
from pyspark.sql import SparkSession, functions as f
from shouting import shout

if __name__ == "__main__":
    _, source, target, checkpoint, brokers, misdeed = sys.argv
    spark = SparkSession.builder.appName("mine").master("local[1]").getOrCreate()
    events = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers)
              .option("subscribe", source).option("startingOffsets", "earliest").load())
    loud = events.select("key", f.udf(shout)(f.col("value").cast("string"), f.lit(misdeed)).alias("value"))
    if misdeed == "beside":  # a batch, too
        seen = (spark.read.format("kafka").option("kafka.bootstrap.servers", brokers)
                .option("subscribe", source).load())
        (seen.limit(1).write.format("kafka").option("kafka.bootstrap.servers", brokers)
         .option("topic", "beside").save())
    query = (loud.writeStream.format("kafka").option("kafka.bootstrap.servers", brokers)
             .option("topic", target).option("checkpointLocation", checkpoint).start())
    query.awaitTermination()
"""
MODULE = """
def shout(text, misdeed):
    if misdeed == "throw":
        raise ValueError("this record is not for shouting")
    return text.upper()
"""


@dataclass
class Place:
    """Where the jobs of this file run."""

    owner: Owner
    brokers: Brokers
    deployments: LocalDeployments

    def topics(self, *names, partitions=12):
        with KafkaBroker(self.brokers) as broker:
            for name in names:
                broker.create(name, partitions=partitions)

    def send(self, topic, *, seed, count):
        from kafka import KafkaProducer

        events = enrichment.events(seed=seed, count=count, start_s=1.7e9)
        with KafkaProducer(**self.brokers.client(), linger_ms=20) as producer:
            for key, value in zip(events["key"].to_pylist(), events["value"].to_pylist(), strict=True):
                producer.send(topic, key=key, value=value)

    def committed(self, group, topic):
        from kafka import KafkaConsumer, TopicPartition

        with KafkaConsumer(**self.brokers.client(), group_id=group, enable_auto_commit=False) as consumer:
            parts = [TopicPartition(topic, part) for part in consumer.partitions_for_topic(topic)]
            return sum(consumer.committed(part) or 0 for part in parts)

    def batches(self, name):
        events = progress.read(self.deployments.folder(name) / "progress.jsonl")
        return sum(event["event"] == "progress" for event in events)

    def run(self, plan):
        self.deployments.launch(plan)
        until(lambda: self._runs(plan.name))

    def _runs(self, name):
        status = self.deployments.status(name)
        assert status.state != "failed", status.reason
        return status.state == "running" and status.executors_alive == status.declared_scale_out


class Flow:
    """Orders at a steady rate, each with a number of its own, until told to stop."""

    def __init__(self, brokers, topic, *, rate_rps):
        self.sent = []
        self._brokers, self._topic, self._rate_rps = brokers, topic, rate_rps
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._flow, name="orders", daemon=True)
        self._thread.start()

    def _flow(self):
        from kafka import KafkaProducer

        events = enrichment.events(seed=3, count=200_000, start_s=1.7e9)
        records = zip(events["key"].to_pylist(), events["value"].to_pylist(), strict=True)
        with KafkaProducer(**self._brokers.client(), linger_ms=20) as producer:
            began_s = time.monotonic()
            while not self._closing.wait(0.1):
                while len(self.sent) < self._rate_rps * (time.monotonic() - began_s):
                    key, value = next(records)
                    producer.send(self._topic, key=key, value=value)
                    self.sent.append(json.loads(value)["order"])

    def stop(self):
        self._closing.set()
        self._thread.join(timeout=30)


@pytest.fixture(scope="module")
def place(owner):
    scripts = owner.folder.parent / "job"
    scripts.mkdir()
    (scripts / "loud.py").write_text(SCRIPT)
    (scripts / "shouting.py").write_text(MODULE)
    brokers = EmbeddedBroker(owner).start()
    spark = LocalSpark(owner, SETTINGS)
    spark.ensure()
    with LocalDeployments(owner, spark, brokers, settings=SETTINGS) as deployments:
        yield Place(owner, brokers, deployments)


def test_every_order_comes_out_once_where_each_batch_is_one_thing(place):
    deployments, name = place.deployments, "exactly-once"
    place.topics("steady-orders")
    folder = place.owner.folder.parent / "answers"
    plan = Plan(
        name=name,
        job=name,
        role="live",
        program=Function("profiling_jobs.jobs.enrichment:build"),
        scale_out=2,
        inputs={"events": "steady-orders"},
        outputs={"results": f"files:{folder}"},
        checkpoint=str(place.owner.folder / "checkpoints" / name),
        max_offsets_per_trigger=2000,
    )
    checkpoint = Checkpoint(plan.checkpoint, ["steady-orders"], job=name)

    def done():
        position = checkpoint.position()
        return sum(position.ends.values()) if isinstance(position, Position) else 0

    def settle(size):
        before = done()
        until(lambda: deployments.status(name).executors_alive == size and done() > before)

    def in_a_batch():
        until(lambda: list(folder.glob(".draft-*")))

    # Two executors do twice that: a batch is at work at most moments.
    flow = Flow(place.brokers, "steady-orders", rate_rps=600.0)
    try:
        with LocalFailures(place.owner, deployments) as failures:
            deployments.launch(plan)
            settle(2)
            for epoch, size in enumerate((4, 3), start=1):
                assert deployments.scale(name, size, epoch=epoch).path == "live"
                settle(size)
            for kind in ("executor_kill", "driver_kill"):
                in_a_batch()
                failures.clear(failures.inject(name, kind).id)
                settle(3)
    finally:
        flow.stop()
    until(lambda: done() == len(flow.sent))
    deployments.stop(name)
    events = progress.read(deployments.folder(name) / "progress.jsonl")
    assert len({event["incarnation"] for event in events}) == 2
    came_out = Counter(
        json.loads(value)["order"]
        for _, table in read_batches(folder)
        for value in table["value"].to_pylist()
    )
    lost = set(flow.sent) - set(came_out)
    twice = [order for order, count in came_out.items() if count > 1]
    assert (len(lost), len(twice)) == (0, 0), f"lost and twice, of {len(flow.sent)}"
    assert len(came_out) == len(flow.sent)
    assert not list(folder.glob(".*"))


def test_a_script_runs_unchanged_as_a_copy_and_is_kept_to_its_topics(place):
    deployments = place.deployments
    place.topics("clicks", "scratch", "loud", "beside", partitions=2)
    place.send("clicks", seed=2, count=100)

    def copy(name, *, target="{output_topic}", misdeed="none"):
        arguments = ("{input_topic}", target, "{checkpoint}", "{brokers}", misdeed)
        return Plan(
            name=name,
            job="loud",
            role="profile",
            program=Script("job/loud.py", arguments),
            scale_out=1,
            inputs={"clicks": "clicks"},
            outputs={"out": "scratch"},
            checkpoint=str(place.owner.folder / "checkpoints" / name),
        )

    for plan in (
        copy("loud-copy", misdeed="beside"),
        copy("loud-astray", target="loud"),
        copy("loud-broken", misdeed="throw"),
    ):
        deployments.launch(plan)
    until(lambda: deployments.status("loud-astray").state == "failed")
    assert deployments.status("loud-astray").reason.startswith(
        "job.loud.outputs: the profiling copy would write into 'loud', it was given scratch"
    )
    until(lambda: deployments.status("loud-broken").state == "failed")
    reason = deployments.status("loud-broken").reason
    assert reason.startswith("job.loud.script: the job failed before its first batch was finished: ")
    assert "ValueError: this record is not for shouting" in reason
    assert "\n" not in reason
    until(lambda: place.batches("loud-copy") >= 1)
    _nobody_else_sees_the_password(place, "loud-copy")
    deployments.stop("loud-copy")
    said = place.owner.log("driver.loud-copy").read_text()
    assert "spark.master is set by the program and by Headroom, which wins" in said
    assert "profiling copy loud-copy: checked at every DataStreamWriter.start" in said
    assert "trusted: " in said
    assert values(place.brokers, "loud") == []
    assert len(values(place.brokers, "beside")) == 1
    written = values(place.brokers, "scratch")
    assert len(written) == 100
    assert all(value == value.upper() for value in written)
    assert place.committed("headroom.loud-copy", "clicks") == 100
    assert place.committed("headroom.loud", "clicks") == 0


def _nobody_else_sees_the_password(place, name):
    """Command lines, Spark's own pages, and its REST: every user of the machine reads them."""
    password = Path(place.brokers.password_file or "").read_text()
    for process in place.owner.everything():
        with suppress(OSError):  # it has ended meanwhile
            assert password not in Path(f"/proc/{process.pid}/cmdline").read_text()
    page, application = LocalExecutors(LocalSpark(place.owner, SETTINGS)).page(name)
    rest = f"/api/v1/applications/{application}"
    seen = 0
    for path in ("/environment/", "/StreamingQuery/", f"{rest}/sql?details=true", f"{rest}/environment"):
        with urlopen(f"{page}{path}", timeout=30) as answer:
            assert password not in answer.read().decode(), path
    with urlopen(f"{page}{rest}/sql", timeout=30) as answer:
        for execution in json.load(answer):
            seen += 1
            with urlopen(f"{page}/SQL/execution/?id={execution['id']}", timeout=30) as plan:
                assert password not in plan.read().decode(), execution
    assert seen
