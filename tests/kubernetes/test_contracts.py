"""The contract suites of deployments, metrics and failures on a real cluster.

As the product runs there: with the rights of its own ServiceAccount, drivers and executors as pods of our
image. Kafka listens on the node's address, inside the cluster's network namespace.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from chaos_controller import ChaosController
from open_broker import OpenBroker

from models.errors import Misconfigured, NoRoom, NotReady, Unsafe
from pipelines.environments.kubernetes import pods
from pipelines.environments.kubernetes.deployments import KubernetesDeployments
from pipelines.environments.kubernetes.executors import KubernetesExecutors
from pipelines.environments.kubernetes.failures import KubernetesFailures
from pipelines.environments.kubernetes.lease import OwnerLease
from pipelines.environments.metrics import JobMetrics
from pipelines.integrations.embedded_kafka import EmbeddedBroker
from pipelines.integrations.kubernetes_api import KubernetesApi
from pipelines.processes.owner import Owner, cleanup
from pipelines.settings.schema import KubernetesSettings, SparkSettings
from profiling_jobs.driver import progress
from tests.conftest import BRIEF
from tests.contracts import test_deployments_contract as suite
from tests.contracts.conftest import FREEZE_S, JOB, RealWorld
from tests.contracts.test_deployments_contract import test_a_life  # noqa: F401
from tests.contracts.test_failures_contract import (  # noqa: F401
    nothing_is_lost,
    test_a_dead_driver_is_started_again_from_its_checkpoint,
    test_a_killed_executor_is_replaced,
    test_an_unknown_deployment_is_misconfigured,
    test_what_does_not_run_cannot_fail,
)
from tests.contracts.test_metrics_contract import TestProgress  # noqa: F401
from tests.kubernetes.conftest import ROOT, apply

NODE = "10.99.0.1"


class TestLaunching(suite.TestLaunching):
    """A cluster has no `spark.slots`: its quotas and nodes say what has room."""

    @pytest.mark.parametrize(
        ("changes", "error", "setting"),
        [
            ({"scale_out": 0}, Misconfigured, "scale_out"),
            ({"inputs": {}}, Misconfigured, "inputs"),
            ({"checkpoint": ""}, Misconfigured, "checkpoint"),
            ({"trigger_s": -1.0}, Misconfigured, "trigger_s"),
            ({"max_offsets_per_trigger": 0}, Misconfigured, "max_offsets_per_trigger"),
        ],
    )
    def test_what_cannot_run_is_refused_with_the_setting(
        self, world: Any, settled: str, changes: dict[str, Any], error: type[Exception], setting: str
    ) -> None:
        super().test_what_cannot_run_is_refused_with_the_setting(world, settled, changes, error, setting)


class TestScaling(suite.TestScaling):
    """As above."""

    @pytest.mark.parametrize(("size", "setting"), [(0, "scale_out"), (-1, "scale_out")])
    def test_a_size_that_cannot_be_is_refused_with_the_setting(
        self, world: Any, settled: str, size: int, setting: str
    ) -> None:
        super().test_a_size_that_cannot_be_is_refused_with_the_setting(world, settled, size, setting)


def test_an_evicted_driver_ends_before_its_successor_begins(
    world: KubernetesWorld, settled: str, admin: KubernetesApi
) -> None:
    def sessions() -> int:
        events = progress.read(world.deployments.folder(settled) / "progress.jsonl")
        return sum(one["event"] == "session" for one in events)

    old = world.deployments.driver_pod(settled)
    assert old is not None
    name, namespace, uid = (old["metadata"][key] for key in ("name", "namespace", "uid"))
    before = sessions()
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    admin._send("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body=eviction)

    def over() -> bool:
        begun = sessions()  # first: what has begun while the old one runs has begun too early
        found = admin.find("Pod", namespace, name)
        running = found is not None and found["metadata"]["uid"] == uid and pods.ready(found)
        assert not running or begun == before
        return not running

    world.until(over)
    world.until(lambda: sessions() > before)
    world.settle(settled)
    assert world.deployments.status(settled).declared_scale_out == 2


def test_a_launch_that_takes_long_is_starting_and_no_restart(
    world: KubernetesWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller sees the Deployment before its driver may start; its first pod follows late."""
    create = world._api.create

    def late(kind: str, manifest: dict[str, Any]) -> dict[str, Any]:
        if kind == "ConfigMap":
            time.sleep(12.0)
        return create(kind, manifest)

    monkeypatch.setattr(world._api, "create", late)
    plan = world.plan(scale_out=1)
    world.deployments.launch(plan)
    states = []

    def runs() -> bool:
        states.append(world.deployments.status(plan.name).state)
        return states[-1] == "running"

    world.until(runs)
    assert set(states) == {"starting", "running"}
    world.deployments.forget(plan.name)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"image": "docker.io/local/none:1"}, "docker.io/local/none:1 is not on the node"),
        ({"executor_cpu": "64"}, r"executor pod .* no node takes it: .*Insufficient cpu"),
        (
            {"node_selector": {"pool": "none"}},
            "no node takes it: .*didn't match Pod's node affinity/selector",
        ),
    ],
    ids=["image", "processors", "nodes"],
)
def test_a_pod_that_cannot_start_says_why(world: KubernetesWorld, changes: dict[str, Any], told: str) -> None:
    deployments = world.deployments_with(**changes)
    plan = world.plan(scale_out=1)
    deployments.launch(plan)
    world.until(lambda: re.search(told, deployments.status(plan.name).reason) is not None)
    deployments.forget(plan.name)


