"""Failures through Chaos Mesh, on an API server and a controller in this process; nothing waits for real."""

import json
import threading
import time

import pytest
from api_server import HANGS, ApiServer, Fault
from chaos_controller import ChaosController
from failures_suite import *  # noqa: F403
from failures_suite import COPY, objects
from pause_pods import PausePods

from models.errors import Misconfigured, NotReady, Unsafe
from pipelines.environments.kubernetes.failures import KubernetesFailures
from pipelines.integrations.kubernetes_api import Forbidden
from pipelines.settings.schema import KubernetesSettings
from profiling_jobs import chaos

pytestmark = pytest.mark.fast

SETTINGS = KubernetesSettings(namespace="jobs", copies_namespace="copies")


class Place:
    """Time passes, and the controller looks, whenever the adapter sleeps."""

    copies = "copies"

    def __init__(self, server):
        self.server = server
        self.now_s = time.time()
        self.api = server.connect(clock=lambda: self.now_s, sleep=self.sleep)
        others = server.connect(sleep=lambda seconds: None)
        self.controller = ChaosController(others, "jobs", "copies", clock=lambda: self.now_s)
        self.pods = PausePods(others, owner="me")
        for name in ("orders", COPY):
            self.pods.make(name)

    def sleep(self, seconds):
        self.now_s += seconds
        self.controller.step()

    def until(self, condition):
        for _ in range(50):
            if condition():
                return
            self.sleep(0.2)
        raise AssertionError("it did not come true within 10 s")

    def failures(self, owner="me", settings=SETTINGS, **more):
        how = {"network_timeout_s": 20.0, "clock": lambda: self.now_s, "sleep": self.sleep, **more}
        return KubernetesFailures(self.api, self.pods, settings, owner=owner, **how)


@pytest.fixture
def place():
    with ApiServer() as server:
        yield Place(server)


def test_a_failure_ends_by_itself_when_nobody_clears_it(place):
    injection = place.failures().inject(COPY, "pod_failure")
    place.sleep(chaos.SHORT_S + 1.0)
    [found] = objects(place)
    assert chaos.outcome(found, waited_s=61.0).state == "recovered"
    pod = place.api.get("Pod", "copies", f"{COPY}-executor-1")
    assert "pod-failure" not in str(pod["metadata"].get("annotations", {}))
    assert place.failures().left_over() == (injection,)  # its object is still there


def test_a_kill_is_recorded_when_the_pods_were_hit_and_stays_injected_after_its_duration(
    place,
):
    before_s = place.now_s
    injection = place.failures().inject(COPY, "executor_kill")
    assert before_s <= injection.at_s <= place.now_s
    place.sleep(chaos.SHORT_S + 1.0)
    assert chaos.outcome(objects(place)[0], waited_s=61.0).state == "injected"


def test_evaluations_ask_the_cluster_only_while_a_failure_may_be_there(place):
    failures = place.failures()
    for _ in range(2):
        assert failures.active() == ()
        place.server.requests.clear()
        assert failures.active() == ()
        assert place.server.requests == []
        injection = failures.inject(COPY, "network_delay")
        assert failures.active() == (injection,)
        failures.clear(injection.id)


def test_an_evaluation_before_the_object_is_made_hides_nothing_later(place):
    failures = place.failures()
    seen = []
    before = Fault(429, method="POST", then=lambda: seen.append(failures.active()))
    place.server.faults.append(before)
    injection = failures.inject(COPY, "network_delay")
    assert seen == [()]
    assert failures.active() == (injection,)
    failures.clear(injection.id)


def test_what_is_created_late_is_found_by_the_next_drill(place):
    failures = place.failures()
    assert failures.active() == ()
    late = place.failures().inject(COPY, "network_delay")  # as by a request that hung, and was given up
    assert failures.left_over() == (late,)
    failures.clear(late.id)


def test_a_live_job_is_hit_where_that_is_allowed(place):
    failures = place.failures(live_drills=lambda job: job == "orders")
    injection = failures.inject("orders", "executor_kill")
    place.until(lambda: len(place.pods.names("orders")) == 2)
    assert len(place.pods.names(COPY)) == 3
    failures.clear(injection.id)


