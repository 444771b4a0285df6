"""A task as a pod: a replay or a recording, with a small Spark of its own inside."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from models.errors import NotReady, Unsafe
from profiling_jobs.brokers import Brokers

from ...integrations.kubernetes_api import KubernetesApi, Manifest
from ...integrations.spark_conf import SHUT
from ...settings.schema import KubernetesSettings, SparkSettings
from . import manifests, pods
from .manifests import COPY, OWNER, ROLE, Volume

GONE_S = 60.0  # judgement: a pod has 15 s to end
POLL_S = 0.5
LONGEST = 63  # a pod's name is its host name too


class PodTask:
    """One task, found again by its name. A `Task` (pipelines/environments/replay.py)."""

    def __init__(
        self,
        api: KubernetesApi,
        role: str,
        *,
        owner: str,
        volume: Volume,
        settings: KubernetesSettings,
        spark: SparkSettings,
        check_lease: Callable[[], None] = lambda: None,
    ) -> None:
        self._api = api
        self._check_lease = check_lease
        self._owner = owner
        self._volume = volume
        self._settings = settings
        self._spark = spark
        self.role = role
        self.folder = volume.folder
        self._name = pod_name(role)

    @property
    def log(self) -> str:
        """The command that shows it."""
        return f"`kubectl logs -n {self._settings.copies_namespace} {self._name}`"

    @property
    def alive(self) -> bool:
        """Whether its pod is there and has not ended."""
        pod = self._pod()
        return pod is not None and not pods.ended(pod)

    @property
    def frozen(self) -> bool:
        """Never: signals do not reach pods from here."""
        return False

    def conf(self) -> dict[str, str]:
        """What its Spark needs to run there."""
        return {
            **SHUT,
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": f"{self._spark.driver_memory_mb}m",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError",
        }

    def start(self, module: str, file: Path, brokers: Brokers) -> None:
        """Run `python -m module file` in a pod. Passwords of brokers come from `environment_from`."""
        self._check_lease()
        if self.alive:
            raise Unsafe(f"{self.role} runs already: wait for it, or stop it first")
        self.stop()
        kind, _, of = self.role.partition(".")
        self._api.create(
            "Pod",
            manifests.task_pod(
                self._name,
                [module, str(file)],
                self._settings,
                self._spark,
                labels={OWNER: self._owner, COPY: of.partition(".")[0], ROLE: kind},
                environment=self._environment(),
                mounts=self._mounts(kind, of),
            ),
        )
        until = time.monotonic() + self._settings.pending_s
        while (pod := self._pod()) is not None and pods.state(pod) == "waiting":
            if time.monotonic() > until:
                _, why = pods.explained(pod, lambda pod=pod: self._events(pod))  # type: ignore[misc]
                self.stop()
                raise NotReady(f"{self.role} was not placed within {self._settings.pending_s:.0f} s: {why}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End it, and wait until it is gone."""
        namespace = self._settings.copies_namespace
        pod = self._pod()
        if pod is None:
            return
        self._check_lease()  # without it this may be the next owner's
        self._api.delete("Pod", namespace, self._name, uid=pod["metadata"]["uid"])
        until = time.monotonic() + GONE_S
        while (now := self._pod()) is not None and now["metadata"]["uid"] == pod["metadata"]["uid"]:
            if time.monotonic() > until:
                raise NotReady(
                    f"the pod {self._name} in {namespace} does not end: see `kubectl describe pod`"
                )
            time.sleep(POLL_S)

    def said(self) -> tuple[int | None, str]:
        """How it ended, and its log."""
        pod = self._pod()
        if pod is None:
            return None, ""
        return pods.exit_code(pod), self._api.log(self._settings.copies_namespace, self._name)

    def _pod(self) -> Manifest | None:
        pod = self._api.find("Pod", self._settings.copies_namespace, self._name)
        if pod is not None and pod["metadata"].get("labels", {}).get(OWNER) != self._owner:
            raise Unsafe(f"the pod {self._name} belongs to another owner: end that one's task first")
        return pod

    def _events(self, pod: Manifest) -> list[Manifest]:
        return pods.events(self._api, pod)

    def _environment(self) -> Mapping[str, str]:
        return {
            "SPARK_LOCAL_DIRS": manifests.SCRATCH["spark"],
            "HOME": manifests.SCRATCH["tmp"],
            "PYTHONPATH": str(self._volume.jobs),  # for a function that moves event times
            # As for a process of this machine (pipelines/environments/local/tasks.py).
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "MALLOC_ARENA_MAX": "1",
        }

    def _mounts(self, kind: str, of: str) -> list[Manifest]:
        folder, recordings = self._volume.folder, self._volume.folder / "recordings"
        if kind == "recording":
            own = self._volume.mounted(recordings)
        else:
            own = self._volume.mounted(folder / "replays" / of)
            own += self._volume.mounted(recordings, read_only=True)
        return [*own, *self._volume.mounted(self._volume.jobs, read_only=True), *manifests.SCRATCH_MOUNTS]


def pod_name(role: str) -> str:
    """The name of a task's pod. In a role is the job's own name of an input, which may be any text."""
    name = re.sub(r"[^a-z0-9]+", "-", role).strip("-")
    if name == role.replace(".", "-") and len(name) <= LONGEST:
        return name
    told_apart = hashlib.sha256(role.encode()).hexdigest()[:8]
    return f"{name[: LONGEST - 9]}-{told_apart}"


def stop_tasks(
    api: KubernetesApi,
    copy: str,
    *,
    owner: str,
    settings: KubernetesSettings,
    check_lease: Callable[[], None],
) -> None:
    """End what sends records to a copy."""
    check_lease()
    labels = {OWNER: owner, COPY: copy, ROLE: "replay"}
    for pod in api.list("Pod", settings.copies_namespace, labels=labels):
        api.delete("Pod", settings.copies_namespace, pods.name(pod), uid=pod["metadata"]["uid"])
