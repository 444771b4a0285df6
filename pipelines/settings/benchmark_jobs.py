"""Defaults of our benchmark jobs: the settings that they are always measured with.

What the [job.NAME] table says counts; `conf` is completed key by key.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from profiling_jobs.jobs import JOBS

BUILDS = {job.build: job for job in JOBS.values()}


def completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that are set, and the defaults of the benchmark job that `build` names."""
    fixed = BUILDS.get(given.get("build", ""))
    if fixed is None:
        return dict(given)
    return {
        "trigger_s": fixed.trigger_s,
        "max_offsets_per_trigger": fixed.max_offsets_per_trigger,
        "state_partitions": fixed.state_partitions,
        "longest_window_s": fixed.longest_window_s,
        "event_time": fixed.event_time,
        **given,
        "conf": MappingProxyType({**fixed.conf, **given.get("conf", {})}),
    }
