"""The Kubernetes objects of a deployment, as dicts.

A job or a copy is a Deployment `NAME-driver` of one pod, the driver, beside a ConfigMap with its launch file
and a Secret with the token of its control channel. These two have another name at every launch: they go with
their Deployment, and nothing has to be deleted by a name that another may have chosen too. Spark makes the
executor pods; the driver's pod owns them, so that they go with it. Everything carries the labels below, by
which it is found, selected and deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from models.errors import Misconfigured, Unsafe
from models.ports import Plan, Query
from profiling_jobs import plans

from ...integrations.kubernetes_api import KINDS, Manifest
from ...settings.schema import KubernetesSettings, SparkSettings

OWNER = "headroom.io/owner"
JOB = "headroom.io/job"
COPY = "headroom.io/copy"
"""The deployment: the job's own name, or that of a profiling copy."""
ROLE = "headroom.io/role"
"""driver, executor, replay, recording or failure."""

PLAN = "headroom.io/plan"
SCALE_OUT = "headroom.io/scale-out"
EPOCH = "headroom.io/epoch"
INCARNATION = "headroom.io/incarnation"
MARK = "headroom.io/mark"
LAUNCH = "headroom.io/launch"
"""The name of the ConfigMap and the Secret of this launch."""

CONTROL_PORT = 8470
PAGE_PORT = 4040
DRIVER_PORT = 7078
BLOCK_PORT = 7079
LAUNCH_FILES = "/etc/headroom/launch"
STOP_S = 90  # 60 s for the running batch, and Spark's own end
PYTHON = "/opt/venv/bin/python"


SCRATCH = {"tmp": "/tmp", "spark": "/var/spark"}
"""Folders of a pod that can be written; the image itself cannot."""
SCRATCH_MOUNTS: list[Manifest] = [{"name": name, "mountPath": path} for name, path in SCRATCH.items()]


@dataclass(frozen=True)
class Volume:
    """The claim that our folder is on, mounted at the same path; pods see only what is theirs of it."""

    folder: Path

    def driver(self, plan: Plan) -> Path:
        """Where a driver writes: `progress.jsonl` above all."""
        return self.folder / "deployments" / plan.name

    @property
    def jobs(self) -> Path:
        """Where scripts and modules of jobs are, unless they are in the image."""
        return self.folder / "jobs"

    def mounts(self, plan: Plan) -> list[Manifest]:
        """What drivers and executors see: their checkpoint, their files, and the programs, read-only."""
        own = [self.driver(plan)]
        outputs = (one for one in map(plans.folder_of, plan.outputs.values()) if one is not None)
        for path in (plan.checkpoint, *outputs):
            if plans.within(path, str(self.folder)):
                own.append(Path(path))
            elif "://" not in path:
                raise Misconfigured(
                    f"job.{plan.job}",
                    f"{path} is not on the volume that pods share: choose a folder below {self.folder}, or "
                    "an object store (s3a://…)",
                )
        return [*self.mounted(*own), *self.mounted(self.jobs, read_only=True)]

    def mounted(self, *paths: Path, read_only: bool = False) -> list[Manifest]:
        """These folders, made where they are missing."""
        found: list[Manifest] = []
        for path in paths:
            if not path.exists():  # else a pod may have made it, and owns it
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(0o2770)  # for the group of the volume (fsGroup), as its other folders
            found.append(
                {
                    "name": "data",
                    "mountPath": str(path),
                    "subPath": str(path.relative_to(self.folder)),
                    "readOnly": read_only,
                }
            )
        return found


def owner_label(folder_id: str, settings: KubernetesSettings) -> str:
    """Label of an installation. In pods the folder has the same path everywhere: its namespace counts too."""
    return hashlib.sha256(f"{settings.own_namespace}/{folder_id}".encode()).hexdigest()[:12]


def labels(owner: str, plan: Query, role: str) -> dict[str, str]:
    """The labels of every object of a deployment."""
    return {OWNER: owner, JOB: plan.job, COPY: plan.name, ROLE: role}


def mark(owner: str, name: str, scale_out: int, epoch: int) -> str:
    """Mark of a size that Headroom has set; after an edit by another it is still that of the size before."""
    return hashlib.sha256(f"{owner}/{name}/{scale_out}/{epoch}".encode()).hexdigest()[:16]


def noted(found: Manifest, key: str, default: int) -> int:
    """A number of ours among its annotations; Unsafe where another has written something else."""
    about = found["metadata"]
    text = (about.get("annotations") or {}).get(key, str(default))
    try:
        return int(text)
    except ValueError as error:
        raise Unsafe(
            f"the annotation {key} of {about['name']} in {about['namespace']} is '{text}', which is none of "
            "Headroom's: restore the number that it had"
        ) from error


