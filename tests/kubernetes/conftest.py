"""A real Kubernetes with our namespaces, rights and images, for the tests of this folder.

`make test-kubernetes` starts the cluster of HEADROOM_TEST_CLUSTER, or of ../shared/cluster, and runs the
tests inside its network namespace: the API server, pods and services answer only there. Without a cluster
every test is skipped. A context that is not named headroom-test is refused, unless HEADROOM_TEST_ANY_CONTEXT
says so.

Each module has namespaces of its own, made from deploy/kustomize/overlays/demo; they are deleted at its end.
The images are built from deploy/ and kept in the cluster, by a tag that stands for their content.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from open_broker import OpenBroker

from pipelines.integrations.kubernetes_api import KubernetesApi
from pipelines.processes.owner import Owner, cleanup
from pipelines.settings.schema import KubernetesSettings
from profiling_jobs.brokers import Brokers

ROOT = Path(__file__).parents[2]
CONTEXT = "headroom-test"
NODE = "10.99.0.1"
"""Its address, which pods reach too."""
ANYWHERE = "HEADROOM_TEST_ANY_CONTEXT"
KEPT_IMAGES = 4
LARGEST_GB = 1.2
SESSION = "headroom.io/test-session"
"""A label of the namespaces and volumes of one session; its value is the pid."""
_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.kubernetes)


def folder_of_the_cluster() -> Path:
    """The scripts `up`, `run` and `image` of a test cluster."""
    return Path(os.environ.get("HEADROOM_TEST_CLUSTER") or ROOT.parent / "shared" / "cluster")


def why_not() -> str:
    """The reason to skip, in one line; empty where a cluster answers."""
    if not (folder_of_the_cluster() / "up").is_file():
        return "no test cluster: HEADROOM_TEST_CLUSTER names none, and ../shared/cluster is not there"
    if os.geteuid() != 0:
        return "the test cluster needs root"
    if not os.environ.get("KUBECONFIG") or kubectl("get", "--raw", "/readyz", check=False) != "ok":
        return "no cluster answers here: run `make test-kubernetes`"
    return ""


def refused(context: str, environment: Mapping[str, str]) -> str:
    """Why the tests do not touch this cluster; empty where they may."""
    if context == CONTEXT or environment.get(ANYWHERE) == "yes-i-mean-it":
        return ""
    return f"the context is '{context}', not '{CONTEXT}': {ANYWHERE}=yes-i-mean-it uses it all the same"


def kubectl(*arguments: str, input: str | None = None, check: bool = True) -> str:
    """Its output; as the cluster's admin."""
    done = subprocess.run(
        [folder_of_the_cluster() / "run", "kubectl", *arguments], input=input, capture_output=True, text=True
    )
    if check and done.returncode:
        raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Namespaces:
    """The three of one module."""

    headroom: str
    jobs: str
    copies: str
    folder: Path
    """Of this machine: what all three claims show, mounted at /headroom in the pods."""

    def renamed(self, objects: Any) -> Any:
        """Manifests of deploy/ with these namespaces for those of the product."""
        names = {
            "headroom-jobs": self.jobs,
            "headroom-copies": self.copies,
            "headroom": self.headroom,
        }
        if isinstance(objects, list):
            return [self.renamed(one) for one in objects]
        if not isinstance(objects, dict):
            return objects
        changed = {key: self.renamed(value) for key, value in objects.items()}
        for key in ("namespace", "kubernetes.io/metadata.name"):
            if isinstance(changed.get(key), str):
                changed[key] = names.get(changed[key], changed[key])
        if changed.get("key") == "kubernetes.io/metadata.name":
            changed["values"] = [names.get(value, value) for value in changed["values"]]
        if changed.get("kind") in ("Namespace", "PersistentVolume"):
            about = changed["metadata"]
            kind = about["name"].removesuffix("-data")
            about["name"] = about["name"].replace(kind, names[kind])
            about["labels"] = {**about.get("labels", {}), SESSION: str(os.getpid())}
        return changed


@functools.cache
def rendered(overlay: str) -> tuple[dict[str, Any], ...]:
    """The objects of an overlay of deploy/kustomize."""
    text = kubectl("kustomize", str(ROOT / "deploy" / "kustomize" / "overlays" / overlay))
    return tuple(yaml.safe_load_all(text))


