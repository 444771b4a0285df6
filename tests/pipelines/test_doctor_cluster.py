"""What `headroom doctor` says of a cluster, on the tests' own API server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_server import ApiServer, Fault
from command import headroom
from web_page import served

from pipelines.command_line.doctor.findings import Finding, Surroundings
from pipelines.command_line.doctor.kubernetes import LEASE, RIGHTS, SPARK_APPLICATION_RIGHTS, cluster
from pipelines.environments.kubernetes import manifests
from pipelines.integrations.kubernetes_api import KubernetesApi
from pipelines.processes.owner import owner_id
from pipelines.settings import loading

BASE = Path(__file__).parents[2] / "deploy" / "kustomize" / "base"
ROLES = BASE / "jobs" / "spark-applications.yaml"
TOML = """
[deployment]
kind = "kubernetes"
[kubernetes]
namespace = "jobs"
copies_namespace = "copies"
[brokers]
bootstrap = "kafka:9092"
[job.orders]
spark_application = "orders-app"
checkpoint = "/theirs/orders"
inputs = {events = "orders"}
"""
APPLICATION = {
    "metadata": {"name": "orders-app", "namespace": "jobs"},
    "spec": {"executor": {"instances": 2}, "restartPolicy": {"type": "Always"}},
}


@pytest.fixture
def server(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with ApiServer("jobs", "copies", missing=getattr(request, "param", ())) as server:
        monkeypatch.setattr(KubernetesApi, "connect", lambda settings, **more: server.connect(**more))
        api = server.connect()
        for namespace in ("jobs", "copies"):
            for account in ("headroom-driver", "headroom-executor"):
                api.create("ServiceAccount", {"metadata": {"name": account, "namespace": namespace}})
            claim = {"metadata": {"name": "headroom-data", "namespace": namespace}}
            api.create("PersistentVolumeClaim", {**claim, "status": {"phase": "Bound"}})
        yield server


OURS = TOML.replace("spark_application = ", "build = 'a:b' # ")


def told(toml: str = TOML) -> list[Finding]:
    settings = loading.parse(toml, environment={})
    return cluster(Surroundings(settings, Path("h.toml"), Path(), time.time()))


def test_one_that_can_be_rescaled_is_well(server: ApiServer) -> None:
    server.connect().create("SparkApplication", APPLICATION)
    assert [one.state for one in told()] == ["ok"]


@pytest.mark.parametrize(
    ("spec", "state", "words"),
    [
        (None, "problem", "there is no SparkApplication orders-app in jobs"),
        ({"dynamicAllocation": {"enabled": True}}, "problem", "so Spark sets its size"),
        ({"executor": {}}, "problem", "spec.executor.instances is not set"),
        ({"restartPolicy": {}}, "warning", "not started again after every failure"),
    ],
)
def test_what_stands_against_it_is_said(server: ApiServer, spec: Any, state: str, words: str) -> None:
    if spec is not None:
        whole: Any = {**APPLICATION, "spec": {**APPLICATION["spec"], **spec}}
        server.connect().create("SparkApplication", whole)
    (found,) = told()
    assert (found.state, words in found.found) == (state, True), found
    assert found.fix


@pytest.mark.parametrize(
    ("status", "result", "words"),
    [
        (200, [{"metric": {}, "values": [[1.0, "12"]]}], "every right is granted"),
        (200, [], "has no container_cpu_usage_seconds_total"),
        (404, [], "is it the address of a Prometheus server"),
    ],
)
def test_a_prometheus_that_measures_nothing_is_a_warning(
    server: ApiServer, status: int, result: Any, words: str
) -> None:
    server.connect().create("SparkApplication", APPLICATION)
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    with served(status, json.dumps(answer).encode()) as url:
        (found,) = told(TOML.replace("[kubernetes]", f'[kubernetes]\nprometheus_url = "{url}"'))
    assert words in found.found
    assert found.state == ("ok" if "granted" in words else "warning")


@pytest.mark.parametrize("server", [("SparkApplication",)], indirect=True)
def test_a_cluster_without_the_operator_is_told_only_where_it_is_needed(server: ApiServer) -> None:
    (found,) = told()
    assert "has sparkoperator.k8s.io in no version, and v1beta2 is needed" in found.found
    assert [one.state for one in told(OURS)] == ["ok"]


@pytest.mark.parametrize("ours", [False, True])
def test_a_size_that_the_quota_has_no_room_for_is_told(server: ApiServer, ours: bool) -> None:
    api = server.connect()
    api.create("SparkApplication", APPLICATION)
    toml = OURS if ours else TOML
    settings = loading.parse(TOML, environment={}).kubernetes
    for number in (1, 2):
        labels = {"sparkoperator.k8s.io/app-name": "orders-app", "spark-role": "executor"}
        if ours:
            mine = manifests.owner_label(owner_id(Path()), settings)
            labels = {manifests.OWNER: mine, manifests.COPY: "orders", manifests.ROLE: "executor"}
        about = {"name": f"exec-{number}", "namespace": "jobs", "labels": labels}
        container = {"name": "spark", "resources": {"requests": {"cpu": "500m"}}}
        api.create("Pod", {"metadata": about, "spec": {"containers": [container]}})
    api.create("ResourceQuota", {"metadata": {"name": "small", "namespace": "jobs"}})
    amounts = {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": "2"}}
    api.patch("ResourceQuota", "jobs", "small", {"status": amounts})
    assert [one.state for one in told(toml + "scale_out_max = 6\n")] == ["ok"]
    (found,) = told(toml + "scale_out_max = 7\n")
    assert found.state == "warning"
    assert "has 2 left of requests.cpu, and growing orders to 7 executors needs 2.5 more" in found.found
    assert "job.orders.scale_out_max" in found.fix


@pytest.mark.parametrize("ahead_s", [-60.0, 60.0, 0.0])
def test_clocks_that_differ_are_told_however_long_the_other_checks_take(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    version = KubernetesApi.version

    def asked_late(api: KubernetesApi) -> tuple[str, float]:
        found, at_s = version(api)
        return found, at_s + ahead_s

    monkeypatch.setattr(KubernetesApi, "version", asked_late)
    server.connect().create("SparkApplication", APPLICATION)
    settings = loading.parse(TOML, environment={})
    before_s = time.time() - 20.0  # when `headroom doctor` began
    found = cluster(Surroundings(settings, Path("h.toml"), Path(), before_s))
    said = [one.found for one in found if "clock" in one.found]
    assert len(said) == bool(ahead_s)
    assert all(one == "its clock differs from ours by 60 s" or "59 s" in one for one in said)


def test_what_of_the_installation_is_missing_is_named(server: ApiServer) -> None:
    api = server.connect()
    assert [one.found for one in told(OURS)] == [
        "test, v1.34.0: every right is granted; no pod has tried the image headroom-job:latest yet"
    ]
    api.delete("ServiceAccount", "jobs", "headroom-driver")
    api.delete("PersistentVolumeClaim", "copies", "headroom-data")
    api.patch("PersistentVolumeClaim", "jobs", "headroom-data", {"status": {"phase": "Pending"}})
    assert [(one.state, one.found) for one in told(OURS)] == [
        ("problem", "there is no ServiceAccount headroom-driver in jobs"),
        ("problem", "the PersistentVolumeClaim headroom-data in jobs is Pending"),
        ("problem", "there is no PersistentVolumeClaim headroom-data in copies"),
    ]


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("chaos-mesh.org", "no failure can be caused: the cluster has chaos-mesh.org in v1, and v1alpha1 is"),
        ("sparkoperator.k8s.io", "the cluster has sparkoperator.k8s.io in v1, and v1beta2 is needed"),
    ],
)
def test_another_version_of_a_crd_is_named(server: ApiServer, group: str, words: str) -> None:
    server.connect().create("SparkApplication", APPLICATION)
    server.versions[group] = "v1"
    (found,) = told()
    assert words in found.found


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"waiting": {"reason": "ImagePullBackOff"}}, "pod p in jobs: the image headroom-job:latest cannot"),
        ({"waiting": {"reason": "ContainerCreating"}}, "no pod has tried the image"),
        ({"running": {}}, "the image has run"),
    ],
)
def test_an_image_that_cannot_be_had_is_seen_at_the_pods_that_use_it(
    server: ApiServer, state: Any, words: str
) -> None:
    image = "headroom-job:latest"
    pod = {"metadata": {"name": "p", "namespace": "jobs"}, "spec": {"containers": [{"image": image}]}}
    server.connect().create(
        "Pod", {**pod, "status": {"containerStatuses": [{"image": image, "state": state}]}}
    )
    (found,) = told(OURS)
    assert words in found.found
    assert found.state == ("problem" if "cannot" in words else "ok")


def test_a_quota_without_room_for_the_largest_copy_is_told(server: ApiServer) -> None:
    api = server.connect()
    api.create("ResourceQuota", {"metadata": {"name": "small", "namespace": "copies"}})
    api.patch("ResourceQuota", "copies", "small", {"status": {"hard": {"pods": "5"}, "used": {"pods": "0"}}})
    assert [one.state for one in told(OURS + "profile_scale_outs = [1, 3]\n")] == ["ok"]
    (found,) = told(OURS + "profile_scale_outs = [1, 4]\n")
    assert (found.state, found.found) == (
        "warning",
        "the quota small of copies has 5 left of pods, and a copy of orders on 4 executors with its source "
        "needs 6",
    )


def test_a_right_to_follow_changes_that_is_missing_is_named(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KubernetesApi, "may", lambda self, verb, of, **more: verb != "watch")
    found = {one.found for one in told(OURS)}
    assert "may not watch deployments in jobs, needed to run drivers" in found
    assert "may not watch pods in copies, needed to run replays, and see drivers and executors" in found


def test_rights_are_asked_for_side_by_side(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, some eighty would take longer than a check may where the server is far away."""
    second = threading.Event()
    asked: list[str] = []

    def may(self: Any, verb: str, resource: str, **more: Any) -> bool:
        asked.append(resource)
        if len(asked) > 1:
            second.set()
        return second.wait(5.0)

    monkeypatch.setattr(KubernetesApi, "may", may)
    assert [one.state for one in told(OURS)] == ["ok"]


