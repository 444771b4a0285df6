"""After how long is a silent executor given up, and what must Spark be told so that it really is?

`[spark]` says it for every job; a `spark.network.timeout` in the configuration of a job, as the copies of
somebody else's job may need it, comes before that. Spark knows four values that have to fit each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from pipelines.settings import SparkSettings
from profiling_jobs.errors import Misconfigured

SILENCE, BEAT = "spark.network.timeout", "spark.executor.heartbeatInterval"
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(text: str, *, unit: str = "s") -> float:
    """A duration as Spark writes it: 120, 120s, 2m, 120000ms; NaN for anything else."""
    parts = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if parts is None or (parts[2] or unit) not in UNITS:
        return math.nan
    return int(parts[1]) * UNITS[parts[2] or unit]


def silence_s(spark: SparkSettings, chosen: Mapping[str, str]) -> float:
    """After how long a silent executor is given up; NaN where the value is none that Spark would take."""
    return seconds_of(chosen.get(SILENCE, f"{spark.network_timeout_s}s"))


def timeouts(spark: SparkSettings, chosen: Mapping[str, str]) -> dict[str, str]:
    """All four, before what was chosen is laid over them. Spark's own 120 s would break most promises."""
    silent = silence_s(spark, chosen)
    beat = seconds_of(chosen.get(BEAT, f"{spark.heartbeat_s}s"), unit="ms")
    for key, value in ((SILENCE, silent), (BEAT, beat)):
        if math.isnan(value):
            raise Misconfigured(f'conf."{key}"', f"'{chosen[key]}' is no duration: write for example 20s")
    if 2 * beat > silent:
        raise Misconfigured(
            f'conf."{BEAT}"' if BEAT in chosen else "spark.heartbeat_s",
            f"{beat:g} s is more than half of "
            f"{SILENCE if SILENCE in chosen else 'spark.network_timeout_s'} ({silent:g} s): lower it",
        )
    whole = max(1, int(silent))
    return {
        SILENCE: f"{whole}s",
        # Spark refuses to start unless these two are at most the time-out as well.
        "spark.network.timeoutInterval": f"{max(1, whole // 10)}s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{whole}s",
        BEAT: f"{spark.heartbeat_s}s",
    }