def apply(objects: Sequence[dict[str, Any]], *options: str) -> str:
    """Through the server's own checks."""
    text = yaml.safe_dump_all(objects)
    return kubectl("apply", "--server-side", "--filename=-", *options, input=text)


@pytest.fixture(scope="session", autouse=True)
def cluster() -> Iterator[Path]:
    """The folder of its scripts; skips or refuses where tests may not run."""
    if reason := why_not():
        pytest.skip(reason)
    if refusal := refused(kubectl("config", "current-context"), os.environ):
        pytest.fail(refusal)
    clear(dead_only=True)
    yield folder_of_the_cluster()
    clear()


@pytest.fixture(scope="session")
def admin(cluster: Path) -> Iterator[KubernetesApi]:
    """May do everything. For what is around a test, never for what is tested."""
    api = KubernetesApi.connect(KubernetesSettings(context=kubectl("config", "current-context")))
    yield api
    api.close()


@pytest.fixture(scope="module")
def namespaces(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespaces]:
    """What the demo overlay has, in namespaces of this module; Headroom's own pod is not started."""
    folder = tmp_path_factory.mktemp("volume")
    os.chown(folder, 10001, 10001)
    found = own_namespaces(folder)
    objects = changed(found, rendered("demo"))
    for one in objects:
        if one["kind"] == "StatefulSet":
            one["spec"]["replicas"] = 0
    own = [one for one in objects if one["kind"] in ("Namespace", "PersistentVolume")]
    try:
        apply(own)
        apply(objects)
        yield found
    finally:
        for one in own:
            kubectl("delete", one["kind"].lower(), one["metadata"]["name"], "--wait=false", check=False)


def own_namespaces(folder: Path) -> Namespaces:
    """Names that nothing else of this or another session has."""
    prefix = f"headroom-{os.getpid()}-{next(_numbers)}"
    return Namespaces(prefix, f"{prefix}-jobs", f"{prefix}-copies", folder)


def changed(
    namespaces: Namespaces, objects: Sequence[dict[str, Any]], *, settings: str = "", image: str = ""
) -> list[dict[str, Any]]:
    """An overlay with our namespaces, volume, headroom.toml and image, asking for little."""
    found: list[dict[str, Any]] = namespaces.renamed(list(objects))
    for one in found:
        if one["kind"] == "PersistentVolume":
            one["spec"]["hostPath"]["path"] = str(namespaces.folder)
        if settings and one["kind"] == "ConfigMap":
            one["data"]["headroom.toml"] = settings
        if image and one["kind"] == "StatefulSet":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            container |= {"image": image, "imagePullPolicy": "Never"}
            container["resources"]["requests"]["cpu"] = "100m"
    return found


def written_overlay(objects: Sequence[dict[str, Any]], folder: Path) -> Path:
    """A folder that `kubectl apply -k` takes."""
    folder.mkdir()
    (folder / "all.yaml").write_text(yaml.safe_dump_all(objects))
    (folder / "kustomization.yaml").write_text("resources: [all.yaml]\n")
    return folder


def clear(*, dead_only: bool = False) -> None:
    """Delete what this session made, or what sessions that were killed have left."""
    pids = {str(os.getpid())}
    if dead_only:
        found = json.loads(kubectl("get", "namespaces", f"--selector={SESSION}", "--output=json"))["items"]
        pids = {pid for one in found if not alive(pid := one["metadata"]["labels"][SESSION])}
    for pid in pids:
        wait = "--wait=false" if dead_only else "--timeout=600s"
        kubectl("delete", "namespaces,persistentvolumes", f"--selector={SESSION}={pid}", wait)


