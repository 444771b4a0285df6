"""The ten steps of docs/kubernetes.md, from an empty cluster to a decision, and what comes after.

The commands are those of the page. What differs: images are loaded instead of pushed, namespaces have names
of this session, it records for ten seconds, Kafka listens on the node's address, and Chaos Mesh's controller
is the tests' twin. Every `headroom` runs in the owner's pod, with its ServiceAccount.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import waiting
from chaos_controller import ChaosController
from orders import orders as orders_in

from pipelines.environments.kubernetes.manifests import OWNER
from pipelines.integrations.kafka_broker import KafkaBroker
from pipelines.integrations.kubernetes_api import KubernetesApi, Manifest
from profiling_jobs import chaos
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver.batch_files import read_batches
from profiling_jobs.telemetry.checkpoint import Checkpoint, Position
from tests.conftest import BRIEF
from tests.kubernetes.conftest import (
    ROOT,
    Namespaces,
    changed,
    folder_of_the_cluster,
    kubectl,
    own_namespaces,
    rendered,
    written_overlay,
)

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
JOB = "enrichment"
PATIENCE_S = 600.0
RATE_RPS = 100.0
LIMIT = 1000
# Batches of a second: small enough for the sources of two copies on a busy machine, and large enough to show
# what a record costs.
SETTINGS = """
[deployment]
kind = "kubernetes"

[kubernetes]
own_namespace = "{headroom}"
namespace = "{jobs}"
copies_namespace = "{copies}"
image = "{image}"
image_pull_policy = "Never"
driver_cpu = "50m"
executor_cpu = "50m"

[spark.conf]
"spark.driver.extraJavaOptions" = "{brief}"
"spark.executor.extraJavaOptions" = "{brief}"

[brokers]
bootstrap = "{brokers}"

[job.enrichment]
build = "profiling_jobs.jobs.enrichment:build"
inputs = {{events = "orders"}}
outputs = {{results = "files:/headroom/.headroom/answers"}}
mode = "apply"
scale_out = 2
scale_out_max = 3
scale_in_window_s = 1800
max_offsets_per_trigger = {limit}
failure_kinds = ["executor_kill"]
recovery_target_s = 120
evaluation_interval_s = 15
events = "generator:enrichment"
profile_scale_outs = [1, 2]
profile_parallel = 2
profile_most_probes = 1
profile_budget_executor_s = 1500
profile_guess_rps = 300
probe_s = 30
warm_up_s = 15
"""


def steps() -> dict[int, list[str]]:
    """Number of a step on the page -> its commands."""
    part = PAGE.partition("## From an empty cluster to a decision")[2].partition("\n## ")[0]
    found = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^$)", part, re.MULTILINE | re.DOTALL)
    commands = r"`((?:deploy/build\.sh|kubectl|headroom) [^`]+)`"
    return {int(number): re.findall(commands, text) for number, text in found}


def removing() -> list[str]:
    """The commands of the page that remove everything."""
    part = PAGE.partition("## Removing it")[2].partition("```\n")[2].partition("```")[0]
    return [line.partition("#")[0].strip() for line in part.replace("\\\n", " ").splitlines()]


class Headroom:
    """The owner's pod, and commands in it."""

    def __init__(self, api: KubernetesApi, namespaces: Namespaces) -> None:
        self.api = api
        self.namespaces = namespaces

    def pod(self) -> Manifest | None:
        return self.api.find("Pod", self.namespaces.headroom, "headroom-0")

    def ready(self) -> bool:
        conditions = (self.pod() or {}).get("status", {}).get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def kubectl(self, command: str, **places: str) -> str:
        """What a command of the page prints, in the namespaces of this session."""
        return kubectl(*self._words(command.removeprefix("kubectl "), **places))

    def command(self, *words: str) -> list[str]:
        """To be run here: `headroom` in the pod, with the words of step 5."""
        (doctor,) = steps()[5]
        before, found, options = doctor.partition("headroom doctor")
        assert found
        there = self._words(f"{before}headroom {shlex.join(words)} --json {options}")
        return [str(folder_of_the_cluster() / "run"), *there]

    def run(self, *words: str, well: bool = True) -> Any:
        """What the command prints."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=2000)
        assert not well or done.returncode == 0, f"{words}: {done.stdout[-1500:]}{done.stderr[-3000:]}"
        return json.loads(done.stdout)

    def step(self, number: int, *more: str, at: int = 0, well: bool = True) -> Any:
        """What a `headroom` of the page prints."""
        return self.run(*self.words_of(number, at=at), *more, well=well)

    def words_of(self, number: int, *, at: int = 0) -> list[str]:
        _, *words = shlex.split(steps()[number][at])
        return [{"NAME": JOB}.get(word, word) for word in words]

    def said(self, logs: str) -> str:
        """What a command of the page shows of the pod's log, if there is one yet."""
        return kubectl(*self._words(logs.removeprefix("kubectl ").replace(" -f ", " ")), check=False)

    def everything(self) -> list[str]:
        """What jobs and copies have in their namespaces beside what the overlay has made."""
        kinds = "deployments,replicasets,pods,configmaps,secrets,services,podchaos,networkchaos,stresschaos"
        return [
            name
            for namespace in (self.namespaces.jobs, self.namespaces.copies)
            for name in kubectl("get", kinds, f"--namespace={namespace}", "--output=name").split()
            if name != "configmap/kube-root-ca.crt"
        ]

    def _words(self, command: str, **places: str) -> list[str]:
        names = {"headroom": self.namespaces.headroom, **places}
        words = shlex.split(command)
        for number, word in enumerate(words):
            if word in places or words[number - 1] == "-n":
                words[number] = names[word]
        return words

    def pods(self, **labels: str) -> list[Manifest]:
        """Those of jobs and copies that run."""
        chosen = {f"headroom.io/{key}": value for key, value in labels.items()}
        found = [
            pod
            for namespace in (self.namespaces.jobs, self.namespaces.copies)
            for pod in self.api.list("Pod", namespace, labels=chosen)
        ]
        return [one for one in found if one["status"].get("phase") == "Running"]


