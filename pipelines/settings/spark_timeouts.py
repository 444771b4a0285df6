"""Spark's network time-outs as the settings give them, and the pattern of Spark keys that hold secrets.

`[spark]` sets the time-out for every job; a `spark.network.timeout` in the `conf` of a job comes before
it. Spark has four such values, which have to agree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from models.errors import Misconfigured

from .schema import SparkSettings

SECRET_KEYS = "(?i)secret|password|passwd|token|access[.]?key|credential|jaas"
"""Whose values are never shown or kept: by Spark's own pattern, which does not know `sasl.jaas.config`."""
SILENCE, BEAT = "spark.network.timeout", "spark.executor.heartbeatInterval"
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(text: str, *, unit: str = "s") -> float:
    """A duration as Spark writes it: 120, 120s, 2m, 120000ms; NaN for anything else."""
    parts = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if parts is None or (parts[2] or unit) not in UNITS:
        return math.nan
    return int(parts[1]) * UNITS[parts[2] or unit]


def silence_s(spark: SparkSettings, chosen: Mapping[str, str]) -> float:
    """Time after which a silent executor is given up; NaN if Spark would not accept the value."""
    return seconds_of(chosen.get(SILENCE, f"{spark.network_timeout_s}s"))


def timeouts(spark: SparkSettings, chosen: Mapping[str, str]) -> dict[str, str]:
    """The four time-outs, which a job may override. Spark's own 120 s would break most promises."""
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
