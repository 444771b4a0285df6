"""The Kubeflow Spark operator 2.x as its objects and pods show it, with the kubelet and Spark's driver.

    operator = SparkOperator(api, "jobs")
    operator.step()

Each step takes every application one state further. What it does was read in its source
(internal/controller/sparkapplication): it compares each spec with the one that it saw last, without `suspend`
and `timeToLiveSeconds`, and after any other change deletes the driver's pod and submits the application
again, whatever its restartPolicy says. What changes while it is away it never notices.
"""

from __future__ import annotations

import uuid
from copy import deepcopy
from typing import Any

from pipelines.integrations.kubernetes_api import KubernetesApi

APP_NAME = "sparkoperator.k8s.io/app-name"
SUBMISSION = "sparkoperator.k8s.io/submission-id"
INSTANCES = "test/instances"
"""On a driver's pod: what `spark-submit` was given, as `spark.executor.instances`."""
UNCOMPARED = ("suspend", "timeToLiveSeconds")
NO_ROOM = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient cpu.",
}


class SparkOperator:
    """Acts on the applications of one namespace."""

    def __init__(self, api: KubernetesApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._seen: dict[str, Any] = {}
        self.away = False
        """Whether it does nothing, and misses what happens."""
        self.room = 100
        """Executors that nodes have room for."""
        self.submission_error = ""
        """Why `spark-submit` fails; empty: it does not."""
        self.states: list[str] = []
        """Every state that was written, in turn."""

    def step(self) -> None:
        """Look at every application once."""
        for found in self._api.list("SparkApplication", self._namespace):
            if self.away:
                self._seen[found["metadata"]["uid"]] = deepcopy(found["spec"])  # it begins with what is there
            else:
                self._reconcile(found)
            self._drive(found["metadata"]["name"])

    def _reconcile(self, found: Any) -> None:
        name, spec, status = found["metadata"]["name"], found["spec"], found.get("status", {})
        state = status.get("applicationState", {}).get("state", "")
        before = self._seen.get(found["metadata"]["uid"], spec)
        self._seen[found["metadata"]["uid"]] = deepcopy(spec)
        if _compared(before) != _compared(spec):
            self._write(found, "INVALIDATING")
        elif spec.get("suspend") and state not in ("SUSPENDING", "SUSPENDED", "COMPLETED", "FAILED"):
            self._write(found, "SUSPENDING")
        elif state in ("", "RESUMING") or (state == "PENDING_RERUN" and self._driver(name) is None):
            self._submit(found)
        elif state == "INVALIDATING":
            self._delete(name)
            self._write(found, "PENDING_RERUN", attempts=0)
        elif state == "SUSPENDING":
            self._delete(name)
            self._write(found, "SUSPENDED")
        elif state == "SUSPENDED" and not spec.get("suspend"):
            self._write(found, "RESUMING")
        elif state in ("SUBMITTED", "RUNNING"):
            self._follow(found, state)
        elif state in ("FAILING", "SUBMISSION_FAILED"):
            self._retry(found, state)

    def _follow(self, found: Any, state: str) -> None:
        driver = self._driver(found["metadata"]["name"])
        phase = None if driver is None else driver.get("status", {}).get("phase", "Pending")
        if phase in (None, "Failed"):
            error = "driver pod not found" if phase is None else "driver container failed with ExitCode: 1"
            self._write(found, "FAILING", error=error)
        elif phase == "Running" and state == "SUBMITTED":
            self._write(found, "RUNNING")

    def _retry(self, found: Any, state: str) -> None:
        policy = found["spec"].get("restartPolicy", {})
        retries = policy.get(
            "onSubmissionFailureRetries" if state == "SUBMISSION_FAILED" else "onFailureRetries", 0
        )
        often = policy.get("type") == "Always" or (
            policy.get("type") == "OnFailure" and found["status"].get("submissionAttempts", 0) <= retries
        )
        error = found["status"]["applicationState"].get("errorMessage", "")
        if not often:
            self._write(found, "FAILED", error=error)
        elif state == "FAILING":
            self._delete(found["metadata"]["name"])
            self._write(found, "PENDING_RERUN")
        else:
            self._submit(found)

    def _submit(self, found: Any) -> None:
        name, attempts = found["metadata"]["name"], found.get("status", {}).get("submissionAttempts", 0) + 1
        if self.submission_error:
            self._write(found, "SUBMISSION_FAILED", error=self.submission_error, attempts=attempts)
            return
        submission = str(uuid.uuid4())
        labels = {APP_NAME: name, SUBMISSION: submission, "spark-role": "driver"}
        self._make(
            f"{name}-driver",
            {**labels, "spark-app-selector": f"spark-{submission}"},
            annotations={INSTANCES: str(found["spec"]["executor"].get("instances", 2))},
        )
        more = {"submissionID": submission, "driverInfo": {"podName": f"{name}-driver"}}
        self._write(found, "SUBMITTED", attempts=attempts, **more)

    def _drive(self, name: str) -> None:
        """The kubelet starts pods, and a driver asks for the executors that it was submitted with."""
        driver = self._driver(name)
        if driver is None:
            return
        about = driver["metadata"]
        if driver.get("status", {}).get("phase") is None:
            self._run(about["name"])
        elif driver["status"]["phase"] == "Running":
            for number in range(1, int(about["annotations"][INSTANCES]) + 1):
                executor = f"{name}-{about['uid'][:8]}-exec-{number}"
                if self._api.find("Pod", self._namespace, executor) is None:
                    self._make(executor, self._executor_labels(about, number), owner=about)
                    if number <= self.room:
                        self._run(executor)
                    else:
                        waiting = {"phase": "Pending", "conditions": [NO_ROOM]}
                        self._api.patch("Pod", self._namespace, executor, {"status": waiting})

    def _executor_labels(self, driver: Any, number: int) -> dict[str, str]:
        return {**driver["labels"], "spark-role": "executor", "spark-exec-id": str(number)}

    def _driver(self, name: str) -> Any:
        return self._api.find("Pod", self._namespace, f"{name}-driver")

    def _make(self, pod: str, labels: dict[str, str], *, owner: Any = None, **more: Any) -> None:
        about: dict[str, Any] = {"name": pod, "namespace": self._namespace, "labels": labels, **more}
        if owner is not None:
            reference = {"apiVersion": "v1", "kind": "Pod", "name": owner["name"], "uid": owner["uid"]}
            about["ownerReferences"] = [{**reference, "controller": True}]
        spec = {"containers": [{"name": "spark", "image": "job:1"}]}
        self._api.create("Pod", {"metadata": about, "spec": spec})

    def _run(self, pod: str) -> None:
        container = {"name": "spark", "image": "job:1", "restartCount": 0, "state": {"running": {}}}
        running = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [container]}
        self._api.patch("Pod", self._namespace, pod, {"status": running})

    def _delete(self, name: str) -> None:
        self._api.delete("Pod", self._namespace, f"{name}-driver")

    def _write(
        self, found: Any, state: str, *, error: str = "", attempts: int | None = None, **more: Any
    ) -> None:
        said: dict[str, Any] = {"state": state, "errorMessage": error or None}
        status: dict[str, Any] = {"driverInfo": {}, "applicationState": said, **more}
        if attempts is not None:
            status["submissionAttempts"] = attempts
        if state == "RUNNING":
            driver = self._driver(found["metadata"]["name"])
            status["sparkApplicationId"] = driver["metadata"]["labels"]["spark-app-selector"]
        self.states.append(state)
        self._api.patch("SparkApplication", self._namespace, found["metadata"]["name"], {"status": status})


def _compared(spec: Any) -> Any:
    return {key: value for key, value in spec.items() if key not in UNCOMPARED}
