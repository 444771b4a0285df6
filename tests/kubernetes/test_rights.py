"""Each of our accounts may do what it needs, and is refused everything else.

The accounts are those of deploy/kustomize, asked with their own tokens against the real API server.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from models.errors import HeadroomError
from pipelines.integrations.kubernetes_api import Forbidden, KubernetesApi
from tests.kubernetes.conftest import Namespaces

Right = tuple[str, str, str]  # group, resource, verb


def rights(group: str, resources: str, verbs: str) -> set[Right]:
    return {(group, *pair) for pair in itertools.product(resources.split(), verbs.split())}


RUNS_JOBS = (
    rights("", "pods", "get list watch create patch delete")
    | rights("apps", "deployments", "get list watch create patch delete")
    | rights("", "pods/log persistentvolumeclaims serviceaccounts", "get")
    | rights("", "events", "list")
    | rights("", "secrets", "create")
    | rights("", "configmaps", "create patch")
    | rights("", "resourcequotas", "list")
)
SPARK_APPLICATIONS = rights("sparkoperator.k8s.io", "sparkapplications", "get patch")
DRILLS = rights("chaos-mesh.org", "podchaos networkchaos stresschaos", "get list create patch delete")
LEADS = rights("coordination.k8s.io", "leases", "get create update")
ASKS_FOR_EXECUTORS = rights("", "pods", "get list watch create delete deletecollection")
ACCOUNTS = (
    "headroom/headroom-owner",
    "jobs/headroom-driver",
    "jobs/headroom-executor",
    "copies/headroom-driver",
)
PLACES = ("headroom", "jobs", "copies", "kube-system", "default")
EVERYBODY = rights(
    "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"
) | rights("authentication.k8s.io", "selfsubjectreviews", "create")
"""What the server allows every account."""
ALLOWED: dict[tuple[str, str], set[Right]] = {
    ("headroom/headroom-owner", "headroom"): LEADS,
    ("headroom/headroom-owner", "jobs"): RUNS_JOBS | SPARK_APPLICATIONS,
    ("headroom/headroom-owner", "copies"): RUNS_JOBS | DRILLS,
    ("jobs/headroom-driver", "jobs"): ASKS_FOR_EXECUTORS,
    ("copies/headroom-driver", "copies"): ASKS_FOR_EXECUTORS,
}


def as_account(
    account: str, namespaces: Namespaces, api_of: Callable[[str, str], KubernetesApi]
) -> KubernetesApi:
    where, _, name = account.partition("/")
    return api_of(getattr(namespaces, where), name)


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("place", PLACES)
def test_an_account_has_the_rights_of_the_table_and_no_other(
    account: str, place: str, namespaces: Namespaces, api_of: Callable[[str, str], KubernetesApi]
) -> None:
    """Rights in the whole cluster would be among those of every namespace."""
    review = as_account(account, namespaces, api_of)._send(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        body={"spec": {"namespace": getattr(namespaces, place, place)}},
    )
    found = {
        right
        for rule in review["status"]["resourceRules"]
        for right in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }
    assert review["status"]["incomplete"] is False
    assert found == ALLOWED.get((account, place), set()) | EVERYBODY


@pytest.mark.parametrize("account", ACCOUNTS)
def test_an_account_has_no_right_in_the_whole_cluster(
    account: str, namespaces: Namespaces, api_of: Callable[[str, str], KubernetesApi]
) -> None:
    api = as_account(account, namespaces, api_of)
    asked = [
        *(
            ("", resource, "list")
            for resource in ("pods", "secrets", "configmaps", "events", "nodes", "namespaces")
        ),
        ("apps", "deployments", "list"),
        ("coordination.k8s.io", "leases", "list"),
        ("chaos-mesh.org", "podchaos", "list"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "list"),
    ]
    assert [right for right in asked if api.may(right[2], right[1], group=right[0])] == []
    for resource in ("pods/exec", "pods/attach", "pods/portforward", "serviceaccounts/token"):
        for verb in ("get", "create"):
            assert not api.may(verb, resource, namespace=namespaces.jobs), resource


def test_the_owner_writes_a_token_that_it_can_neither_read_nor_delete(
    owner_api: KubernetesApi, namespaces: Namespaces
) -> None:
    about = {"name": "token-of-a-driver", "namespace": namespaces.jobs}
    owner_api.create("Secret", {"metadata": about, "stringData": {"token": "secret"}})
    with pytest.raises(Forbidden, match="secrets"):
        owner_api.get("Secret", namespaces.jobs, "token-of-a-driver")
    with pytest.raises(Forbidden, match="secrets"):
        owner_api.list("Secret", namespaces.jobs)
    with pytest.raises(Forbidden, match="secrets"):
        owner_api.delete("Secret", namespaces.jobs, "token-of-a-driver")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/pods"),
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/namespaces"),
        ("GET", "/apis/apps/v1/deployments"),
        ("GET", "/api/v1/namespaces/kube-system/pods"),
        ("GET", "/api/v1/namespaces/default/configmaps"),
        ("POST", "/api/v1/namespaces/JOBS/pods/any/exec"),
        ("POST", "/api/v1/namespaces/JOBS/serviceaccounts/headroom-driver/token"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/JOBS/rolebindings"),
        ("POST", "/apis/chaos-mesh.org/v1alpha1/namespaces/JOBS/podchaos"),
    ],
)
@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_server_refuses_what_is_not_ours(
    account: str,
    method: str,
    path: str,
    namespaces: Namespaces,
    api_of: Callable[[str, str], KubernetesApi],
) -> None:
    api = as_account(account, namespaces, api_of)
    body = None if method == "GET" else {"metadata": {"name": "any"}}
    with pytest.raises(Forbidden):
        api._send(method, path.replace("JOBS", namespaces.jobs), body=body)


def test_a_pod_that_is_not_confined_is_refused(owner_api: KubernetesApi, namespaces: Namespaces) -> None:
    pod = {
        "metadata": {"name": "root", "namespace": namespaces.copies},
        "spec": {"containers": [{"name": "root", "image": "any", "securityContext": {"privileged": True}}]},
    }
    with pytest.raises(HeadroomError, match="violates PodSecurity"):
        owner_api.create("Pod", pod)
