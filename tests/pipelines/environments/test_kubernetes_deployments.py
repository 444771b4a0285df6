"""Deployments of a cluster: what is made, what is refused, and what is noticed of edits by others.

The API server is the tests' own, without controllers: pods stay as these tests make them.
"""

import json
from dataclasses import replace

import pytest
from api_server import ApiServer, Fault
from stand_ins import plan
from waiting import until

from models.errors import HeadroomError, Misconfigured, NoRoom, NotReady, Unsafe
from models.quantities import Unknown
from pipelines.environments.base import removed
from pipelines.environments.kubernetes import manifests
from pipelines.environments.kubernetes.deployments import KubernetesDeployments
from pipelines.settings.schema import KubernetesSettings, SparkSettings
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver.channel import ControlServer

SETTINGS = KubernetesSettings(namespace="jobs", copies_namespace="copies", labels={"team": "orders"})


class Cluster:
    """Deployments, the API server behind them, and a driver that answers."""

    def __init__(self, server, folder):
        self.api = server.connect()
        self.server = server
        self.folder = folder
        self.deployments = KubernetesDeployments(
            self.api,
            Brokers("kafka:9092"),
            owner="f00",
            folder=folder,
            settings=SETTINGS,
            spark=SparkSettings(),
            sleep=lambda seconds: None,
        )
        self.wanted = []
        self.alive = 2

    def plan(self, **changes):
        return replace(plan("orders", checkpoint=str(self.folder / "checkpoints" / "orders")), **changes)

    def deployment(self, name="orders", namespace="jobs"):
        return self.api.get("Deployment", namespace, f"{name}-driver")

    def launch_files(self):
        [found] = self.server.all("ConfigMap")
        return found["data"]

    def drives(self, monkeypatch, name="orders"):
        """Its driver runs, and its control channel answers."""
        deployments = self.deployments

        def status(request):
            ids = [str(number) for number in range(self.alive)]
            query = {"id": "q", "run_id": "run-1", "name": None}
            told = {"batches": 1, "application_id": "app-1", "unsettled": "", "queries": [query]}
            return {**told, "executors": ids, "wanted": self.alive}

        def scale(request):
            self.wanted.append(request["scale_out"])
            self.alive = request["scale_out"]
            return {"took_s": 0.1, "executors": []}

        channel = ControlServer({"status": status, "scale": scale}, token=deployments._token(name))
        channel.start()
        monkeypatch.setattr(manifests, "CONTROL_PORT", channel.address[1])
        labels = self.deployment(name)["metadata"]["labels"]
        self.api.create(
            "Pod", {"metadata": {"name": f"{name}-driver-0", "namespace": "jobs", "labels": labels}}
        )
        running = [{"name": "driver", "image": "job", "restartCount": 0, "state": {"running": {}}}]
        status_of = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": running}
        self.api.patch("Pod", "jobs", f"{name}-driver-0", {"status": status_of})
        return channel


@pytest.fixture
def cluster(tmp_path):
    with ApiServer("jobs", "copies") as server:
        yield Cluster(server, tmp_path)


