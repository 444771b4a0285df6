"""The Kubernetes environment: your Kafka, drivers and replays as pods, failures by Chaos Mesh.

Headroom's folder is on a volume that the pods share; each of them sees only its own part. What runs goes on
running when we leave: the cluster keeps it alive, and the next owner of the folder finds it by its labels.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from models.errors import Misconfigured
from profiling_jobs.brokers import Brokers

from ...processes.owner import Owner
from ...settings import spark_timeouts, time_windows
from ...settings.job_plans import ENDING_S
from ...settings.schema import JobSettings, Settings
from ..base import Environment, Say, removed
from ..real import assembled, changed_settings, check_attached, yours


@contextmanager
def opened(
    settings: Settings, folder: Path, *, say: Say, owner: Owner | None, since_s: float | None
) -> Iterator[Environment]:
    """The cluster of `[kubernetes]`, with the brokers of `[brokers]`."""
    from ...integrations.kafka_broker import KafkaBroker
    from ...integrations.kubernetes_api import KubernetesApi
    from ...integrations.prometheus import Prometheus
    from .deployments import KubernetesDeployments
    from .executors import KubernetesExecutors
    from .failures import KubernetesFailures
    from .lease import OwnerLease
    from .manifests import Volume, owner_label
    from .spark_applications import SparkApplicationDeployments
    from .tasks import PodTask, stop_tasks

    brokers = named_brokers(settings)
    with ExitStack() as stack:
        owner = owner or stack.enter_context(Owner(folder))
        api = KubernetesApi.connect(settings.kubernetes)
        stack.callback(api.close)
        say(f"Kubernetes: {api.where}, jobs in {settings.kubernetes.namespace}")
        mine = owner_label(owner.id, settings.kubernetes)
        lease = stack.enter_context(OwnerLease(api, settings.kubernetes.own_namespace, owner=mine))
        broker = stack.enter_context(KafkaBroker(brokers))
        deployments = KubernetesDeployments(
            api,
            brokers,
            owner=mine,
            folder=owner.folder,
            settings=settings.kubernetes,
            spark=settings.spark,
            check_lease=lease.check,
        )
        stack.enter_context(deployments.watching())
        check_attached(settings, deployments)
        for line in changed_settings(deployments, settings, owner.folder):
            say(line)
        left = removed(deployments, settings.jobs)
        for name in (one.name for one in left if one.role == "live"):
            say(
                f"{name} is not in headroom.toml any more, and still runs: Kubernetes keeps it running; "
                f"`headroom stop {name}` ends it"
            )
        everything = SparkApplicationDeployments(
            deployments,
            api,
            settings.jobs,
            owner=mine,
            settings=settings.kubernetes,
            timeout_s=settings.spark.scale_timeout_s + ENDING_S,
            check_lease=lease.check,
        )
        stack.enter_context(everything.watching())
        failures = stack.enter_context(
            KubernetesFailures(
                api,
                everything,
                settings.kubernetes,
                owner=mine,
                live_drills=lambda job: job in settings.jobs and _may_be_drilled(settings.jobs[job]),
                network_timeout_s=spark_timeouts.silence_s(settings.spark, settings.spark.conf),
                check_lease=lease.check,
            )
        )
        volume, url = Volume(owner.folder), settings.kubernetes.prometheus_url
        yield assembled(
            settings,
            owner,
            stack,
            brokers=brokers,
            broker=broker,
            deployments=everything,
            executors=KubernetesExecutors(everything, measured=Prometheus(url) if url else None),
            failures=failures,
            task=lambda role: PodTask(
                api,
                role,
                owner=mine,
                volume=volume,
                settings=settings.kubernetes,
                spark=settings.spark,
                check_lease=lease.check,
            ),
            stop_tasks=lambda copy: stop_tasks(
                api, copy, owner=mine, settings=settings.kubernetes, check_lease=lease.check
            ),
            own_topics=False,
            removed_jobs=tuple(sorted({one.job for one in left})),
        )


def _may_be_drilled(job: JobSettings) -> bool:
    """Whether failures may be caused in the live job now."""
    return job.allow_live_drills and time_windows.blackout(job, time.time()) is None


def named_brokers(settings: Settings) -> Brokers:
    """The brokers of the settings, which must name them."""
    if settings.brokers.bootstrap is None:
        raise Misconfigured(
            "brokers.bootstrap", "must name your brokers: in a cluster Headroom starts none of its own"
        )
    return yours(settings.brokers)
