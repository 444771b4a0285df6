"""The benchmark jobs, one module each, named as in headroom.toml with `_` for `-`.

A module has
    build(spark, topics) -> DataStreamWriter       the job
    events(*, seed, count, start_s, hot_keys=False) -> pyarrow.Table with columns key, value, timestamp
                                                   what it reads; a job with several inputs gives a mapping
    LONGEST_WINDOW_S                               its longest window or state TTL (default: 0)
and may name its topics in INPUTS and OUTPUTS, the way headroom.toml does (default: `events`, `results`).

Neither this package nor a job's module imports pyspark before `build` is called.
"""

from __future__ import annotations

import importlib
from types import MappingProxyType, ModuleType

from models.errors import Misconfigured

NAMES = (
    "enrichment",
    "nexmark-q1",
    "nexmark-q2",
    "nexmark-q3",
    "nexmark-q5",
    "nexmark-q5-long",
    "nexmark-q8",
    "nexmark-q11",
    "yahoo-streaming",
    "top-speed-windowing",
    "word-count",
    "traffic",
)
JOBS = MappingProxyType({name: f"{__name__}.{name.replace('-', '_')}" for name in NAMES})
"""Name -> module."""


def load(name: str) -> ModuleType:
    """The module of the benchmark job `name`."""
    if name not in JOBS:
        raise Misconfigured("job", f"there is no benchmark job '{name}', there is {', '.join(JOBS)}")
    return importlib.import_module(JOBS[name])