def test_a_launch_makes_a_driver_that_sees_only_its_own_files(cluster):
    cluster.deployments.launch(cluster.plan())
    made = cluster.deployment()
    pod = made["spec"]["template"]["spec"]
    container = pod["containers"][0]
    mounted = {one["mountPath"] for one in container["volumeMounts"] if one["name"] == "data"}
    own = {cluster.folder / "deployments" / "orders", cluster.folder / "checkpoints" / "orders"}
    assert mounted == {str(one) for one in {*own, cluster.folder / "jobs"}}
    assert made["spec"]["strategy"] == {"type": "Recreate"}
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert made["spec"]["template"]["metadata"]["labels"]["team"] == "orders"
    files = cluster.launch_files()
    launch = json.loads(files["driver.json"])
    assert launch["conf"]["spark.kubernetes.namespace"] == "jobs"
    assert launch["conf"]["spark.executor.instances"] == str(cluster.plan().scale_out)
    template = json.loads(files["executor.json"])
    assert template["spec"]["automountServiceAccountToken"] is False
    [token] = cluster.server.all("Secret")
    assert token["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert cluster.deployments.names() == ("orders",)
    assert cluster.deployments.plan("orders") == cluster.plan()


@pytest.mark.parametrize(
    ("role", "nodes"), [("live", {"disk": "fast"}), ("profile", {"disk": "fast", "pool": "drills"})]
)
def test_copies_run_on_the_nodes_that_may_be_lost(cluster, role, nodes):
    chosen = {"node_selector": {"disk": "fast"}, "drill_node_selector": {"pool": "drills"}}
    volume = manifests.Volume(cluster.folder)
    template = manifests.executor_template(
        cluster.plan(role=role), SETTINGS.model_copy(update=chosen), owner="f00", volume=volume
    )
    assert template["spec"]["nodeSelector"] == nodes


def test_the_next_owner_of_the_folder_finds_it_and_knows_its_token(cluster):
    cluster.deployments.launch(cluster.plan())
    again = Cluster(cluster.server, cluster.folder).deployments
    assert again.names() == ("orders",)
    assert again._token("orders") == cluster.deployments._token("orders")
    with pytest.raises(Unsafe, match="launched already"):
        again.launch(cluster.plan())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"checkpoint": "/elsewhere/orders"}, "not on the volume"),
        ({"inputs": {}}, "names no topic"),
        ({"conf": {"spark.kubernetes.namespace": "other"}}, "set kubernetes.namespace instead"),
    ],
)
def test_what_cannot_run_is_refused_and_leaves_nothing(cluster, changes, told):
    with pytest.raises(Misconfigured, match=told):
        cluster.deployments.launch(cluster.plan(**changes))
    assert cluster.server.all("Deployment") == cluster.server.all("Secret") == []


@pytest.mark.parametrize(
    ("amounts", "left"),
    [
        ({"hard": {"pods": "4", "requests.cpu": "8"}, "used": {"pods": "2", "requests.cpu": "1"}}, 2),
        ({"hard": {"pods": "3", "requests.storage": "1Pi"}, "used": {"requests.storage": "2Pi"}}, 3),
    ],
)
def test_what_the_quota_cannot_give_is_refused_with_what_is_left(cluster, amounts, left):
    """The driver counts, too; what we do not ask for does not."""
    cluster.api.create("ResourceQuota", {"metadata": {"name": "small", "namespace": "jobs"}})
    cluster.api.patch("ResourceQuota", "jobs", "small", {"status": amounts})
    said = f"quota small of jobs has {left} left of pods, and a driver and 3 executors for orders need 4"
    with pytest.raises(NoRoom, match=said):
        cluster.deployments.launch(cluster.plan(scale_out=3))
    cluster.deployments.launch(cluster.plan(scale_out=left - 1))


def test_a_driver_that_has_never_run_is_starting_and_later_restarting(cluster):
    cluster.deployments.launch(cluster.plan())
    assert cluster.deployments.status("orders").state == "starting"
    failed = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}
    cluster.api.patch("Deployment", "jobs", "orders-driver", {"status": {"conditions": [failed]}})
    assert "exceeded quota: small" in cluster.deployments.status("orders").reason
    came_up = {
        "type": "Progressing",
        "status": "True",
        "reason": "NewReplicaSetAvailable",
        "lastUpdateTime": "2026-11-19T10:00:00Z",
    }
    cluster.api.patch("Deployment", "jobs", "orders-driver", {"status": {"conditions": [came_up]}})
    assert cluster.deployments.status("orders").state == "restarting"


def test_a_launch_that_is_cut_off_is_no_driver_without_files_and_can_be_repeated(cluster):
    cluster.server.faults.append(Fault(403, method="POST", path="/configmaps"))
    with pytest.raises(HeadroomError):
        cluster.deployments.launch(cluster.plan())
    left = cluster.deployment()["spec"]
    assert (left["replicas"], left["paused"]) == (0, True)  # unpaused, the controller calls it complete
    assert cluster.deployments.names() == ()
    cluster.deployments.launch(cluster.plan())
    assert cluster.deployments.names() == ("orders",)
    assert cluster.deployment()["spec"]["paused"] is False