def driver_deployment(
    plan: Plan,
    settings: KubernetesSettings,
    spark: SparkSettings,
    *,
    annotations: Mapping[str, str],
    owner: str,
    volume: Volume,
) -> Manifest:
    """The Deployment of a driver."""
    found = labels(owner, plan, "driver")
    name, files = driver_name(plan.name), annotations[LAUNCH]
    memory_mb = spark.driver_memory_mb + settings.overhead_mb
    container = {
        "name": "driver",
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": [
            PYTHON,
            "-P",
            "-m",
            "profiling_jobs.runner",
            f"{LAUNCH_FILES}/driver.json",
            str(volume.driver(plan)),
        ],
        "env": [
            *_environment(),
            _from_field("POD_NAME", "metadata.name"),
            _from_field("POD_IP", "status.podIP"),
            {"name": "DRIVER_PODS", "value": _drivers_of(plan, settings)},
        ],
        "envFrom": _environment_from(settings),
        "ports": [
            {"name": "control", "containerPort": CONTROL_PORT},
            {"name": "page", "containerPort": PAGE_PORT},
            {"name": "driver", "containerPort": DRIVER_PORT},
            {"name": "blocks", "containerPort": BLOCK_PORT},
        ],
        "resources": _resources(settings.driver_cpu, memory_mb),
        "securityContext": CONFINED,
        "volumeMounts": [
            *volume.mounts(plan),
            *SCRATCH_MOUNTS,
            {"name": "launch", "mountPath": LAUNCH_FILES, "readOnly": True},
        ],
    }
    launch = {
        "name": "launch",
        "projected": {
            "defaultMode": 0o440,
            "sources": [{"configMap": {"name": files}}, {"secret": {"name": files}}],
        },
    }
    return {
        "metadata": {
            "name": name,
            "namespace": namespace(settings, plan),
            "labels": found,
            "annotations": dict(annotations),
        },
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},  # two drivers on one checkpoint would tear it
            "selector": {"matchLabels": {COPY: plan.name, ROLE: "driver"}},
            "template": {
                "metadata": {
                    "labels": {**settings.labels, **found},
                    "annotations": {**settings.annotations, INCARNATION: annotations[INCARNATION]},
                },
                "spec": {
                    **_pod(settings, account=settings.driver_account, token=True),
                    "nodeSelector": _nodes(plan, settings),
                    "restartPolicy": "Always",
                    "terminationGracePeriodSeconds": STOP_S,
                    "containers": [container],
                    "volumes": [*_volumes(settings), launch],
                },
            },
        },
    }


