"""What belongs to an owner on a cluster: all of it is listed and removed, and nothing of others."""

import pytest
from api_server import ApiServer
from stand_ins import plan

from models.errors import NotReady
from pipelines.environments.kubernetes import belongings, manifests
from pipelines.environments.kubernetes.deployments import KubernetesDeployments
from pipelines.settings.schema import KubernetesSettings, SparkSettings
from profiling_jobs.brokers import Brokers

SETTINGS = KubernetesSettings(namespace="jobs", copies_namespace="copies")


@pytest.fixture
def server(tmp_path):
    """A job, an executor of it, a replay and a failure, all of `me`; and the same of another."""
    with ApiServer("jobs", "copies") as server:
        api = server.connect()
        for owner, job in (("me", "orders"), ("another", "clicks")):
            KubernetesDeployments(
                api,
                Brokers("kafka:9092"),
                owner=owner,
                folder=tmp_path / owner,
                settings=SETTINGS,
                spark=SparkSettings(),
            ).launch(plan(job, checkpoint=str(tmp_path / owner / "checkpoints")))
            labels = {manifests.OWNER: owner, manifests.JOB: job}
            deployment = server.find("Deployment", "jobs", f"{job}-driver")
            assert deployment is not None
            owners = [{"uid": deployment["metadata"]["uid"]}]
            for kind, namespace, name, more in (
                ("Pod", "jobs", f"{job}-exec-1", {"ownerReferences": owners}),
                ("Pod", "copies", f"replay-{job}", {}),
                ("PodChaos", "copies", f"kill-{job}", {"finalizers": ["chaos-mesh/records"]}),
            ):
                about = {"name": name, "namespace": namespace, "labels": labels, **more}
                api.create(kind, {"metadata": about, "spec": {}})
        yield server


class Passing:
    """Time passes when the removal sleeps; so does Chaos Mesh, unless it is stuck."""

    def __init__(self, api, *, stuck):
        self.api, self.now_s, self.stuck = api, 0.0, stuck

    def remove(self):
        return belongings.remove(self.api, SETTINGS, owner="me", clock=lambda: self.now_s, sleep=self.sleep)

    def sleep(self, seconds):
        self.now_s += seconds
        if not self.stuck:
            self.api.patch("PodChaos", "copies", "kill-orders", {"metadata": {"finalizers": None}})


def names(server, kind):
    return [one["metadata"]["name"] for one in server.all(kind)]


def test_everything_of_the_owner_is_listed_also_what_may_not_be_read(server):
    found = belongings.belongings(server.connect(), SETTINGS, owner="me")
    [secret] = [one for one in names(server, "Secret") if one.startswith("orders")]
    assert [str(one) for one in found] == [
        "PodChaos kill-orders in copies",
        "Deployment orders-driver in jobs",
        f"ConfigMap {secret} in jobs",
        f"Secret {secret} in jobs",
        "Pod orders-exec-1 in jobs",
        "Pod replay-orders in copies",
    ]
    of_the_owner = sum(
        one["metadata"]["labels"][manifests.OWNER] == "me"
        for kind in ("PodChaos", "Deployment", "ConfigMap", "Secret", "Pod")
        for one in server.all(kind)
    )
    assert len(found) == of_the_owner


def test_all_of_it_is_removed_and_nothing_else(server):
    assert len(Passing(server.connect(), stuck=False).remove()) == 6
    left = [
        one for kind in ("PodChaos", "Deployment", "ConfigMap", "Secret", "Pod") for one in server.all(kind)
    ]
    assert {one["metadata"]["labels"][manifests.OWNER] for one in left} == {"another"}
    assert len(left) == 6


def test_a_failure_that_is_held_is_named_with_the_command_that_helps(server):
    with pytest.raises(NotReady, match=r"annotate podchaos kill-orders .*cleanFinalizer=forced"):
        Passing(server.connect(), stuck=True).remove()
    assert names(server, "Pod") == ["clicks-exec-1", "replay-clicks"]
