"""What the quotas of a namespace have left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...integrations.kubernetes_api import KubernetesApi, Manifest
from ...settings.schema import KubernetesSettings, SparkSettings
from . import pods


@dataclass(frozen=True)
class Shortage:
    """More of a resource is needed than a quota has left."""

    quota: str
    namespace: str
    resource: str
    free: float
    needed: float

    def said(self, who: str, need: str = "need") -> str:
        """The same in words. `who`: what needs it."""
        return (
            f"the quota {self.quota} of {self.namespace} has {pods.shown(self.resource, self.free)} left of "
            f"{self.resource}, and {who} {need} {pods.shown(self.resource, self.needed)}"
        )


def needs(
    settings: KubernetesSettings, spark: SparkSettings, *, executors: int, drivers: int = 0
) -> dict[str, float]:
    """Resources of these pods, as quotas count them. A replay asks for as much as a driver."""
    counted = float(executors + drivers)
    processors = executors * pods.quantity(settings.executor_cpu)
    processors += drivers * pods.quantity(settings.driver_cpu)
    memory_mb = executors * spark.executor_memory_mb + drivers * spark.driver_memory_mb
    memory = (memory_mb + counted * settings.overhead_mb) * 2.0**20
    return {
        "pods": counted,
        "count/pods": counted,
        "cpu": processors,
        "requests.cpu": processors,
        "memory": memory,
        "requests.memory": memory,
        "limits.memory": memory,
    }


def like(pod: Manifest, number: int) -> dict[str, float]:
    """Resources of `number` more pods of this kind, as quotas count them."""
    asked: dict[str, float] = {}
    for container in pod["spec"].get("containers", ()):
        resources = container.get("resources", {})
        for sort in ("requests", "limits"):
            for resource, amount in resources.get(sort, {}).items():
                key = f"{sort}.{resource}"
                asked[key] = asked.get(key, 0.0) + number * pods.quantity(amount)
    for resource in ("cpu", "memory"):
        if (amount := asked.get(f"requests.{resource}")) is not None:
            asked[resource] = amount
    return {"pods": float(number), "count/pods": float(number), **asked}


def shortage(api: KubernetesApi, namespace: str, needed: Mapping[str, float]) -> Shortage | None:
    """The first thing that a quota of the namespace has too little of."""
    for quota in api.list("ResourceQuota", namespace):
        status = quota.get("status", {})
        for resource, amount in needed.items():
            if (hard := status.get("hard", {}).get(resource)) is None:
                continue
            used = pods.quantity(status.get("used", {}).get(resource, "0"))
            if amount > (free := max(0.0, pods.quantity(hard) - used)):
                return Shortage(quota["metadata"]["name"], namespace, resource, free, amount)
    return None


def shortage_for(
    api: KubernetesApi, namespace: str, labels: Mapping[str, str], scale_out: int
) -> Shortage | None:
    """The same for so many executors like those that are there; where none is, nothing is known."""
    there = api.list("Pod", namespace, labels=labels)
    executors = [one for one in there if pods.role(one) == "executor" and not pods.over(one)]
    more = scale_out - len(executors)
    if not executors or more <= 0:
        return None
    return shortage(api, namespace, like(executors[0], more))