def executor_template(plan: Plan, settings: KubernetesSettings, *, owner: str, volume: Volume) -> Manifest:
    """What Spark makes executor pods from; it adds image, size, environment and its own labels."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {**settings.labels, **labels(owner, plan, "executor")},
            "annotations": dict(settings.annotations),
        },
        "spec": {
            **_pod(settings, account=settings.executor_account, token=False),
            "nodeSelector": _nodes(plan, settings),
            "containers": [
                {
                    "name": "executor",
                    "env": _environment(),
                    "envFrom": _environment_from(settings),
                    "securityContext": CONFINED,
                    "volumeMounts": [*volume.mounts(plan), *SCRATCH_MOUNTS[:1]],
                }
            ],
            "volumes": _volumes(settings)[:-1],  # Spark itself adds its local folder
        },
    }


def task_pod(
    name: str,
    command: Sequence[str],
    settings: KubernetesSettings,
    spark: SparkSettings,
    *,
    labels: Mapping[str, str],
    environment: Mapping[str, str],
    mounts: Sequence[Manifest],
) -> Manifest:
    """A pod that runs one command to its end: a replay or a recording, with a small Spark of its own."""
    return {
        "metadata": {
            "name": name,
            "namespace": settings.copies_namespace,
            "labels": {**settings.labels, **labels},
            "annotations": dict(settings.annotations),
        },
        "spec": {
            **_pod(settings, account=settings.executor_account, token=False),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 15,
            "containers": [
                {
                    "name": "task",
                    "image": settings.image,
                    "imagePullPolicy": settings.image_pull_policy,
                    "args": [PYTHON, "-m", *command],
                    "env": [{"name": key, "value": value} for key, value in environment.items()],
                    "envFrom": _environment_from(settings),
                    "resources": _resources(
                        settings.driver_cpu, spark.driver_memory_mb + settings.overhead_mb
                    ),
                    "securityContext": CONFINED,
                    "volumeMounts": list(mounts),
                }
            ],
            "volumes": _volumes(settings),
        },
    }


def spark_conf(plan: Plan, settings: KubernetesSettings) -> dict[str, str]:
    """Where Spark finds the API server and how it makes executor pods.

    Values with `$NAME` are filled in by the driver, from the environment of its pod; `$RUN` differs at every
    start.
    """
    return {
        "spark.master": "k8s://https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT",
        "spark.driver.host": "$POD_IP",
        "spark.driver.bindAddress": "$POD_IP",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_PORT),
        "spark.blockManager.port": str(BLOCK_PORT),
        "spark.ui.port": str(PAGE_PORT),
        # Executors get a secret of this run in their environment; without it any pod could join.
        "spark.authenticate": "true",
        "spark.executor.instances": str(plan.scale_out),
        "spark.executor.memoryOverhead": f"{settings.overhead_mb}m",
        "spark.kubernetes.namespace": namespace(settings, plan),
        "spark.kubernetes.driver.pod.name": "$POD_NAME",
        "spark.kubernetes.container.image": settings.image,
        "spark.kubernetes.container.image.pullPolicy": settings.image_pull_policy,
        "spark.kubernetes.authenticate.executor.serviceAccountName": settings.executor_account,
        "spark.kubernetes.executor.podTemplateFile": f"{LAUNCH_FILES}/executor.json",
        # A driver that starts again must not meet the names of executors that are still going.
        "spark.kubernetes.executor.podNamePrefix": f"{plan.name}-$RUN",
        "spark.kubernetes.executor.request.cores": settings.executor_cpu,
        "spark.kubernetes.executor.deleteOnTermination": "true",
        # The driver's account may touch pods, and nothing else.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        # Spark's own 30 s is longer than most promises allow for a pod that has vanished.
        "spark.kubernetes.executor.missingPodDetectDelta": "10s",
        # Only the driver gives executors up: an evicted pod ends as quickly as it is asked to.
        "spark.kubernetes.decommission.script": "/bin/true",
        "spark.kubernetes.allocation.batch.size": "20",
        "spark.kubernetes.allocation.batch.delay": "1s",
    }


def driver_name(name: str) -> str:
    """Name of the Deployment of a driver."""
    return f"{name}-driver"


def namespace(settings: KubernetesSettings, plan: Plan) -> str:
    """Namespace in which a deployment runs."""
    return settings.namespace if plan.role == "live" else settings.copies_namespace


CONFINED: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def _pod(settings: KubernetesSettings, *, account: str, token: bool) -> Manifest:
    user = settings.user_id
    return {
        "serviceAccountName": account,
        "automountServiceAccountToken": token,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": user != 0,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "imagePullSecrets": [{"name": one} for one in settings.image_pull_secrets],
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [_toleration(one) for one in settings.tolerations],
    }


def _nodes(plan: Plan, settings: KubernetesSettings) -> dict[str, str]:
    """The labels of its nodes; copies run where a node may be lost in a drill."""
    more = {} if plan.role == "live" else settings.drill_node_selector
    return {**settings.node_selector, **more}


def _resources(cpu: str, memory_mb: int) -> Manifest:
    # No limit of the processor: a batch that is throttled is late, and the kernel shares by the requests.
    return {"requests": {"cpu": cpu, "memory": f"{memory_mb}Mi"}, "limits": {"memory": f"{memory_mb}Mi"}}


def _volumes(settings: KubernetesSettings) -> list[Manifest]:
    return [
        {"name": "data", "persistentVolumeClaim": {"claimName": settings.claim}},
        *({"name": name, "emptyDir": {}} for name in SCRATCH),
    ]


def _environment() -> list[Manifest]:
    return [{"name": "SPARK_LOCAL_DIRS", "value": "/var/spark"}, {"name": "HOME", "value": "/tmp"}]


def _environment_from(settings: KubernetesSettings) -> list[Manifest]:
    return [{"secretRef": {"name": settings.environment_from}}] if settings.environment_from else []


def _drivers_of(plan: Plan, settings: KubernetesSettings) -> str:
    """The path at which the API server lists them."""
    selector = quote(f"{COPY}={plan.name},{ROLE}=driver")
    return f"{KINDS['Pod'].path(namespace(settings, plan))}?labelSelector={selector}"


def _from_field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _toleration(text: str) -> Manifest:
    """`key=value:Effect` or `key:Effect`."""
    left, _, effect = text.partition(":")
    key, equals, value = left.partition("=")
    found: dict[str, Any] = {"key": key, "operator": "Equal" if equals else "Exists"}
    if equals:
        found["value"] = value
    return {**found, "effect": effect} if effect else found
