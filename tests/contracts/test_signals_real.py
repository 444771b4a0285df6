"""The signals of a real job against what each of its records went through.

Every input record is a probe: its broker timestamp is read back from the input, the time it left from the
output, and the time its batch was committed from the checkpoint's files. Tolerances: a percentile may be off
by 0.3 s plus a tenth, for arrivals are read once a second and commits have the file system's time. A record
reaches the sink before its batch is committed, at most one batch earlier.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from models.ports import Function
from models.quantities import Unknown
from profiling_jobs.periodic import Periodic
from profiling_jobs.telemetry.timeline import EVERY_S, Sampler, Timeline

pytestmark = pytest.mark.real

FIGURES = logging.getLogger("signals")  # shown with --log-cli-level=INFO
RATE_RPS = 150.0  # an eighth of what two executors carry: batches are short, and a busy machine copes
MEASURED_S = 30.0


class Probes:
    """Produces records at a steady rate until told to stop; knows how many the broker has."""

    def __init__(self, world: Any, topic: str) -> None:
        self._world, self.topic = world, topic
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="probes", daemon=True)
        self.sent = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._closing.set()
        self._thread.join(60.0)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        from kafka import KafkaProducer

        with KafkaProducer(**self._world.brokers.client(), linger_ms=0) as producer:
            begun = time.monotonic()
            while not self._closing.wait(0.02):
                while self.sent < (time.monotonic() - begun) * RATE_RPS:
                    value = b'{"probe": %d}' % self.sent
                    producer.send(self.topic, key=b"%d" % self.sent, value=value, partition=self.sent % 3)
                    self.sent += 1
            producer.flush()


def read_back(world: Any, topic: str) -> dict[int, tuple[tuple[str, int], int, float]]:
    """Probe -> where it lies, and its timestamp; of repeated ones the first."""
    from kafka import KafkaConsumer, TopicPartition

    found: dict[int, tuple[tuple[str, int], int, float]] = {}
    ends = world.broker.ends([topic])
    with KafkaConsumer(**world.brokers.client(), enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(*part) for part in ends])
        consumer.seek_to_beginning()
        while any(consumer.position(TopicPartition(*part)) < end for part, end in ends.items()):
            for part, records in consumer.poll(timeout_ms=500).items():
                for one in records:
                    if not one.key:  # what started the job up
                        continue
                    key = int(one.key)
                    at = (part.topic, part.partition), one.offset, one.timestamp / 1000.0
                    if key not in found or at[2] < found[key][2]:
                        found[key] = at
    return found


@pytest.fixture(scope="module")
def job(local_world: Any) -> Iterator[str]:
    world = local_world
    for name in world.deployments.names():  # its slots are needed, and its load would be in our way
        world.deployments.stop(name)
    plan = world.plan(
        name="enrichment",
        program=Function("profiling_jobs.jobs.enrichment:build"),
        scale_out=2,
        outputs={"results": "enrichment-out"},
    )
    world.produce(f"{plan.name}-in", {0: 100, 1: 100, 2: 100})  # without keys: no probes
    world.launch(plan)
    world.settle(plan.name, behind=0)
    yield plan.name
    world.deployments.stop(plan.name)


@pytest.fixture(scope="module")
def sampler(local_world: Any, job: str) -> Iterator[Sampler]:
    found = Sampler(local_world.metrics, lambda: [job])
    with Periodic(found.round, every_s=EVERY_S, name="test"):
        yield found


@pytest.fixture(scope="module")
def probes(local_world: Any, job: str) -> Iterator[Probes]:
    found = Probes(local_world, f"{job}-in")
    found.start()
    yield found
    found._closing.set()


def newest(timeline: Timeline) -> Any:
    assert not isinstance(timeline.last, Unknown), timeline.last
    return timeline.last.sample


def test_latency_agrees_with_records_that_were_read_at_the_sink(
    local_world: Any, job: str, sampler: Sampler, probes: Probes
) -> None:
    world = local_world
    begun_s = time.time()

    def caught_up() -> bool:
        with sampler.reading(job) as timeline:  # a sample of our own would take commits from it
            return newest(timeline).lag_records < 5 * RATE_RPS

    world.until(lambda: time.time() > begun_s + MEASURED_S and caught_up())
    with sampler.reading(job) as timeline:
        sample, done = newest(timeline), timeline.commits(0.0, time.time())
        commits = [c for point in timeline.points(0.0, time.time()) for c in point.sample.commits]
        rates = timeline.arrival_rps(begun_s + 5.0, begun_s + 25.0)
    assert rates == pytest.approx(RATE_RPS, rel=0.05)

    arrived, left = read_back(world, f"{job}-in"), read_back(world, f"{job}-out")
    to_commit, to_sink = [], []
    for probe, (part, offset, at_s) in arrived.items():
        first = next((c for c in commits if c.ends[part] > offset), None)
        if first is not None and sample.at_s - 120.0 <= first.at_s <= sample.at_s and probe in left:
            to_commit.append(first.at_s - at_s)
            to_sink.append(left[probe][2] - at_s)
    assert len(to_commit) > 0.8 * MEASURED_S * RATE_RPS * 0.8
    longest_s = max(b.at_s - a.at_s for a, b in pairwise(done))
    found_ms = sample.latency_p95_ms
    assert not isinstance(found_ms, Unknown), found_ms.reason
    truth, sink = np.percentile(to_commit, 95), np.percentile(to_sink, 95)
    FIGURES.info("p95 %.3f s; by records %.3f s, at the sink %.3f s", found_ms / 1000, truth, sink)
    assert found_ms / 1000.0 == pytest.approx(truth, abs=0.3 + 0.1 * truth)
    assert sink - 0.3 <= found_ms / 1000.0 <= sink + longest_s + 0.3
    assert min(np.asarray(to_commit) - np.asarray(to_sink)) > -0.05, "seen at the sink after the commit"


def test_lag_is_right_while_the_driver_is_dead_and_nothing_is_told_twice(
    local_world: Any, job: str, sampler: Sampler, probes: Probes
) -> None:
    world = local_world
    for process in world.deployments.driver(job):
        process.signal(signal.SIGKILL)
    killed_s = time.time()
    time.sleep(3.0)  # records arrive meanwhile
    probes.stop()
    there = world.count(f"{job}-in")
    assert there == probes.sent + 300

    def settled_reading() -> Any:
        """A sample after the last record, before the job is back."""
        with sampler.reading(job) as timeline:
            return newest(timeline)

    world.until(lambda: sum(settled_reading().head.values()) == there, timeout_s=20.0)
    dead = settled_reading()
    assert dead.lag_records == there - sum(dead.committed.values())
    assert dead.lag_records >= 2.0 * RATE_RPS
    assert dead.last_commit_at_s < killed_s + 0.5, "the dead do not commit"

    world.until(lambda: settled_reading().lag_records == 0)
    with sampler.reading(job) as timeline:
        back = timeline.first_commit_after(killed_s + 0.5)
        batches = [done.batch for done in timeline.commits(0.0, time.time())]
        processed = timeline.points(0.0, time.time())[-1].processed
        first = timeline.points(0.0, time.time())[0]
    assert not isinstance(back, Unknown)
    assert back.at_s > dead.at_s
    FIGURES.info("first commit %.1f s after the kill, %d behind", back.at_s - killed_s, dead.lag_records)
    assert len(set(batches)) == len(batches)
    assert batches == sorted(batches)
    assert processed == there - sum(first.sample.committed.values())
    world.until(lambda: len(set(read_back(world, f"{job}-out"))) == probes.sent, timeout_s=30.0)
