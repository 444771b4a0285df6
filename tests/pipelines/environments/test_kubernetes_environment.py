"""The environment of a cluster as a whole: what it says as it opens, on the tests' own API server."""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
from api_server import ApiServer
from stand_ins import plan

from models.errors import HeadroomError, NotReady, Unsafe
from models.quantities import Unknown
from pipelines.environments import base
from pipelines.environments.kubernetes.manifests import COPY, OWNER, ROLE, Volume, owner_label
from pipelines.environments.kubernetes.tasks import PodTask, stop_tasks
from pipelines.integrations import kafka_broker
from pipelines.integrations.kubernetes_api import KubernetesApi
from pipelines.processes.owner import owner_id
from pipelines.settings import loading
from profiling_jobs.brokers import Brokers

TOML = """
[deployment]
kind = "kubernetes"
[kubernetes]
own_namespace = "headroom"
namespace = "jobs"
copies_namespace = "copies"
[brokers]
bootstrap = "kafka:9092"
[job.theirs]
spark_application = "theirs-app"
checkpoint = "/theirs"
inputs = {events = "theirs"}
"""
OURS = '[job.orders]\nbuild = "a:b"\ninputs = {events = "orders-in"}\noutputs = {alerts = "orders-out"}\n'
CLUSTER = loading.parse(TOML, environment={})


@pytest.fixture(autouse=True)
def server(monkeypatch):
    monkeypatch.setattr(kafka_broker, "KafkaBroker", lambda brokers: nullcontext())
    with ApiServer("headroom", "jobs", "copies") as server:
        monkeypatch.setattr(KubernetesApi, "connect", lambda settings, **more: server.connect(**more))
        yield server


def opened(folder, toml, said):
    return base.opened(loading.parse(toml, environment={}), folder, say=said.append)


def replay_of(server, folder, owner, **more):
    return task_of(server, folder, owner, "replay.orders-p1", **more)


def task_of(server, folder, owner, role, **more):
    return PodTask(
        server.connect(),
        role,
        owner=owner,
        volume=Volume(folder),
        settings=CLUSTER.kubernetes.model_copy(update={"pending_s": 0.01}),
        spark=CLUSTER.spark,
        **more,
    )


def test_a_job_that_was_taken_out_of_the_settings_is_named_and_its_copies_are_known(tmp_path):
    said = []
    checkpoints = tmp_path / "checkpoints"
    with opened(tmp_path, TOML + OURS, said) as environment:
        environment.deployments.launch(plan("orders", checkpoint=str(checkpoints / "orders")))
        copy = plan("orders-p1", checkpoint=str(checkpoints / "orders-p1"))
        outputs = {"alerts": "scratch-out"}
        environment.deployments.launch(replace(copy, job="orders", role="profile", outputs=outputs))
    assert not any("any more" in line for line in said)
    said.clear()
    with opened(tmp_path, TOML, said) as environment:
        assert environment.removed_jobs == ("orders",)
        assert "orders" in environment.deployments.names()
    assert [line for line in said if "any more" in line] == [
        "orders is not in headroom.toml any more, and still runs: Kubernetes keeps it running; `headroom "
        "stop orders` ends it"
    ]


def test_what_the_driver_of_another_system_reports_is_unknown(tmp_path):
    with opened(tmp_path, TOML, []) as environment:
        assert isinstance(environment.batch_began_s("theirs", 1), Unknown)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "allow_live_drills"),
        ('allow_live_drills = true\nblackouts = ["daily 00:00-24:00"]\n', "until no blackout lasts"),
        ("allow_live_drills = true\n", "does not run"),  # no kubelet runs here
    ],
)
def test_a_live_job_is_hit_only_where_that_is_allowed_and_outside_of_blackouts(tmp_path, more, said):
    with opened(tmp_path, TOML + OURS + more, []) as environment:
        environment.deployments.launch(plan("orders", checkpoint=str(tmp_path / "checkpoints" / "orders")))
        with pytest.raises(HeadroomError, match=said):
            environment.failures.inject("orders", "executor_kill")


def test_nothing_is_created_without_the_label_of_the_owner(tmp_path, server):
    mine = owner_label(owner_id(tmp_path), CLUSTER.kubernetes)
    with opened(tmp_path, TOML + OURS, []) as environment:
        environment.deployments.launch(plan("orders", checkpoint=str(tmp_path / "checkpoints" / "orders")))
        task = replay_of(server, tmp_path, mine)
        with pytest.raises(NotReady, match="was not placed"):  # no kubelet runs here
            task.start("a.module", tmp_path / "file", Brokers("kafka:9092"))
    made = [(kind, one) for _, kind, _, how, _, one in server._history if how == "ADDED"]
    assert {kind for kind, _ in made} == {"Lease", "Deployment", "Secret", "ConfigMap", "Pod"}
    assert {one["metadata"]["labels"].get(OWNER) for _, one in made} == {mine}
    [driver] = [one for kind, one in made if kind == "Deployment"]
    [files] = [one for kind, one in made if kind == "ConfigMap"]
    executor = json.loads(files["data"]["executor.json"])
    for template in (driver["spec"]["template"], executor):
        assert template["metadata"]["labels"][OWNER] == mine


@pytest.mark.parametrize("own", ["events", "click_events", "Größe in cm", "e" * 80])
def test_an_input_may_have_any_name_and_is_recorded_by_a_pod_of_its_own(tmp_path, server, own):
    for name in (own, f"{own}2"):
        task = task_of(server, tmp_path, "me", f"recording.orders.{name}")
        with pytest.raises(NotReady, match="was not placed"):  # no kubelet runs here
            task.start("a.module", tmp_path / "file", Brokers("kafka:9092"))
    made = {one["metadata"]["name"] for _, _, _, how, _, one in server._history if how == "ADDED"}
    assert len(made) == 2
    assert all(len(name) <= 63 and name.startswith("recording-orders") for name in made)


def test_without_the_lease_no_task_is_ended(tmp_path, server):
    def lost():
        raise Unsafe("the Lease was taken over")

    labels = {OWNER: "me", COPY: "orders-p1", ROLE: "replay"}
    about = {"name": "replay-orders-p1", "namespace": "copies", "labels": labels}
    server.connect().create("Pod", {"metadata": about})
    with pytest.raises(Unsafe, match="Lease"):
        replay_of(server, tmp_path, "me", check_lease=lost).stop()
    with pytest.raises(Unsafe, match="Lease"):
        stop_tasks(server.connect(), "orders-p1", owner="me", settings=CLUSTER.kubernetes, check_lease=lost)
    assert len(server.all("Pod")) == 1
    replay_of(server, tmp_path, "me").stop()
    assert server.all("Pod") == []
