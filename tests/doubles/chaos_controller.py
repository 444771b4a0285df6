"""The controller of Chaos Mesh 2.8.3, as far as its objects and pods show it.

    with ChaosController(api, "copies"):
        api.create("PodChaos", manifest)

What it does was seen of the real one (the cluster's README) and read in its source: a finalizer first; pods
that are named are taken as they are; what selects nothing is not looked at again; a pod-kill never recovers
while its object lives, everything else does after its duration; deletion recovers first. Network and stress
objects get their status only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from models.errors import HeadroomError
from pipelines.integrations.kubernetes_api import KubernetesApi
from profiling_jobs.chaos import CHAOS_KINDS, FINALIZER, duration_s

PAUSE = "docker.io/local/pause:1"
PAUSED = "experiment.chaos-mesh.org/pause"


class ChaosController:
    """Acts on the objects of some namespaces, in a thread or by `step`."""

    def __init__(
        self,
        api: KubernetesApi,
        *namespaces: str,
        clock: Callable[[], float] = time.time,
        every_s: float = 0.05,
    ) -> None:
        self._api = api
        self._namespaces = namespaces
        self._clock = clock
        self._every_s = every_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-controller", daemon=True)
        self._nothing: set[str] = set()
        self.broken = ""
        """Why nothing can be applied; empty: it can."""
        self.stuck = False
        """Whether it recovers nothing."""
        self.problems: list[BaseException] = []

    def __enter__(self) -> ChaosController:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            try:
                self.step()
            except HeadroomError as error:  # as the real one: it is tried again
                self.problems.append(error)

    def step(self) -> None:
        """Look at every object once."""
        for namespace in self._namespaces:
            for kind in CHAOS_KINDS:
                for chaos in self._api.list(kind, namespace):
                    self._reconcile(kind, chaos)

    def _reconcile(self, kind: str, chaos: Any) -> None:
        about, spec = chaos["metadata"], chaos["spec"]
        before = chaos.get("status") or {}
        records = deepcopy((before.get("experiment") or {}).get("containerRecords") or [])
        ending = "deletionTimestamp" in about
        if not ending and FINALIZER not in about.get("finalizers", ()):
            self._patch(kind, about, {"metadata": {"finalizers": [FINALIZER]}})
            return
        phase = self._phase(about, spec, ending=ending)
        if not records and not ending and about["uid"] not in self._nothing:
            records = self._select(spec)
            if not records:
                self._nothing.add(about["uid"])
        for record in records:
            if phase == "Run" and record["phase"] != "Injected":
                self._apply(kind, about, spec, record)
            elif phase == "Stop" and record["phase"] != "Not Injected" and not self.stuck:
                self._recover(about, record)
        experiment = {"desiredPhase": phase, **({"containerRecords": records} if records else {})}
        status = {"conditions": _conditions(about, records), "experiment": experiment}
        changes: dict[str, Any] = {} if status == before else {"status": status}
        if ending and all(record["phase"] == "Not Injected" for record in records):
            changes["metadata"] = {"finalizers": []}
        if changes:
            self._patch(kind, about, changes)

    def _phase(self, about: Any, spec: Any, *, ending: bool) -> str:
        if ending:
            return "Stop"
        if spec.get("action") == "pod-kill":
            return "Run"
        since = datetime.fromisoformat(about["creationTimestamp"]).timestamp()
        over = "duration" in spec and self._clock() >= since + duration_s(spec["duration"])
        return "Stop" if over or _paused(about) else "Run"

    def _select(self, spec: Any) -> list[Any]:
        found = []
        for key, part in ((".", spec), (".Target", spec.get("target"))):
            if part is None:
                continue
            there = self._pods(part["selector"])
            if not there:
                return []  # of one selector is nothing of all
            found += [
                {
                    "id": name,
                    "selectorKey": key,
                    "phase": "Not Injected",
                    "injectedCount": 0,
                    "recoveredCount": 0,
                }
                for name in (there[:1] if part["mode"] == "one" else there)
            ]
        return found

    def _pods(self, selector: Any) -> list[str]:
        if selector.get("pods"):
            return [
                f"{namespace}/{name}"
                for namespace, names in selector["pods"].items()
                for name in names
                if self._api.find("Pod", namespace, name) is not None
            ]
        return [
            f"{namespace}/{pod['metadata']['name']}"
            for namespace in selector["namespaces"]
            for pod in self._api.list("Pod", namespace, labels=selector.get("labelSelectors"))
        ]

    def _apply(self, kind: str, about: Any, spec: Any, record: Any) -> None:
        if self.broken:
            self._event(record, "Apply", self.broken)
            return
        namespace, name = record["id"].split("/")
        if kind == "NetworkChaos" and record["phase"] == "Not Injected":
            record["phase"] = "Not Injected/Wait"  # until the daemon of the node has done it
            return
        try:
            pod = self._api.get("Pod", namespace, name)
            if spec.get("action") == "pod-kill":
                self._api.delete("Pod", namespace, name, grace_s=spec.get("gracePeriod", 0))
            elif spec.get("action") == "pod-failure":
                images = {_key(about, one): one["image"] for one in pod["spec"]["containers"]}
                self._set_images(pod, lambda one: PAUSE, images)
        except HeadroomError as error:
            self._event(record, "Apply", str(error))
            return
        record["phase"] = "Injected"
        record["injectedCount"] += 1
        self._event(record, "Apply")

    def _recover(self, about: Any, record: Any) -> None:
        pod = self._api.find("Pod", *record["id"].split("/"))
        kept = (pod or {}).get("metadata", {}).get("annotations", {})
        images = {key: kept[key] for key in kept if key.startswith(about["name"])}
        if pod is not None and images:
            self._set_images(pod, lambda one: images[_key(about, one)], dict.fromkeys(images))
        record["phase"] = "Not Injected"
        record["recoveredCount"] += 1
        self._event(record, "Recover")

    def _set_images(self, pod: Any, image: Callable[[Any], str], annotations: Any) -> None:
        containers = [{**one, "image": image(one)} for one in pod["spec"]["containers"]]
        changes = {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}
        self._api.patch("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], changes)

    def _event(self, record: Any, operation: str, problem: str = "") -> None:
        at = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {"operation": operation, "type": "Failed" if problem else "Succeeded", "timestamp": at}
        record.setdefault("events", []).append({**event, "message": problem} if problem else event)
        del record["events"][:-10]

    def _patch(self, kind: str, about: Any, changes: Any) -> None:
        with suppress(HeadroomError):  # it has gone, or is looked at again
            self._api.patch(kind, about["namespace"], about["name"], changes)


def _conditions(about: Any, records: list[Any]) -> list[Any]:
    phases = [record["phase"] for record in records]
    said = {
        "Selected": bool(phases),
        "AllInjected": bool(phases) and all(one == "Injected" for one in phases),
        "AllRecovered": bool(phases) and all(one == "Not Injected" for one in phases),
        "Paused": _paused(about),
    }
    return [{"type": key, "status": str(value)} for key, value in said.items()]


def _paused(about: Any) -> bool:
    return (about.get("annotations") or {}).get(PAUSED) == "true"


def _key(about: Any, container: Any) -> str:
    return f"{about['name']}-{container['name']}-normal-image"