def alive(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.fixture(scope="module")
def kubeconfig_of(
    namespaces: Namespaces, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Path]:
    """A kubeconfig of a ServiceAccount: `kubeconfig_of(namespace, account)`; the context is headroom-test."""

    @functools.cache
    def written(namespace: str, account: str) -> Path:
        config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        token = kubectl("create", "token", account, f"--namespace={namespace}", "--duration=8h")
        config["users"] = [{"name": account, "user": {"token": token}}]
        context = {"cluster": config["clusters"][0]["name"], "user": account, "namespace": namespace}
        config["contexts"] = [{"name": CONTEXT, "context": context}]
        config["current-context"] = CONTEXT
        path = tmp_path_factory.mktemp("kubeconfig") / f"{account}.yaml"
        path.touch(0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    return written


@pytest.fixture(scope="module")
def api_of(kubeconfig_of: Callable[[str, str], Path]) -> Iterator[Callable[[str, str], KubernetesApi]]:
    """The API server as a ServiceAccount: `api_of(namespace, account)`."""
    from kubernetes import client, config

    made: list[KubernetesApi] = []

    @functools.cache
    def connected(namespace: str, account: str) -> KubernetesApi:
        configuration = client.Configuration()
        config.load_kube_config(str(kubeconfig_of(namespace, account)), client_configuration=configuration)
        made.append(KubernetesApi(client.ApiClient(configuration), where=f"{CONTEXT} as {account}"))
        return made[-1]

    yield connected
    for api in made:
        api.close()


@pytest.fixture(scope="module")
def owner_api(namespaces: Namespaces, api_of: Callable[[str, str], KubernetesApi]) -> KubernetesApi:
    """The API server as Headroom itself, with the rights of deploy/kustomize."""
    return api_of(namespaces.headroom, "headroom-owner")


@pytest.fixture(scope="session")
def kafka(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """A broker on the node's address."""
    folder = tmp_path_factory.mktemp("kafka")
    try:
        with Owner(folder) as owner:
            yield OpenBroker(owner, host=NODE).start()
    finally:
        cleanup(folder, end_owner=True)


@pytest.fixture(scope="session")
def job_image(cluster: Path) -> str:
    """The image of drivers and executors, built when its content has changed."""
    return image("job", cluster)


@pytest.fixture(scope="session")
def control_image(cluster: Path) -> str:
    """The image of Headroom itself, built when its content has changed."""
    return image("control", cluster)


def image(name: str, cluster: Path) -> str:
    """Its tag, once the cluster has it."""
    dockerfile = ROOT / "deploy" / name / "Dockerfile"
    copied = re.findall(
        r"^COPY (?!--from)(.*) \S+$", dockerfile.read_text().replace("\\\n", " "), re.MULTILINE
    )
    sources = {str(dockerfile.relative_to(ROOT)), *" ".join(copied).split()}
    tag = f"docker.io/local/headroom-{name}:{content_hash(sorted(sources))}"
    if tag not in images("ls", "-q").split():
        build = [*out_of_the_network(), "nice", str(cluster / "image"), tag, str(dockerfile), str(ROOT)]
        done = subprocess.run(build, capture_output=True, text=True)
        assert done.returncode == 0, f"{tag} was not built: {(done.stdout + done.stderr)[-3000:]}"
        forget_old_images(f"docker.io/local/headroom-{name}")
    assert unpacked_gb(tag) <= LARGEST_GB
    return tag


def out_of_the_network() -> list[str]:
    """Begins a command that is to fetch packages: from the cluster's network nothing is reached.

    The process that has called `run` is still in the machine's own.
    """
    here = os.readlink("/proc/self/ns/net")
    for process in psutil.Process().parents():
        with suppress(OSError):
            if os.readlink(f"/proc/{process.pid}/ns/net") != here:
                return ["nsenter", f"--net=/proc/{process.pid}/ns/net"]
    return []


def images(*arguments: str) -> str:
    """`ctr images` of the cluster."""
    script = '. "$0/settings"; ctr -a "$state/containerd.sock" -n k8s.io images "$@"'
    done = subprocess.run(
        ["bash", "-c", script, folder_of_the_cluster(), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def unpacked_gb(tag: str) -> float:
    listed = subprocess.run(
        ["buildah", "images", "--json", tag], capture_output=True, text=True, check=True
    ).stdout
    size, unit = json.loads(listed)[0]["size"].split()
    return float(size) * {"GB": 1.0, "MB": 0.001}[unit]


def forget_old_images(name: str) -> None:
    """All but the newest: each takes a gigabyte. Other sessions may still use theirs, so a few are kept."""
    listed = subprocess.run(
        ["buildah", "images", f"--filter=reference={name}", "--format={{.Tag}}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()  # the newest first
    for tag in [tag for tag in listed if tag != "test"][KEPT_IMAGES:]:
        images("rm", f"{name}:{tag}")
        subprocess.run(["buildah", "rmi", f"{name}:{tag}"], capture_output=True, check=False)


def content_hash(paths: Sequence[str]) -> str:
    """Of the files of the repository at these paths, as they are now."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    digest = hashlib.sha256()
    for name in sorted(filter(None, names.split("\0"))):
        if (path := ROOT / name).is_file():
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
