"""What failures through Chaos Mesh promise: one suite for the API server in this process and for a real one.

A test module imports all of it, and has a fixture `place`:
api (which may do everything), pods (`PausePods`, with "orders" and "orders-copy" running), controller
(`ChaosController`), failures(**more) -> KubernetesFailures, until(condition), copies (the namespace).
"""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import Misconfigured, NotReady, Unsafe
from pipelines.environments.kubernetes.failures import KubernetesFailures, NothingSelected
from profiling_jobs.chaos import CHAOS, CHAOS_KINDS, FINALIZER, NOT_AVAILABLE

COPY = "orders-copy"


def objects(place: Any) -> list[Any]:
    return [one for kind in CHAOS_KINDS for one in place.api.list(kind, place.copies)]


@pytest.mark.parametrize(("kind", "gone"), [("executor_kill", "executor-1"), ("driver_kill", "driver-0")])
def test_a_kill_deletes_the_one_pod_and_nothing_else(place: Any, kind: str, gone: str) -> None:
    before = place.pods.names("orders")
    failures = place.failures()
    injection = failures.inject(COPY, kind)
    assert (injection.kind, injection.deployment) == (kind, COPY)
    assert injection.victim == f"pod {COPY}-{gone}"
    place.until(lambda: f"{COPY}-{gone}" not in place.pods.names(COPY))
    assert len(place.pods.names(COPY)) == 2
    assert place.pods.names("orders") == before
    assert failures.active() == (injection,)
    assert failures.left_over() == ()
    failures.clear(injection.id)
    failures.clear(injection.id)  # twice is not an error
    assert failures.active() == ()
    assert objects(place) == []


def test_a_failed_pod_runs_a_pause_image_until_it_is_cleared(place: Any) -> None:
    failures = place.failures()
    before = place.pods.executor_pods(COPY)[0]["spec"]["containers"][0]["image"]
    injection = failures.inject(COPY, "pod_failure")
    pod = place.api.get("Pod", place.copies, f"{COPY}-executor-1")
    assert before in pod["metadata"]["annotations"].values()
    failures.clear(injection.id)
    pod = place.api.get("Pod", place.copies, f"{COPY}-executor-1")
    assert pod["spec"]["containers"][0]["image"] == before
    assert before not in pod["metadata"].get("annotations", {}).values()


@pytest.mark.parametrize(
    "kind", sorted(set(CHAOS) - {"executor_kill", "driver_kill", "pod_failure", "node_loss"})
)
def test_every_kind_is_injected_and_cleared(place: Any, kind: str) -> None:
    failures = place.failures()
    injection = failures.inject(COPY, kind)
    [found] = objects(place)
    assert found["metadata"]["finalizers"] == [FINALIZER]
    assert failures.active() == (injection,)
    failures.clear(injection.id)
    assert objects(place) == []


def test_what_a_crash_has_left_is_cleared_by_the_next(place: Any) -> None:
    dead, alive = place.failures(), place.failures()
    injection = dead.inject(COPY, "network_delay")
    assert dead.left_over() == ()
    assert alive.left_over() == (injection,)
    with alive:
        assert alive.active() == ()
        alive.inject(COPY, "cpu_stress")
    assert objects(place) == []


def test_another_owner_sees_and_clears_nothing_of_ours(place: Any) -> None:
    failures = place.failures()
    injection = failures.inject(COPY, "network_loss")
    other = place.failures(owner="other")
    assert other.active() == ()
    other.clear(injection.id)
    assert failures.active() == (injection,)
    failures.clear(injection.id)


def test_a_pod_of_another_owner_is_not_hit(place: Any) -> None:
    with pytest.raises(Unsafe, match="is not hit"):
        place.failures(owner="other").inject(COPY, "executor_kill")
    assert objects(place) == []


def test_a_live_job_is_not_hit(place: Any) -> None:
    with pytest.raises(Unsafe, match=r"job\.orders\.allow_live_drills"):
        place.failures().inject("orders", "executor_kill")
    assert len(place.pods.names("orders")) == 3


def test_a_selector_that_matches_nothing_is_an_error_of_its_own(place: Any, monkeypatch: Any) -> None:
    found = place.pods.executor_pods(COPY)
    failures = place.failures()
    monkeypatch.setattr(place.pods, "executor_pods", lambda name: found)
    place.api.delete("Pod", place.copies, found[0]["metadata"]["name"], grace_s=0)
    place.until(lambda: place.api.find("Pod", place.copies, found[0]["metadata"]["name"]) is None)
    with pytest.raises(NothingSelected, match=r"matches no pod.*chaos-mesh\.org/inject=enabled"):
        failures.inject(COPY, "executor_kill")
    place.until(lambda: not objects(place))
    assert failures.active() == ()


@pytest.mark.parametrize("kind", ["meteorite", "", *NOT_AVAILABLE])
def test_a_kind_that_cannot_be_caused_is_misconfigured(place: Any, kind: str) -> None:
    with pytest.raises(Misconfigured, match="executor_kill") as error:  # what there is
        place.failures().inject(COPY, kind)
    assert NOT_AVAILABLE.get(kind, "") in str(error.value)


def test_what_does_not_run_cannot_fail(place: Any) -> None:
    place.pods.state = "stopped"
    with pytest.raises(NotReady, match=COPY):
        place.failures().inject(COPY, "executor_kill")
    assert objects(place) == []


def test_an_interrupt_leaves_no_object(place: Any) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    place.controller.broken = "the daemon of the node does not answer"
    failures: KubernetesFailures = place.failures(sleep=interrupted)
    with pytest.raises(KeyboardInterrupt):
        failures.inject(COPY, "network_partition")
    place.until(lambda: not objects(place))
    place.controller.broken = ""