def test_what_others_have_called_alike_is_left_alone(cluster):
    theirs = {"metadata": {"name": "orders-driver", "namespace": "jobs"}}
    for kind in ("ConfigMap", "Secret"):
        cluster.api.create(kind, theirs)
    cluster.deployments.launch(cluster.plan())
    cluster.deployments.forget("orders")
    for kind in ("ConfigMap", "Secret"):
        assert [one["metadata"]["name"] for one in cluster.server.all(kind)] == ["orders-driver"]


def test_a_deployment_that_another_has_made_since_is_not_deleted(cluster):
    cluster.deployments.launch(cluster.plan())
    before = cluster.deployment()
    cluster.api.delete("Deployment", "jobs", "orders-driver")
    cluster.deployments.launch(cluster.plan())
    with pytest.raises(NotReady, match="UID"):
        cluster.deployments._remove(before)
    assert cluster.deployments.names() == ("orders",)


def test_a_key_that_cannot_be_read_is_not_replaced(cluster):
    key = cluster.folder / "driver-tokens.key"
    key.write_text("{}")
    with pytest.raises(Unsafe, match="restore it"):
        Cluster(cluster.server, cluster.folder)
    assert key.read_text() == "{}"


def test_a_job_of_another_owner_is_left_alone(cluster):
    cluster.deployments.launch(cluster.plan())
    cluster.api.patch(
        "Deployment", "jobs", "orders-driver", {"metadata": {"labels": {manifests.OWNER: "bar"}}}
    )
    with pytest.raises(Unsafe, match="belongs to another owner"):
        cluster.deployments.status("orders")


def test_a_plan_that_another_has_damaged_is_an_error_of_this_job_only(cluster):
    for name in ("orders", "clicks"):
        checkpoint = str(cluster.folder / "checkpoints" / name)
        cluster.deployments.launch(plan(name, checkpoint=checkpoint))
    damage = {"metadata": {"annotations": {manifests.PLAN: None}}}
    cluster.api.patch("Deployment", "jobs", "orders-driver", damage)
    assert cluster.deployments.names() == ("clicks", "orders")
    assert cluster.deployments.status("clicks").state == "starting"
    with pytest.raises(Unsafe, match="annotations of the Deployment orders-driver in jobs cannot be read"):
        cluster.deployments.status("orders")


def test_what_runs_of_a_job_that_the_settings_do_not_name_is_known_also_its_copies(cluster):
    copy = {"name": "clicks-p1", "job": "clicks", "role": "profile", "outputs": {"alerts": "scratch"}}
    for changes in ({}, {**copy, "checkpoint": str(cluster.folder / "checkpoints" / "copy")}):
        cluster.deployments.launch(cluster.plan(**changes))
    assert removed(cluster.deployments, {"orders", "clicks"}) == ()
    assert [(one.name, one.role) for one in removed(cluster.deployments, {"orders"})] == [
        ("clicks-p1", "profile")
    ]
    cluster.deployments.stop("orders")
    assert [one.job for one in removed(cluster.deployments, ())] == ["clicks"]


