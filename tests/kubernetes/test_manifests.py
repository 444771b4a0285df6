"""The manifests of deploy/kustomize: each overlay is accepted by the server and asks for little."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.conftest import ROOT, Namespaces, apply, kubectl, rendered

OVERLAYS = ("demo", "production")


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for overlay in OVERLAYS:
        for one in rendered(overlay):
            if one["kind"] in ("StatefulSet", "Deployment", "Job", "DaemonSet"):
                yield f"{overlay}/{one['metadata']['name']}", one["spec"]["template"]["spec"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_server_accepts_every_object(overlay: str, namespaces: Namespaces) -> None:
    objects = namespaces.renamed(list(rendered(overlay)))
    for one in objects:  # the source of a volume that exists cannot change
        if one["kind"] == "PersistentVolume":
            one["metadata"]["name"] += "-of-a-dry-run"
    said = apply(objects, "--dry-run=server", "--force-conflicts")
    assert len(said.splitlines()) == len(objects)


def test_the_images_of_production_are_named_by_their_digest() -> None:
    images = [
        one["image"] for name, pod in pods() if name.startswith("production") for one in pod["containers"]
    ]
    assert images
    assert all("@sha256:" in image for image in images)


def test_every_pod_is_confined() -> None:
    found = dict(pods())
    assert found
    for name, pod in found.items():
        about = pod["securityContext"]
        assert about["runAsNonRoot"] is True, name
        assert about["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for one in pod["containers"]:
            confined = {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert one["securityContext"] == confined, name
            assert one["resources"]["limits"]["memory"], name
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= one.keys(), name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_right_is_cluster_wide_or_a_wildcard_or_reads_secrets_or_runs_commands_in_pods(
    overlay: str,
) -> None:
    objects = rendered(overlay)
    assert not [one for one in objects if one["kind"] in ("ClusterRole", "ClusterRoleBinding")]
    roles = [one for one in objects if one["kind"] == "Role"]
    assert len(roles) == 7
    for role in roles:
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not {"pods/exec", "pods/attach", "pods/portforward"} & set(rule["resources"])
            if "secrets" in rule["resources"]:
                assert set(rule["verbs"]) == {"create"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_namespace_is_restricted_and_lets_nothing_through_by_default(overlay: str) -> None:
    objects = rendered(overlay)
    names = [one["metadata"]["name"] for one in objects if one["kind"] == "Namespace"]
    assert sorted(names) == ["headroom", "headroom-copies", "headroom-jobs"]
    for one in objects:
        if one["kind"] == "Namespace":
            assert one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    denied = [
        one["metadata"]["namespace"]
        for one in objects
        if one["kind"] == "NetworkPolicy"
        and one["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    ]
    assert sorted(denied) == sorted(names)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_copies_are_bounded_and_a_drain_waits_for_the_owner(overlay: str) -> None:
    found = {(one["kind"], one["metadata"].get("namespace")) for one in rendered(overlay)}
    assert {("ResourceQuota", "headroom-copies"), ("LimitRange", "headroom-copies")} <= found
    assert ("PodDisruptionBudget", "headroom") in found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_account_hands_out_a_token_by_itself(overlay: str) -> None:
    accounts = [one for one in rendered(overlay) if one["kind"] == "ServiceAccount"]
    assert len(accounts) == 5
    assert all(one["automountServiceAccountToken"] is False for one in accounts)


def with_component(name: str, folder: Path) -> list[dict[str, Any]]:
    """The objects of the overlay `demo` that a component adds or changes."""
    kustomize = ROOT / "deploy" / "kustomize"
    parts = {"resources": kustomize / "overlays" / "demo", "components": kustomize / "components" / name}
    text = {key: [os.path.relpath(path, folder)] for key, path in parts.items()}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(text))
    found = list(yaml.safe_load_all(kubectl("kustomize", str(folder))))
    return [one for one in found if one not in rendered("demo")]


def test_drills_on_live_jobs_are_one_component(tmp_path: Path) -> None:
    added = with_component("live-drills", tmp_path)
    assert [(one["kind"], one["metadata"]["namespace"]) for one in added] == [
        ("Role", "headroom-jobs"),
        ("RoleBinding", "headroom-jobs"),
    ]
    assert added[0]["rules"][0]["apiGroups"] == ["chaos-mesh.org"]


def test_a_port_for_prometheus_is_one_component(tmp_path: Path, namespaces: Namespaces) -> None:
    found = {one["kind"]: one for one in with_component("metrics", tmp_path)}
    assert found.keys() == {"Service", "StatefulSet", "NetworkPolicy"}
    assert {one["name"]: one["port"] for one in found["Service"]["spec"]["ports"]} == {
        "pages": 8473,
        "metrics": 9464,
    }
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert [one["containerPort"] for one in container["ports"]] == [9464]
    assert container["args"][0] == "serve"
    objects = namespaces.renamed(list(found.values()))
    assert apply(objects, "--dry-run=server", "--force-conflicts")
