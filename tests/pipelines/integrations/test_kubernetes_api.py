"""Requests to an API server that is busy, away, slow, or says no. Pauses are counted, not waited for."""

from functools import partial
from operator import methodcaller

import kubernetes.config
import pytest
from api_server import HANGS, ApiServer, Fault
from kubernetes import client
from kubernetes.config import incluster_config, kube_config
from waiting import together

from models.errors import HeadroomError, Misconfigured, NotReady
from pipelines.integrations import kubernetes_api
from pipelines.integrations.kubernetes_api import (
    Conflict,
    Expired,
    Forbidden,
    KubernetesApi,
    NoSuchKind,
    NotFound,
)
from pipelines.settings.schema import KubernetesSettings

pytestmark = pytest.mark.fast

POD = {"metadata": {"name": "one", "namespace": "jobs", "labels": {"app": "a"}}, "spec": {}}


class Stepped:
    """A clock that moves only by its pauses."""

    def __init__(self):
        self.now_s = 0.0
        self.pauses = []
        self.on_pause = lambda number: None

    def sleep(self, seconds):
        self.now_s += seconds
        self.pauses.append(seconds)
        self.on_pause(len(self.pauses))


@pytest.fixture
def server():
    with ApiServer() as made:
        yield made


@pytest.fixture
def clock():
    return Stepped()


@pytest.fixture
def api(server, clock):
    made = server.connect(clock=lambda: clock.now_s, sleep=clock.sleep)
    made.create("Pod", POD)
    server.requests.clear()
    yield made
    made.close()


TWO = {"metadata": {"name": "two", "namespace": "jobs"}}
READ = methodcaller("get", "Pod", "jobs", "one")
LIST = methodcaller("list", "Pod", "jobs")
DELETE = methodcaller("delete", "Pod", "jobs", "one")
CREATE = methodcaller("create", "Pod", TWO)
PATCH = methodcaller("patch", "Pod", "jobs", "one", {"spec": {"a": 1}})
REPLACE = methodcaller("replace", "Pod", {**POD, "spec": {"a": 1}})


def test_objects_are_stored_changed_found_and_deleted(api):
    assert api.get("Pod", "jobs", "one")["metadata"]["labels"] == {"app": "a"}
    assert [one["metadata"]["name"] for one in api.list("Pod", "jobs", labels={"app": "a"})] == ["one"]
    assert api.list("Pod", "jobs", labels={"app": "b"}) == api.list("Pod", "copies") == []
    assert api.list("Pod", "jobs", fields="metadata.name=two") == []
    changed = api.patch("Pod", "jobs", "one", {"metadata": {"labels": {"app": None, "role": "x"}}})
    assert changed["metadata"]["labels"] == {"role": "x"}
    assert api.find("Pod", "jobs", "two") is None
    api.delete("Pod", "jobs", "one")
    api.delete("Pod", "jobs", "one")  # twice is not an error
    assert api.find("Pod", "jobs", "one") is None


def test_a_dry_run_stores_nothing(api):
    assert api.create("Pod", TWO, dry_run=True)["kind"] == "Pod"
    assert api.find("Pod", "jobs", "two") is None


def test_a_change_in_between_is_a_conflict(api):
    read = api.get("Pod", "jobs", "one")["metadata"]["resourceVersion"]
    api.patch("Pod", "jobs", "one", {"spec": {"a": 1}})
    with pytest.raises(Conflict):
        api.patch("Pod", "jobs", "one", {"metadata": {"resourceVersion": read}, "spec": {"a": 2}})
    with pytest.raises(Conflict):
        api.create("Pod", POD)
    with pytest.raises(Conflict, match="UID"):
        api.delete("Pod", "jobs", "one", uid="another")


@pytest.mark.parametrize("do", [READ, LIST, CREATE, PATCH, REPLACE, DELETE])
def test_too_many_requests_are_repeated_when_the_server_wants(api, server, clock, do):
    server.faults.append(Fault(429, headers={"Retry-After": "3"}, times=2))
    do(api)
    assert clock.pauses == [3.0, 6.0]
    assert len(server.requests) == 3


@pytest.mark.parametrize("do", [READ, LIST, DELETE])
def test_what_changes_nothing_twice_is_repeated(api, server, clock, do):
    server.faults += [Fault(500), Fault(502), Fault(503), Fault(504)]
    do(api)
    assert clock.pauses == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize("do", [CREATE, PATCH, REPLACE])
def test_a_write_is_not_repeated_when_it_may_have_been_done(api, server, clock, do):
    server.faults.append(Fault(500, message="etcd has no leader"))
    with pytest.raises(NotReady, match=r"answered 500.*etcd has no leader"):
        do(api)
    assert len(server.requests) == 1
    assert clock.pauses == []


def test_patience_ends(api, server, clock):
    server.faults.append(Fault(503, times=1000))
    with pytest.raises(NotReady, match=r"answered 503 for 45 s.*headroom doctor"):
        READ(api)
    assert 30.0 < clock.now_s <= 45.0


@pytest.mark.parametrize("do", [READ, CREATE, PATCH, REPLACE, DELETE])
def test_a_server_that_is_away_for_a_while_is_waited_for(api, server, clock, do):
    server.away()
    clock.on_pause = lambda number: server.back() if clock.now_s >= 30.0 else None
    do(api)
    assert 30.0 <= clock.now_s <= 45.0
    assert len(server.requests) == 1


@pytest.mark.parametrize("do", [READ, CREATE])
def test_a_server_that_stays_away_is_not_ready(api, server, clock, do):
    server.away()
    with pytest.raises(NotReady, match=r"\(test\) does not answer .* for 45 s"):
        do(api)
    server.back()


