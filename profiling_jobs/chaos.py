"""Chaos Mesh objects as dicts: one builder per kind, a check of what was built, and what a status means.

One table says which object stands for which kind of failure:

    failure             object         hits
    executor_kill       PodChaos       pod-kill of an executor, without grace
    driver_kill         PodChaos       pod-kill of the driver, without grace
    pod_failure         PodChaos       pod-failure of an executor: its containers run a pause image meanwhile
    executor_freeze     NetworkChaos   partition of an executor from everything, longer than the time-out
    driver_freeze       NetworkChaos   partition of the driver from everything, longer than the time-out
    node_loss           NetworkChaos   partition of all executors on one node from everything, as long
    network_partition   NetworkChaos   partition of an executor from its driver, longer than the time-out
    network_delay       NetworkChaos   delay of all that an executor sends
    network_loss        NetworkChaos   loss of part of what an executor sends
    cpu_stress          StressChaos    processes in an executor's container that compute
    memory_stress       StressChaos    a process in an executor's container that fills memory

But for node_loss only one executor is hit, the oldest: it is warmed up, and stands for all.

A frozen process cannot be made from outside its pod. One that cannot be reached is the same to its peers:
what it sends and gets is lost until the partition ends, then it goes on.

Chaos Mesh takes no node away: its objects for machines need a cloud's credentials or a daemon on them.
What a job notices of such a loss is that all executors there fall silent at once, and that is caused. Unlike
after a real loss the node stays, so that a new executor may be placed on it again. The node of the driver is
never chosen: Kubernetes would replace that pod only after five minutes.

Where a selector names pods, the controller of Chaos Mesh looks at nothing else of it. The labels are there
for a reader, and for the tests' controller; the names alone must be right, so `refuse_unsafe` compares them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

from models.errors import Misconfigured, Unsafe
from models.ports import Injection
from models.quantities import FAILURE_KINDS

Manifest = dict[str, Any]

API_VERSION = "chaos-mesh.org/v1alpha1"
FINALIZER = "chaos-mesh/records"
FORCED = "chaos-mesh.chaos-mesh.org/cleanFinalizer=forced"
"""The annotation that makes the controller let go of an object whose pods it cannot put right."""
INJECTION = "headroom.io/injection"
"""The annotation that holds the injection as JSON: the object is the record of it."""

SHORT_S = 60.0  # judgement: several batches; it is cleared before, or it ends by itself
BEYOND_TIMEOUT = 3.0  # judgement: the driver looks for silent executors at intervals, and one is replaced
LONGEST_S = 3600.0  # judgement: nothing that we cause is worth more
NOTHING_AFTER_S = 10.0  # seen: the controller selects within 4 s, and does not select again
LATENCY_MS = 200  # judgement: far beyond what one network has, and far below any time-out
LOSS_PERCENT = 10  # judgement: TCP crawls, and no connection ends
CPU_WORKERS = 4  # judgement: pods have no processor limit, so they must fill the node's


@dataclass(frozen=True)
class Target:
    """The pods that a failure may hit, and nothing else."""

    namespace: str
    labels: Mapping[str, str]
    """What every one of them carries: its owner and its deployment."""
    pods: tuple[str, ...]
    peers: tuple[str, ...] = ()
    """Of a network_partition: the pods from which `pods` are cut off."""


@dataclass(frozen=True)
class Strength:
    """Duration and strength of a failure."""

    network_timeout_s: float
    """A silent executor is given up after this time."""
    memory_mb: int
    """What memory_stress fills."""

    @property
    def outlasting_s(self) -> float:
        """Longer than the network time-out, for all that must notice it."""
        return max(BEYOND_TIMEOUT * self.network_timeout_s, SHORT_S)


Builder = Callable[[Target, Strength], tuple[str, Manifest]]


def pod_chaos(target: Target, action: Literal["pod-kill", "pod-failure"]) -> tuple[str, Manifest]:
    """Kill pods, or let their containers run a pause image instead. A kill has nothing to recover."""
    grace = {"gracePeriod": 0} if action == "pod-kill" else {}
    return "PodChaos", {"action": action, **grace, **_hits(target, SHORT_S)}


def network_chaos(
    target: Target,
    action: Literal["partition", "delay", "loss"],
    *,
    duration_s: float = SHORT_S,
) -> tuple[str, Manifest]:
    """Cut off, delay or lose.

    A partition works both ways, from the peers or, without any, from everything. Delay and loss need a peer
    to work both ways (a rule of Chaos Mesh's): without one they change what the pods send.
    """
    spec: Manifest = {"action": action, "direction": "both" if action == "partition" else "to"}
    if action == "delay":
        spec["delay"] = {"latency": f"{LATENCY_MS}ms", "jitter": f"{LATENCY_MS // 4}ms", "correlation": "25"}
    if action == "loss":
        spec["loss"] = {"loss": str(LOSS_PERCENT), "correlation": "25"}
    if target.peers:
        spec["target"] = {
            "mode": _mode(target.peers),
            "selector": _selector(replace(target, pods=target.peers)),
        }
    return "NetworkChaos", {**spec, **_hits(target, duration_s)}


def partition(target: Target, how: Strength) -> tuple[str, Manifest]:
    """Cut off for longer than the network time-out."""
    return network_chaos(target, "partition", duration_s=how.outlasting_s)


def stress_chaos(target: Target, stressors: Manifest) -> tuple[str, Manifest]:
    """Run processes in the pods' containers that use what the job needs."""
    return "StressChaos", {"stressors": stressors, **_hits(target, SHORT_S)}


CHAOS: Mapping[str, tuple[Literal["executor", "driver", "node"], Builder]] = MappingProxyType(
    {
        "executor_kill": ("executor", lambda target, _: pod_chaos(target, "pod-kill")),
        "driver_kill": ("driver", lambda target, _: pod_chaos(target, "pod-kill")),
        "pod_failure": ("executor", lambda target, _: pod_chaos(target, "pod-failure")),
        "executor_freeze": ("executor", partition),
        "driver_freeze": ("driver", partition),
        "node_loss": ("node", partition),
        "network_partition": ("executor", partition),
        "network_delay": ("executor", lambda target, _: network_chaos(target, "delay")),
        "network_loss": ("executor", lambda target, _: network_chaos(target, "loss")),
        "cpu_stress": (
            "executor",
            lambda target, _: stress_chaos(target, {"cpu": {"workers": CPU_WORKERS, "load": 100}}),
        ),
        "memory_stress": (
            "executor",
            lambda target, how: stress_chaos(
                target, {"memory": {"workers": 1, "size": f"{how.memory_mb}MB"}}
            ),
        ),
    }
)
"""Failure kind -> what is hit, and its object."""

NOT_AVAILABLE: Mapping[str, str] = MappingProxyType(
    {
        "straggler": "pods have no processor limit, so cpu_stress is as near as it gets",
        "broker_restart": "the brokers of a cluster serve others too, and are not Headroom's to restart",
    }
)
"""Failure kind -> why Chaos Mesh is not asked for it."""

CHAOS_KINDS = ("PodChaos", "NetworkChaos", "StressChaos")


def manifest(injection: Injection, target: Target, how: Strength, *, labels: Mapping[str, str]) -> Manifest:
    """The object that causes the injection. `labels`: its own, by which its owner finds it again."""
    kind, spec = CHAOS[injection.kind][1](target, how)
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {
            "name": f"{injection.kind.replace('_', '-')}-{injection.id}",
            "namespace": target.namespace,
            "labels": dict(labels),
            "annotations": noted(injection),
        },
        "spec": spec,
    }


