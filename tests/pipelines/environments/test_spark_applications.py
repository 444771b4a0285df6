"""Jobs of the Spark operator: rescaled by one patch, followed through the restart, and never fought over.

The API server is the tests' own, the operator a twin of the real one; both step while the adapter sleeps.
"""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from api_server import ApiServer, Fault
from chaos_controller import ChaosController
from crd_schema import problems
from fake_broker import FakeBroker
from spark_operator import SparkOperator
from stand_ins import plan
from waiting import until

from models.errors import HeadroomError, Misconfigured, NoRoom, NotReady, Unsafe
from models.quantities import Unknown
from pipelines.environments.kubernetes import manifests
from pipelines.environments.kubernetes.deployments import KubernetesDeployments
from pipelines.environments.kubernetes.executors import KubernetesExecutors
from pipelines.environments.kubernetes.failures import KubernetesFailures
from pipelines.environments.kubernetes.spark_applications import SparkApplicationDeployments
from pipelines.environments.metrics import JobMetrics
from pipelines.settings.schema import JobSettings, KubernetesSettings, SparkSettings
from profiling_jobs.brokers import Brokers
from tests.contracts import test_deployments_contract as suite

SCHEMA = json.loads((Path(__file__).parents[2] / "doubles" / "spark_application_schema.json").read_text())
SETTINGS = KubernetesSettings(namespace="jobs", copies_namespace="copies")
JOB = JobSettings(
    spark_application="orders-app",
    inputs={"events": "orders"},
    outputs={"alerts": "alerts"},
    checkpoint="/theirs/orders",
    consumer_group="orders-group",
)
TIMEOUT_S = 60.0


class Place:
    """Time passes, and the operator looks, whenever the adapter sleeps."""

    def __init__(self, server, folder):
        self.server = server
        self.folder = folder
        self.api = server.connect(sleep=lambda seconds: None)
        self.operator = SparkOperator(self.api, "jobs")
        self.now_s = 0.0
        self.deployments = self.connected()

    def answered(self, name):
        """As the contract's worlds: this operator answers at once."""
        return self.deployments.status(name)

    def connected(self, owner="f00"):
        ours = KubernetesDeployments(
            self.api,
            Brokers("kafka:9092"),
            owner=owner,
            folder=self.folder,
            settings=SETTINGS,
            spark=SparkSettings(),
            sleep=lambda seconds: None,
        )
        return SparkApplicationDeployments(
            ours,
            self.api,
            {"orders": JOB},
            owner=owner,
            settings=SETTINGS,
            timeout_s=TIMEOUT_S,
            clock=lambda: self.now_s,
            sleep=self.sleep,
        )

    def sleep(self, seconds):
        self.now_s += seconds
        self.operator.step()

    def settle(self, name):
        """Let the operator do what is to be done."""
        for _ in range(10):
            self.operator.step()

    def apply(self, **spec):
        """What its owner does with `kubectl apply`: fields that are not in the manifest stay."""
        if self.server.find("SparkApplication", "jobs", "orders-app") is None:
            whole = {
                "type": "Python",
                "mode": "cluster",
                "image": "job:1",
                "mainApplicationFile": "local:///app/job.py",
                "sparkVersion": "4.0.0",
                "restartPolicy": {"type": "Always"},
                "driver": {"cores": 1, "memory": "1g"},
                "executor": {"cores": 1, "memory": "1g", "instances": 2},
            }
            about = {"name": "orders-app", "namespace": "jobs"}
            self.api.create("SparkApplication", {"metadata": about, "spec": whole})
        if spec:
            self.api.patch("SparkApplication", "jobs", "orders-app", {"spec": spec})

    def edit(self, **spec):
        """The same, and the operator does what is to be done."""
        self.apply(**spec)
        self.settle("orders")

    def application(self):
        return self.server.find("SparkApplication", "jobs", "orders-app")

    def status(self):
        return self.deployments.status("orders")


@pytest.fixture
def world(tmp_path):
    with ApiServer("jobs", "copies") as server:
        yield Place(server, tmp_path)


@pytest.fixture
def settled(world):
    """One that runs with two executors, as its owner has set it."""
    world.edit()
    world.operator.states.clear()
    return "orders"


