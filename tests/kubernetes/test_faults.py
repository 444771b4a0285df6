"""Faults of a cluster on the real API server, with the rights of deploy/."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import waiting
from failures_suite import COPY
from pause_pods import PausePods

from models.errors import Misconfigured, NotReady
from pipelines.environments.kubernetes.failures import KubernetesFailures
from pipelines.integrations.kubernetes_api import Forbidden, KubernetesApi
from pipelines.settings.schema import KubernetesSettings
from tests.kubernetes.conftest import folder_of_the_cluster, kubectl

CRD = "podchaos.chaos-mesh.org"


@pytest.fixture(scope="module")
def failures(admin: KubernetesApi, owner_api: KubernetesApi, namespaces: Any) -> KubernetesFailures:
    pods = PausePods(admin, owner="me", live=namespaces.jobs, copies=namespaces.copies)
    pods.make(COPY)
    waiting.until(lambda: len(pods.names(COPY)) == 3, "three pods")
    settings = KubernetesSettings(namespace=namespaces.jobs, copies_namespace=namespaces.copies)
    return KubernetesFailures(owner_api, pods, settings, owner="me", network_timeout_s=20.0)


@contextmanager
def no_crd() -> Iterator[None]:
    kubectl("delete", "crd", CRD)
    try:
        yield
    finally:
        kubectl("apply", "--server-side", f"--filename={folder_of_the_cluster() / 'crds'}")
        kubectl("wait", "--for=condition=established", "crd", CRD, "--timeout=60s")


@contextmanager
def another_version() -> Iterator[None]:
    def served(value: bool) -> None:
        change = [{"op": "replace", "path": "/spec/versions/0/served", "value": value}]
        kubectl("patch", "crd", CRD, "--type=json", f"--patch={json.dumps(change)}")

    served(False)
    try:
        yield
    finally:
        served(True)


@pytest.mark.parametrize("without", [no_crd, another_version])
def test_a_cluster_without_this_chaos_mesh_is_told_how_to_get_it(
    failures: KubernetesFailures, namespaces: Any, without: Any
) -> None:
    def answers() -> bool:
        return kubectl("get", "--raw", of_copies, check=False) != ""

    of_copies = f"/apis/chaos-mesh.org/v1alpha1/namespaces/{namespaces.copies}/podchaos"
    with without():
        waiting.until(lambda: not answers(), "an API server without the kind")
        with pytest.raises(Misconfigured, match=r"PodChaos of chaos-mesh.org/v1alpha1.*helm install"):
            failures.inject(COPY, "executor_kill")
        assert failures.active() == failures.left_over() == failures.clear_all() == ()
    waiting.until(answers, "an API server with the kind")


def test_a_namespace_that_is_being_deleted_takes_nothing_new(
    failures: KubernetesFailures, admin: KubernetesApi, namespaces: Any
) -> None:
    """The last one: the namespace is gone afterwards. Its roles go first, often before we ask."""
    held = {"name": "held", "namespace": namespaces.copies, "finalizers": ["headroom.io/test"]}
    admin.create("ConfigMap", {"metadata": held})
    kubectl("delete", "namespace", namespaces.copies, "--wait=false")
    try:
        with pytest.raises((NotReady, Forbidden), match=namespaces.copies):
            failures.inject(COPY, "executor_kill")
    finally:
        admin.patch("ConfigMap", namespaces.copies, "held", {"metadata": {"finalizers": None}})