def noted(injection: Injection) -> dict[str, str]:
    """The annotation that records it."""
    return {INJECTION: json.dumps(asdict(injection))}


def injection_of(chaos: Mapping[str, Any]) -> Injection | None:
    """What an object records; None where another has made it or damaged its annotation."""
    try:
        return Injection(**json.loads(chaos["metadata"]["annotations"][INJECTION]))
    except (KeyError, TypeError, ValueError):
        return None


def why_not(kind: str) -> Misconfigured:
    """The error for a failure that cannot be caused."""
    there = f"there is {', '.join(sorted(CHAOS))}"
    if kind in NOT_AVAILABLE:
        return Misconfigured("kind", f"'{kind}' cannot be caused here: {NOT_AVAILABLE[kind]}; {there}")
    return Misconfigured(
        "kind",
        f"'{kind}' {'cannot be caused here' if kind in FAILURE_KINDS else 'is no kind of failure'}; {there}",
    )


# -------------------------------------------------------------------------------------------- the check

SPECS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "PodChaos": frozenset({"action", "gracePeriod"}),
        "NetworkChaos": frozenset({"action", "direction", "delay", "loss", "target"}),
        "StressChaos": frozenset({"stressors"}),
    }
)
"""What a spec may say beside `selector`, `mode` and `duration`."""
SELECTS = frozenset({"namespaces", "labelSelectors", "pods"})