class TestContract:
    """What the contract says of every deployment, but for what needs a live rescale."""

    test_epochs = suite.TestScaling.test_an_older_epoch_is_unsafe_and_the_same_one_a_retry
    test_names = suite.TestLaunching.test_an_unknown_name_is_misconfigured

    @pytest.mark.parametrize(("size", "setting"), [(0, "scale_out"), (-1, "scale_out")])
    def test_sizes(self, world, settled, size, setting):
        suite.TestScaling().test_a_size_that_cannot_be_is_refused_with_the_setting(
            world, settled, size, setting
        )


class TestScaling:
    @pytest.mark.parametrize("path", ["live", "restart"])
    def test_the_operator_restarts_it_with_what_was_asked_for_once(self, world, settled, path):
        run_id = world.status().run_id
        done = world.deployments.scale("orders", 4, epoch=7, path=path)
        assert (done.path, done.before, done.after) == ("restart", 2, 4)
        assert world.operator.states == ["INVALIDATING", "PENDING_RERUN", "SUBMITTED", "RUNNING"]
        status = world.status()
        assert (status.state, status.declared_scale_out, status.executors_alive) == ("running", 4, 4)
        assert status.ours is True
        assert status.run_id != run_id
        again = world.deployments.scale("orders", 4, epoch=7, path=path)
        assert (again.before, again.after) == (4, 4)
        assert world.status().run_id == status.run_id

    def test_one_patch_says_everything_and_the_object_stays_valid(self, world, settled):
        before = len(world.server.requests)
        world.deployments.scale("orders", 3, epoch=7)
        patches = [one for one in world.server.requests[before:] if one[0] == "PATCH" and "spark" in one[1]]
        assert len(patches) - len(world.operator.states) == 1  # the others are the operator's
        found = world.application()
        assert problems(found["spec"], SCHEMA["spec"], "spec") == []
        assert problems(found["status"], SCHEMA["status"], "status") == []
        notes = found["metadata"]["annotations"]
        assert (notes[manifests.SCALE_OUT], notes[manifests.EPOCH]) == ("3", "7")
        assert found["metadata"].get("labels", {}) == {}, "`headroom cleanup` must not find it"

    def test_the_same_size_with_a_new_epoch_restarts_nothing(self, world, settled):
        run_id = world.status().run_id
        world.deployments.scale("orders", 2, epoch=3)
        world.settle("orders")
        assert (world.status().run_id, world.status().ours) == (run_id, True)
        assert world.operator.states == []

    def test_a_change_that_was_cut_off_is_only_waited_for(self, world, settled):
        world.server.faults.append(Fault(500, method="PATCH", path="orders-app", done=True))
        with pytest.raises(NotReady, match="answered 500"):
            world.deployments.scale("orders", 4, epoch=7)
        assert world.status().state == "restarting"
        assert world.deployments.scale("orders", 4, epoch=7).after == 4
        assert world.operator.states.count("INVALIDATING") == 1

    def test_what_the_operator_writes_meanwhile_is_no_conflict(self, world, settled):
        def heartbeat():
            world.api.patch("SparkApplication", "jobs", "orders-app", {"status": {"executorState": {}}})

        _before_the_patch(world, heartbeat)
        assert world.deployments.scale("orders", 4, epoch=7).after == 4

    @pytest.mark.parametrize("edit", [{"executor": {"instances": 6}}, {"image": "job:2"}])
    def test_a_change_by_another_in_between_is_left_to_the_other(self, world, settled, edit):
        _before_the_patch(world, lambda: world.apply(**edit))
        with pytest.raises(NotReady, match="orders-app was changed by another at the same time"):
            world.deployments.scale("orders", 4, epoch=7)
        assert world.application()["spec"]["executor"]["instances"] != 4
        assert "annotations" not in world.application()["metadata"]

    @pytest.mark.parametrize(
        ("edit", "said"),
        [
            ({"dynamicAllocation": {"enabled": True}}, "dynamic allocation"),
            ({"sparkConf": {"spark.dynamicAllocation.enabled": "true"}}, "dynamic allocation"),
            ({"executor": {"instances": None}}, "spec.executor.instances is not set"),
        ],
    )
    def test_a_size_that_is_not_ours_to_set(self, world, settled, edit, said):
        world.edit(**edit)
        assert said in world.status().declared_scale_out.reason
        with pytest.raises(Misconfigured, match=rf"job\.orders\.spark_application: .*{said}"):
            world.deployments.scale("orders", 4, epoch=7)

    def test_without_the_lease_nothing_is_changed(self, world, settled):
        def lost():
            raise Unsafe("the Lease was taken over")

        world.deployments._check_lease = lost
        with pytest.raises(Unsafe, match="Lease"):
            world.deployments.scale("orders", 4, epoch=7)
        assert world.application()["spec"]["executor"]["instances"] == 2

    def test_executors_without_room_are_named_when_the_time_is_over(self, world, settled):
        world.operator.room = 3
        with pytest.raises(NotReady, match=r"4 executors, but it is running with 3 after 60 s.*exec-4 waits"):
            world.deployments.scale("orders", 4, epoch=7)
        status = world.status()
        assert (status.declared_scale_out, status.executors_alive, status.ours) == (4, 3, True)
        assert "Insufficient cpu" in status.reason

    def test_an_operator_that_is_away_is_named_and_the_way_back_needs_none(self, world, settled):
        world.operator.away = True
        with pytest.raises(NotReady, match=r"restarting with 2 .*has not restarted it yet .* describe spark"):
            world.deployments.scale("orders", 4, epoch=7)
        assert world.deployments.scale("orders", 2, epoch=8).after == 2
        assert world.status().state == "running"

    def test_a_submission_that_fails_is_told_in_the_operator_s_words(self, world, settled):
        world.edit(restartPolicy={"type": "Never"})
        world.operator.submission_error = "failed to run spark-submit: forbidden"
        with pytest.raises(NotReady, match=r"orders did not come back: .*FAILED: failed to run spark-submit"):
            world.deployments.scale("orders", 4, epoch=7)
        with pytest.raises(NotReady, match=r"does not run .*, so it is not rescaled"):
            world.deployments.scale("orders", 4, epoch=7)

    @pytest.mark.parametrize(("size", "fits"), [(4, True), (5, False)])
    def test_a_size_that_the_quota_cannot_give_is_refused_before_anything_restarts(
        self, world, settled, size, fits
    ):
        for pod in world.server.all("Pod"):
            container = {"name": "spark", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
            changes = {"spec": {"containers": [container]}}
            world.api.patch("Pod", "jobs", pod["metadata"]["name"], changes)
        quota(world.api, hard={"requests.cpu": "5", "pods": "9"}, used={"requests.cpu": "3", "pods": "3"})
        if fits:
            assert world.deployments.scale("orders", size, epoch=7).after == size
            return
        with pytest.raises(NoRoom, match=r"quota small of jobs has 2 left of requests.cpu, and 5 executors "):
            world.deployments.scale("orders", size, epoch=7)
        assert world.operator.states == []
        assert world.deployments.scale("orders", 1, epoch=8).after == 1

    def test_a_quota_that_may_not_be_seen_is_left_to_the_pods(self, world, settled):
        quota(world.api, hard={"pods": "3"}, used={"pods": "3"})
        world.server.faults.append(Fault(403, path="/resourcequotas", times=99))
        assert world.deployments.scale("orders", 4, epoch=7).after == 4


class TestDrills:
    """Failures of the live job, by what the operator's pods carry."""

    @staticmethod
    def failures(world):
        controller = ChaosController(world.api, "jobs", "copies", clock=lambda: world.now_s)

        def sleep(seconds):
            world.now_s += seconds
            controller.step()

        how = {"clock": lambda: world.now_s, "sleep": sleep, "live_drills": lambda job: True}
        world.now_s = time.time()
        return KubernetesFailures(
            world.api, world.deployments, SETTINGS, owner="f00", network_timeout_s=20.0, **how
        )

    def test_one_executor_of_the_run_is_killed_and_nothing_else(self, world, settled):
        left = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "gone"}
        about = {"name": "an-old-exec", "namespace": "jobs", "ownerReferences": [left]}
        labels = {"sparkoperator.k8s.io/app-name": "orders-app", "spark-role": "executor"}
        world.api.create("Pod", {"metadata": {**about, "labels": labels}})
        world.operator._run("an-old-exec")
        assert world.status().executors_alive == 2
        oldest = world.deployments.executor_pods("orders")[0]["metadata"]["name"]
        before = {one["metadata"]["name"] for one in world.server.all("Pod")}
        failures = self.failures(world)
        injection = failures.inject("orders", "executor_kill")
        assert injection.victim == f"pod {oldest}"
        (made,) = world.server.all("PodChaos")
        assert made["metadata"]["labels"][manifests.OWNER] == "f00"
        assert made["spec"]["selector"]["labelSelectors"] == {"sparkoperator.k8s.io/app-name": "orders-app"}
        assert {one["metadata"]["name"] for one in world.server.all("Pod")} == before - {oldest}
        assert failures.active() == (injection,)
        failures.clear(injection.id)
        assert world.server.all("PodChaos") == []

    @pytest.mark.parametrize(("timeout", "duration"), [(None, "360s"), ("30s", "90s"), ("soon", "360s")])
    def test_a_freeze_outlasts_the_time_out_of_its_own_configuration(self, world, settled, timeout, duration):
        if timeout is not None:
            world.edit(sparkConf={"spark.network.timeout": timeout})
        self.failures(world).inject("orders", "executor_freeze")
        (made,) = world.server.all("NetworkChaos")
        assert made["spec"]["duration"] == duration

    def test_one_that_is_not_there_is_not_ready(self, world):
        with pytest.raises(NotReady, match="there is no SparkApplication"):
            self.failures(world).inject("orders", "executor_kill")


