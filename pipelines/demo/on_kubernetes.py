"""The demo on a cluster: it runs in a pod of its own, which is made, followed and removed from here.

Only a pod reaches the drivers by their addresses and has the volume that they share; a kubeconfig gives
neither. So the objects of an overlay of deploy/kustomize are applied with a pod that runs `headroom demo`, in
place of the StatefulSet that runs `headroom serve`, and its log is shown here. This needs `kubectl`.

Namespaces and volumes of the overlay must not be there before. They carry the label DEMO, and are deleted at
the end with everything in them. The topics are made and deleted by the pod itself (`own_topics`), which is
given the time for it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe

from ..environments.kubernetes import belongings, pods
from ..environments.kubernetes.environment import named_brokers
from ..environments.kubernetes.failures import INSTALL
from ..integrations.kafka_broker import KafkaBroker
from ..integrations.kubernetes_api import CHAOS, Manifest
from ..settings.schema import JobSettings, Settings
from .scenes import JOB

OVERLAY = Path(__file__).parents[2] / "deploy" / "kustomize" / "overlays" / "demo"
DEMO = "headroom.io/demo"
POD = "headroom-demo"
SETTINGS = "headroom.toml"
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")  # of a server
START_S = 300.0  # judgement: an image of a gigabyte is pulled within minutes
ENDING_S = 300  # judgement: drivers take up to 90 s to end, what is left of copies as long, topics seconds
GONE_S = 300  # judgement: a namespace without pods goes within a minute
POLL_S = 1.0
Say = Callable[[str], None]


class Kubectl:
    """kubectl against one context."""

    def __init__(self, context: str) -> None:
        self.context = context

    def __call__(self, *words: str, given: str = "") -> str:
        """What it prints; NotReady with its complaint."""
        done = subprocess.run(
            self._command(words), input=given, capture_output=True, text=True, start_new_session=True
        )
        if done.returncode:
            raise NotReady(f"`kubectl {words[0]}` on {self.context}: {done.stderr.strip()}")
        return done.stdout

    def lines(self, *words: str) -> Iterator[str]:
        """What it prints, line by line, until it ends in whatever way."""
        # A session of its own: Ctrl-C is for us, and the log is followed to the end of the pod.
        child = subprocess.Popen(
            self._command(words),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert child.stdout is not None
        try:
            for line in child.stdout:
                yield line.rstrip("\n")
        finally:
            child.terminate()
            child.wait()
            child.stdout.close()

    def _command(self, words: Sequence[str]) -> list[str]:
        return ["kubectl", f"--context={self.context}", *words]


def rendered(overlay: Path) -> list[Manifest]:
    """The objects of an overlay."""
    import yaml

    if shutil.which("kubectl") is None:
        raise Misconfigured("kubectl", "is not on the PATH, and applies the demo's objects: install it")
    done = subprocess.run(["kubectl", "kustomize", str(overlay)], capture_output=True, text=True)
    if done.returncode:
        raise Misconfigured(str(overlay), f"cannot be rendered: {done.stderr.strip()}")
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def settings_in(objects: Sequence[Manifest]) -> str:
    """The headroom.toml of an overlay."""
    found = [one["data"][SETTINGS] for one in objects if SETTINGS in (one.get("data") or {})]
    if len(found) != 1:
        raise Misconfigured("--overlay", f"must have one ConfigMap with {SETTINGS}, and has {len(found)}")
    return str(found[0])


def check(settings: Settings) -> None:
    """Refuse settings with which the demo would not run in a pod, or would leave something behind."""
    named_brokers(settings)
    if settings.deployment.kind != "kubernetes":
        raise Misconfigured("deployment.kind", "must be kubernetes in the overlay of a demo on a cluster")
    elsewhere = {
        "kubernetes.context": (settings.kubernetes.context, "a pod uses its ServiceAccount"),
        "store.url_from": (settings.store.url_from, "the demo keeps its store on its volume, and deletes it"),
        "mlflow.tracking_uri": (settings.mlflow.tracking_uri, "the demo keeps its models on its volume"),
    }
    for setting, (value, why) in elsewhere.items():
        if value is not None:
            raise Misconfigured(setting, f"is set in the overlay, but {why}: leave it out")


def in_a_pod(objects: Sequence[Manifest], words: Sequence[str]) -> list[Manifest]:
    """The same objects with `headroom demo WORDS` as a pod, in place of the StatefulSet."""
    owners = [one for one in objects if one["kind"] == "StatefulSet"]
    if len(owners) != 1:
        raise Misconfigured("--overlay", f"must have one StatefulSet, and has {len(owners)}")
    about, template = owners[0]["metadata"], owners[0]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    demo = {key: value for key, value in container.items() if key not in PROBES}
    demo["args"] = ["demo", "--deployment", "kubernetes", *container["args"][1:], *words]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": POD,
            "namespace": about["namespace"],
            "labels": {**template["metadata"]["labels"], DEMO: "true"},
        },
        "spec": {
            **template["spec"],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": ENDING_S,
            "containers": [demo],
        },
    }
    return [*(_labelled(one) for one in objects if one["kind"] != "StatefulSet"), pod]


class DemoPod:
    """The pod of a demo, and all that it needs. As a context: made, and removed on leaving."""

    def __init__(self, kubectl: Kubectl, objects: Sequence[Manifest], *, say: Say, show: Say) -> None:
        """`objects`: of `in_a_pod`. `show`: the lines that the demo prints."""
        self._kubectl, self._say, self._show = kubectl, say, show
        self._objects = list(objects)
        self._around = [one for one in self._objects if "namespace" not in one["metadata"]]
        """What is deleted: everything else is in one of these namespaces."""
        (pod,) = [one for one in self._objects if one["kind"] == "Pod"]
        self._namespace = f"--namespace={pod['metadata']['namespace']}"
        self._shown = 0
        """Lines of its log."""

    def __enter__(self) -> DemoPod:
        self._check_chaos_mesh()
        self._remove_earlier()
        names = ", ".join(one["metadata"]["name"] for one in self._around if one["kind"] == "Namespace")
        self._say(f"Kubernetes: {self._kubectl.context}; for this demo only: {names}")
        try:
            self._kubectl("apply", "--server-side", "--filename=-", given=_text(self._objects))
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            with suppress(HeadroomError):  # its end is waited for with its namespace
                self._kubectl("delete", "pod", POD, self._namespace, "--ignore-not-found", "--wait=false")
                self._follow_once()
        finally:
            self._remove()

    def follow(self) -> int:
        """Show what it prints until it has ended; its exit code."""
        self._await_start()
        while not pods.ended(pod := self._pod()):
            self._follow_once()
            time.sleep(POLL_S)
        self._follow_once()
        code = pods.exit_code(pod)
        if code is None:
            raise NotReady(
                f"the pod {POD} was ended by another: {pods.last_message(pod) or 'no reason given'}"
            )
        return code

    # ------------------------------------------------------------------------------------------ its parts

    def _check_chaos_mesh(self) -> None:
        known = self._kubectl("api-resources", f"--api-group={CHAOS.partition('/')[0]}", "--output=name")
        if "podchaos." not in known:
            raise Misconfigured(
                "kubernetes",
                "the demo promises a recovery time and drills it with Chaos Mesh 2.x, which is not on "
                f"{self._kubectl.context}: {INSTALL}",
            )

    def _remove_earlier(self) -> None:
        """What a demo has left that was killed; refuses what is another's."""
        answer = self._kubectl(
            "get", "--filename=-", "--ignore-not-found", "--output=json", given=_text(self._around)
        )
        found = json.loads(answer) if answer.strip() else {"items": []}
        there = found.get("items", [found])
        for one in there:
            if DEMO not in one["metadata"].get("labels", {}):
                raise Unsafe(
                    f"{one['kind']} {one['metadata']['name']} is on {self._kubectl.context} already, and is "
                    "not of a demo, which deletes its own at the end: use another context, or an --overlay "
                    "with other names"
                )
        if not there:
            return
        query = (
            "get",
            "pod",
            POD,
            self._namespace,
            "--ignore-not-found",
            "--output=jsonpath={.status.phase}",
        )
        if self._kubectl(*query) == "Running":
            raise Unsafe(
                f"a demo runs on {self._kubectl.context}: wait for its end, or end it with "
                f"`kubectl delete pod {POD} {self._namespace}`"
            )
        self._say("removing what an earlier demo has left")
        self._remove()

    def _await_start(self) -> None:
        until = time.monotonic() + START_S
        while pods.state(pod := self._pod()) == "waiting":
            if time.monotonic() > until:
                _, why = pods.explained(pod, self._events)
                raise NotReady(f"the pod {POD} does not start within {START_S:.0f} s: {why}")
            time.sleep(POLL_S)

    def _pod(self) -> Manifest:
        answer = self._kubectl("get", "pod", POD, self._namespace, "--ignore-not-found", "--output=json")
        if not answer.strip():
            raise NotReady(f"the pod {POD} was deleted by another")
        found: Manifest = json.loads(answer)
        return found

    def _events(self) -> list[Manifest]:
        chosen = f"--field-selector=involvedObject.name={POD}"
        found: list[Manifest] = json.loads(
            self._kubectl("get", "events", self._namespace, chosen, "--output=json")
        )["items"]
        return found

    def _follow_once(self) -> None:
        """A connection may be lost: the next one begins at the first line that was not shown."""
        for number, line in enumerate(self._kubectl.lines("logs", "--follow", POD, self._namespace)):
            if number >= self._shown:
                self._shown = number + 1
                self._show(line)

    def _remove(self) -> None:
        names = " ".join(f"{one['kind'].lower()}/{one['metadata']['name']}" for one in self._around)
        try:
            self._kubectl(
                *("delete", "--filename=-", "--ignore-not-found", f"--timeout={GONE_S}s"),
                given=_text(self._around),
            )
        except BaseException:
            self._say(
                f"not everything was removed: `kubectl --context {self._kubectl.context} delete {names}`"
            )
            raise