def refuse_unsafe(chaos: Mapping[str, Any], target: Target, *, forbidden: Collection[str] = ()) -> None:
    """Raise Unsafe where an object could do more than hit the target for a while.

    Knows nothing of how it was built: what it does not expect is refused. `forbidden`: namespaces that no
    failure may touch, that of live jobs without `allow_live_drills` above all.
    """
    found = list(_dangers(chaos, target, forbidden))
    if found:
        raise Unsafe(
            f"{chaos.get('kind')} is not created: {'; '.join(found)}. Report this fault of Headroom's"
        )


def _dangers(chaos: Mapping[str, Any], target: Target, forbidden: Collection[str]) -> Iterator[str]:
    about, spec = chaos.get("metadata", {}), chaos.get("spec", {})
    kind = chaos.get("kind", "")
    if chaos.get("apiVersion") != API_VERSION or kind not in SPECS:
        yield f"'{chaos.get('apiVersion')} {kind}' is none of {', '.join(SPECS)} of {API_VERSION}"
        return
    if about.get("namespace") != target.namespace:
        yield f"it is in the namespace '{about.get('namespace')}', its target in '{target.namespace}'"
    if target.namespace in forbidden:
        yield f"no failure may be caused in the namespace '{target.namespace}'"
    if not target.labels or any(not value for value in target.labels.values()):
        yield "its target has no owner"
    for key, value in target.labels.items():
        if about.get("labels", {}).get(key) != value:
            yield f"its label {key} is not '{value}'"
    if injection_of(chaos) is None:
        yield "it does not record its injection, so that no other could clear it"
    seconds = duration_s(spec.get("duration"))
    if not 0.0 < seconds <= LONGEST_S:
        yield f"its duration is {spec.get('duration')!r}, and must be up to {LONGEST_S:.0f} s"
    if more := set(spec) - SPECS[kind] - {"selector", "mode", "duration"}:
        yield f"it sets {', '.join(sorted(more))}"
    if spec.get("action") == "container-kill":
        yield "it kills containers"
    yield from _selects("selector", spec, target, target.pods)
    if "target" in spec:
        yield from _selects("target.selector", spec["target"], target, target.peers)
        if more := set(spec["target"]) - {"selector", "mode"}:
            yield f"its target sets {', '.join(sorted(more))}"


def _selects(where: str, part: Mapping[str, Any], target: Target, allowed: Collection[str]) -> Iterator[str]:
    selector = part.get("selector")
    if not isinstance(selector, Mapping):
        yield f"it has no {where}"
        return
    if part.get("mode") not in ("one", "all"):
        yield f"the mode of its {where} is '{part.get('mode')}', not one or all"
    if set(selector) != SELECTS:
        yield f"its {where} uses {', '.join(sorted(selector)) or 'nothing'}, not {', '.join(sorted(SELECTS))}"
    if selector.get("namespaces") != [target.namespace]:
        yield f"the namespaces of its {where} are {selector.get('namespaces')}"
    if selector.get("labelSelectors") != dict(target.labels):
        yield f"the labels of its {where} are {selector.get('labelSelectors')}"
    pods = selector.get("pods")
    names = (
        pods.get(target.namespace) if isinstance(pods, Mapping) and set(pods) == {target.namespace} else None
    )
    if not isinstance(names, list) or not names or not set(names) <= set(allowed):
        yield f"the pods of its {where} are {pods}, not of {', '.join(allowed) or 'nothing'}"