def until(condition: Callable[[], Any], what: str, *, patience_s: float = PATIENCE_S) -> Any:
    limit = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < limit, f"{what} did not come within {patience_s:.0f} s"
        time.sleep(1.0)
    return found


@pytest.fixture(scope="module")
def orders(kafka: Brokers) -> Iterator[Brokers]:
    """The topic of the job, and orders that keep coming."""
    closing = threading.Event()

    def flow() -> None:
        from kafka import KafkaProducer

        with KafkaProducer(**kafka.client(), retries=1000) as producer:
            number = 0
            while not closing.wait(0.1):
                for _ in range(int(RATE_RPS / 10)):
                    number += 1
                    order = {"order": f"o-{number}", "customer": number % 100, "amount": 1.0}
                    producer.send("orders", json.dumps(order).encode(), partition=number % 12)

    with KafkaBroker(kafka, patience_s=30.0) as broker:
        broker.create("orders", partitions=12)
    thread = threading.Thread(target=flow, daemon=True)
    thread.start()
    yield kafka
    closing.set()
    thread.join(timeout=30)


@pytest.fixture(scope="module")
def headroom(
    tmp_path_factory: pytest.TempPathFactory,
    admin: KubernetesApi,
    orders: Brokers,
    job_image: str,
    control_image: str,
) -> Iterator[Headroom]:
    """Steps 1 to 4: images, an overlay of one's own, a job in it, and the owner's pod, ready."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "volume").mkdir(mode=0o2770)
    os.chown(folder / "volume", 10001, 10001)
    namespaces = own_namespaces(folder / "volume")
    mine = own_overlay(folder, control_image)
    text = SETTINGS.format(
        headroom=namespaces.headroom,
        jobs=namespaces.jobs,
        copies=namespaces.copies,
        image=job_image,
        brokers=orders.bootstrap,
        brief=BRIEF,
        limit=LIMIT,
    )
    objects = changed(namespaces, rendered(str(mine)), settings=text, image=control_image)
    overlay = written_overlay(objects, folder / "renamed")
    found = Headroom(admin, namespaces)
    apply, wait = steps()[4]
    try:
        with ChaosController(admin, namespaces.copies):
            found.kubectl(apply, **{"YOUR-OVERLAY": str(overlay)})
            found.kubectl(wait)
            yield found
    finally:
        kubectl("delete", f"--kustomize={overlay}", "--ignore-not-found", "--wait=false")


def own_overlay(folder: Path, control_image: str) -> Path:
    """Step 2: the overlay `production` with other images and another volume than it names."""
    everything = shutil.copytree(ROOT / "deploy" / "kustomize", folder / "kustomize")
    mine = shutil.copytree(everything / "overlays" / "production", everything / "overlays" / "mine")
    image, _, tag = control_image.rpartition(":")
    for name, changes in {
        "kustomization.yaml": {
            "registry.example.internal/headroom-control": image,
            f"digest: sha256:{64 * '0'}": f"newTag: '{tag}'",
        },
        "volumes.yaml": {
            "nfs: {server: nfs.example.internal, path: /headroom}": "hostPath: {path: /, type: Directory}"
        },
    }.items():
        text = (mine / name).read_text()
        for before, after in changes.items():
            assert before in text
            text = text.replace(before, after)
        (mine / name).write_text(text)
    return mine


class TestTheTenSteps:
    """In this order: what one leaves, the next needs."""

    profiled = False

    def test_the_page_has_commands_in_all_steps_but_two(self) -> None:
        assert [number for number, commands in steps().items() if not commands] == [2, 3]
        assert list(steps()) == list(range(1, 11))
        assert [len(commands) for commands in steps().values()] == [1, 0, 0, 2, 1, 1, 1, 1, 1, 2]

    def test_1_to_4_the_owner_is_ready(self, headroom: Headroom) -> None:
        assert (ROOT / steps()[1][0].split()[0]).is_file()
        assert headroom.ready()

    def test_5_every_right_is_granted(self, headroom: Headroom) -> None:
        def answered() -> Any:
            found = headroom.run("doctor", well=False)["findings"]
            found = [one for one in found if one["what"] == "Kubernetes"]
            return None if "did not answer within" in found[0]["found"] else found

        cluster = until(answered, "an answer in time, on a busy machine")
        assert [one["state"] for one in cluster] == ["ok"], cluster

    def test_6_the_job_starts(self, headroom: Headroom) -> None:
        headroom.step(6)
        until(lambda: len(headroom.pods(copy=JOB, role="executor")) == 2, "two executors")

    def test_7_the_input_is_recorded_by_a_pod(self, headroom: Headroom) -> None:
        (recording,) = headroom.step(7, "--for", "10s")["recordings"].values()
        assert recording["records"] > 0.5 * 10 * RATE_RPS

    # Its budget bounds two copies at once; where only one has room, it may take twice as long.
    @pytest.mark.timeout(2400)
    def test_8_two_sizes_are_profiled_at_once(self, headroom: Headroom, tmp_path: Path) -> None:
        copies: set[frozenset[str]] = set()
        with (tmp_path / "out").open("w+") as written, (tmp_path / "said").open("w+") as told:
            profile = subprocess.Popen(
                headroom.command(*headroom.words_of(8)), stdout=written, stderr=told, text=True
            )
            while profile.poll() is None:
                names = {
                    one["metadata"]["labels"]["headroom.io/copy"] for one in headroom.pods(role="driver")
                }
                copies.add(frozenset(names - {JOB}))
                time.sleep(2.0)
        out, said = (tmp_path / "out").read_text(), (tmp_path / "said").read_text()
        assert max(map(len, copies)) == 2  # at the same time
        click.echo(f"profile: {out}")
        # Two copies at once are much for two processors: what their probes say of a busy machine is not used.
        type(self).profiled = profile.returncode == 0
        assert self.profiled or "no decision can follow" in out, out + said
        assert {pod["metadata"]["labels"]["headroom.io/copy"] for pod in headroom.pods()} == {JOB}

    @pytest.mark.timeout(2400)
    def test_9_an_executor_is_killed_by_chaos_mesh_and_the_copy_recovers(self, headroom: Headroom) -> None:
        drills = headroom.step(9, "--scale-out", "2", "--rate-rps", "100", well=False)["drills"]
        *repeated, drill = drills  # on a busy machine one may be invalid, and is repeated
        assert all("invalid" in one for one in repeated)
        click.echo(f"drill: {json.dumps(drill)}")
        assert drill["kind"] == "executor_kill"
        assert drill["recovery_s"] > 0.0
        predicted = drill["details"].get("predicted_recovery_s", {})
        # The model smooths over the sizes: what the probes of a busy machine say may rule out a prediction.
        told = predicted.get("mid") or "profile again" in predicted.get("reason", "")
        assert told or not self.profiled, drill
        assert headroom.api.list("PodChaos", headroom.namespaces.copies) == []

    def test_10_the_models_decide(self, headroom: Headroom) -> None:
        click.echo(f"models: {json.dumps(headroom.step(10, well=False))}")

        def decided() -> Any:
            found = headroom.step(10, at=1, well=False)
            known = "evaluation" in found and "capacity" in found["evaluation"]["models"]
            return found if known or not self.profiled else None

        explained = until(decided, "an evaluation with the new models")
        click.echo(f"explain: {explained['done']}, {explained['reason']}")
        told = explained["chosen"] in (1, 2, 3) or "profile again" in explained["reason"]
        assert told or not self.profiled, explained

    def test_live_from_two_to_three_executors_and_back_and_every_order_comes_out_once(
        self, headroom: Headroom, orders: Brokers
    ) -> None:
        """Through both rescales, and the death of an executor and of the driver in the middle of a batch."""
        folder = headroom.namespaces.folder
        answers = folder / "answers"
        checkpoint = Checkpoint(str(folder / "checkpoints" / JOB), ["orders"], job=JOB)

        def pods(role: str) -> set[str]:
            return {one["metadata"]["name"] for one in headroom.pods(copy=JOB, role=role)}

        def done() -> int:
            position = checkpoint.position()
            return sum(position.ends.values()) if isinstance(position, Position) else 0

        def in_a_batch() -> None:
            waiting.until(lambda: any(answers.glob(".draft-*")), "a batch under way")

        def settle(size: int, *, without: str = "") -> None:
            def settled() -> bool:
                return len(pods("driver")) == 1 and len(pods("executor") - {without}) == size

            until(settled, f"a driver and {size} executors")
            before = done()
            until(lambda: done() > before, f"a batch of {size} executors")

        [driver] = pods("driver")
        for size in (3, 2):
            in_a_batch()
            headroom.run("pin", JOB, str(size), "--why", "a test", well=False)
            settle(size)
        assert pods("driver") == {driver}
        for role in ("executor", "driver"):
            victim = min(pods(role))
            in_a_batch()
            headroom.api.delete("Pod", headroom.namespaces.jobs, victim, grace_s=0)
            settle(2, without=victim)
            assert victim not in pods(role)
        with KafkaBroker(orders, patience_s=30.0) as broker:
            asked = orders_in(broker, "orders")
            end = sum(broker.ends(["orders"]).values())
        until(lambda: done() >= end, "an answer to every order")
        answered = Counter(
            json.loads(value)["order"]
            for _, table in read_batches(answers)
            for value in table["value"].to_pylist()
        )
        lost, twice = asked - answered, Counter({one: answered[one] - asked[one] for one in asked})
        click.echo(f"{asked.total()} orders, {lost.total()} lost, {(+twice).total()} twice")
        assert (lost.total(), (+twice).total()) == (0, 0)

    @pytest.mark.timeout(2400)
    def test_an_owner_that_dies_in_a_drill_leaves_nothing_behind(
        self, headroom: Headroom, tmp_path: Path
    ) -> None:
        copies = headroom.namespaces.copies
        with (tmp_path / "said").open("w+") as said:
            drill = subprocess.Popen(
                headroom.command("drill", "enrichment", "--scale-out", "1", "--rate-rps", "100"),
                stdout=said,
                stderr=said,
            )

        def caused() -> Any:
            assert drill.poll() is None, (tmp_path / "said").read_text()
            return headroom.api.list("PodChaos", copies)

        until(caused, "the failure", patience_s=1500.0)
        pod = headroom.pod()
        assert pod is not None
        headroom.api.delete("Pod", headroom.namespaces.headroom, "headroom-0", grace_s=0)
        drill.wait(60)
        until(
            lambda: headroom.ready() and (headroom.pod() or pod)["metadata"]["uid"] != pod["metadata"]["uid"],
            "the next owner",
        )
        until(lambda: not headroom.api.list("PodChaos", copies), "the end of the failure")
        until(lambda: not headroom.pods(role="replay"), "the end of the copy's source")
        until(
            lambda: (
                {one["metadata"]["labels"]["headroom.io/copy"] for one in headroom.pods()} == {"enrichment"}
            ),
            "the end of the copy",
        )
        status = until(lambda: headroom.run("status", "enrichment", well=False), "the status")
        click.echo(f"status: {json.dumps(status)}")

    def test_cleanup_leaves_empty_namespaces(self, headroom: Headroom) -> None:
        mine = f"--selector={OWNER}"

        def agreed() -> set[str]:
            there = {
                f"{kind} {name.partition('/')[2]} in {namespace}"
                for namespace in (headroom.namespaces.jobs, headroom.namespaces.copies)
                for kind in ("Deployment", "Pod", "ConfigMap", "Secret", *chaos.CHAOS_KINDS)
                for name in kubectl("get", kind, mine, f"--namespace={namespace}", "--output=name").split()
            }
            listed = set(headroom.run("cleanup", "--dry-run", "--end-owner")["would_delete"])
            return listed if listed == there else set()  # what the dead owner has left may be going

        listed = until(agreed, "a list of what is there")
        assert any("enrichment-driver" in one for one in listed)
        patch, logs, _ = removing()
        pod = headroom.pod()
        assert pod is not None
        headroom.kubectl(patch)
        until(
            lambda: (found := headroom.pod()) and found["metadata"]["uid"] != pod["metadata"]["uid"],
            "its pod",
        )
        until(
            lambda: any("enrichment-driver" in headroom.said(f"{logs}{run}") for run in ("", " --previous")),
            "the end of everything",
        )
        until(lambda: not headroom.everything(), "the end of all objects")
