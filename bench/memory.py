"""Memory of Headroom's own processes, without the JVMs of Kafka and Spark.

A copy of `enrichment` runs on real Kafka and Spark with a replay as its source, as in a probe; then the same
process samples ten jobs of twelve partitions, and twenty, from the same broker, until their timelines are as
long as they get. What a process holds is its proportional set size: pages that several share count once.
The largest reading of each counts. The Python workers of the job's executors are the job's own, and so is
what a driver in Python takes without us: that is measured beside, and what the wrapper adds to it is ours.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil

from models.errors import HeadroomError
from models.ports import Commit, ExecutorSample, Sample
from models.quantities import Unknown
from pipelines.environments import base
from pipelines.environments.base import Environment
from pipelines.environments.metrics import JobMetrics
from pipelines.integrations import java
from pipelines.integrations.kafka_broker import KafkaBroker
from pipelines.processes.owner import cleanup
from pipelines.settings import job_plans, loading
from profiling_jobs.experiments.copies import Copies
from profiling_jobs.telemetry.timeline import SAMPLER_KEPT_S, Sampler

from . import Figure
from ._local_kafka import missing_java
from .signals import JOBS, PARTITIONS, Growing, Jobs

RATE_RPS = 20_000.0  # of the replay
SECONDS = 20.0
PATIENCE_S = 240.0
EXECUTORS = 4  # of each sampled job
ROUNDS = 150  # until the windows of latency are full
EVERY_S = 0.25
ROOT = Path(__file__).parents[1]
OURS = {"profiling_jobs.replay.driver": "replay", "profiling_jobs.runner": "driver"}
BARE = """
import psutil
from pyspark.sql import SparkSession
conf = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1"}
spark = SparkSession.builder.config(map=conf).getOrCreate()
query = spark.readStream.format("rate").load().writeStream.format("noop").start()
query.processAllAvailable()
print(psutil.Process().memory_info().rss / 2**20)
query.stop()
spark.stop()
"""
TOML = """
[spark]
slots = 1
[job.enrichment]
build = "profiling_jobs.jobs.enrichment:build"
inputs = {events = "orders"}
outputs = {results = "answers"}
max_offsets_per_trigger = 6000
events = "generator:enrichment?count=300000"
"""


def measure() -> Iterable[Figure]:
    if missing_java("memory"):
        return
    with tempfile.TemporaryDirectory(prefix="headroom-bench-") as name:
        folder = Path(name) / ".headroom"
        try:
            with base.opened(loading.parse(TOML, environment={}), folder) as here:
                yield from probing(here, folder)
                yield from sampling(here, Path(name))
        finally:
            cleanup(folder, end_owner=True)


def probing(here: Environment, folder: Path) -> Iterable[Figure]:
    """A copy with its source."""
    job = loading.parse(TOML, environment={}).jobs["enrichment"]
    copies = Copies(
        job_plans.live_plan("enrichment", job, folder=folder),
        here.around("enrichment", job),
        partitions={"events": PARTITIONS, "results": PARTITIONS},
    )
    with largest() as held:
        try:
            copy = copies.launch(1)
            until = time.monotonic() + PATIENCE_S
            while isinstance(copy.watch.last, Unknown) or not copy.watch.last.commits:
                assert time.monotonic() < until, "no batch was committed"
                time.sleep(0.5)
                copy.watch.look(time.time())
            from_s = copy.source.set_rate(RATE_RPS)
            while time.time() < from_s + SECONDS:
                time.sleep(1.0)
                copy.watch.look(time.time())
            emitted = copy.source.achieved(from_s + 1.0, from_s + SECONDS - 3.0)
        finally:
            copies.clear()
    yield Figure(
        "rate of the replay meanwhile", float(emitted.achieved_rps), "records/s", at_least=0.9 * RATE_RPS
    )
    yield Figure("the command's process, while one copy is probed", held["command"], "MB")
    yield Figure("the replay's Python (driver and task)", held["replay"], "MB")
    yield Figure("our wrapper with the job's driver in it", held["driver"], "MB")
    ours = held["command"] + held["replay"]
    yield Figure("all of them together", ours + held["driver"], "MB")
    # Resident, and not shared out among those who map the same pages: they have run at different times.
    bare = bare_driver()
    yield Figure("a driver in Python without us, resident", bare, "MB")
    yield Figure("a job's driver with our wrapper, resident", held["driver, resident"], "MB")
    added = max(0.0, held["driver, resident"] - bare)
    yield Figure("command, replay, and what the wrapper adds to a driver", ours + added, "MB", at_most=300.0)


def bare_driver() -> float:
    """What PySpark itself takes of a process that runs a query."""
    with tempfile.TemporaryDirectory(prefix="headroom-bench-") as folder:
        environment = {**os.environ, "JAVA_HOME": str(java.find().home), "SPARK_LOCAL_DIRS": folder}
        done = subprocess.run(
            [sys.executable, "-c", BARE],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
        )
    if done.returncode:
        raise RuntimeError(f"a driver without us did not run: {done.stderr[-1000:]}")
    return float(done.stdout.split()[-1])


def sampling(here: Environment, folder: Path) -> Iterable[Figure]:
    """Ten jobs, then twenty, with timelines as long as they are kept."""
    held = [own()]
    for jobs in (JOBS, 2 * JOBS):
        place = folder / f"checkpoints-{jobs}"
        kept = filled(here, Jobs(place, jobs), place)
        held.append(own())
        del kept
        gc.collect()
    yield Figure(f"{JOBS} jobs x {PARTITIONS} partitions, all history kept", held[1], "MB", at_most=300.0)
    yield Figure("growth from none to ten jobs", held[1] - held[0], "MB")
    yield Figure("growth from ten to twenty jobs", held[2] - held[1], "MB")


def filled(here: Environment, jobs: Jobs, folder: Path) -> Sampler:
    """Real rounds until nothing but the timelines grows, then samples as they come until those are full."""
    assert isinstance(here.broker, KafkaBroker)
    now_s = 1_000_000.0
    with Growing(here.broker.brokers) as broker:
        for name in jobs.plans:
            broker.create(name, partitions=PARTITIONS)
        with JobMetrics(broker, jobs, jobs, clock=lambda: now_s) as metrics:
            later = Later(metrics)
            sampler = Sampler(later, lambda: list(jobs.plans), clock=lambda: now_s)
            for _ in range(ROUNDS):
                now_s += 1.0
                broker.grown += 10
                jobs.commit(now_s - 0.5)
                sampler.round()
            later.goes_on = True
            for _ in range(int(1.1 * SAMPLER_KEPT_S)):
                sampler.round()
    return sampler


class Later:
    """Real samples; once it `goes_on` those that would come, each with mappings and numbers of its own."""

    def __init__(self, metrics: JobMetrics) -> None:
        self._metrics = metrics
        self._newest: dict[str, Sample] = {}
        self.goes_on = False

    def sample(self, name: str) -> Sample:
        raise NotImplementedError

    def sample_all(self, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]:
        if self.goes_on:
            self._newest = {name: next_one(sample) for name, sample in self._newest.items()}
            return self._newest
        found = self._metrics.sample_all(names)
        self._newest = {name: sample for name, sample in found.items() if isinstance(sample, Sample)}
        assert self._newest.keys() == set(names), found
        return found


def next_one(before: Sample) -> Sample:
    """A second later: ten records more in each partition, one more batch, new readings every four seconds."""
    assert not isinstance(before.committed, Unknown)
    assert isinstance(before.last_batch, int)
    at_s, batch = before.at_s + 1.0, before.last_batch + 1
    ends = {(topic, part): end + 10 for (topic, part), end in before.committed.items()}
    executors = before.executors
    if batch % 4 == 0:
        shares = np.random.default_rng(batch).random((EXECUTORS, 3)).tolist()
        executors = tuple(ExecutorSample(f"app/{n}", "running", *share) for n, share in enumerate(shares))
    return replace(
        before,
        at_s=at_s,
        head={(topic, part): end + 10 for (topic, part), end in before.head.items()},
        committed=ends,
        log_start={(topic, part): int(str(start)) for (topic, part), start in before.log_start.items()},
        last_batch=batch,
        last_commit_at_s=at_s - 0.5,
        executors=executors,
        latency_p95_ms=900.0 + batch,
        commits=(Commit(batch, at_s - 0.5, dict(ends)),),
    )


@contextmanager
def largest() -> Iterator[dict[str, float]]:
    """Process -> the most it has held, in MB, while this is open."""
    held: dict[str, float] = defaultdict(float)
    over = threading.Event()

    def read() -> None:
        while not over.wait(EVERY_S):
            now: dict[str, float] = defaultdict(float)
            now["command"] = own()
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if (what := ours(process)) is not None:
                        now[what] += held_mb(process)
                        now[f"{what}, resident"] += process.memory_info().rss / 2**20
            for what, most in now.items():
                held[what] = max(held[what], most)

    reading = threading.Thread(target=read, name="bench-memory", daemon=True)
    reading.start()
    try:
        yield held
    finally:
        over.set()
        reading.join()


def ours(process: psutil.Process) -> str | None:
    """Which of our programs a Python process belongs to, through whatever started it."""
    if process.name() == "java":
        return None
    for one in (process, *process.parents()):
        for module, what in OURS.items():
            if module in one.cmdline():
                return what
    return None


def own() -> float:
    return held_mb(psutil.Process())


def held_mb(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss) / 2**20