class TestScaling:
    @pytest.fixture
    def running(self, cluster, monkeypatch):
        cluster.deployments.launch(cluster.plan(scale_out=2))
        channel = cluster.drives(monkeypatch)
        yield cluster
        channel.close()

    def test_live_through_the_driver_and_declared_for_its_next_start(self, running):
        done = running.deployments.scale("orders", 3, epoch=1)
        assert (done.path, done.before, done.after) == ("live", 2, 3)
        assert running.wanted == [3]
        status = running.deployments.status("orders")
        assert (status.state, status.declared_scale_out, status.ours) == ("running", 3, True)
        launch = json.loads(running.launch_files()["driver.json"])
        assert launch["plan"]["scale_out"] == 3

    def test_at_rest_it_is_watched_and_not_asked_for(self, running):
        deployments = running.deployments
        with deployments.watching():
            watches = (*deployments._drivers.values(), *deployments._pods_of.values())
            until(lambda: all(one._current for one in watches))
            running.server.requests.clear()
            for _ in range(10):
                assert deployments.status("orders").state == "running"
                assert deployments.plan("orders").scale_out == 2
                assert deployments.names() == ("orders",)
            assert running.server.requests == []
            deployments.scale("orders", 3, epoch=1)
            assert deployments.status("orders").declared_scale_out == 3

    def test_an_older_epoch_is_unsafe(self, running):
        running.deployments.scale("orders", 3, epoch=5)
        with pytest.raises(Unsafe, match="epoch 4 is older than 5"):
            running.deployments.scale("orders", 2, epoch=4)
        assert running.wanted == [3]

    @pytest.mark.parametrize(
        "edit",
        [
            {"metadata": {"annotations": {manifests.SCALE_OUT: "6"}}},
            {"metadata": {"annotations": {manifests.EPOCH: "99"}}},
            {"spec": {"replicas": 2}},
            {"metadata": {"annotations": {manifests.MARK: "stopped"}}},
        ],
        ids=["the size", "the epoch", "two drivers", "started although stopped"],
    )
    def test_an_edit_by_another_is_noticed(self, running, edit):
        running.api.patch("Deployment", "jobs", "orders-driver", edit)
        assert running.deployments.status("orders").ours is False

    def test_an_epoch_that_is_no_number_is_named_with_the_fix(self, running):
        edit = {"metadata": {"annotations": {manifests.EPOCH: "soon"}}}
        running.api.patch("Deployment", "jobs", "orders-driver", edit)
        for act in (
            lambda: running.deployments.status("orders"),
            lambda: running.deployments.scale("orders", 3, epoch=1),
        ):
            with pytest.raises(Unsafe, match=r"headroom.io/epoch of orders-driver in jobs is 'soon'"):
                act()
        assert running.wanted == []

    def test_scaled_to_nothing_by_another_it_is_stopped_and_says_how_to_go_on(self, running):
        running.api.delete("Pod", "jobs", "orders-driver-0")
        running.api.patch("Deployment", "jobs", "orders-driver", {"spec": {"replicas": 0}})
        status = running.deployments.status("orders")
        assert (status.state, status.ours) == ("stopped", False)
        assert "kubectl scale" in status.reason

    def test_executors_that_a_quota_keeps_away_are_explained(self, running):
        labels = {**running.deployment()["metadata"]["labels"], manifests.ROLE: "executor"}
        running.api.create("Pod", {"metadata": {"name": "exec-1", "namespace": "jobs", "labels": labels}})
        running.deployments.scale("orders", 3, epoch=1)
        running.alive = 1
        running.api.create("ResourceQuota", {"metadata": {"name": "small", "namespace": "jobs"}})
        left = {"hard": {"pods": "2"}, "used": {"pods": "2"}}
        running.api.patch("ResourceQuota", "jobs", "small", {"status": left})
        ready = {"containerStatuses": [{"image": "job", "state": {"running": {}}}]}
        running.api.patch("Pod", "jobs", "exec-1", {"status": ready})
        assert running.deployments.status("orders").reason == (
            "2 executors are missing: the quota small of jobs has 0 left of pods, and starting them needs 2"
        )

    def test_without_the_lease_nothing_is_changed(self, running):
        def lost():
            raise Unsafe("the Lease was taken over")

        running.deployments._check_lease = lost
        with pytest.raises(Unsafe, match="Lease"):
            running.deployments.scale("orders", 3, epoch=1)
        assert running.wanted == []

    @pytest.mark.parametrize("path", ["live", "restart"])
    def test_a_lease_that_is_lost_while_applying_leaves_what_was_declared(self, running, path):
        checks = iter([None, Unsafe("the Lease was taken over")])

        def check():
            if (error := next(checks)) is not None:
                raise error

        running.deployments._check_lease = check
        before = running.deployment()
        with pytest.raises(Unsafe, match="Lease"):
            running.deployments.scale("orders", 3, epoch=1, path=path)
        assert running.wanted == []
        assert running.deployment() == before
        next_owner = Cluster(running.server, running.folder).deployments
        next_owner.scale("orders", 1, epoch=2)
        running.deployments._check_lease = lambda: None  # it believes again to be the owner
        with pytest.raises(Unsafe, match="epoch 1 is older than 2"):
            running.deployments.scale("orders", 3, epoch=1, path=path)
        assert running.wanted == [1]

    def test_a_driver_is_not_made_for_an_owner_that_has_lost_the_lease_in_a_launch(self, running):
        running.api.delete("Pod", "jobs", "orders-driver-0")
        running.deployments.stop("orders")
        checks = iter([None, None, Unsafe("the Lease was taken over")])

        def check():
            if (error := next(checks)) is not None:
                raise error

        running.deployments._check_lease = check
        with pytest.raises(Unsafe, match="Lease"):
            running.deployments.launch(running.plan())
        assert running.server.all("Deployment") == []

    def test_a_restart_that_was_cut_off_is_finished_by_whoever_is_asked_next(self, running):
        def ends(patience):
            raise NotReady("the owner ends here")

        running.deployments._await_end = ends
        with pytest.raises(NotReady, match="ends here"):
            running.deployments.scale("orders", 3, epoch=7, path="restart")
        next_owner = Cluster(running.server, running.folder).deployments
        status = next_owner.status("orders")
        assert (status.state, status.declared_scale_out, status.ours) == ("restarting", 3, True)
        assert next_owner.names() == ("orders",)
        running.api.delete("Pod", "jobs", "orders-driver-0")
        next_owner._await_executors = lambda name, scale_out: None
        done = next_owner.scale("orders", 3, epoch=7)
        assert (done.path, done.after) == ("restart", 3)
        assert running.deployment()["spec"]["replicas"] == 1
        assert next_owner.status("orders").ours is True

    def test_a_driver_on_a_node_that_is_gone_does_not_keep_a_restart_from_its_end(self, running):
        lost = running.server.find("Pod", "jobs", "orders-driver-0")
        running.api.delete("Pod", "jobs", "orders-driver-0")
        lost["metadata"]["deletionTimestamp"] = (
            "2026-11-19T10:00:00Z"  # and no kubelet says that it has ended
        )
        running.api.create("Pod", lost)
        running.deployments._await_executors = lambda name, scale_out: None
        assert running.deployments.scale("orders", 3, epoch=1, path="restart").path == "restart"
        assert running.deployment()["spec"]["replicas"] == 1

    def test_what_sends_its_records_does_not_keep_it_from_ending(self, running):
        labels = {**running.deployment()["metadata"]["labels"], manifests.ROLE: "replay"}
        running.api.create("Pod", {"metadata": {"name": "replay", "namespace": "jobs", "labels": labels}})
        running.api.delete("Pod", "jobs", "orders-driver-0")
        running.deployments.stop("orders")
        assert running.deployments.status("orders").state == "stopped"

    def test_a_driver_that_is_silent_is_neither_scaled_nor_declared(self, running, monkeypatch):
        monkeypatch.setattr(manifests, "CONTROL_PORT", 1)
        with pytest.raises(NotReady):
            running.deployments.scale("orders", 3, epoch=1)
        status = running.deployments.status("orders")
        assert (status.state, status.declared_scale_out) == ("starting", 2)
        assert isinstance(status.executors_alive, Unknown)


def test_a_stopped_job_is_known_and_can_be_launched_again(cluster):
    cluster.deployments.launch(cluster.plan())
    cluster.deployments.stop("orders")
    assert cluster.deployment()["spec"]["replicas"] == 0
    assert cluster.deployments.names() == ()
    assert cluster.deployments.status("orders").state == "stopped"
    assert cluster.deployments.status("orders").ours is True
    cluster.deployments.stop("orders")
    cluster.deployments.launch(cluster.plan(scale_out=1))
    assert cluster.deployments.names() == ("orders",)
    cluster.deployments.forget("orders")
    with pytest.raises(Misconfigured, match="there is no 'orders'"):
        cluster.deployments.plan("orders")
