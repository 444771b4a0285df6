"""The demo on a cluster, as seen from here: a pod is made, followed and removed, and what others have is not.

`kubectl` is a script that writes down what it is asked; tests/kubernetes/test_demo.py runs the real one.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pipelines.command_line import main
from pipelines.demo.on_kubernetes import DEMO, ENDING_S, OVERLAY, POD, in_a_pod

KUBECTL = f"""#!{sys.executable}
import json, os, sys, time
from pathlib import Path

here = Path(__file__).parent
words = [one for one in sys.argv[1:] if not one.startswith("--context=")]
given = "" if sys.stdin is None or "--filename=-" not in words else sys.stdin.read()
with (here / "calls").open("a") as file:
    file.write(json.dumps({{"words": words, "given": json.loads(given) if given else None}}) + "\\n")
state = json.loads((here / "state.json").read_text())
if words[0] == "kustomize":
    print((Path(words[1]) / "all.yaml").read_text())
elif words[0] == "api-resources":
    print("\\n".join(state["chaos"]))
elif words[:2] == ["get", "--filename=-"]:
    print(json.dumps({{"items": state["there"]}}))
elif words[:2] == ["get", "pod"] and "jsonpath" in words[-1]:
    print(state["phase"], end="")
elif words[:2] == ["get", "pod"]:
    ended = {{"terminated": {{"exitCode": state["exit_code"]}}}}
    running = state["runs_on"] and not (here / "deleted").exists()
    print(json.dumps({{
        "metadata": {{"uid": "1"}},
        "status": {{
            "phase": "Running" if running else "Failed" if state["exit_code"] else "Succeeded",
            "containerStatuses": [{{"state": {{"running": {{}}}} if running else ended}}],
        }},
    }}))
elif words[0] == "logs":
    for line in state["log"]:
        print(line, flush=True)
    while state["runs_on"] and not (here / "deleted").exists():
        time.sleep(0.05)
    print("the topic is deleted", flush=True)
elif words[:2] == ["delete", "pod"]:
    (here / "deleted").touch()