def test_without_the_right_to_drill_live_jobs_copies_are_drilled(place):
    place.controller._namespaces = ("copies",)
    place.server.faults.append(
        Fault(403, path="namespaces/jobs", times=1000, message="podchaos is forbidden")
    )
    failures = place.failures()
    injection = failures.inject(COPY, "network_delay")
    assert failures.active() == (injection,)
    failures.clear(injection.id)
    place.server.faults[:] = [Fault(403, path="namespaces/copies", message="podchaos is forbidden")]
    with pytest.raises(Forbidden, match="headroom doctor"):
        failures.active()


def test_a_freeze_lasts_longer_than_the_network_timeout(place):
    place.failures(network_timeout_s=120.0).inject(COPY, "executor_freeze")
    assert objects(place)[0]["spec"]["duration"] == "360s"


def test_a_failure_that_cannot_be_applied_times_out_with_the_reason(place):
    place.controller.broken = "unable to flush ip sets"
    with pytest.raises(NotReady, match=r"within 30 s: unable to flush ip sets.*kubectl -n copies describe"):
        place.failures().inject(COPY, "network_loss")
    place.until(lambda: not objects(place))
    place.controller._namespaces = ()
    with pytest.raises(NotReady, match="no controller of Chaos Mesh has touched it"):
        place.failures().inject(COPY, "executor_kill")
    assert objects(place) == []


def test_an_owner_that_loses_its_lease_causes_nothing_and_leaves_the_rest_to_the_next(place):
    lost = []

    def check_lease():
        if lost:
            raise Unsafe("the Lease was taken over")

    executors = place.pods.executor_pods

    def lost_meanwhile(name):
        lost.append(name)
        return executors(name)

    with place.failures(check_lease=check_lease) as failures:
        injection = failures.inject(COPY, "network_delay")
        place.pods.executor_pods = lost_meanwhile
        with pytest.raises(Unsafe, match="Lease"):
            failures.inject(COPY, "executor_kill")
    assert len(place.pods.names(COPY)) == 3
    assert place.failures().left_over() == (injection,)


def test_an_object_that_is_held_is_reported_with_the_command_that_helps(place):
    failures = place.failures()
    injection = failures.inject(COPY, "network_delay")
    place.controller.stuck = True
    with pytest.raises(NotReady, match=r"held by chaos-mesh/records.*cleanFinalizer=forced"):
        failures.clear(injection.id)
    assert failures.left_over() == (injection,)
    assert objects(place)[0]["metadata"]["finalizers"] == [chaos.FINALIZER]  # not ours to remove
    place.controller.stuck = False
    failures.clear(injection.id)
    assert objects(place) == []


POOL = {"pool": "drills"}
WITH_POOL = SETTINGS.model_copy(update={"drill_node_selector": POOL})


def placed(place, driver, *executors, selector=POOL):
    """The pods of the copy on these nodes."""
    names = [f"{COPY}-driver-0", *(f"{COPY}-executor-{number + 1}" for number in range(len(executors)))]
    for name, node in zip(names, (driver, *executors), strict=True):
        changes = {"spec": {"nodeName": node, "nodeSelector": selector}}
        place.api.patch("Pod", "copies", name, changes)


def test_the_loss_of_a_node_silences_every_executor_on_it_and_nothing_else(place):
    place.pods.start(COPY, "executor", 3)
    placed(place, "a", "a", "b", "b")
    failures = place.failures(settings=WITH_POOL)
    assert "node_loss" in failures.kinds()
    injection = failures.inject(COPY, "node_loss")
    [found] = objects(place)
    assert found["kind"] == "NetworkChaos"
    assert (found["spec"]["action"], found["spec"]["mode"]) == ("partition", "all")
    assert found["spec"]["selector"]["pods"] == {"copies": [f"{COPY}-executor-2", f"{COPY}-executor-3"]}
    assert "target" not in found["spec"]
    failures.clear(injection.id)
    assert objects(place) == []


def test_no_node_is_lost_where_none_is_declared_for_it(place):
    placed(place, "a", "b", "b")
    failures = place.failures()
    assert "node_loss" not in failures.kinds()
    with pytest.raises(Misconfigured, match=r"kubernetes\.drill_node_selector: 'node_loss' needs a pool"):
        failures.inject(COPY, "node_loss")
    assert objects(place) == []


