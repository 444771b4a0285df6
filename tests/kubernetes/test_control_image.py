"""The StatefulSet of deploy/kustomize becomes ready: Headroom with a root file system that is read-only."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.integrations.kubernetes_api import KubernetesApi
from tests.kubernetes.conftest import Namespaces, kubectl

PATIENCE_S = 420.0  # Dagster's and MLflow's servers start on a machine that may be busy
SETTINGS = """
[deployment]
kind = "simulated"
"""


@pytest.fixture
def owner_pod(namespaces: Namespaces, control_image: str) -> Iterator[str]:
    """The pod of the StatefulSet, started with settings that need no Kafka."""

    def patch(kind: str, name: str, changes: dict[str, Any]) -> None:
        kubectl(
            *("patch", kind, name, f"--namespace={namespaces.headroom}"),
            *("--type=strategic", f"--patch={json.dumps(changes)}"),
        )

    container = {"name": "headroom", "image": control_image, "imagePullPolicy": "Never"}
    patch("configmap", "headroom-settings", {"data": {"headroom.toml": SETTINGS}})
    patch(
        "statefulset",
        "headroom",
        {"spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}}},
    )
    yield "headroom-0"
    patch("statefulset", "headroom", {"spec": {"replicas": 0}})
    kubectl(
        *("wait", "--for=delete", "pod/headroom-0", f"--namespace={namespaces.headroom}", "--timeout=150s")
    )


def test_the_owner_serves_its_pages_and_answers_its_probes(
    owner_pod: str, admin: KubernetesApi, namespaces: Namespaces
) -> None:
    until = time.monotonic() + PATIENCE_S
    ready, pod = False, {}
    while not ready and time.monotonic() < until:
        time.sleep(1)
        pod = admin.find("Pod", namespaces.headroom, owner_pod) or {}
        statuses = pod.get("status", {}).get("containerStatuses", [])
        ready = any(one["ready"] for one in statuses) and "Dagster: http://" in admin.log(
            namespaces.headroom, owner_pod
        )
    log = admin.log(namespaces.headroom, owner_pod, lines=200)
    assert ready, f"{pod.get('status')}\n{log}"
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0, log
    assert "MLflow:  http://" in log
