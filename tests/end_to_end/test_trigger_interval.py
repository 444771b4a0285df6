"""A script with a trigger interval and windows on Kafka's timestamp gets from a recording to a decision."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from memory_registry import MemoryRegistry

from models.ports import Broker
from pipelines.environments import base
from pipelines.integrations.java import Java
from pipelines.integrations.kafka_broker import KafkaBroker
from pipelines.orchestration.resources import Modelling
from pipelines.processes.owner import cleanup
from pipelines.server.in_process import InProcessServer
from pipelines.settings import loading
from profiling_jobs.orders import run_order
from profiling_jobs.training.promoting import refit

# Minutes on an idle machine; a busy one repeats probes that its source or its warm-up has spoilt.
pytestmark = [pytest.mark.real, pytest.mark.timeout(2700)]

TRIGGER_S = 1.0
PARTITIONS = 8
RATE_RPS = 200
SCRIPT = """
import sys, time
from pyspark.sql import SparkSession, functions as F

brokers, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("clicks").getOrCreate()

@F.udf("string")
def looked_up(value):
    time.sleep(0.001)  # a look-up elsewhere: capacity grows with the executors, also on two cores
    return value

clicks = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", brokers)
    .option("subscribe", source)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 2000)
    .load()
)
counted = (
    clicks.select("timestamp", looked_up(F.col("value").cast("string")).alias("page"))
    .withWatermark("timestamp", "10 seconds")
    .groupBy(F.window("timestamp", "10 seconds"), "page")
    .count()
)
query = (
    counted.select(F.to_json(F.struct("window", "page", "count")).alias("value"))
    .writeStream.format("kafka")
    .outputMode("update")
    .option("kafka.bootstrap.servers", brokers)
    .option("topic", target)
    .option("checkpointLocation", checkpoint)
    .trigger(processingTime="1 second")
    .start()
)
query.awaitTermination()
"""
TOML = f"""
[spark]
slots = 3

[job.clicks]
script = "clicks.py"
args = ["{{brokers}}", "{{input_topic}}", "{{output_topic}}", "{{checkpoint}}"]
inputs = {{events = "clicks"}}
outputs = {{counts = "counts"}}
trigger_s = {TRIGGER_S:g}
max_offsets_per_trigger = 2000
state_partitions = {PARTITIONS}
topic_partitions = {PARTITIONS}
event_time = "kafka-timestamp"
longest_window_s = 10
scale_out = 1
scale_out_max = 2
recovery_target_s = 40
evaluation_interval_s = 10
warm_up_s = 5
probe_s = 12
profile_most_probes = 3
profile_precision = 1
profile_guess_rps = 400
"""


@pytest.fixture
def folder(tmp_path: Path, real_java: Java) -> Iterator[Path]:
    (tmp_path / "clicks.py").write_text(SCRIPT)
    found = tmp_path / ".headroom"
    try:
        yield found
    finally:
        assert all(one.how != "survived" for one in cleanup(found, end_owner=True))


@contextmanager
def clicking(broker: Broker) -> Iterator[None]:
    """Records keep coming, without a time of their own."""
    from kafka import KafkaProducer

    assert isinstance(broker, KafkaBroker)
    over = threading.Event()

    def send() -> None:
        with KafkaProducer(**broker.brokers.client(), linger_ms=20) as producer:
            while not over.wait(0.1):
                for number in range(RATE_RPS // 10):
                    producer.send("clicks", json.dumps({"page": number}).encode())

    thread = threading.Thread(target=send, name="clicks")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_from_a_recording_and_a_profile_to_a_decision(folder: Path) -> None:
    settings = loading.parse(TOML, environment={})
    with base.opened(settings, folder) as here, InProcessServer(here, settings, folder) as server:
        run_order(server, "launch", "clicks", say=print)
        with clicking(here.broker):
            run_order(server, "record", "clicks", say=print, seconds=130.0)
            run_order(server, "profile", "clicks", say=print)
            modelling = Modelling(settings, folder, MemoryRegistry())
            room, purpose = modelling.context(here.store), modelling.purpose("clicks", here.store)
            for kind in ("capacity", "workload", "recovery"):
                made = refit(kind, purpose, room)
                assert made.promoted, made.said
            here.clock.sleep(settings.jobs["clicks"].evaluation_interval_s)
            found = server.evaluate("clicks")
        assert isinstance(found["decision"]["scale_out"], int), found["decision"]["reason"]
        engine = server.context.champions.champions("clicks").engine
        assert 0.0 <= engine.overhead_s[1] < math.inf