@pytest.mark.parametrize(
    ("nodes", "selector", "refused", "said"),
    [
        ("abb", {"pool": "live"}, Unsafe, r"may run outside the nodes of kubernetes\.drill_node_selector"),
        ("aaa", POOL, NotReady, "on the node of its driver, a, .* second node of the pool"),
    ],
)
def test_no_node_is_lost_outside_the_pool_or_with_the_driver(place, nodes, selector, refused, said):
    placed(place, *nodes, selector=selector)
    with pytest.raises(refused, match=said):
        place.failures(settings=WITH_POOL).inject(COPY, "node_loss")
    assert objects(place) == []


@pytest.mark.parametrize("missing", [chaos.CHAOS_KINDS, ("PodChaos",)])
def test_a_cluster_without_chaos_mesh_is_told_how_to_get_it(missing):
    with ApiServer(missing=missing) as server:
        place = Place.__new__(Place)
        place.server, place.now_s, place.api = server, time.time(), server.connect()
        place.pods = PausePods(place.api, owner="me")
        place.pods.make(COPY)
        failures = place.failures()
        with pytest.raises(Misconfigured, match=r"PodChaos of chaos-mesh.org/v1alpha1.*helm install"):
            failures.inject(COPY, "executor_kill")
        assert failures.active() == failures.left_over() == failures.clear_all() == ()


def test_a_busy_api_server_delays_a_clear_and_no_more(place):
    failures = place.failures()
    injection = failures.inject(COPY, "network_delay")
    place.server.faults += [Fault(status, times=3) for status in (429, 500, 503)]
    failures.clear(injection.id)
    assert objects(place) == []


def test_a_creation_that_is_refused_or_whose_answer_is_lost_leaves_no_object(place):
    terminating = "podchaos is forbidden: namespace copies may not grow because it is being terminated"
    for fault, said in (
        (Fault(500, method="POST", done=True), "answered 500"),
        (Fault(500, method="POST"), "answered 500"),
        (Fault(403, method="POST", message=terminating), "being terminated"),
    ):
        place.server.faults.append(fault)
        with pytest.raises(NotReady, match=said):
            place.failures().inject(COPY, "executor_kill")
        assert objects(place) == []
        assert len(place.pods.names(COPY)) == 3
        assert place.failures().active() == ()


def test_a_failure_that_cannot_be_recorded_is_undone(place):
    def sleep(seconds):
        place.sleep(seconds)
        if any(chaos.outcome(one, waited_s=1.0).state == "injected" for one in objects(place)):
            place.server.faults.append(Fault(500, method="PATCH"))

    failures = place.failures(sleep=sleep)
    with pytest.raises(NotReady, match="answered 500"):
        failures.inject(COPY, "network_delay")
    place.until(lambda: not objects(place))
    assert failures.active() == ()


def test_an_object_that_another_deletes_is_not_waited_for(place):
    def deleted(seconds):
        for found in objects(place):
            place.controller._api.delete("NetworkChaos", "copies", found["metadata"]["name"])
        place.sleep(seconds)

    failures = place.failures(sleep=deleted)
    with pytest.raises(NotReady, match="was deleted by another"):
        failures.inject(COPY, "network_delay")
    assert failures.active() == ()


def test_an_api_server_that_goes_away_while_it_is_injected_is_waited_for(place):
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 4:
            place.server.back()
        if len(pauses) > 4:
            place.controller.step()
        place.now_s += seconds

    place.api._sleep = sleep
    away = threading.Thread(target=place.server.away)
    place.server.faults.append(Fault(HANGS, method="GET", path="executor-kill", then=away.start))
    failures = place.failures()
    injection = failures.inject(COPY, "executor_kill")
    failures.clear(injection.id)
    assert objects(place) == []


def test_a_damaged_record_stops_nobody(place):
    failures = place.failures()
    injection = failures.inject(COPY, "network_delay")
    [found] = objects(place)
    changes = {"metadata": {"annotations": {chaos.INJECTION: "{"}}}
    place.api.patch("NetworkChaos", "copies", found["metadata"]["name"], changes)
    assert failures.active() == ()
    changes["metadata"]["annotations"] = {chaos.INJECTION: json.dumps(injection.__dict__)}
    place.api.patch("NetworkChaos", "copies", found["metadata"]["name"], changes)
    assert failures.clear_all() == (injection,)
