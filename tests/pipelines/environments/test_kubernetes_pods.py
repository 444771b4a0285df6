"""What pods say of themselves, in words: a table of statuses as the API server shows them."""

import re

import pytest

from pipelines.environments.kubernetes import manifests, pods

pytestmark = pytest.mark.fast


def pod(status, *, role="driver", name="p", **about):
    labels = {manifests.ROLE: role}
    return {"metadata": {"name": name, "uid": name, "labels": labels, **about}, "status": status}


def container(**state):
    return {"containerStatuses": [{"image": "job:1", "restartCount": 0, "state": state}]}


def waiting(reason, message=""):
    return container(waiting={"reason": reason, "message": message})


UNPLACED = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: Insufficient cpu"}
WARNED = [
    {"type": "Normal", "reason": "Pulled", "message": "", "lastTimestamp": "2026-01-01T00:00:09Z"},
    {"type": "Warning", "reason": "FailedMount", "message": "no such claim", "lastTimestamp": "2026-01-01"},
]


@pytest.mark.parametrize(
    ("status", "events", "state", "words"),
    [
        (container(running={}), [], "running", ""),
        ({"phase": "Pending", "conditions": [UNPLACED]}, [], "waiting", "no node takes it.*Insufficient cpu"),
        (waiting("ImagePullBackOff", "no such host"), [], "waiting", "job:1 cannot be pulled.*no such host"),
        (waiting("ErrImageNeverPull"), [], "waiting", "job:1 is not on the node.*image_pull_policy"),
        (waiting("CreateContainerConfigError", "secret x"), [], "waiting", "ConfigMap, Secret or volume"),
        (waiting("CrashLoopBackOff"), [], "waiting", "ended several times"),
        (waiting("ContainerCreating"), WARNED, "waiting", "FailedMount: no such claim"),
        (waiting("ContainerCreating"), [], "waiting", "is being started"),
        ({}, [], "waiting", "is being started"),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, [], "gone", "disk"),
        ({"phase": "Succeeded"}, [], "gone", "ended"),
    ],
)
def test_a_pod_that_does_not_run_says_why(status, events, state, words):
    found, why = pods.explained(pod(status), lambda: events)
    assert found == state == pods.state(pod(status))
    assert re.search(words, why) if words else why == ""


def test_the_living_driver_is_the_newest_that_is_not_being_deleted():
    old = pod(container(running={}), name="old", creationTimestamp="2026-01-01T00:00:00Z")
    new = pod({}, name="new", creationTimestamp="2026-01-01T00:01:00Z")
    going = pod({}, name="going", creationTimestamp="2026-01-01T00:02:00Z", deletionTimestamp="x")
    executor = pod(container(running={}), role="executor", creationTimestamp="2026-01-01T00:03:00Z")
    assert pods.newest_driver([old, new, going, executor]) is new
    assert pods.newest_driver([going, executor]) is None
    assert pods.running_executors([old, new, going, executor]) == [executor]


@pytest.mark.parametrize(
    ("text", "amount"),
    [("2", 2.0), ("500m", 0.5), ("1536Mi", 1536 * 2.0**20), ("1Gi", 2.0**30), ("2k", 2000)],
)
def test_quantities_are_read_as_kubernetes_writes_them(text, amount):
    assert pods.quantity(text) == pytest.approx(amount)


@pytest.mark.parametrize(
    ("conditions", "made", "replaced"),
    [
        ([], "10:00:45", False),  # the first comes late where the launch takes long
        ([{"reason": "DeploymentResumed", "lastUpdateTime": "2026-01-01T10:00:40Z"}], "10:00:45", False),
        ([{"reason": "NewReplicaSetAvailable", "lastUpdateTime": "2026-01-01T10:00:45Z"}], "10:00:45", False),
        ([{"reason": "NewReplicaSetAvailable", "lastUpdateTime": "2026-01-01T10:00:45Z"}], "10:00:46", True),
    ],
)
def test_a_pod_is_a_replacement_once_another_of_its_deployment_has_run(conditions, made, replaced):
    driver = pod({}, creationTimestamp=f"2026-01-01T{made}Z")
    assert pods.replaced(driver, {"status": {"conditions": conditions}}) is replaced
