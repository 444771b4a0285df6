"""Cost of a round of signals for ten jobs of twelve partitions each, on a real broker.

Everything that a round waits for: ends, starts and consumer groups from the broker, ten checkpoints with a
hundred batches each, one new batch per job and round, lag and latency percentiles over two minutes. Drivers
and executors are asked in threads and not waited for; what a pass over the processes costs stands beside it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from bench import Figure
from models.errors import Misconfigured
from models.observation import ExecutorLoss
from models.ports import Function, Plan, Sample, Status
from models.quantities import Unknown
from pipelines.environments.metrics import JobMetrics
from pipelines.integrations import java
from pipelines.integrations.embedded_kafka import EmbeddedBroker
from pipelines.integrations.kafka_broker import KafkaBroker
from pipelines.processes.owner import Owner, cleanup
from pipelines.processes.processes import cpu_seconds, identify
from profiling_jobs.telemetry.checkpoint import KEPT
from profiling_jobs.telemetry.observing import ExecutorReading

JOBS = 10
PARTITIONS = 12
ROUNDS = 150
BEFORE = 130
"""Rounds that are not timed: a full window of latencies."""


class Jobs:
    """Deployments without drivers, each with a checkpoint as Spark writes it."""

    def __init__(self, folder: Path, count: int = JOBS) -> None:
        self.plans: Mapping[str, Plan] = {
            name: Plan(
                name, name, "live", Function("jobs:build"), 1, {"events": name}, {}, str(folder / name)
            )
            for name in (f"job-{number}" for number in range(count))
        }
        self.batches = 0
        for name in self.plans:
            for part in ("offsets", "commits"):
                (folder / name / part).mkdir(parents=True)
            (folder / name / "metadata").write_text('{"id":"bench"}')
        self._folder = folder

    def commit(self, at_s: float) -> None:
        """One more batch of every job, and the oldest one gone."""
        for name in self.plans:
            ends = {name: {str(p): 10 * self.batches for p in range(PARTITIONS)}}
            conf = json.dumps({f"spark.sql.streaming.setting.{i}": "x" * 40 for i in range(20)})
            offsets = self._folder / name / "offsets" / str(self.batches)
            offsets.write_text(f'v1\n{{"batchWatermarkMs":0,"conf":{conf}}}\n{json.dumps(ends)}')
            commit = self._folder / name / "commits" / str(self.batches)
            commit.write_text('v1\n{"nextBatchWatermarkMs":0}')
            os.utime(commit, (at_s, at_s))
            (commit.parent / f".{self.batches}.crc").write_text("crc")
            for kind in ("offsets", "commits"):
                (self._folder / name / kind / str(self.batches - KEPT)).unlink(missing_ok=True)
        self.batches += 1

    def plan(self, name: str) -> Plan:
        return self.plans[name]

    def status(self, name: str) -> Status:
        return Status("running", 1, 1, "bench")

    def read(self, name: str) -> tuple[ExecutorReading, ...]:
        return ()

    def losses(self, name: str) -> dict[str, ExecutorLoss]:
        return {}

    def processors_per_slot(self) -> float:
        return 1.0


class Growing(KafkaBroker):
    """The real broker, with ends that grow: nothing has to be produced."""

    grown = 0

    def ends(self, topics):  # type: ignore[no-untyped-def]
        return {part: end + self.grown for part, end in super().ends(topics).items()}


def measure() -> Iterable[Figure]:
    try:
        java.find()
    except Misconfigured as error:
        print(f"signals: skipped, {error}", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="headroom-bench-") as name:
        folder = Path(name) / ".headroom"
        try:
            with Owner(folder) as owner:
                yield from _measure(Path(name), EmbeddedBroker(owner))
        finally:
            cleanup(folder)


def _measure(folder: Path, embedded: EmbeddedBroker) -> Iterable[Figure]:
    jobs = Jobs(folder / "checkpoints")
    now_s = 1_000_000.0
    with Growing(embedded.start()) as broker:
        for name, plan in jobs.plans.items():
            broker.create(name, partitions=PARTITIONS)
            broker.commit(plan.group, {(name, p): 0 for p in range(PARTITIONS)})
        wall_s, cpu_s = [], []
        with JobMetrics(broker, jobs, jobs, clock=lambda: now_s) as metrics:
            for _ in range(BEFORE + ROUNDS):
                now_s += 1.0
                broker.grown += 10
                jobs.commit(now_s - 0.5)
                wall, cpu = time.perf_counter(), time.process_time()
                found = metrics.sample_all(list(jobs.plans))
                wall_s.append(time.perf_counter() - wall)
                cpu_s.append(time.process_time() - cpu)
            for sample in found.values():
                if not isinstance(sample, Sample) or isinstance(sample.latency_p95_ms, Unknown):
                    raise AssertionError(f"a round without its signals: {sample}")
    wall_ms, cpu_ms = 1000 * np.asarray(wall_s[BEFORE:]), 1000 * np.asarray(cpu_s[BEFORE:])
    what = f"{JOBS} jobs x {PARTITIONS} partitions"
    yield Figure(f"{what}: a round, median", float(np.median(wall_ms)), "ms", at_most=100.0)
    yield Figure(f"{what}: a round, 95th percentile", float(np.percentile(wall_ms, 95)), "ms")
    yield Figure(f"{what}: our processor time of a round, mean", float(cpu_ms.mean()), "ms")
    ours = [one for one in [identify(os.getpid())] if one is not None]
    began = time.perf_counter()
    for _ in range(20):
        cpu_seconds(ours)
    yield Figure("a pass over the processes, every 4 s", 1000 * (time.perf_counter() - began) / 20, "ms")
