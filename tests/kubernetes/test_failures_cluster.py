"""Failures through Chaos Mesh on a real API server, with the rights of deploy/, on pods that do nothing.

The tests' controller plays that of Chaos Mesh: it deletes pods and swaps images for real, and gives network
and stress objects their status only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos_controller import ChaosController
from failures_suite import *  # noqa: F403
from failures_suite import COPY, objects
from pause_pods import PausePods

from models.errors import Misconfigured
from models.ports import Injection
from pipelines.environments.kubernetes import manifests
from pipelines.environments.kubernetes.failures import KubernetesFailures
from pipelines.integrations.kubernetes_api import Forbidden, KubernetesApi
from pipelines.settings.schema import KubernetesSettings
from profiling_jobs import chaos

OWNER = "me"
ROOT = Path(__file__).parents[2]


class Place:
    """The namespaces of this session."""

    def __init__(self, admin: KubernetesApi, owner_api: KubernetesApi, namespaces: Any) -> None:
        self.api, self.owner_api = admin, owner_api
        self.copies, self.live = namespaces.copies, namespaces.jobs
        self.controller = ChaosController(admin, self.live, self.copies, every_s=0.2)
        self.pods = PausePods(admin, owner=OWNER, live=self.live, copies=self.copies)

    def ready(self) -> None:
        """Three pods of each, the driver the oldest, and no failure left."""
        self.controller.broken = ""
        self.pods.state = "running"
        self.failures().clear_all()
        for name in ("orders", COPY):
            if len(self.pods.names(name)) == 3 and self.pods.executor_pods(name)[0]["metadata"][
                "name"
            ].endswith("1"):
                continue
            labels = {manifests.OWNER: OWNER, manifests.COPY: name}
            namespace = self.pods.namespace(name)
            for pod in self.api.list("Pod", namespace, labels=labels):
                self.api.delete("Pod", namespace, pod["metadata"]["name"], grace_s=0)
            self.until(lambda: not self.api.list("Pod", namespace, labels=labels))  # noqa: B023
            self.pods.make(name)
            self.until(lambda: len(self.pods.names(name)) == 3)  # noqa: B023

    def until(self, condition: Any) -> None:
        end = time.monotonic() + 120.0
        while not condition():
            assert time.monotonic() < end, "it did not come true within 120 s"
            time.sleep(0.1)

    def failures(self, owner: str = OWNER, **more: Any) -> KubernetesFailures:
        settings = KubernetesSettings(namespace=self.live, copies_namespace=self.copies)
        how: Any = {"network_timeout_s": 20.0, **more}
        return KubernetesFailures(self.owner_api, self.pods, settings, owner=owner, **how)


@pytest.fixture(scope="module")
def running(admin: KubernetesApi, owner_api: KubernetesApi, namespaces: Any) -> Iterator[Place]:
    place = Place(admin, owner_api, namespaces)
    with place.controller:
        yield place
        place.failures().clear_all()
    assert [str(one) for one in place.controller.problems] == []


@pytest.fixture
def place(running: Place) -> Place:
    running.ready()
    return running


@pytest.mark.parametrize("kind", sorted(chaos.CHAOS))
def test_the_api_server_accepts_every_object(place: Place, kind: str) -> None:
    peers = (f"{COPY}-driver-0",) if kind == "network_partition" else ()
    labels = {manifests.OWNER: OWNER, manifests.COPY: COPY}
    target = chaos.Target(place.copies, labels, (f"{COPY}-executor-1",), peers)
    injection = Injection("abc123", COPY, kind, "a pod", time.time())
    made = chaos.manifest(
        injection,
        target,
        chaos.Strength(20.0, 256),
        labels=manifests.labels(OWNER, place.pods.plan(COPY), "failure"),
    )
    stored = place.owner_api.create(made["kind"], made, dry_run=True)
    assert _within(made["spec"], stored["spec"])  # nothing is unknown, and so dropped
    made["spec"]["mode"] = "some"
    with pytest.raises(Misconfigured, match="mode"):
        place.owner_api.create(made["kind"], made, dry_run=True)
    assert objects(place) == []


def test_the_owner_has_no_right_on_live_jobs_without_its_component(place: Place) -> None:
    with pytest.raises(Forbidden, match="podchaos"):
        place.failures(live_drills=lambda job: True).inject("orders", "executor_kill")
    assert len(place.pods.names("orders")) == 3


def test_a_short_failure_ends_by_itself(place: Place) -> None:
    labels = manifests.labels(OWNER, place.pods.plan(COPY), "failure")
    target = chaos.Target(
        place.copies, {key: labels[key] for key in (manifests.OWNER, manifests.COPY)}, (f"{COPY}-executor-1",)
    )
    injection = Injection("abc123", COPY, "pod_failure", "a pod", time.time())
    made = chaos.manifest(injection, target, chaos.Strength(20.0, 256), labels=labels)
    made["spec"]["duration"] = "12s"
    place.owner_api.create("PodChaos", made)
    states: list[str] = []

    def over() -> bool:
        [found] = objects(place)
        states.append(chaos.outcome(found, waited_s=1.0).state)
        return states[-1] == "recovered"

    place.until(over)
    assert list(dict.fromkeys(states)) in (["waiting", "injected", "recovered"], ["injected", "recovered"])
    failures = place.failures()
    assert failures.left_over() == (injection,)
    failures.clear(injection.id)
    assert objects(place) == []


KILLED = """
import os, signal, sys
from pause_pods import PausePods
from pipelines.environments.kubernetes.failures import KubernetesFailures
from pipelines.integrations.kubernetes_api import KubernetesApi
from pipelines.settings.schema import KubernetesSettings

owner, live, copies, name, context = sys.argv[1:]
api = KubernetesApi.connect(KubernetesSettings(context=context))
settings = KubernetesSettings(namespace=live, copies_namespace=copies)
KubernetesFailures(
    api, PausePods(api, owner=owner, live=live, copies=copies), settings, owner=owner, network_timeout_s=20.0,
    sleep=lambda seconds: os.kill(os.getpid(), signal.SIGKILL),
).inject(name, "pod_failure")
"""


def test_a_process_that_is_killed_in_the_middle_of_a_drill_leaves_it_to_the_next(place: Place) -> None:
    place.controller.broken = "not yet"  # so that it is killed before anything has happened
    arguments = [OWNER, place.live, place.copies, COPY, place.api.where]
    here = os.pathsep.join(str(ROOT / one) for one in ("", "tests/doubles"))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        env={**os.environ, "PYTHONPATH": here},
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    place.controller.broken = ""
    place.until(lambda: chaos.outcome(objects(place)[0], waited_s=1.0).state == "injected")
    after = place.failures()
    [left] = after.left_over()
    assert (left.deployment, left.kind) == (COPY, "pod_failure")
    with after:
        assert objects(place) == []
    pod = place.api.get("Pod", place.copies, f"{COPY}-executor-1")
    assert "pod-failure" not in str(pod["metadata"].get("annotations", {}))
    place.failures().clear(place.failures().inject(COPY, "network_delay").id)  # and it goes on


def _within(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and _within(value, whole[key]) for key, value in part.items())
    return bool(part == whole)
