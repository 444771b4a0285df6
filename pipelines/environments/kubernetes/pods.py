"""State of pods: role, phase, and in words why a pod does not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Literal

from ...integrations.kubernetes_api import KubernetesApi, Manifest
from . import manifests

Progress = Literal["running", "waiting", "gone"]

SUFFIXES = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
IMAGE_SETTINGS = ("kubernetes.image", "kubernetes.image_pull_policy")
OF_IMAGES = {
    "ErrImagePull": "the image {image} cannot be pulled: check {setting} and its pull secrets",
    "ImagePullBackOff": "the image {image} cannot be pulled: check {setting} and its pull secrets",
    "ErrImageNeverPull": "the image {image} is not on the node, and {policy} is Never",
    "InvalidImageName": "'{image}' is no name of an image: check {setting}",
}
IN_WORDS = {
    "CreateContainerConfigError": "a ConfigMap, Secret or volume that it names cannot be used",
}


def name(pod: Manifest) -> str:
    """Its name in its namespace."""
    return str(pod["metadata"]["name"])


def role(pod: Manifest) -> str:
    """driver, executor, replay, recording; of a pod that is not ours as Spark labels it."""
    labels = pod["metadata"].get("labels", {})
    return str(labels.get(manifests.ROLE, labels.get("spark-role", "")))


def identity(pod: Manifest) -> tuple[str, int]:
    """Identity of the pod's container, which changes with every start."""
    return pod["metadata"]["uid"], restarts(pod)


def restarts(pod: Manifest) -> int:
    """How often its container was started again."""
    return sum(one.get("restartCount", 0) for one in pod.get("status", {}).get("containerStatuses", ()))


def ready(pod: Manifest) -> bool:
    """Whether its container runs."""
    return any(
        "running" in one.get("state", {}) for one in pod.get("status", {}).get("containerStatuses", ())
    )


def over(pod: Manifest) -> bool:
    """Whether its containers have ended, for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def ended(pod: Manifest) -> bool:
    """Whether it will not run again, or is being deleted."""
    return over(pod) or "deletionTimestamp" in pod["metadata"]


def newest_driver(there: Iterable[Manifest]) -> Manifest | None:
    """The living pod of the driver."""
    living = [one for one in there if role(one) == "driver" and not ended(one)]
    return max(living, key=lambda one: one["metadata"].get("creationTimestamp", ""), default=None)


def running_executors(there: Iterable[Manifest]) -> list[Manifest]:
    """The executors whose container runs, oldest first."""
    found = [one for one in there if role(one) == "executor" and not ended(one) and ready(one)]
    return sorted(found, key=lambda one: (one["metadata"].get("creationTimestamp", ""), name(one)))


def by_number(there: Iterable[Manifest], application: str) -> dict[str, str]:
    """The names of the executors of one run, by Spark's number; Spark itself sets these labels."""
    found = {}
    for pod in there:
        labels = pod["metadata"].get("labels", {})
        if labels.get("spark-app-selector") == application and (number := labels.get("spark-exec-id")):
            found[number] = name(pod)
    return found


def state(pod: Manifest) -> Progress:
    """Whether its container runs, waits, or has ended."""
    return "gone" if ended(pod) else "running" if ready(pod) else "waiting"


def events(api: KubernetesApi, pod: Manifest) -> list[Manifest]:
    """What Kubernetes reports of it."""
    about = pod["metadata"]
    return api.list("Event", about["namespace"], fields=f"involvedObject.uid={about['uid']}")


def last_message(pod: Manifest) -> str:
    """What its container wrote as its last words; empty where there are none."""
    for one in pod.get("status", {}).get("containerStatuses", ()):
        for state in (one.get("state", {}), one.get("lastState", {})):
            if message := state.get("terminated", {}).get("message"):
                return str(message)
    return ""


def exit_code(pod: Manifest) -> int | None:
    """How its container ended; None while it runs, and when it was not run."""
    for one in pod.get("status", {}).get("containerStatuses", ()):
        if "terminated" in one.get("state", {}):
            return int(one["state"]["terminated"]["exitCode"])
    return None


def replaced(pod: Manifest, deployment: Manifest) -> bool:
    """Whether it was made after another pod of its Deployment had run."""
    since_s = first_ran_s(deployment)
    return since_s is not None and _at_s(pod["metadata"]["creationTimestamp"]) > since_s


def first_ran_s(deployment: Manifest) -> float | None:
    """When the first pod of it ran, as its controller says; None before.

    The controller calls a Deployment with 0 replicas complete too: one that is to start later is made paused.
    """
    for one in deployment.get("status", {}).get("conditions", ()):
        if one.get("reason") == "NewReplicaSetAvailable":
            return _at_s(one["lastUpdateTime"])
    return None


def not_made(deployment: Manifest) -> str:
    """Why a Deployment has no pod: what its controller says, a quota or an admission check."""
    for condition in deployment.get("status", {}).get("conditions", ()):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return f"its driver pod cannot be made: {condition.get('message', condition.get('reason', ''))}"
    return "its driver pod is being made"


def explained(
    pod: Manifest, events: Callable[[], list[Manifest]], *, settings: tuple[str, str] = IMAGE_SETTINGS
) -> tuple[Progress, str]:
    """Whether its container runs, and otherwise why not. `events` are asked for only where they help.

    `settings`: what names its image, and when that is pulled.
    """
    status = pod.get("status", {})
    if ended(pod):
        return "gone", status.get("message") or status.get("reason") or "it has ended"
    if ready(pod):
        return "running", ""
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return "waiting", f"no node takes it: {condition.get('message', condition.get('reason', ''))}"
    for one in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        waiting = one.get("state", {}).get("waiting")
        if waiting:
            reason = waiting.get("reason", "")
            if words := IN_WORDS.get(reason) or OF_IMAGES.get(reason):
                message = waiting.get("message", "")
                return "waiting", words.format(
                    image=one["image"], setting=settings[0], policy=settings[1]
                ) + (f" ({message})" if message else "")
            if reason == "CrashLoopBackOff":
                return (
                    "waiting",
                    "it has ended several times in a row; Kubernetes waits before it starts it again",
                )
            if reason not in ("", "ContainerCreating", "PodInitializing"):
                return "waiting", f"{reason}: {waiting.get('message', '')}"
    warnings = [one for one in events() if one.get("type") == "Warning"]
    if warnings:
        newest = max(warnings, key=lambda one: one.get("lastTimestamp") or one.get("eventTime") or "")
        return "waiting", f"{newest.get('reason')}: {newest.get('message')}"
    return "waiting", "its container is being started"


def image_problem(pod: Manifest) -> str:
    """Why its image cannot be used; empty where it can, or where nothing is known yet."""
    for one in pod.get("status", {}).get("containerStatuses", ()):
        if one.get("state", {}).get("waiting", {}).get("reason") in OF_IMAGES:
            return explained(pod, list)[1]
    return ""


def quantity(text: str) -> float:
    """A quantity as Kubernetes writes it: 2, 500m, 1536Mi."""
    text = str(text)
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * SUFFIXES[suffix]
    return float(text)


def shown(resource: str, amount: float) -> str:
    """A quantity for people."""
    if resource.endswith("memory"):
        return f"{amount / 2**20:.0f} MiB"
    return f"{amount:g}"


def _at_s(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
