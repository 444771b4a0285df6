"""`headroom demo --deployment kubernetes`: from empty namespaces to an applied decision, and back to nothing.

Chaos Mesh's controller is the tests' twin. Brokers, images and cluster are those of the other tests;
namespaces, volume and topics are the demo's own. The whole demo takes ten minutes on two cores, and runs with
HEADROOM_WHOLE_DEMO=1; otherwise it is only interrupted at its first stage.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import pytest
from chaos_controller import ChaosController

from pipelines.demo.story import STAGES
from pipelines.integrations.kafka_broker import KafkaBroker
from pipelines.integrations.kubernetes_api import KubernetesApi
from profiling_jobs.brokers import Brokers
from tests.kubernetes.conftest import (
    Namespaces,
    changed,
    kubectl,
    own_namespaces,
    rendered,
    written_overlay,
)

PATIENCE_S = 1000.0


@dataclass(frozen=True)
class Demo:
    """The command, and where it happens."""

    command: list[str]
    namespaces: Namespaces
    kafka: Brokers

    def left(self) -> list[Any]:
        """What is still there: namespaces and volumes, topics, files."""
        there = kubectl(
            *("get", "namespaces,persistentvolumes", "--output=name"),
        ).splitlines()
        with KafkaBroker(self.kafka) as broker:
            topics = [topic for topic in broker.topics() if "demo" in topic or "enrichment" in topic]
        named = [one for one in there if self.namespaces.headroom in one]
        return [*named, *topics, *self.namespaces.folder.iterdir()]


@pytest.fixture(scope="module")
def demo(
    tmp_path_factory: pytest.TempPathFactory,
    admin: KubernetesApi,
    kafka: Brokers,
    job_image: str,
    control_image: str,
) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    (folder / "volume").mkdir()
    os.chown(folder / "volume", 10001, 10001)
    namespaces = own_namespaces(folder / "volume")
    settings = f"""
[deployment]
kind = "kubernetes"

[kubernetes]
own_namespace = "{namespaces.headroom}"
namespace = "{namespaces.jobs}"
copies_namespace = "{namespaces.copies}"
image = "{job_image}"
image_pull_policy = "Never"
driver_cpu = "50m"
executor_cpu = "50m"

[brokers]
bootstrap = "{kafka.bootstrap}"
"""
    objects = changed(namespaces, rendered("demo"), settings=settings, image=control_image)
    overlay = written_overlay(objects, folder / "overlay")
    command = [
        *(sys.executable, "-c", "from pipelines.command_line import main; main()"),
        *("demo", "--deployment", "kubernetes", "--json", "--overlay", str(overlay)),
        *("--context", kubectl("config", "current-context")),
    ]
    with ChaosController(admin, namespaces.copies):
        yield Demo(command, namespaces, kafka)


@pytest.mark.skipif(os.environ.get("HEADROOM_WHOLE_DEMO") != "1", reason="HEADROOM_WHOLE_DEMO=1 runs it all")
def test_from_empty_namespaces_to_a_decision_that_was_carried_out(demo: Demo) -> None:
    done = subprocess.run(demo.command, capture_output=True, text=True, timeout=PATIENCE_S)
    click.echo(f"{done.stderr}\n{done.stdout}")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["applied"]
    assert list(found["took_s"]) == [name for name in STAGES if name != "prove"]
    assert found["promise"] == {"target_s": 120.0, "confidence": 0.9}
    assert {"1", "2"} <= found["capacity_rps"].keys()
    assert {"capacity", "workload"} <= found["models"].keys()
    assert {change["path"] for change in found["changes"]} == {"live"}
    assert found["changes"][0]["before"] == 1 < found["changes"][-1]["to"]
    (drill,) = found["drills"]
    assert drill["kind"] == "executor_kill"
    assert drill["recovery_s"] > 0.0
    assert "predicted_recovery_s" in drill["details"]
    assert demo.left() == []


def test_ctrl_c_removes_everything_too(demo: Demo) -> None:
    child = subprocess.Popen(
        demo.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stderr is not None
    said = []
    while "it runs" not in (line := child.stderr.readline()):
        assert line, said
        said.append(line)
    os.killpg(child.pid, signal.SIGINT)
    _, rest = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 130, "".join(said) + rest
    assert demo.left() == []
