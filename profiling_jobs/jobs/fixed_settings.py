"""With which settings does a benchmark job always run, so that two measurements of it can be compared?

The number of tasks per batch must not vary: partitions of topic and state are the same for all jobs, and
divisible by many scale-outs; adaptive execution, which would merge small partitions, is off. Batches start
back to back and have an upper bound, without which the first batch after a failure is one giant batch.

The jobs themselves set none of this. `trigger_s` and `max_offsets_per_trigger` act through
`profiling_jobs.topics`, `state_partitions` and `conf` through the driver's Spark configuration. They are what
a [job.NAME] with such a `build` has wherever it says nothing else (pipelines.settings.benchmark_jobs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from . import load

PARTITIONS = 12  # divisible by 1, 2, 3, 4, 6 and 12: a scale-out for every step of the staircase
SMALL_BATCHES = {"enrichment": 6_000, "top-speed-windowing": 6_000}  # judgement: Python per record or per key
EVENT_TIMES = {"enrichment": "at_ms", "word-count": None}
LARGEST_BATCH = 20_000  # judgement: some seconds of work for one executor
CONF = {"spark.sql.adaptive.enabled": "false", "spark.sql.adaptive.streaming.stateless.enabled": "false"}


@dataclass(frozen=True)
class FixedSettings:
    """What belongs into the plan of a benchmark job, whoever runs it."""

    build: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    longest_window_s: float
    """A warm-up takes at least this long: before, the job's state still grows."""
    event_time: str | None
    """The JSON field, in milliseconds, that a replay has to move: with old times everything would be late."""
    max_offsets_per_trigger: int
    topic_partitions: int = PARTITIONS
    state_partitions: int = PARTITIONS
    trigger_s: float = 0.0
    conf: Mapping[str, str] = field(default_factory=lambda: dict(CONF))


def of(name: str) -> FixedSettings:
    """The settings of the benchmark job `name`."""
    module = load(name)
    return FixedSettings(
        build=f"{module.__name__}:build",
        inputs=module.INPUTS,
        outputs=module.OUTPUTS,
        longest_window_s=getattr(module, "LONGEST_WINDOW_S", 0.0),
        event_time=EVENT_TIMES.get(name, "event_time"),
        max_offsets_per_trigger=SMALL_BATCHES.get(name, LARGEST_BATCH),
    )