class TestStatus:
    def test_from_its_submission_on(self, world):
        world.apply()
        seen = []
        for _ in range(5):
            status = world.status()
            seen.append((status.state, status.executors_alive))
            world.operator.step()
        assert seen[0] == ("starting", 0)
        assert seen[-1] == ("running", 2)
        assert {state for state, _ in seen} == {"starting", "running"}

    def test_a_size_of_its_owner_is_not_ours(self, world, settled):
        assert (world.status().ours, world.status().reason) == (False, "")

    def test_a_size_that_gitops_has_put_back_is_noticed_and_said(self, world, settled):
        world.deployments.scale("orders", 4, epoch=7)
        world.edit(executor={"instances": 3})
        status = world.status()
        assert (status.declared_scale_out, status.ours) == (3, False)
        assert status.reason == "spec.executor.instances was set to 3 by another; ours was 4"

    def test_a_size_that_another_owner_has_set_is_not_ours(self, world, settled):
        world.connected("bar").scale("orders", 4, epoch=7)
        assert world.status().ours is False

    def test_a_killed_executor_leaves_the_size_ours(self, world, settled):
        world.deployments.scale("orders", 3, epoch=7)
        executor = next(one for one in world.server.all("Pod") if "-exec-" in one["metadata"]["name"])
        world.api.delete("Pod", "jobs", executor["metadata"]["name"])
        status = world.status()
        assert (status.state, status.executors_alive, status.ours) == ("running", 2, True)

    def test_a_driver_that_dies_is_the_operator_s_to_start_again(self, world, settled):
        run_id = world.status().run_id
        world.api.delete("Pod", "jobs", "orders-app-driver")
        status = world.status()
        assert (status.state, status.executors_alive) == ("restarting", 0)
        assert isinstance(status.run_id, Unknown)
        world.operator.step()
        assert "FAILING: driver pod not found" in world.status().reason
        world.settle("orders")
        assert world.status().state == "running"
        assert world.status().run_id != run_id

    def test_one_that_has_failed_for_good_says_why_and_is_not_ours_to_start(self, world, settled):
        world.edit(restartPolicy={"type": "Never"})
        world.api.patch("Pod", "jobs", "orders-app-driver", {"status": {"phase": "Failed"}})
        world.settle("orders")
        status = world.status()
        assert (status.state, status.elsewhere) == ("failed", True)
        assert status.reason == ("the Spark operator says FAILED: driver container failed with ExitCode: 1")

    def test_a_suspended_one_is_stopped(self, world, settled):
        world.edit(suspend=True)
        assert (world.status().state, world.status().executors_alive) == ("stopped", 0)

    def test_an_image_that_cannot_be_pulled_is_named_with_the_setting_of_the_object(self, world):
        world.apply()
        world.operator.step()
        waits = {"image": "job:9", "state": {"waiting": {"reason": "ErrImagePull"}}}
        pending = {"phase": "Pending", "containerStatuses": [waits]}
        world.api.patch("Pod", "jobs", "orders-app-driver", {"status": pending})
        assert "the image job:9 cannot be pulled: check spec.image" in world.status().reason

    def test_one_that_is_not_there_is_stopped_and_says_what_to_do(self, world):
        status = world.status()
        assert (status.state, status.executors_alive) == ("stopped", 0)
        assert "there is no SparkApplication orders-app in jobs: `kubectl apply` it" in status.reason
        with pytest.raises(NotReady, match="there is no SparkApplication orders-app"):
            world.deployments.scale("orders", 2, epoch=1)


