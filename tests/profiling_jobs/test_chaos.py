"""Chaos Mesh objects: as their CRDs and webhooks want them, hitting one pod only, and read rightly."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from crd_schema import problems

from models.errors import Unsafe
from models.ports import Injection
from models.quantities import FAILURE_KINDS
from profiling_jobs import chaos
from profiling_jobs.chaos import CHAOS, NOT_AVAILABLE, Strength, Target, outcome, refuse_unsafe

pytestmark = pytest.mark.fast

SCHEMAS = json.loads((Path(__file__).parents[1] / "doubles" / "chaos_schemas.json").read_text())
LABELS = {"headroom.io/owner": "me", "headroom.io/copy": "orders-e4"}
HOW = Strength(network_timeout_s=20.0, memory_mb=256)


def target(kind: str) -> Target:
    peers = ("orders-e4-driver-x",) if kind == "network_partition" else ()
    return Target("copies", LABELS, ("orders-e4-exec-1",), peers)


def built(kind: str, **more: Any) -> dict[str, Any]:
    injection = Injection("abc123", "orders-e4", kind, "pod orders-e4-exec-1", 1_763_474_400.0)
    labels = {**LABELS, "headroom.io/job": "orders", "headroom.io/role": "failure"}
    return chaos.manifest(injection, target(kind), more.get("how", HOW), labels=labels)


def webhook(chaos: Any) -> list[str]:
    """What the validating webhooks of Chaos Mesh 2.8 refuse beyond the schemas, of what we use."""
    spec, found = chaos["spec"], []
    if not re.fullmatch(r"([0-9]+(\.[0-9]+)?(ms|s|m|h))+", spec.get("duration", "1s")):
        found.append("duration")
    if chaos["kind"] == "NetworkChaos" and spec["action"] != "partition":
        if spec["direction"] != "to" and "target" not in spec:
            found.append("direction without target")
        for one in (spec.get("delay") or {}, spec.get("loss") or {}):
            if any(not one[key].isdecimal() for key in ("correlation", "loss") if key in one):
                found.append("a percentage")
    for one in (spec.get("stressors") or {}).values():
        if one["workers"] <= 0 or not re.fullmatch(r"[0-9]+(B|KB|MB|GB)", one.get("size", "1B")):
            found.append("stressors")
    return found


def test_every_kind_of_failure_has_an_object_or_a_reason() -> None:
    assert set(CHAOS) | set(NOT_AVAILABLE) == set(FAILURE_KINDS)
    assert not set(CHAOS) & set(NOT_AVAILABLE)


@pytest.mark.parametrize(
    ("kind", "object_kind", "action", "direction"),
    [
        ("executor_kill", "PodChaos", "pod-kill", None),
        ("driver_kill", "PodChaos", "pod-kill", None),
        ("pod_failure", "PodChaos", "pod-failure", None),
        ("executor_freeze", "NetworkChaos", "partition", "both"),
        ("driver_freeze", "NetworkChaos", "partition", "both"),
        ("node_loss", "NetworkChaos", "partition", "both"),
        ("network_partition", "NetworkChaos", "partition", "both"),
        ("network_delay", "NetworkChaos", "delay", "to"),
        ("network_loss", "NetworkChaos", "loss", "to"),
        ("cpu_stress", "StressChaos", None, None),
        ("memory_stress", "StressChaos", None, None),
    ],
)
def test_the_table(kind: str, object_kind: str, action: str | None, direction: str | None) -> None:
    made = built(kind)
    spec = made["spec"]
    found = made["kind"], spec.get("action"), spec.get("direction"), spec["duration"]
    assert found == (object_kind, action, direction, "60s")
    assert spec["mode"] == "one"
    assert spec["selector"] == {
        "namespaces": ["copies"],
        "labelSelectors": LABELS,
        "pods": {"copies": ["orders-e4-exec-1"]},
    }
    assert made["metadata"]["name"] == f"{kind.replace('_', '-')}-abc123"
    assert chaos.injection_of(made) == Injection(
        "abc123", "orders-e4", kind, "pod orders-e4-exec-1", 1_763_474_400.0
    )


@pytest.mark.parametrize("kind", sorted(CHAOS))
def test_the_crds_the_webhooks_and_our_own_check_accept_it(kind: str) -> None:
    made = built(kind)
    assert problems(made["spec"], SCHEMAS[made["kind"]]["properties"]["spec"], "spec") == []
    assert webhook(made) == []
    refuse_unsafe(made, target(kind), forbidden={"jobs"})


def test_the_check_of_schemas_finds_what_is_wrong() -> None:
    made = built("network_delay")
    made["spec"].update(action="explode", surprise=1, delay={"latency": "soon"})
    del made["spec"]["mode"]
    assert len(problems(made["spec"], SCHEMAS["NetworkChaos"]["properties"]["spec"], "spec")) == 4


@pytest.mark.parametrize("kind", ["executor_freeze", "driver_freeze", "node_loss", "network_partition"])
def test_a_partition_outlasts_the_network_timeout(kind: str) -> None:
    made = built(kind, how=Strength(network_timeout_s=120.0, memory_mb=256))
    assert chaos.duration_s(made["spec"]["duration"]) == 360.0


def test_a_freeze_cuts_off_from_everything_a_partition_from_the_driver() -> None:
    assert "target" not in built("executor_freeze")["spec"]
    assert built("network_partition")["spec"]["target"] == {
        "mode": "one",
        "selector": {
            "namespaces": ["copies"],
            "labelSelectors": LABELS,
            "pods": {"copies": ["orders-e4-driver-x"]},
        },
    }


# ------------------------------------------------------------------------------------------ the check


def change(path: str, value: Any, kind: str = "network_partition") -> dict[str, Any]:
    made = deepcopy(built(kind))
    *steps, last = path.split(".")
    part = made
    for step in steps:
        part = part[step]
    if value is None:
        del part[last]
    else:
        part[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("kind", "KernelChaos", "is none of"),
        ("apiVersion", "chaos-mesh.org/v2", "is none of"),
        ("metadata.namespace", "jobs", "namespace 'jobs'"),
        ("metadata.labels", {}, "its label headroom.io/owner"),
        ("metadata.annotations", {}, "does not record"),
        ("spec.duration", None, "duration is None"),
        ("spec.duration", "0s", "duration"),
        ("spec.duration", "2h", "duration"),
        ("spec.duration", "for ever", "duration"),
        ("spec.mode", "fixed-percent", "mode"),
        ("spec.selector", None, "no selector"),
        ("spec.selector.pods", None, "uses labelSelectors, namespaces"),
        ("spec.selector.pods", {}, "pods of its selector"),
        ("spec.selector.pods", {"copies": []}, "pods of its selector"),
        ("spec.selector.pods", {"copies": ["payments-exec-1"]}, "pods of its selector"),
        ("spec.selector.pods", {"copies": ["orders-e4-exec-1"], "jobs": ["orders-exec-1"]}, "pods"),
        ("spec.selector.namespaces", ["copies", "kube-system"], "namespaces of its selector"),
        ("spec.selector.namespaces", None, "uses"),
        ("spec.selector.labelSelectors", {"headroom.io/owner": "me"}, "labels of its selector"),
        ("spec.selector.nodes", ["node0"], "uses"),
        ("spec.selector.expressionSelectors", [], "uses"),
        ("spec.target.selector.pods", {"copies": ["payments-driver"]}, "pods of its target.selector"),
        ("spec.target.selector", None, "no target.selector"),
        ("spec.target.value", "3", "its target sets value"),
        ("spec.externalTargets", ["10.0.0.0/8"], "sets externalTargets"),
        ("spec.remoteCluster", "production", "sets remoteCluster"),
        ("spec.value", "50", "sets value"),
    ],
)
def test_what_could_do_more_is_refused(path: str, value: Any, why: str) -> None:
    with pytest.raises(Unsafe, match=re.escape(why)):
        refuse_unsafe(change(path, value), target("network_partition"))


def test_a_kill_of_containers_is_refused() -> None:
    with pytest.raises(Unsafe, match="containers"):
        refuse_unsafe(change("spec.action", "container-kill", "executor_kill"), target("executor_kill"))


def test_a_namespace_that_is_forbidden_is_refused() -> None:
    with pytest.raises(Unsafe, match="no failure may be caused in the namespace 'copies'"):
        refuse_unsafe(built("executor_kill"), target("executor_kill"), forbidden={"copies"})


def test_a_target_without_an_owner_is_refused() -> None:
    nobody = Target("copies", {"headroom.io/owner": ""}, ("orders-e4-exec-1",))
    with pytest.raises(Unsafe, match="no owner"):
        refuse_unsafe(built("executor_kill"), nobody)


# ----------------------------------------------------------------------------------------- the status


def status(conditions: str, phase: str, *records: dict[str, Any]) -> dict[str, Any]:
    """`conditions`: T or F for Selected, AllInjected, AllRecovered, Paused; empty: none yet."""
    names = ("Selected", "AllInjected", "AllRecovered", "Paused")
    said = [
        {"type": name, "status": "True" if one == "T" else "False"}
        for name, one in zip(names, conditions, strict=False)
    ]
    experiment = {"desiredPhase": phase, **({"containerRecords": list(records)} if records else {})}
    return {"metadata": {}, "status": {"conditions": said, "experiment": experiment}}


def record(phase: str, *events: tuple[str, str]) -> dict[str, Any]:
    made = [
        {
            "operation": operation,
            "type": type_,
            "timestamp": f"2025-11-18T14:00:{number:02d}Z",
            "message": "tc failed",
        }
        for number, (operation, type_) in enumerate(events)
    ]
    return {"id": "copies/x", "selectorKey": ".", "phase": phase, "events": made}


HIT, MISSED, RIGHT = ("Apply", "Succeeded"), ("Apply", "Failed"), ("Recover", "Succeeded")


@pytest.mark.parametrize(
    ("found", "waited_s", "state"),
    [
        ({"metadata": {}}, 60.0, "waiting"),  # no controller
        (status("", "Run"), 60.0, "waiting"),
        (status("FFFF", "Run"), 2.0, "waiting"),
        (status("FFFF", "Run"), 12.0, "nothing_selected"),
        (status("TFTF", "Run", record("Not Injected")), 1.0, "waiting"),  # selected, and not yet hit
        (status("TFFF", "Run", record("Not Injected/Wait")), 1.0, "waiting"),
        (status("TFTF", "Run", record("Not Injected", MISSED)), 1.0, "failed"),
        (status("TFTF", "Run", record("Not Injected", MISSED), record("Injected", HIT)), 1.0, "failed"),
        (status("TTFF", "Run", record("Injected", MISSED, HIT)), 1.0, "injected"),
        (status("TTFF", "Run", record("Injected", HIT)), 1.0, "injected"),  # pod-kill, pod-failure running
        (status("TFTF", "Stop", record("Not Injected", HIT, RIGHT)), 80.0, "recovered"),
        (status("TFTT", "Stop", record("Not Injected", HIT, RIGHT)), 80.0, "recovered"),
        (status("FFFT", "Stop"), 80.0, "waiting"),  # paused before anything was selected
    ],
)
def test_what_a_status_means(found: dict[str, Any], waited_s: float, state: str) -> None:
    assert outcome(found, waited_s=waited_s).state == state


def test_a_reason_is_given() -> None:
    assert outcome(status("TFTF", "Run", record("Not Injected", MISSED)), waited_s=1.0).reason == "tc failed"
    assert (
        "1 of 2 pods"
        in outcome(
            status("TFFF", "Run", record("Injected", HIT), record("Not Injected/Wait")), waited_s=1.0
        ).reason
    )


def test_the_moment_of_the_last_hit_is_read() -> None:
    found = status("TTFF", "Run", record("Injected", MISSED, HIT), record("Injected", HIT))
    assert chaos.injected_at_s(found) == 1_763_474_401.0
    assert chaos.injected_at_s(status("TFFF", "Run", record("Not Injected"))) is None


@pytest.mark.parametrize("note", ["{", "[]", '{"id": "a"}', '{"what": 1}'])
def test_a_damaged_record_is_none(note: str) -> None:
    made = change("metadata.annotations", {chaos.INJECTION: note})
    assert chaos.injection_of(made) is None
    assert chaos.injection_of({"metadata": {}}) is None


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("2m", 120.0), ("1h", 3600.0)])
def test_durations_are_read(text: str, seconds: float) -> None:
    assert chaos.duration_s(text) == seconds
