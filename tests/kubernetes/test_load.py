"""What fifty jobs at rest ask of the API server, with the rights and the adapters of the product.

Their drivers are pods that sleep: what a driver says of itself does not pass through the API server.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import pytest
from waiting import until

from models.ports import Function, Plan
from pipelines.environments.kubernetes.deployments import KubernetesDeployments
from pipelines.environments.kubernetes.executors import KubernetesExecutors
from pipelines.environments.kubernetes.failures import KubernetesFailures
from pipelines.environments.kubernetes.lease import OwnerLease
from pipelines.integrations.kubernetes_api import KubernetesApi
from pipelines.settings.schema import KubernetesSettings, SparkSettings
from profiling_jobs.brokers import Brokers
from tests.kubernetes.conftest import Namespaces

JOBS = 50
MOST_REQUESTS = 5  # per job and evaluation
LONGEST_S = 10.0  # for all of them
SLEEPS = {
    "image": "docker.io/local/pause:1",
    "command": ["/bin/busybox", "sleep", "86400"],
    "args": [],
    "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "16Mi"}},
}


@pytest.fixture(scope="module")
def settings(namespaces: Namespaces) -> KubernetesSettings:
    return KubernetesSettings(
        own_namespace=namespaces.headroom,
        namespace=namespaces.jobs,
        copies_namespace=namespaces.copies,
        image="docker.io/local/none:1",
        image_pull_policy="Never",
        driver_cpu="1m",
        executor_cpu="1m",
    )


@pytest.fixture(scope="module")
def deployments(
    namespaces: Namespaces, owner_api: KubernetesApi, settings: KubernetesSettings
) -> Iterator[KubernetesDeployments]:
    made = KubernetesDeployments(
        owner_api,
        Brokers("10.99.0.1:1"),
        owner="load",
        folder=namespaces.folder,
        settings=settings,
        spark=SparkSettings(),
    )
    with made.watching():
        yield made


@pytest.fixture(scope="module")
def jobs(namespaces: Namespaces, deployments: KubernetesDeployments, admin: KubernetesApi) -> tuple[str, ...]:
    """Fifty, with drivers that run."""
    for number in range(JOBS):
        name = f"job-{number}"
        plan = Plan(
            name,
            name,
            "live",
            Function("module:build"),
            1,
            inputs={"events": f"{name}-in"},
            outputs={"results": f"{name}-out"},
            checkpoint=str(namespaces.folder / "checkpoints" / name),
        )
        deployments.launch(plan)
        found = admin.get("Deployment", namespaces.jobs, f"{name}-driver")
        spec = found["spec"]["template"]["spec"]
        spec["containers"] = [{**spec["containers"][0], **SLEEPS}]
        spec["terminationGracePeriodSeconds"] = 1  # `sleep` ignores SIGTERM
        admin.patch("Deployment", namespaces.jobs, f"{name}-driver", {"spec": {"template": {"spec": spec}}})

    def running() -> bool:
        there = admin.list("Pod", namespaces.jobs)
        return sum(one["status"].get("phase") == "Running" for one in there) >= JOBS

    until(running, timeout_s=600.0, every_s=1.0)
    return deployments.names()


def test_an_evaluation_at_rest_asks_little(
    jobs: tuple[str, ...],
    deployments: KubernetesDeployments,
    settings: KubernetesSettings,
    owner_api: KubernetesApi,
) -> None:
    failures = KubernetesFailures(owner_api, deployments, settings, owner="load", network_timeout_s=120.0)
    executors = KubernetesExecutors(deployments)
    assert len(jobs) == JOBS
    with OwnerLease(owner_api, settings.own_namespace, owner="load"), failures:
        failures.active()  # the first look after a start
        before, begun_s = owner_api.requests, time.monotonic()
        for name in deployments.names():
            assert deployments.plan(name).scale_out == 1
            assert deployments.status(name).ours is True
            assert failures.active() == ()
            executors.read(name)
        took_s, requests = time.monotonic() - begun_s, owner_api.requests - before
    click.echo(f"{JOBS} jobs: {requests} requests, {took_s:.2f} s")
    assert requests <= MOST_REQUESTS * JOBS
    assert took_s <= LONGEST_S
