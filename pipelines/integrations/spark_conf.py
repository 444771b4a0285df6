"""The Spark configuration of a job, so that it can be found, rescaled and drilled here.

Later ones win: our defaults, `[spark] conf` of headroom.toml, the job's own. Jars come beside those that
every job needs. A few keys may not be changed, and say so.

A silent executor is given up after `failure_timeout_s`, which several of Spark's settings have to agree on.

`[spark]` says it for every job; a `spark.network.timeout` in the configuration of a job, as the copies of
another system's job may need it, comes before that. Spark knows four values that have to fit each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from models.errors import Misconfigured

from ..processes.processes import OWNER, ROLE
from ..settings.schema import SparkSettings
from . import ports

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


# Whoever changes these has another cluster, or a job that cannot be rescaled, counted or found.
OURS = {
    "spark.master": "remove it",
    "spark.cores.max": "remove it",
    "spark.executor.cores": "remove it",
    # The worker has memory for its slots at the size of the settings; larger ones would leave slots empty.
    "spark.executor.memory": "set spark.executor_memory_mb instead",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "set spark.network_timeout_s instead",
    "spark.dynamicAllocation.enabled": "remove it",
    f"spark.executorEnv.{OWNER}": "remove it",
    f"spark.executorEnv.{ROLE}": "remove it",
}
SECRET_KEYS = "(?i)secret|password|passwd|token|access[.]?key|credential|jaas"
"""Whose values are never shown or kept: by Spark's own pattern, which does not know `sasl.jaas.config`."""


def job_conf(
    name: str,
    *,
    master: str,
    settings: SparkSettings,
    connector: Sequence[Path],
    marks: Mapping[str, str],
    conf: Mapping[str, str],
) -> dict[str, str]:
    """The whole configuration of a job.

    `spark.cores.max` is left out on purpose: with it a running job cannot be given more executors. A new job
    therefore takes every free slot at first; its driver must ask for the total it wants at once.
    """
    chosen = {**settings.conf, **conf}
    for key, instead in OURS.items():
        if key in chosen:
            raise Misconfigured(f'conf."{key}"', f"is set by Headroom: {instead}")
    return {
        "spark.master": master,
        "spark.app.name": name,
        "spark.driver.host": ports.HOST,
        "spark.driver.bindAddress": ports.HOST,
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        "spark.executor.memory": f"{settings.executor_memory_mb}m",
        "spark.executor.cores": "1",
        # One slot: a parallel collector would only take turns with it.
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError",
        **{f"spark.executorEnv.{key}": value for key, value in marks.items()},
        "spark.dynamicAllocation.enabled": "false",
        # Failures are caused on purpose here, and a job must not be given up for their number.
        "spark.executor.maxNumFailures": "1000000",
        "spark.executor.failuresValidityInterval": "60s",
        "spark.executor.logs.rolling.strategy": "size",
        "spark.executor.logs.rolling.maxSize": "10485760",
        "spark.executor.logs.rolling.maxRetainedFiles": "2",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": SECRET_KEYS,
        **timeouts(settings, chosen),
        **chosen,
        "spark.jars": ",".join([*map(str, connector), *filter(None, [chosen.get("spark.jars")])]),
    }