@contextmanager
def quota(world: KubernetesWorld, deployment: str, admin: KubernetesApi, **hard: str) -> Iterator[None]:
    """A quota `full` in the deployment's namespace, in force within."""
    namespace = world.deployments.namespace(deployment)
    about = {"name": "full", "namespace": namespace}
    admin.create("ResourceQuota", {"metadata": about, "spec": {"hard": hard}})
    try:
        world.until(lambda: "hard" in admin.get("ResourceQuota", namespace, "full").get("status", {}))
        yield
    finally:
        admin.delete("ResourceQuota", namespace, "full")


def test_what_the_quota_has_no_room_for_is_not_begun(
    world: KubernetesWorld, settled: str, admin: KubernetesApi
) -> None:
    with (
        quota(world, settled, admin, pods="1"),
        pytest.raises(NoRoom, match=r"the quota full .* 0 left of pods"),
    ):
        world.deployments.scale(settled, 4, epoch=41)
    assert world.deployments.status(settled).declared_scale_out == 2


def test_an_executor_that_a_quota_refuses_is_explained_and_comes_when_there_is_room(
    world: KubernetesWorld, settled: str, admin: KubernetesApi
) -> None:
    with quota(world, settled, admin, pods="2"):
        victim = pods.name(world.deployments.executor_pods(settled)[0])
        namespace = world.deployments.namespace(settled)
        admin.delete("Pod", namespace, victim, grace_s=0)  # Spark asks for another one, and gets 403
        missing = re.compile(r"1 executor is missing: the quota full .* 0 left of pods")
        world.until(lambda: missing.search(world.deployments.status(settled).reason) is not None)
    world.settle(settled)