def test_a_right_that_is_missing_is_named_and_hides_nothing_else(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    may = KubernetesApi.may

    def may_not(self: Any, verb: str, of: str, **more: Any) -> bool:
        return of != "resourcequotas" and may(self, verb, of, **more)

    monkeypatch.setattr(KubernetesApi, "may", may_not)
    server.faults.append(Fault(403, path="/resourcequotas", times=99))
    missing, application = told()[:-1], told()[-1]
    assert all("may not list resourcequotas" in one.found for one in missing)
    assert {one.found.partition(" in ")[2].partition(",")[0] for one in missing} == {"jobs", "copies"}
    assert "there is no SparkApplication" in application.found


def of_our_owner(server: ApiServer, folder: Path, job: str, *, replicas: int = 1) -> None:
    settings = loading.parse(TOML, environment={}).kubernetes
    labels = {manifests.OWNER: manifests.owner_label(owner_id(folder), settings), manifests.JOB: job}
    about = {"name": f"{job}-driver", "namespace": "jobs", "labels": labels}
    server.connect().create("Deployment", {"metadata": about, "spec": {"replicas": replicas}})


def test_a_job_that_was_taken_out_of_the_file_and_still_runs_is_named(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.connect().create("SparkApplication", APPLICATION)
    for job, replicas in (("clicks", 1), ("ended", 0)):
        of_our_owner(server, Path(), job, replicas=replicas)
    of_our_owner(server, tmp_path, "of-another")
    (found,) = told()
    assert found.state == "warning"
    assert "clicks is not in h.toml any more, and still runs: Deployment clicks-driver" in found.found
    assert "`headroom stop clicks`" in found.fix
    assert [one.state for one in told(TOML + "[job.clicks]\nbuild = 'a:b'\ninputs = {e = 'c'}\n")] == ["ok"]
    (tmp_path / "h.toml").write_text(TOML)
    listed = headroom("cleanup", "--dry-run", "--file", str(tmp_path / "h.toml"), "--folder", str(tmp_path))
    gone = "of-another-driver in jobs (its job is not in headroom.toml any more): would be deleted"
    assert gone in listed.output


def test_the_role_grants_what_is_asked_for_in_the_namespace_of_live_jobs(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.connect().create("SparkApplication", APPLICATION)
    role, binding = yaml.safe_load_all(ROLES.read_text())
    assert binding["roleRef"]["name"] == role["metadata"]["name"]

    def may(self: Any, verb: str, resource: str, *, group: str = "", namespace: str = "") -> bool:
        granted = any(
            group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
            for rule in role["rules"]
        )
        return namespace != "jobs" or granted

    monkeypatch.setattr(KubernetesApi, "may", may)
    assert [one.state for one in told()] == ["ok"]
    drilled = TOML + "allow_live_drills = true\n"
    assert any("podchaos in jobs, needed to kill pods" in one.found for one in told(drilled))
    beside = "[job.clicks]\nbuild = 'a:b'\ninputs = {e = 'clicks'}\n"
    refused = "may not create, patch, delete deployments in jobs"
    assert any(refused in one.found for one in told(TOML + beside))


@pytest.mark.parametrize(
    ("file", "asked"),
    [
        ("workloads/roles.yaml", [one for one in RIGHTS if not one.drills]),
        ("copies/drills.yaml", [one for one in RIGHTS if one.drills]),
        ("../components/live-drills/drills.yaml", [one for one in RIGHTS if one.drills]),
        ("jobs/spark-applications.yaml", SPARK_APPLICATION_RIGHTS),
        ("owner.yaml", [LEASE]),
    ],
)
def test_the_roles_grant_what_is_asked_for_and_nothing_else(file: str, asked: Any) -> None:
    objects = yaml.safe_load_all((BASE / file).read_text())
    owner = next(
        one for one in objects if one["kind"] == "Role" and one["metadata"]["name"] != "headroom-driver"
    )
    granted = {
        (group, resource, verb)
        for rule in owner["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == {(one.group, one.resource, verb) for one in asked for verb in one.verbs}
