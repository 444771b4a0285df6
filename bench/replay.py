"""Speed of a replay beside Kafka's own producer, and how evenly it keeps a commanded rate.

Both send records of 100 bytes to the same broker in turn, three times. Then a constant rate, counted at the
broker (its own timestamps) in windows of 100 ms.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.environments.local.tasks import LocalTask
from pipelines.environments.replay import RunningReplay
from profiling_jobs.brokers import Brokers
from profiling_jobs.replay.replay_plan import Replay, Schedule
from profiling_jobs.telemetry.offsets import LogOffsets

from . import Figure
from ._local_kafka import kafka, missing_java, produced_rps, producer

REPEATS = 3
BURST_S = 6.0
BURST_RPS = 1_000_000.0  # more than it can
PEER_RECORDS = 1_500_000
STEADY_RPS = 50_000.0
STEADY_S = 10.0
WARM_UP_S = 3.0
WINDOW_S = 0.1


def measure() -> Iterable[Figure]:
    if missing_java("replay"):
        return
    stamped = {"message.timestamp.type": "LogAppendTime"}
    with kafka({"replayed": stamped, "peer": stamped}) as (owner, brokers):
        path = source(owner.folder / "source.parquet")
        plan = Replay(
            topic="replayed",
            source=str(path),
            schedule=Schedule.constant(0, duration_s=600),
            brokers=brokers,
            folder=path,
        )
        task = LocalTask(owner, "replay.bench")
        replay = RunningReplay(task).start(plan)
        offsets = LogOffsets(brokers, topic="replayed")
        ours, peers, loads = [], [], []
        for _ in range(REPEATS):
            ours.append(burst(replay, offsets))
            peers.append(
                produced_rps(producer(brokers, "peer", records=PEER_RECORDS, bytes_each=100, rate_rps=-1))
            )
            loads.append(os.getloadavg()[0])
        assert task.process is not None
        spent_s, sent = -cpu_s(task.process.pid), -sum(offsets.ends().values())
        off, mean = steady(replay, offsets)
        spent_s, sent = spent_s + cpu_s(task.process.pid), sent + sum(offsets.ends().values())
        replay.stop()
        peer_off = peer_steady(brokers)
        loads.append(os.getloadavg()[0])
    yield Figure(
        "replay with local[2], 100-byte records, median of three", statistics.median(ours), "records/s"
    )
    yield Figure("the first of them, while the JVM compiles", ours[0], "records/s")
    yield Figure("kafka-producer-perf-test, in turn with it", statistics.median(peers), "records/s")
    ratio = statistics.median(ours) / statistics.median(peers)
    yield Figure("replay over kafka-producer-perf-test", ratio, "", at_least=0.5)
    yield Figure("load of the machine meanwhile (per processor)", max(loads) / (os.cpu_count() or 1), "")
    label = f"100 ms windows at {STEADY_RPS:,.0f} records/s, off by"
    yield Figure(f"{label}: p99", float(np.percentile(off, 99)), "%", at_most=20.0)
    yield Figure(f"{label}: p50", float(np.percentile(off, 50)), "%")
    yield Figure(
        "the same of kafka-producer-perf-test at that rate: p99", float(np.percentile(peer_off, 99)), "%"
    )
    yield Figure(
        "mean rate beside the one commanded, off by", abs(mean / STEADY_RPS - 1) * 100, "%", at_most=1.0
    )
    yield Figure("processors taken by the replay per 100,000 records/s", spent_s / (sent / 1e5), "")


def source(path: Path, *, records: int = 200_000) -> Path:
    """Records whose key and value are 100 bytes together."""
    keys = np.random.default_rng(0).integers(0, 10_000, records)
    table = pa.table(
        {
            "key": pa.array([b"k%05d" % key for key in keys], pa.binary()),
            "value": pa.array([b"%094d" % row for row in range(records)], pa.binary()),
        }
    )
    pq.write_table(table, path, row_group_size=50_000)
    return path


def burst(replay: RunningReplay, offsets: LogOffsets) -> float:
    """As fast as it can, for some seconds."""
    from_s = replay.set_rate(BURST_RPS)
    time.sleep(BURST_S)
    until_s = replay.set_rate(0)
    time.sleep(2.0)  # what it has handed over arrives; the rate counts up to `until_s` all the same
    before, after = offsets.at(from_s), offsets.at(until_s)
    return sum(after[part] - before[part] for part in after) / (until_s - from_s)


def steady(replay: RunningReplay, offsets: LogOffsets) -> tuple[np.ndarray, float]:
    """How far each window is off, and the mean rate."""
    from_s = replay.set_rate(STEADY_RPS) + WARM_UP_S
    time.sleep(WARM_UP_S + STEADY_S + 3.0)  # the source asks the broker once a second
    achieved = replay.achieved(from_s, from_s + STEADY_S).achieved_rps
    assert isinstance(achieved, float), achieved
    return windows_off(offsets, from_s), achieved


def peer_steady(brokers: Brokers) -> np.ndarray:
    """The same of Kafka's own producer, which paces itself too."""
    records = int(STEADY_RPS * (WARM_UP_S + STEADY_S + 1.0))
    produced_rps(producer(brokers, "peer", records=records, bytes_each=100, rate_rps=STEADY_RPS))
    return windows_off(LogOffsets(brokers, topic="peer"), time.time() - 1.0 - STEADY_S)


def windows_off(offsets: LogOffsets, from_s: float) -> np.ndarray:
    """By how many per cent of the rate, in each window by the broker's clock."""
    edges = from_s + np.arange(0, STEADY_S + WINDOW_S / 2, WINDOW_S)
    heads = np.array([sum(offsets.at(float(edge)).values()) for edge in edges])
    return np.abs(np.diff(heads) / (STEADY_RPS * WINDOW_S) - 1) * 100


def cpu_s(pid: int) -> float:
    process = psutil.Process(pid)
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        spent = one.cpu_times()
        total += spent.user + spent.system
    return total