"""
CONTEXTS = ("production", "try-out")


class Cluster:
    """What the script answers, and what it was asked."""

    def __init__(self, folder):
        self.folder = folder
        self.state = {
            "chaos": ["podchaos.chaos-mesh.org"],
            "there": [],
            "phase": "",
            "log": ["[1/7] start: start enrichment with 1 executor"],
            "exit_code": 0,
            "runs_on": False,
        }

    def demo(self, *words, context="try-out"):
        self.write()
        named = ["--context", context] if context else []
        return CliRunner().invoke(main, [*self.words(*words), *named])

    def words(self, *words):
        return ["demo", "--deployment", "kubernetes", "--overlay", str(self.folder / "overlay"), *words]

    def write(self):
        (self.folder / "state.json").write_text(json.dumps(self.state))

    def calls(self, verb):
        lines = (self.folder / "calls").read_text().splitlines() if (self.folder / "calls").exists() else []
        return [one for one in map(json.loads, lines) if one["words"][0] == verb]


def objects():
    """As kustomize renders them; what matters here."""
    container = {
        "name": "headroom",
        "image": "headroom-control",
        "args": ["serve", "--file", "/etc/headroom/headroom.toml", "--folder", "/headroom/.headroom"],
        "livenessProbe": {"exec": {"command": ["headroom-alive"]}},
    }
    template = {"metadata": {"labels": {"app": "headroom"}}, "spec": {"containers": [container]}}
    text = (OVERLAY / "headroom.toml").read_text()
    settings, server = ({"name": name, "namespace": "trial"} for name in ("headroom-settings", "headroom"))
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trial"}},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "trial-data"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": settings, "data": {"headroom.toml": text}},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": server, "spec": {"template": template}},
    ]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay" / "all.yaml").write_text(yaml.safe_dump_all(objects()))
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "production",
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": "one", "user": "me"}} for name in CONTEXTS],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    location = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    monkeypatch.setattr(location, str(tmp_path / "kubeconfig"))
    monkeypatch.chdir(tmp_path)
    return Cluster(tmp_path)


def test_a_pod_takes_the_place_of_the_server():
    *others, pod = in_a_pod(objects(), ["--no-pages"])
    assert [one["kind"] for one in others] == ["Namespace", "PersistentVolume", "ConfigMap"]
    assert [one["metadata"].get("labels") for one in others] == [{DEMO: "true"}, {DEMO: "true"}, None]
    assert pod["metadata"] == {
        "name": POD,
        "namespace": "trial",
        "labels": {"app": "headroom", DEMO: "true"},  # as the network policies select it
    }
    assert (pod["spec"]["restartPolicy"], pod["spec"]["terminationGracePeriodSeconds"]) == ("Never", ENDING_S)
    (container,) = pod["spec"]["containers"]
    assert " ".join(container["args"]) == (
        "demo --deployment kubernetes --file /etc/headroom/headroom.toml --folder /headroom/.headroom "
        "--no-pages"
    )
    assert "livenessProbe" not in container


@pytest.mark.parametrize("code", [0, 1, 2])
def test_what_the_pod_prints_is_shown_and_everything_is_removed(cluster, code):
    cluster.state |= {"exit_code": code, "log": ["[1/7] start: a job", '{"applied": true}']}
    done = cluster.demo("--json")
    assert (done.exit_code, json.loads(done.stdout)) == (code, {"applied": True})
    assert "for this demo only: trial" in done.stderr
    assert done.stderr.count("[1/7] start: a job") == 1
    (applied,) = cluster.calls("apply")
    assert {one["kind"] for one in applied["given"]["items"]} == {
        *("Namespace", "PersistentVolume", "ConfigMap", "Pod")
    }
    last = cluster.calls("delete")[-1]["given"]["items"]
    assert [one["metadata"]["name"] for one in last] == ["trial", "trial-data"]


def test_ctrl_c_lets_the_pod_end_before_its_namespace_is_deleted(cluster):
    cluster.state["runs_on"] = True
    cluster.write()
    headroom = [sys.executable, "-c", "from pipelines.command_line import main; main()"]
    root = str(Path(__file__).parents[2])
    child = subprocess.Popen(
        [*headroom, *cluster.words("--context", "try-out")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    assert child.stdout is not None
    lines = []
    while "[1/7]" not in (line := child.stdout.readline()):
        assert line, lines
        lines.append(line)
    time.sleep(0.2)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does, to kubectl as well
    said, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert said.splitlines() == ["the topic is deleted", "everything that was started has ended"]
    assert [one["words"][1] for one in cluster.calls("delete")] == ["pod", "--filename=-"]


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ("", "--context (CONTEXT= of make): must be named; the current one is 'production', and there is"),
        ("elsewhere", "there is no 'elsewhere'; there is production, try-out"),
    ],
)
def test_a_context_is_never_guessed(cluster, context, said):
    done = cluster.demo(context=context)
    assert done.exit_code == 2
    assert said in done.output
    assert not cluster.calls("apply")


def test_another_context_than_that_of_the_settings_is_confirmed(cluster):
    (cluster.folder / "headroom.toml").write_text('[kubernetes]\ncontext = "production"\n')
    done = cluster.demo()
    assert done.exit_code == 2
    assert "kubernetes.context is 'production', not 'try-out'" in done.output
    assert not cluster.calls("apply")
    assert cluster.demo("--yes").exit_code == 0
    assert cluster.demo(context="production").exit_code == 0
    assert cluster.demo(context="").exit_code == 0  # the one of the settings


OF_ANOTHER = {"kind": "Namespace", "metadata": {"name": "trial"}}
OF_A_DEMO = {"kind": "Namespace", "metadata": {"name": "trial", "labels": {DEMO: "true"}}}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"chaos": []}, "helm install chaos-mesh"),
        ({"there": [OF_ANOTHER]}, "Namespace trial is on try-out already, and is not of a demo"),
        ({"there": [OF_A_DEMO], "phase": "Running"}, f"a demo runs on try-out: .*`kubectl delete pod {POD}"),
    ],
)
def test_what_stands_in_its_way_is_left_alone(cluster, state, said):
    cluster.state |= state
    done = cluster.demo()
    assert done.exit_code == 2
    assert re.search(said, done.output)
    assert not cluster.calls("apply")
    assert not cluster.calls("delete")


def test_what_a_killed_demo_has_left_is_removed_first(cluster):
    cluster.state["there"] = [OF_A_DEMO]
    done = cluster.demo()
    assert done.exit_code == 0
    assert "removing what an earlier demo has left" in done.output
    assert len(cluster.calls("delete")) == 3


BROKERS = '[brokers]\nbootstrap = "kafka:9092"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "brokers.bootstrap: must name your brokers"),
        (BROKERS + '[kubernetes]\ncontext = "try-out"\n', "kubernetes.context: is set in the overlay"),
        (BROKERS + '[store]\nurl_from = "STORE_URL"\n', "store.url_from: is set in the overlay, but the"),
        (BROKERS + '[mlflow]\ntracking_uri = "http://models:5000"\n', "mlflow.tracking_uri: is set"),
    ],
)
def test_settings_that_would_leave_something_behind_are_refused(cluster, text, said):
    those = objects()
    those[2]["data"]["headroom.toml"] = f'[deployment]\nkind = "kubernetes"\n{text}'
    (cluster.folder / "overlay" / "all.yaml").write_text(yaml.safe_dump_all(those))
    done = cluster.demo()
    assert done.exit_code == 2
    assert said in done.output
    assert not cluster.calls("apply")