def duration_s(text: Any) -> float:
    """Of `90s`, `2m`, `1h`; NaN where it is none that we write."""
    found = re.fullmatch(r"(\d+)([smh])", text) if isinstance(text, str) else None
    return int(found[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0}[found[2]] if found else math.nan


# ------------------------------------------------------------------------------------------- the status


@dataclass(frozen=True)
class Outcome:
    """What has become of an object so far, and why."""

    state: Literal["waiting", "injected", "recovered", "nothing_selected", "failed"]
    reason: str = ""


def outcome(chaos: Mapping[str, Any], *, waited_s: float) -> Outcome:
    """From conditions and records, as the controller of Chaos Mesh 2.8 writes them.

    | Selected | AllInjected | AllRecovered | phase | meaning |
    |---|---|---|---|---|
    | True | True | any | any | injected; a pod-kill stays so for as long as the object lives |
    | True | False | True | Stop | recovered, after its duration |
    | False | False | False | Run | nothing selected, if it stays so: the controller does not look again |
    | else | | | | waiting, or failed where the last event of a record says so; it is tried again |

    `waited_s`: since it was created.
    """
    status = chaos.get("status") or {}
    said = {one["type"]: one["status"] == "True" for one in status.get("conditions") or ()}
    experiment = status.get("experiment") or {}
    records = experiment.get("containerRecords") or []
    if not said:
        return Outcome("waiting", "no controller of Chaos Mesh has touched it")
    if said.get("AllInjected"):
        return Outcome("injected")
    if records and said.get("AllRecovered") and experiment.get("desiredPhase") == "Stop":
        return Outcome("recovered", "it was over before it was cleared")
    if said.get("Paused"):
        return Outcome("waiting", "it is paused: another has set experiment.chaos-mesh.org/pause")
    failed = [event["message"] for one in records if (event := _last_event(one)).get("type") == "Failed"]
    if failed:
        return Outcome("failed", "; ".join(failed))
    if not records:
        if waited_s >= NOTHING_AFTER_S:
            return Outcome("nothing_selected", "its selector matches no pod")
        return Outcome("waiting", "no pod is selected yet")
    ready = sum(one.get("phase") == "Injected" for one in records)
    return Outcome("waiting", f"{ready} of {len(records)} pods are hit")


def injected_at_s(chaos: Mapping[str, Any]) -> float | None:
    """When the last pod was hit, by the controller's clock in whole seconds; None where it does not say."""
    records = ((chaos.get("status") or {}).get("experiment") or {}).get("containerRecords") or []
    times = [
        datetime.fromisoformat(event["timestamp"]).timestamp()
        for one in records
        for event in one.get("events") or ()
        if event["operation"] == "Apply" and event["type"] == "Succeeded"
    ]
    return max(times, default=None)


def _last_event(record: Mapping[str, Any]) -> Mapping[str, Any]:
    events = record.get("events") or [{}]
    last: Mapping[str, Any] = events[-1]
    return {"message": "it does not say why", **last}


def _hits(target: Target, duration_s: float) -> Manifest:
    return {
        "mode": _mode(target.pods),
        "selector": _selector(target),
        "duration": f"{math.ceil(duration_s)}s",
    }


def _mode(pods: Collection[str]) -> str:
    return "one" if len(pods) == 1 else "all"


def _selector(target: Target) -> Manifest:
    return {
        "namespaces": [target.namespace],
        "labelSelectors": dict(target.labels),
        "pods": {target.namespace: list(target.pods)},
    }