@contextmanager
def own_topics(settings: Settings, folder: Path, *, say: Say) -> Iterator[None]:
    """The topics of the demo's job; on leaving they go, after all in the cluster that belongs to the folder.

    In this order: brokers may make a topic again that a job still asks for.
    """
    job: JobSettings = settings.jobs[JOB]
    topics = (*job.inputs.values(), *job.outputs.values())
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(named_brokers(settings)))
        there = broker.topics()
        for topic in topics:
            if topic in there:
                raise Unsafe(
                    f"the topic {topic} is there already, of another demo on these brokers or of one that "
                    "was killed: wait for its end, or delete the topic"
                )
        for topic in topics:
            say(f"making the topic {topic}")
            stack.callback(broker.delete, topic)
            broker.create(topic, partitions=job.topic_partitions)
        stack.callback(belongings.remove_all, settings.kubernetes, folder)
        yield


def what_to_type(settings: Settings, file: Path, folder: Path, addresses: Mapping[str, Any]) -> list[str]:
    """Lines for the shell, while the pod is there."""
    pod = f"kubectl -n {settings.kubernetes.own_namespace}"
    where = f"--file {file} --folder {folder}"
    pages = []
    if addresses:
        port = str(addresses["pages"]).rpartition(":")[2]
        pages = [
            f"Pages      {pod} port-forward {POD} {port}",
            f"           {pod} exec {POD} -- headroom open {where}  prints the address that lets your "
            "browser in",
        ]
    return [
        *pages,
        f"Commands   {pod} exec {POD} -- headroom explain {JOB} {where}",
    ]


def _labelled(one: Manifest) -> Manifest:
    if "namespace" in one["metadata"]:
        return one
    return {
        **one,
        "metadata": {**one["metadata"], "labels": {**one["metadata"].get("labels", {}), DEMO: "true"}},
    }


def _text(objects: Sequence[Manifest]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
