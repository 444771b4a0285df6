"""Readings of executors on a cluster: Spark's page, and what Prometheus measures of their pods."""

import pytest

from models.errors import NotReady
from models.quantities import Unknown
from pipelines.environments.kubernetes import executors
from pipelines.environments.kubernetes.executors import ASKED_EVERY_S, NO_CPU, NO_POD, KubernetesExecutors
from profiling_jobs.telemetry.spark_page import Work

pytestmark = pytest.mark.fast

AWAY = Unknown("Prometheus is away")


class Page:
    """Two executors that have worked."""

    def __init__(self, url, application_id):
        self.url, self.application_id = url, application_id

    def read(self):
        return {one: Work(1, 0.0, 3, 10.0, 100) for one in ("1", "2")}

    def close(self): ...


class Jobs:
    """One job, of which the pod of one executor is known."""

    def __init__(self, names=("jobs", {"1": "orders-exec-1"})):
        self.names = names

    def page(self, name):
        return "http://driver:4040", "app-1"

    def executor_names(self, name, application):
        assert (name, application) == ("orders", "app-1")
        if isinstance(self.names, Exception):
            raise self.names
        return self.names


class Measured:
    """What Prometheus says of that pod."""

    def __init__(self, found):
        self.found, self.asked = found, 0

    def processors(self, namespace, pods):
        self.asked += 1
        assert (namespace, tuple(pods)) == ("jobs", ("orders-exec-1",))
        return {"orders-exec-1": self.found}


@pytest.fixture(autouse=True)
def page(monkeypatch):
    monkeypatch.setattr(executors, "SparkPage", Page)


@pytest.mark.parametrize(
    ("jobs", "measured", "first", "second"),
    [
        (Jobs(), None, NO_CPU, NO_CPU),
        (Jobs(), Measured(AWAY), AWAY, NO_POD),
        (Jobs(NotReady("the API server is away")), Measured(0.75), NO_POD, NO_POD),
    ],
)
def test_what_is_not_measured_is_unknown_with_its_reason(jobs, measured, first, second):
    found = KubernetesExecutors(jobs, measured=measured, clock=lambda: 100.0).read("orders")
    assert [(one.executor, one.processors, one.cpu_s) for one in found] == [
        ("app-1/1", None, first),
        ("app-1/2", None, second),
    ]
    assert "kubernetes.prometheus_url" in NO_CPU.reason, "which would measure it"


def test_the_processors_of_a_pod_are_asked_for_seldom_and_anew_after_a_while():
    measured, now = Measured(0.75), [100.0]
    found = KubernetesExecutors(Jobs(), measured=measured, clock=lambda: now[0])
    for _ in range(3):
        assert [one.processors for one in found.read("orders")] == [0.75, None]
        now[0] += 4.0
    assert measured.asked == 1
    now[0] += ASKED_EVERY_S
    found.read("orders")
    assert measured.asked == 2
