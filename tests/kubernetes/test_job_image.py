"""Spark in the image of jobs, under our Roles: a driver gets executors, confined and without a token."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipelines.integrations.kubernetes_api import KubernetesApi
from tests.kubernetes.conftest import Namespaces

PATIENCE_S = 300.0
RUNNER = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "fsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
SCRATCH = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "var-spark", "mountPath": "/var/spark"}]
VOLUMES = [{"name": "tmp", "emptyDir": {}}, {"name": "var-spark", "emptyDir": {}}]
TEMPLATE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"headroom.io/role": "executor", "headroom.io/copy": "image"}},
    "spec": {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": RUNNER,
        "containers": [{"name": "executor", "securityContext": CONFINED, "volumeMounts": SCRATCH[:1]}],
        "volumes": VOLUMES[:1],  # Spark adds the folder that SPARK_LOCAL_DIRS names
    },
}
PROGRAM = """
import os, time
from pathlib import Path
from pyspark.sql import SparkSession

Path("/tmp/executor.json").write_text(os.environ["TEMPLATE"])
conf = {
    "spark.master": "k8s://https://" + os.environ["KUBERNETES_SERVICE_HOST"],
    "spark.driver.host": os.environ["POD_IP"],
    "spark.driver.port": "7078",
    "spark.blockManager.port": "7079",
    "spark.authenticate": "true",
    "spark.executor.instances": "2",
    "spark.executor.memory": "480m",
    "spark.kubernetes.namespace": os.environ["NAMESPACE"],
    "spark.kubernetes.driver.pod.name": os.environ["POD_NAME"],
    "spark.kubernetes.container.image": os.environ["IMAGE"],
    "spark.kubernetes.container.image.pullPolicy": "Never",
    "spark.kubernetes.authenticate.executor.serviceAccountName": "headroom-executor",
    "spark.kubernetes.executor.podTemplateFile": "/tmp/executor.json",
    "spark.kubernetes.executor.request.cores": "500m",
    "spark.kubernetes.executor.missingPodDetectDelta": "10s",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # What the Role of drivers leaves out, Spark must not try.
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
}
builder = SparkSession.builder.appName("image")
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()

def users(batches):
    import os, profiling_jobs, pyarrow
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"user": [os.getuid()]})

found = spark.range(0, 80, 1, 8).mapInArrow(users, "user long").distinct().collect()
print("users of the Python workers:", [row.user for row in found], flush=True)
while not Path("/headroom/stop").exists():
    time.sleep(0.2)
spark.stop()
"""


@pytest.fixture
def driver(owner_api: KubernetesApi, namespaces: Namespaces, job_image: str) -> Iterator[str]:
    """A driver pod with the account of drivers, created by the owner."""
    environment = {"IMAGE": job_image, "NAMESPACE": namespaces.copies, "TEMPLATE": json.dumps(TEMPLATE)}
    fields = {"POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    owner_api.create(
        "Pod",
        {
            "metadata": {
                "name": "image-driver",
                "namespace": namespaces.copies,
                "labels": {"headroom.io/role": "driver"},
            },
            "spec": {
                "serviceAccountName": "headroom-driver",
                "automountServiceAccountToken": True,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 5,
                "securityContext": RUNNER,
                "containers": [
                    {
                        "name": "driver",
                        "image": job_image,
                        "imagePullPolicy": "Never",
                        "args": ["python", "-c", PROGRAM],
                        "env": [
                            *({"name": key, "value": value} for key, value in environment.items()),
                            *(
                                {"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                                for key, path in fields.items()
                            ),
                        ],
                        "resources": {
                            "requests": {"cpu": "500m", "memory": "1Gi"},
                            "limits": {"memory": "1536Mi"},
                        },
                        "securityContext": CONFINED,
                        "volumeMounts": [*SCRATCH, {"name": "data", "mountPath": "/headroom"}],
                    }
                ],
                "volumes": [
                    *VOLUMES,
                    {"name": "data", "persistentVolumeClaim": {"claimName": "headroom-data"}},
                ],
            },
        },
    )
    yield "image-driver"
    owner_api.delete("Pod", namespaces.copies, "image-driver", grace_s=0)
    (namespaces.folder / "stop").unlink(missing_ok=True)


def wait_for(what: str, ask: Callable[[], Any], *, log: Callable[[], str]) -> Any:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if found := ask():
            return found
        time.sleep(0.5)
    raise AssertionError(f"{what} did not come within {PATIENCE_S:.0f} s:\n{log()}")


def test_a_driver_asks_for_executors_replaces_one_that_is_lost_and_ends_them(
    driver: str, owner_api: KubernetesApi, namespaces: Namespaces
) -> None:
    def log() -> str:
        return owner_api.log(namespaces.copies, driver, lines=300)

    def executors() -> list[dict[str, Any]]:
        pods = owner_api.list("Pod", namespaces.copies, labels=TEMPLATE["metadata"]["labels"])
        return [
            one
            for one in pods
            if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]
        ]

    def phase() -> str:
        return str(owner_api.get("Pod", namespaces.copies, driver)["status"]["phase"])

    wait_for("the result", lambda: "users of the Python workers:" in log() or phase() == "Failed", log=log)
    assert "users of the Python workers: [10001]" in log(), log()
    first = wait_for("two executors", lambda: len(found := executors()) == 2 and found, log=log)
    for one in first:
        spec = one["spec"]
        assert spec["serviceAccountName"] == "headroom-executor"
        assert spec["securityContext"] == RUNNER
        assert [container["securityContext"] for container in spec["containers"]] == [CONFINED]
        # Nothing but scratch space: no token, no Secret, no ConfigMap of another.
        assert not [
            volume for volume in spec["volumes"] if {"secret", "projected", "hostPath"} & volume.keys()
        ]
        assert [owner["name"] for owner in one["metadata"]["ownerReferences"]] == [driver]
    lost = first[0]["metadata"]["name"]
    owner_api.delete("Pod", namespaces.copies, lost, grace_s=0)
    wait_for(
        "a replacement",
        lambda: len(found := executors()) == 2 and lost not in [one["metadata"]["name"] for one in found],
        log=log,
    )
    (namespaces.folder / "stop").touch()
    wait_for("the end of the executors", lambda: not executors(), log=log)
    wait_for("the end of the driver", lambda: phase() in ("Succeeded", "Failed"), log=log)
    assert phase() == "Succeeded", log()
    assert "forbidden" not in log().lower(), log()