class TestBesideOurs:
    def test_it_is_neither_started_nor_stopped_here(self, world, settled):
        with pytest.raises(Unsafe, match="not started here: `kubectl apply` its manifest"):
            world.deployments.launch(plan("orders"))
        with pytest.raises(Unsafe, match="not stopped here: `kubectl delete sparkapplication orders-app`"):
            world.deployments.stop("orders")
        assert world.status().state == "running"

    def test_a_copy_keeps_away_from_its_checkpoint_and_outputs(self, world, settled):
        copy = replace(plan("orders-p1", checkpoint="/theirs/orders/inside"), job="orders", role="profile")
        with pytest.raises(Unsafe, match="checkpoint"):
            world.deployments.launch(copy)
        writes = {"checkpoint": str(world.folder / "copy"), "outputs": {"alerts": "alerts"}}
        with pytest.raises(Unsafe, match="outputs"):
            world.deployments.launch(replace(copy, **writes))

    def test_copies_run_as_ours(self, world, settled):
        copy = replace(
            plan("orders-p1", checkpoint=str(world.folder / "checkpoints" / "orders-p1")),
            job="orders",
            role="profile",
            inputs={"events": "scratch-in"},
            outputs={"alerts": "scratch-out"},
        )
        world.deployments.launch(copy)
        assert world.deployments.names() == ("orders", "orders-p1")
        assert world.deployments.plan("orders-p1") == copy
        assert world.deployments.status("orders-p1").declared_scale_out == copy.scale_out
        world.deployments.forget("orders-p1")
        assert world.deployments.names() == ("orders",)

    def test_it_is_measured_as_an_attached_job_and_its_driver_is_seen(self, world, settled):
        query = world.deployments.plan("orders")
        assert (query.checkpoint, dict(query.inputs)) == ("/theirs/orders", {"events": "orders"})
        broker = FakeBroker({"orders": [100]}, **{"orders-group": {("orders", 0): 90}})
        with JobMetrics(broker, world.deployments, KubernetesExecutors(world.deployments)) as metrics:
            sample = metrics.sample("orders")
        assert (sample.committed_source, sample.lag_records) == ("group", 10)
        assert sample.run_id == world.status().run_id

    def test_its_executors_are_known_by_spark_s_number(self, world, settled):
        _, application = world.deployments.page("orders")
        namespace, found = world.deployments.executor_names("orders", application)
        assert (namespace, sorted(found)) == ("jobs", ["1", "2"])
        assert world.server.find("Pod", namespace, found["2"]) is not None
        assert world.deployments.executor_names("orders", "an earlier run") == ("jobs", {})

    def test_at_rest_its_object_is_read_a_few_times_a_minute_and_its_pods_are_watched(self, world, settled):
        with world.deployments.watching():
            until(lambda: world.deployments._pods_of._current)
            world.server.requests.clear()
            for _ in range(15):  # a minute of samples, and an evaluation
                assert world.status().state == "running"
                _, application = world.deployments.page("orders")
                assert len(world.deployments.executor_names("orders", application)[1]) == 2
                world.now_s += 4.0
            assert len(world.server.requests) <= 5
            assert world.deployments.scale("orders", 3, epoch=1).after == 3
            driver = world.deployments.driver_pod("orders")["metadata"]["name"]
            world.api.delete("Pod", "jobs", driver, grace_s=0)
            until(lambda: world.status().state == "restarting")

    def test_its_page_is_that_of_its_driver(self, world, settled):
        submission = world.application()["status"]["submissionID"]
        assert world.deployments.page("orders") == ("http://127.0.0.1:4040", f"spark-{submission}")
        world.edit(sparkConf={"spark.ui.port": "4141"})
        assert world.deployments.page("orders")[0] == "http://127.0.0.1:4141"
        world.edit(suspend=True)
        with pytest.raises(HeadroomError, match="does not run"):
            world.deployments.page("orders")


def quota(api, *, hard, used):
    api.create("ResourceQuota", {"metadata": {"name": "small", "namespace": "jobs"}})
    api.patch("ResourceQuota", "jobs", "small", {"status": {"hard": hard, "used": used}})


def _before_the_patch(world, act):
    """Another writes just before our first patch arrives."""
    patch, once = world.api.patch, [act]

    def patched(kind, namespace, name, changes):
        if "resourceVersion" in changes.get("metadata", {}) and once:
            once.pop()()
        return patch(kind, namespace, name, changes)

    world.api.patch = patched
