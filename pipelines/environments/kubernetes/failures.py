"""The `Failures` of a cluster, as Chaos Mesh objects, each of which is cleared.

An object is the record of its injection: it carries our labels and the injection in an annotation, so that
the next owner finds and clears it. Each has a duration, after which it ends by itself. Chaos Mesh
itself puts pods right when an object is deleted, and keeps it by a finalizer until then; the finalizer is
never removed from here.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Protocol

from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe
from models.ports import Injection, Query, Status
from profiling_jobs import chaos
from profiling_jobs.experiments.drill import clear_each

from ...integrations.kubernetes_api import KINDS, Forbidden, KubernetesApi, Manifest, NoSuchKind, NotFound
from ...settings.schema import KubernetesSettings
from . import manifests
from .spark_applications import Theirs

NODE_LOSS = "node_loss"
POLL_S = 0.2
INJECT_S = 30.0  # judgement: pods are hit within 4 s; for a network the daemon of the node must be reached
RECOVER_S = 30.0  # judgement: pods are put right within a second, a network within some
INSTALL = (
    "`helm install chaos-mesh chaos-mesh/chaos-mesh --namespace chaos-mesh --create-namespace` after "
    "`helm repo add chaos-mesh https://charts.chaos-mesh.org`"
)


class NothingSelected(NotReady):
    """The selector of a failure matches no pod."""


class Pods(Protocol):
    """Pods and labels of the deployments that a failure may hit."""

    def plan(self, name: str) -> Query: ...
    def status(self, name: str) -> Status: ...
    def namespace(self, name: str) -> str: ...
    def driver_pod(self, name: str) -> Manifest | None:
        """The running pod of the driver."""

    def executor_pods(self, name: str) -> list[Manifest]:
        """The running pods of executors, oldest first."""

    def theirs(self, name: str) -> Theirs | None:
        """What another system has set, of a job that it runs; None for ours, which carry our labels."""


class KubernetesFailures:
    """Failures of jobs on a cluster, through Chaos Mesh. An adapter of the port `Failures`."""

    def __init__(
        self,
        api: KubernetesApi,
        pods: Pods,
        settings: KubernetesSettings,
        *,
        owner: str,
        network_timeout_s: float,
        live_drills: Callable[[str], bool] = lambda job: False,
        check_lease: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`live_drills`: whether failures may be caused in the live job of this name, now."""
        self._api = api
        self._pods = pods
        self._settings = settings
        self._owner = owner
        self._strength = chaos.Strength(network_timeout_s, memory_mb=settings.overhead_mb // 2)
        self._live_drills = live_drills
        self._check_lease = check_lease
        self._clock = clock
        self._sleep = sleep
        self._in_hand: set[str] = set()
        self._caused = 0
        self._none_after: int | None = None
        """No object of ours was there once so many were caused: only we make them."""

    def kinds(self) -> frozenset[str]:
        """The kinds of failure that Chaos Mesh can cause."""
        return frozenset(chaos.CHAOS) - (frozenset() if self._settings.drill_node_selector else {NODE_LOSS})

    def inject(self, deployment: str, kind: str) -> Injection:
        """Cause a failure, and return as soon as Chaos Mesh says that the pods are hit."""
        plan = self._pods.plan(deployment)
        if kind not in chaos.CHAOS:
            raise chaos.why_not(kind)
        if kind not in self.kinds():
            raise Misconfigured(
                "kubernetes.drill_node_selector",
                f"'{kind}' needs a pool of nodes that is declared for it: set the labels of its nodes",
            )
        forbidden = () if self._live_drills(plan.job) else (self._settings.namespace,)
        if (namespace := self._pods.namespace(deployment)) in forbidden:
            raise Unsafe(
                f"{deployment} runs in the namespace of live jobs, '{namespace}': drill a copy in another "
                f"(kubernetes.copies_namespace), or set job.{plan.job}.allow_live_drills to true and wait "
                "until no blackout lasts"
            )
        status = self._pods.status(deployment)
        if status.state != "running" or not isinstance(status.executors_alive, int):
            raise NotReady(f"{deployment} does not run: {status.reason or status.state}")
        theirs = self._pods.theirs(deployment)
        target = self._target(deployment, kind, theirs)
        strength = self._strength
        if theirs is not None:
            strength = replace(strength, network_timeout_s=theirs.network_timeout_s)
        victim = ", ".join(f"pod {name}" for name in target.pods)
        injection = Injection(uuid.uuid4().hex[:12], deployment, kind, victim, self._clock())
        labels = {**target.labels, **manifests.labels(self._owner, plan, "failure")}
        manifest = chaos.manifest(injection, target, strength, labels=labels)
        chaos.refuse_unsafe(manifest, target, forbidden=forbidden)
        self._in_hand.add(injection.id)  # first: an object that is not in hand is cleared
        self._caused += 1
        try:
            self._create(manifest)
            injection = replace(injection, at_s=self._await_injected(manifest, injection.at_s))
            self._patch(manifest, {"metadata": {"annotations": chaos.noted(injection)}})
        except BaseException:
            self._in_hand.discard(injection.id)
            with suppress(HeadroomError):  # then it is left over, and ends with its duration
                self._delete(manifest)
            raise
        return injection

    def clear(self, injection_id: str) -> None:
        """Delete the object of a failure, and wait until Chaos Mesh has restored the pods."""
        self._in_hand.discard(injection_id)  # also where it fails: the next one tries again
        for found in self._objects():
            injection = chaos.injection_of(found)
            if injection is not None and injection.id == injection_id:
                self._delete(found)
                self._await_gone(found)

    def active(self) -> tuple[Injection, ...]:
        """Failures that were not cleared, also those of an earlier owner of this name, oldest first.

        Every evaluation of a job asks: the cluster is not, as long as none can be there.
        """
        return () if self._none_after == self._caused else self._look()

    def left_over(self) -> tuple[Injection, ...]:
        """Active failures that no thread of this process is working on."""
        active = self._look()  # before: what is caused meanwhile is in hand already
        return tuple(one for one in active if one.id not in self._in_hand)

    def clear_all(self) -> tuple[Injection, ...]:
        """Clear what is left, and say what that was."""
        left = self._look()
        clear_each(left, self.clear)
        return left

    def __enter__(self) -> KubernetesFailures:
        with suppress(HeadroomError):  # it stays there: the next drill says what is wrong
            self.clear_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._check_lease()
        except Unsafe:  # they are the next owner's, who has cleared what was left
            return
        self.clear_all()

    # ------------------------------------------------------------------------------------------- objects

    def _look(self) -> tuple[Injection, ...]:
        caused = self._caused
        objects = list(self._objects())
        self._none_after = None if objects or self._in_hand else caused
        found = [one for each in objects if (one := chaos.injection_of(each)) is not None]
        return tuple(sorted(found, key=lambda injection: injection.at_s))

    def _target(self, deployment: str, kind: str, theirs: Theirs | None) -> chaos.Target:
        driver = self._pods.driver_pod(deployment)
        executors = self._pods.executor_pods(deployment)
        what = chaos.CHAOS[kind][0]
        if driver is None or not (executors or what == "driver"):
            missing = "driver" if driver is None else "executor"
            raise NotReady(f"{deployment} has no {missing} that runs: try again")
        hit = [driver] if what == "driver" else executors[:1]
        if what == "node":
            hit = self._on_one_node(deployment, driver, executors)
        namespace = self._pods.namespace(deployment)
        labels = {manifests.OWNER: self._owner, manifests.COPY: deployment}
        if theirs is not None:
            labels = dict(theirs.labels)
        for pod in (*hit, driver):
            about = pod["metadata"]
            if about["namespace"] != namespace or not labels.items() <= about.get("labels", {}).items():
                raise Unsafe(
                    f"pod {about['namespace']}/{about['name']} is none of {deployment}'s: it is not hit"
                )
        peers = (driver["metadata"]["name"],) if kind == "network_partition" else ()
        return chaos.Target(namespace, labels, tuple(pod["metadata"]["name"] for pod in hit), peers)

    def _on_one_node(self, deployment: str, driver: Manifest, executors: list[Manifest]) -> list[Manifest]:
        """All executors on that node of the pool which has most of them, without the one of the driver."""
        pool = dict(self._settings.drill_node_selector)
        for pod in executors:
            if not pool.items() <= pod["spec"].get("nodeSelector", {}).items():
                raise Unsafe(
                    f"pod {pod['metadata']['name']} may run outside the nodes of "
                    f"kubernetes.drill_node_selector ({_listed(pool)}): launch {deployment} again, or "
                    "drill a copy"
                )
        drivers = driver["spec"].get("nodeName")
        nodes = Counter(node for pod in executors if (node := pod["spec"].get("nodeName")) != drivers)
        if not nodes:
            raise NotReady(
                f"every executor of {deployment} runs on the node of its driver, {drivers}, which is not "
                f"lost in a drill: a second node of the pool ({_listed(pool)}) must have room for executors"
            )
        [(lost, _)] = nodes.most_common(1)
        return [pod for pod in executors if pod["spec"].get("nodeName") == lost]

    def _await_injected(self, manifest: Manifest, created_s: float) -> float:
        """When the pods were hit, between its creation and now: its clock and ours may differ."""
        while True:
            found = self._get(manifest)
            waited_s = self._clock() - created_s
            outcome = chaos.outcome(found, waited_s=waited_s)
            if outcome.state == "injected":
                said_s = chaos.injected_at_s(found)
                return min(max(said_s or created_s, created_s), created_s + waited_s)
            name = f"{manifest['kind']} {found['metadata']['name']}"
            if outcome.state == "nothing_selected":
                raise NothingSelected(
                    f"{name} hits nothing: {outcome.reason}. The pod has ended meanwhile: try again; or "
                    "Chaos Mesh may not look into this namespace: annotate it chaos-mesh.org/inject=enabled"
                )
            if outcome.state == "recovered" or waited_s >= INJECT_S:
                raise NotReady(
                    f"{name} has not hit its pods within {waited_s:.0f} s: {outcome.reason}. See "
                    f"`kubectl -n {found['metadata']['namespace']} describe {_plural(manifest)} "
                    f"{found['metadata']['name']}`, and whether the pods of Chaos Mesh run"
                )
            self._sleep(POLL_S)

    def _await_gone(self, manifest: Manifest) -> None:
        until_s = self._clock() + RECOVER_S
        about = manifest["metadata"]
        where = f"{_plural(manifest)} {about['name']}"
        while (found := self._api.find(manifest["kind"], about["namespace"], about["name"])) is not None:
            if self._clock() >= until_s:
                held = ", ".join(found["metadata"].get("finalizers", ())) or "nothing"
                kubectl = f"kubectl -n {about['namespace']}"
                raise NotReady(
                    f"{where} is deleted, but held by {held} for {RECOVER_S:.0f} s: Chaos Mesh has not put "
                    f"its pods right. Is it running? See `{kubectl} describe {where}`. To give up waiting, "
                    f"and look after the pods yourself: `{kubectl} annotate {where} {chaos.FORCED}`"
                )
            self._sleep(POLL_S)

    def _objects(self) -> Iterator[Manifest]:
        """Our Chaos Mesh objects of every kind; none without Chaos Mesh."""
        labels = {manifests.OWNER: self._owner, manifests.ROLE: "failure"}
        for namespace in dict.fromkeys((self._settings.namespace, self._settings.copies_namespace)):
            for kind in chaos.CHAOS_KINDS:
                try:
                    there = self._api.list(kind, namespace, labels=labels)
                except NoSuchKind:
                    continue
                except Forbidden:
                    if namespace == self._settings.copies_namespace:
                        raise
                    continue  # without the right of live drills there is nothing of ours among live jobs
                for found in there:
                    yield {**found, "kind": kind}  # the items of a list do not say it

    def _create(self, manifest: Manifest) -> None:
        self._check_lease()  # not earlier: looking at the pods may have taken long
        try:
            self._api.create(manifest["kind"], manifest)
        except NoSuchKind as error:
            raise Misconfigured(
                "kubernetes",
                f"failures need Chaos Mesh 2.x, and this cluster does not have its {manifest['kind']} of "
                f"{chaos.API_VERSION}: {INSTALL}",
            ) from error

    def _get(self, manifest: Manifest) -> Manifest:
        about = manifest["metadata"]
        try:
            return self._api.get(manifest["kind"], about["namespace"], about["name"])
        except NotFound as error:
            raise NotReady(
                f"{about['name']} was deleted by another before it hit its pods: try again"
            ) from error

    def _patch(self, manifest: Manifest, changes: Manifest) -> None:
        about = manifest["metadata"]
        self._api.patch(manifest["kind"], about["namespace"], about["name"], changes)

    def _delete(self, manifest: Manifest) -> None:
        about = manifest["metadata"]
        self._api.delete(manifest["kind"], about["namespace"], about["name"])


def _listed(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())


def _plural(manifest: Manifest) -> str:
    return f"{KINDS[manifest['kind']].plural}.{KINDS[manifest['kind']].group}"
