"""Pods that do nothing, in the place of a driver and its executors, as `KubernetesFailures` sees them."""

from __future__ import annotations

from typing import Any

from models.ports import Function, Plan, Status
from pipelines.environments.kubernetes import manifests
from pipelines.integrations.kubernetes_api import KubernetesApi

IMAGE = "docker.io/local/pause:1"


class PausePods:
    """One copy and one live job, of one driver and two executors each."""

    def __init__(self, api: KubernetesApi, *, owner: str, live: str = "jobs", copies: str = "copies") -> None:
        self._api, self._owner = api, owner
        self._namespaces = {"orders": live, "orders-copy": copies}
        self.state: Any = "running"

    def make(self, name: str) -> None:
        """Create its pods; the driver first."""
        for role, number in (("driver", 0), ("executor", 1), ("executor", 2)):
            self.start(name, role, number)

    def start(self, name: str, role: str, number: int) -> None:
        """Create one, as Kubernetes or Spark would."""
        self._api.create(
            "Pod",
            {
                "metadata": {
                    "name": f"{name}-{role}-{number}",
                    "namespace": self._namespaces[name],
                    "labels": manifests.labels(self._owner, self.plan(name), role),
                },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": False,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 10001,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [
                        {
                            "name": "main",
                            "image": IMAGE,
                            "imagePullPolicy": "Never",
                            "securityContext": manifests.CONFINED,
                            "resources": {
                                "requests": {"cpu": "10m", "memory": "16Mi"},
                                "limits": {"memory": "32Mi"},
                            },
                        }
                    ],
                },
                "status": {"phase": "Running"},  # a real API server ignores it
            },
        )

    def plan(self, name: str) -> Plan:
        return Plan(
            name=name,
            job="orders",
            role="live" if name == "orders" else "profile",
            program=Function("profiling_jobs.jobs.enrichment:build"),
            scale_out=2,
            inputs={"events": "orders"},
            outputs={},
            checkpoint="/headroom/checkpoints/orders",
        )

    def status(self, name: str) -> Status:
        return Status(self.state, 2, len(self.executor_pods(name)), "run-1")

    def namespace(self, name: str) -> str:
        return self._namespaces[name]

    def driver_pod(self, name: str) -> Any:
        return next(iter(self._running(name, "driver")), None)

    def executor_pods(self, name: str) -> Any:
        return self._running(name, "executor")

    def theirs(self, name: str) -> None:
        """Of another system is none."""

    def names(self, name: str) -> list[str]:
        """Of the pods that run."""
        return [
            pod["metadata"]["name"] for role in ("driver", "executor") for pod in self._running(name, role)
        ]

    def _running(self, name: str, role: str) -> list[Any]:
        labels = {manifests.OWNER: self._owner, manifests.COPY: name, manifests.ROLE: role}
        found = self._api.list("Pod", self._namespaces[name], labels=labels)
        alive = [one for one in found if "deletionTimestamp" not in one["metadata"]]
        return sorted(
            (one for one in alive if one.get("status", {}).get("phase") == "Running"),
            key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]),
        )
