"""The benchmark jobs, and the settings with which each is always run, so that measurements can be compared.

The number of tasks of a batch must not vary: topic and state have the same number of partitions in all jobs,
divisible by many scale-outs, and adaptive execution, which merges small partitions, is off. Batches start
back to back and have an upper bound, without which the first batch after a failure is one giant batch.

The module of a job has a function `build(spark, topics) -> DataStreamWriter`, and
`events(*, seed, count, start_s, hot_keys=False) -> pyarrow.Table` (columns key, value, timestamp), which
makes its input. pyspark is imported by `build` alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from models.errors import Misconfigured

PARTITIONS = 12  # divisible by 1, 2, 3, 4, 6 and 12: a scale-out for every step of the staircase
CONF = {"spark.sql.adaptive.enabled": "false", "spark.sql.adaptive.streaming.stateless.enabled": "false"}
LARGEST_BATCH = 20_000  # judgement: some seconds of work for one executor
SMALL_BATCH = 6_000  # judgement: the same where Python works on each record or key


@dataclass(frozen=True)
class BenchmarkJob:
    """Where a benchmark job is, and its fixed settings, named as in headroom.toml."""

    build: str
    """`package.module:function`"""
    longest_window_s: float = 0.0
    max_offsets_per_trigger: int = LARGEST_BATCH
    event_time: str | None = "event_time"
    """The JSON field, in milliseconds, that a replay moves to now."""
    state_partitions: int = PARTITIONS
    trigger_s: float = 0.0
    conf: Mapping[str, str] = field(default_factory=lambda: dict(CONF))

    def function(self, name: str | None = None) -> Callable[..., Any]:
        """What builds the job, or another function of its module."""
        module, _, build = self.build.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name or build)
        return found


def _nexmark(query: str, longest_window_s: float = 0.0) -> BenchmarkJob:
    return BenchmarkJob(f"{__name__}.nexmark:{query}", longest_window_s)


JOBS: Mapping[str, BenchmarkJob] = MappingProxyType(
    {
        "enrichment": BenchmarkJob(
            f"{__name__}.enrichment:build", max_offsets_per_trigger=SMALL_BATCH, event_time="at_ms"
        ),
        "nexmark-q1": _nexmark("q1"),
        "nexmark-q2": _nexmark("q2"),
        "nexmark-q3": _nexmark("q3", 60.0),
        "nexmark-q5": _nexmark("q5", 10.0),
        "nexmark-q5-long": _nexmark("q5_long", 300.0),
        "nexmark-q8": _nexmark("q8", 10.0),
        "nexmark-q11": _nexmark("q11", 10.0),
        "yahoo-streaming": BenchmarkJob(f"{__name__}.yahoo_streaming:build", 10.0),
        "top-speed-windowing": BenchmarkJob(
            f"{__name__}.top_speed_windowing:build", 60.0, max_offsets_per_trigger=SMALL_BATCH
        ),
        "word-count": BenchmarkJob(f"{__name__}.word_count:build", event_time=None),
        "traffic": BenchmarkJob(f"{__name__}.traffic:build", 10.0),
    }
)


def load(name: str) -> BenchmarkJob:
    """The benchmark job of this name."""
    if name not in JOBS:
        raise Misconfigured("job", f"unknown benchmark job '{name}'; expected {', '.join(JOBS)}")
    return JOBS[name]
