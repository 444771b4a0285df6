"""The Spark configuration of a job, so that it can be found, rescaled and drilled here.

Later ones win: our defaults, `[spark] conf` of headroom.toml, the job's own. Jars come beside those that
every job needs. A few keys may not be changed, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from models.errors import Misconfigured

from ..processes.processes import OWNER, ROLE
from ..settings.schema import SparkSettings
from ..settings.spark_timeouts import SECRET_KEYS, timeouts

# With other values the job would run on another cluster, or could not be rescaled, counted or found.
OURS = {
    "spark.master": "remove it",
    "spark.cores.max": "remove it",
    "spark.executor.cores": "remove it",
    # The worker has memory for its slots at the size of the settings; larger ones would leave slots empty.
    "spark.executor.memory": "set spark.executor_memory_mb instead",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "set spark.network_timeout_s instead",
    "spark.dynamicAllocation.enabled": "remove it",
    "spark.authenticate": "remove it",
    "spark.authenticate.secret": "remove it",
    "spark.kubernetes.namespace": "set kubernetes.namespace instead",
    "spark.kubernetes.container.image": "set kubernetes.image instead",
    # Without our labels and mounts an executor is not found, and sees none of its files.
    "spark.kubernetes.executor.podTemplateFile": "set the keys of [kubernetes] instead",
    f"spark.executorEnv.{OWNER}": "remove it",
    f"spark.executorEnv.{ROLE}": "remove it",
}


SHUT = {
    # Without its secret a process of Spark's does then not start, instead of letting everybody in.
    "spark.authenticate": "true",
    # Its pages have no password, and any page in a browser can send a GET. These end jobs and stages, and
    # halt an executor while its objects are counted (a full collection).
    "spark.ui.killEnabled": "false",
    "spark.ui.threadDumpsEnabled": "false",
    "spark.ui.heapHistogramEnabled": "false",
}
"""What keeps others from acting. Spark's defaults are the reverse; a job may choose its own pages."""


def job_conf(
    name: str,
    *,
    settings: SparkSettings,
    place: Mapping[str, str],
    conf: Mapping[str, str],
    connector: Sequence[Path] = (),
) -> dict[str, str]:
    """The whole configuration of a job. `place`: where it runs, and how it is reached and found there.

    `spark.cores.max` is left out on purpose: with it a running job cannot be given more executors. A new job
    therefore takes every free slot at first; its driver must ask for the total it wants at once.
    """
    chosen = {**settings.conf, **conf}
    for key, instead in OURS.items():
        if key in chosen:
            raise Misconfigured(f'conf."{key}"', f"is set by Headroom: {instead}")
    jars = [*map(str, connector), *filter(None, [chosen.get("spark.jars")])]
    return {
        "spark.app.name": name,
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        "spark.executor.memory": f"{settings.executor_memory_mb}m",
        "spark.executor.cores": "1",
        # One slot: a parallel collector would only take turns with it.
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError",
        "spark.dynamicAllocation.enabled": "false",
        # Executors that are given up finish the tasks that they have in hand.
        "spark.decommission.enabled": "true",
        # Failures are caused on purpose here, and a job must not be given up for their number.
        "spark.executor.maxNumFailures": "1000000",
        "spark.executor.failuresValidityInterval": "60s",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": SECRET_KEYS,
        **SHUT,
        **place,
        **timeouts(settings, chosen),
        **chosen,
        **({"spark.jars": ",".join(jars)} if jars else {}),
    }