def test_a_lease_that_another_takes_while_a_size_is_applied_leaves_what_was_declared(
    world: KubernetesWorld,
    settled: str,
    admin: KubernetesApi,
    namespaces: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lease = OwnerLease(world._api, namespaces.headroom, owner="contract")
    lease.acquire()
    looked = []

    def check() -> None:
        lease.check()
        looked.append("held")
        admin.patch("Lease", namespaces.headroom, lease.name, {"spec": {"holderIdentity": "another"}})
        with suppress(Unsafe):
            lease.renew()

    monkeypatch.setattr(world.deployments, "_check_lease", check)
    with pytest.raises(Unsafe, match="nothing is changed"):
        world.deployments.scale(settled, 3, epoch=51)
    assert looked == ["held"]
    monkeypatch.undo()
    assert world.deployments.status(settled).declared_scale_out == 2
    assert len(world.deployments.executor_pods(settled)) == 2


def test_spark_s_numbers_of_executors_lead_to_their_pods(world: KubernetesWorld, settled: str) -> None:
    def same() -> bool:
        try:
            _, application = world.deployments.page(settled)
        except NotReady:  # a busy driver is silent for a moment
            return False
        namespace, found = world.deployments.executor_names(settled, application)
        running = {pods.name(one) for one in world.deployments.executor_pods(settled)}
        numbers = {one.executor.rpartition("/")[2] for one in world._executors.read(settled)}
        there = set(found.values()) == running and set(found) == numbers
        return there and len(found) == 2 and namespace == world.deployments.namespace(settled)

    world.until(same)


def test_replicas_that_another_sets_are_noticed(
    world: KubernetesWorld, settled: str, admin: KubernetesApi
) -> None:
    def replicas(count: int) -> None:
        name, namespace = f"{settled}-driver", world.deployments.namespace(settled)
        admin.patch("Deployment", namespace, name, {"spec": {"replicas": count}})

    replicas(0)
    world.until(lambda: "kubectl scale" in world.deployments.status(settled).reason)
    status = world.deployments.status(settled)
    assert (status.state, status.ours) == ("stopped", False)
    replicas(1)
    world.settle(settled)
    assert world.deployments.status(settled).ours is True


class KubernetesWorld(RealWorld):
    """Jobs as pods of a real cluster, with a real Kafka beside it."""

    def __init__(
        self, api: KubernetesApi, owner: Owner, embedded: EmbeddedBroker, settings: KubernetesSettings
    ) -> None:
        super().__init__(embedded.brokers, owner.folder / "checkpoints")
        self._api, self._owner, self._settings = api, owner, settings
        self._spark = SparkSettings(
            network_timeout_s=FREEZE_S,
            heartbeat_s=2,
            conf={f"spark.{role}.extraJavaOptions": BRIEF for role in ("driver", "executor")},
        )
        self.deployments = self.deployments_with()
        (owner.folder / "jobs").mkdir(exist_ok=True)
        (owner.folder / "jobs" / "contract_job.py").write_text(JOB)
        self.failures = KubernetesFailures(
            api,
            self.deployments,
            settings,
            owner=owner.id,
            network_timeout_s=FREEZE_S,
            live_drills=lambda job: True,
        )
        self._executors = KubernetesExecutors(self.deployments)
        self.metrics = JobMetrics(self.broker, self.deployments, self._executors)

    def deployments_with(self, **changes: Any) -> KubernetesDeployments:
        """The same ones, with other settings for what is launched from now on."""
        return KubernetesDeployments(
            self._api,
            self.brokers,
            owner=self._owner.id,
            folder=self._owner.folder,
            settings=self._settings.model_copy(update=changes),
            spark=self._spark,
        )


@pytest.fixture(scope="module")
def world(
    namespaces: Any, admin: KubernetesApi, owner_api: KubernetesApi, job_image: str
) -> Iterator[KubernetesWorld]:
    """One for all tests of this module."""
    settings = KubernetesSettings(
        context="headroom-test",
        own_namespace=namespaces.headroom,
        namespace=namespaces.jobs,
        copies_namespace=namespaces.copies,
        image=job_image,
        image_pull_policy="Never",
        driver_cpu="50m",  # the node of the tests has two processors
        executor_cpu="50m",
    )
    live_drills = ROOT / "deploy" / "kustomize" / "components" / "live-drills" / "drills.yaml"
    apply(namespaces.renamed(list(yaml.safe_load_all(live_drills.read_text()))))
    folder: Path = namespaces.folder
    folder.chmod(0o2770)  # as Kubernetes leaves a volume with an fsGroup
    try:
        with Owner(folder) as owner:
            embedded = OpenBroker(owner, host=NODE)
            embedded.start()
            world = KubernetesWorld(owner_api, owner, embedded, settings)
            try:
                with ChaosController(admin, namespaces.jobs, namespaces.copies, every_s=0.2):
                    yield world
                    world.failures.clear_all()
            finally:
                world.close()
    finally:
        cleanup(folder, end_owner=True)


@pytest.fixture
def settled(world: KubernetesWorld) -> str:
    """A live job on two executors with 100 records/s that has caught up with them."""
    name = "settled"
    if name not in world.deployments.names():
        world.deployments.launch(world.plan(name=name, scale_out=2))
        world.flow(f"{name}-in", 100.0)
    world.settle(name)
    return name