def test_a_read_that_hangs_is_repeated(api, server, clock, monkeypatch):
    monkeypatch.setattr(kubernetes_api, "ANSWER_S", 0.5)
    server.faults.append(Fault(HANGS))
    assert READ(api)["metadata"]["name"] == "one"
    assert clock.pauses[0] == 0.5


@pytest.mark.parametrize("do", [CREATE, PATCH, REPLACE])
def test_a_write_that_hangs_is_unknown(api, server, monkeypatch, do):
    monkeypatch.setattr(kubernetes_api, "ANSWER_S", 2.0)
    server.faults.append(Fault(HANGS))
    with pytest.raises(NotReady, match=r"whether .* was carried out is not known"):
        do(api)
    assert len(server.requests) == 1


@pytest.mark.parametrize("do", [READ, CREATE])
def test_a_token_that_has_rotated_is_read_again(api, server, clock, do):
    server.token = "second"
    clock.on_pause = lambda number: setattr(server, "given", "second")
    do(api)
    assert len(server.requests) == 2


def test_credentials_that_are_not_accepted_are_no_missing_right(api, server):
    server.token = "another"
    with pytest.raises(Forbidden, match="does not accept the credentials"):
        READ(api)
    assert len(server.requests) == 2


def test_the_token_of_a_pod_is_read_before_every_request(server, tmp_path, monkeypatch):
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    authority.write_text("none is needed for http")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))

    def load(configuration):
        incluster_config.InClusterConfigLoader(str(token), str(authority)).load_and_set(configuration)
        configuration.host, configuration.ssl_ca_cert = server.url, None

    monkeypatch.setattr(kubernetes.config, "load_incluster_config", load)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    server.token = "first"
    api = KubernetesApi.connect(KubernetesSettings())
    assert api.where == "in cluster"
    assert api.list("Pod", "jobs") == []
    server.token = "second"
    token.write_text("second\n")
    assert api.list("Pod", "jobs") == []
    assert len(server.requests) == 2
    api.close()


@pytest.mark.parametrize(
    ("status", "message", "error", "said"),
    [
        (403, 'pods is forbidden: User "x" cannot list', Forbidden, "headroom doctor"),
        (403, "forbidden: namespace x because it is being terminated", NotReady, "terminated"),
        (403, "forbidden: exceeded quota: copies, requested: cpu=1", NotReady, "exceeded quota"),
        (409, "the object has been modified", Conflict, "modified"),
        (410, "too old resource version", Expired, "too old"),
        (422, "spec.replicas: Invalid value", Misconfigured, "Invalid value"),
        (400, "unknown field", Misconfigured, "unknown field"),
    ],
)
def test_an_answer_becomes_an_error_of_ours(api, server, status, message, error, said):
    server.faults.append(Fault(status, message=message))
    with pytest.raises(HeadroomError, match=said) as raised:
        CREATE(api)
    assert type(raised.value) is error


def test_what_is_not_there_is_told_from_a_kind_that_is_not_known(api, server):
    with pytest.raises(NotFound) as raised:
        api.get("Pod", "jobs", "nobody")
    assert type(raised.value) is NotFound
    with pytest.raises(NotFound) as raised:
        api.create("Pod", {"metadata": {"name": "x", "namespace": "nowhere"}})
    assert type(raised.value) is NotFound
    server.missing = ("PodChaos",)
    with pytest.raises(NoSuchKind, match="podchaos"):
        api.list("PodChaos", "jobs")
    assert api.find("PodChaos", "jobs", "x") is None
    api.delete("PodChaos", "jobs", "x")


def test_rights_and_logs_are_asked_for(api, server):
    assert api.may("create", "pods/log", namespace="jobs")
    server.logs["jobs", "one"] = "the last line\n"
    assert api.log("jobs", "one") == "the last line\n"
    assert api.log("jobs", "nobody") == ""
    server.faults.append(Fault(400, message="container is waiting to start: ContainerCreating"))
    assert api.log("jobs", "one") == ""
    assert api.version()[0].startswith("v1.")
    server.token = "another"
    with pytest.raises(Forbidden, match="credentials"):
        api.version()


def test_a_server_that_cannot_be_trusted_is_no_crash(server):
    configuration = client.Configuration(host=server.url.replace("http:", "https:"))
    api = KubernetesApi(client.ApiClient(configuration), where="test", sleep=lambda seconds: None)
    with pytest.raises(NotReady, match=r"\(test\) cannot be trusted: .*SSL"):
        api.list("Pod", "jobs")
    api.close()


CONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: here, context: {cluster: c, user: u}}, {name: there, context: {cluster: c, user: u}}]
current-context: there
"""


@pytest.mark.parametrize(
    ("config", "context", "said"),
    [
        (CONFIG, None, "must be named; the current one is 'there', and there is here, there"),
        (CONFIG, "nowhere", "there is no 'nowhere'; there is here, there"),
        ("", "here", "there is no kubeconfig to take it from"),
    ],
)
def test_a_context_is_never_guessed(tmp_path, monkeypatch, config, context, said):
    (tmp_path / "config").write_text(config)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Misconfigured, match=said):
        KubernetesApi.connect(KubernetesSettings(context=context))
    if config:
        assert KubernetesApi.connect(KubernetesSettings(context="here")).where == "here"


def test_several_threads_may_use_it(api):
    names = [f"pod-{number}" for number in range(8)]
    problems = []

    def work(name):
        try:
            for _ in range(5):
                api.create("Pod", {"metadata": {"name": name, "namespace": "jobs"}})
                api.delete("Pod", "jobs", name)
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    together(partial(work, name) for name in names)
    assert problems == []
    assert [one["metadata"]["name"] for one in api.list("Pod", "jobs")] == ["one"]
