"""The Kubernetes API server, through the `kubernetes` client, with plain dicts.

    api = KubernetesApi.connect(settings)
    api.create("Pod", manifest)
    api.list("PodChaos", namespace, labels={"headroom.io/owner": owner})

In a cluster the token of the ServiceAccount is used, and read again when it rotates; elsewhere a context of
a kubeconfig that the settings name. Reads and deletions are repeated when the server is busy, restarting or
away for a moment; other writes only where nothing can have been done (429, 401, no connection). Errors are
those of models.errors: what is not there is `NotFound`, a change by another in between is `Conflict`, both
NotReady.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from models.errors import Misconfigured, NotReady, Unsafe

from ..settings.schema import KubernetesSettings

Manifest = dict[str, Any]
Manifests = list[Manifest]

CONNECT_S = 5.0  # judgement: a cluster answers in milliseconds
SILENCE_S = 90.0  # a watch says once a minute that it lives (a bookmark)
ANSWER_S = 30.0  # judgement: the API server itself gives up a request after 60 s
PATIENCE_S = 45.0  # judgement: an API server that is restarted is away for some 30 s
FIRST_PAUSE_S = 0.5
BUSY = frozenset({429, 500, 502, 503, 504})
PASSING = ("because it is being terminated", "exceeded quota", "status unknown for quota")
"""What the server forbids for now only: nothing is missing in the rights."""


class NotFound(NotReady):
    """The object is not there."""


class NoSuchKind(NotFound):
    """The server does not know the kind, or not in this version: its CRD is missing."""


class Conflict(NotReady):
    """The object was changed since it was read, or is there already."""


class Expired(NotReady):
    """The server does not know any more what has changed since the version that was asked for."""


class Forbidden(Unsafe):
    """The ServiceAccount or user lacks a right."""


@dataclass(frozen=True)
class Kind:
    """Where objects of a kind are found."""

    api_version: str
    plural: str

    def path(self, namespace: str, name: str = "") -> str:
        prefix = "api" if "/" not in self.api_version else "apis"
        parts = [f"/{prefix}/{self.api_version}"]
        if namespace:
            parts.append(f"namespaces/{quote(namespace)}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name))
        return "/".join(parts)

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


CHAOS = "chaos-mesh.org/v1alpha1"
KINDS: Mapping[str, Kind] = {
    "Pod": Kind("v1", "pods"),
    "Secret": Kind("v1", "secrets"),
    "ConfigMap": Kind("v1", "configmaps"),
    "Event": Kind("v1", "events"),
    "ResourceQuota": Kind("v1", "resourcequotas"),
    "ServiceAccount": Kind("v1", "serviceaccounts"),
    "PersistentVolumeClaim": Kind("v1", "persistentvolumeclaims"),
    "Deployment": Kind("apps/v1", "deployments"),
    "Lease": Kind("coordination.k8s.io/v1", "leases"),
    "PodChaos": Kind(CHAOS, "podchaos"),
    "NetworkChaos": Kind(CHAOS, "networkchaos"),
    "StressChaos": Kind(CHAOS, "stresschaos"),
    "SparkApplication": Kind("sparkoperator.k8s.io/v1beta2", "sparkapplications"),
    "SelfSubjectAccessReview": Kind("authorization.k8s.io/v1", "selfsubjectaccessreviews"),
}
"""The kinds that Headroom reads or writes."""


class KubernetesApi:
    """Requests to one API server. For several threads."""

    def __init__(
        self,
        client: Any,
        *,
        where: str,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        client.rest_client.pool_manager.connection_pool_kw["retries"] = False  # what is safe is repeated here
        self._client = client
        self._patience_s = patience_s
        self._clock = clock
        self._sleep = sleep
        self.where = where
        """The context, or "in cluster": for messages."""
        self.requests = 0
        """Sent so far; repeated ones count again."""

    @classmethod
    def connect(cls, settings: KubernetesSettings, *, patience_s: float = PATIENCE_S) -> KubernetesApi:
        """The API server of the settings. Nothing is sent yet."""
        from kubernetes import client, config

        configuration: Any = client.Configuration()
        if settings.context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            try:
                config.load_incluster_config(configuration)
            except config.ConfigException as error:
                raise Misconfigured(
                    "kubernetes.context",
                    f"is not set, and this pod has no ServiceAccount token ({error}): set "
                    "automountServiceAccountToken, or name a context",
                ) from error
            configuration.refresh_api_key_hook = _read_token
            return cls(client.ApiClient(configuration), where="in cluster", patience_s=patience_s)
        context = named_context(settings)
        try:
            config.load_kube_config(context=context, client_configuration=configuration)
        except (config.ConfigException, OSError) as error:
            raise Misconfigured("kubernetes.context", f"'{context}' cannot be used: {error}") from error
        return cls(client.ApiClient(configuration), where=context, patience_s=patience_s)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    # ------------------------------------------------------------------------------------------- objects

    def get(self, kind: str, namespace: str, name: str) -> Manifest:
        """One object; NotFound where there is none."""
        return self._send("GET", KINDS[kind].path(namespace, name))

    def find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """One object that may be there."""
        try:
            return self.get(kind, namespace, name)
        except NotFound:
            return None

    def list(
        self, kind: str, namespace: str, *, labels: Mapping[str, str] | None = None, fields: str = ""
    ) -> list[Manifest]:
        """All objects of a kind in a namespace with these labels."""
        return self.list_at(kind, namespace, labels or {}, fields=fields)[0]

    def list_at(
        self, kind: str, namespace: str, labels: Mapping[str, str], *, fields: str = ""
    ) -> tuple[Manifests, str]:
        """As `list`, with the version from which changes can be followed."""
        query = {"labelSelector": _selector(labels), "fieldSelector": fields}
        found = self._send("GET", KINDS[kind].path(namespace), query=query)
        return found["items"], found["metadata"]["resourceVersion"]

    @contextmanager
    def changes(
        self, kind: str, namespace: str, labels: Mapping[str, str], *, since: str, lasts_s: int
    ) -> Iterator[Changes]:
        """The changes since a version, as they come, until the server ends this after `lasts_s`."""
        path = KINDS[kind].path(namespace)
        query = {
            "watch": "true",
            "labelSelector": _selector(labels),
            "resourceVersion": since,
            "timeoutSeconds": str(lasts_s),
            "allowWatchBookmarks": "true",
        }
        answer = self._answer("GET", path, query, None, "", read=False)
        try:
            if answer.status >= 300:
                raise _error(answer.status, bytes(answer.read()).decode("utf-8", "replace"), f"GET {path}")
            yield Changes(answer.response, self.where)
        finally:
            answer.response.close()

    def create(self, kind: str, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create it in its namespace; Conflict where the name is taken. `dry_run`: only check it."""
        namespace = manifest["metadata"].get("namespace", "")
        typed = {"apiVersion": KINDS[kind].api_version, "kind": kind, **manifest}
        query = {"dryRun": "All" if dry_run else ""}
        return self._send("POST", KINDS[kind].path(namespace), query=query, body=typed)

    def patch(self, kind: str, namespace: str, name: str, changes: Manifest) -> Manifest:
        """Merge the changes. With `metadata.resourceVersion` in them a change in between is a Conflict."""
        return self._send(
            "PATCH",
            KINDS[kind].path(namespace, name),
            body=changes,
            content_type="application/merge-patch+json",
        )

    def replace(self, kind: str, manifest: Manifest) -> Manifest:
        """Put the whole object; a change since it was read is a Conflict."""
        about = manifest["metadata"]
        path = KINDS[kind].path(about.get("namespace", ""), about["name"])
        return self._send("PUT", path, body=manifest)

    def delete(
        self, kind: str, namespace: str, name: str, *, grace_s: int | None = None, uid: str = ""
    ) -> None:
        """Delete it, and what it owns. Deleting what is not there is not an error."""
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._send("DELETE", KINDS[kind].path(namespace, name), body=options)
        except NotFound:
            return

    def log(self, namespace: str, pod: str, *, lines: int = 50) -> str:
        """The last lines of a pod's log; empty where there are none yet."""
        path = f"{KINDS['Pod'].path(namespace, pod)}/log"
        try:
            return self._text("GET", path, query={"tailLines": str(lines)})
        except (NotReady, Misconfigured):  # a bad request, while its container waits to start
            return ""

    def may(self, verb: str, resource: str, *, group: str = "", namespace: str = "") -> bool:
        """Whether we have this right (SelfSubjectAccessReview)."""
        resource, _, subresource = resource.partition("/")
        wanted = {"verb": verb, "resource": resource, "group": group, "namespace": namespace}
        if subresource:
            wanted["subresource"] = subresource
        review = self.create(
            "SelfSubjectAccessReview", {"metadata": {}, "spec": {"resourceAttributes": wanted}}
        )
        return bool(review["status"]["allowed"])

    def versions(self, group: str) -> tuple[str, ...]:
        """The versions of a group of kinds that the server knows; none where it is not installed."""
        try:
            return tuple(one["version"] for one in self._send("GET", f"/apis/{group}")["versions"])
        except NotFound:
            return ()

    def version(self) -> tuple[str, float]:
        """The version of the server, and its clock (epoch seconds)."""
        from email.utils import parsedate_to_datetime

        answer = self._answer("GET", "/version", {}, None, "")
        if answer.status >= 300:
            raise _error(answer.status, bytes(answer.data).decode("utf-8", "replace"), "GET /version")
        at = answer.headers.get("Date", "")
        return json.loads(answer.data)["gitVersion"], parsedate_to_datetime(at).timestamp()

    # ------------------------------------------------------------------------------------------ requests

    def _send(self, method: str, path: str, **more: Any) -> Manifest:
        """The object that is answered. `more`: as for `_text`."""
        found = json.loads(self._text(method, path, **more))
        assert isinstance(found, dict)
        return found

    def _text(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> str:
        answer = self._answer(method, path, query or {}, body, content_type)
        text = bytes(answer.data).decode("utf-8", "replace")
        if answer.status < 300:
            return text
        raise _error(answer.status, text, f"{method} {path}")

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Manifest | None,
        content_type: str,
        *,
        read: bool = True,
    ) -> Any:
        """One answer, after as many attempts as patience and safety allow."""
        import urllib3
        from kubernetes.client import ApiException

        until_s = self._clock() + self._patience_s
        pause_s = FIRST_PAUSE_S
        safe = method in ("GET", "DELETE")
        unknown_before = False
        while True:
            problem = ""
            try:
                answer = self._once(method, path, query, body, content_type)
                if read:
                    answer.read()
                # A token that rotates is replaced before it ends: once more with the one that is there now.
                rotated = answer.status == 401 and not unknown_before
                unknown_before = unknown_before or rotated
                if not rotated and not (answer.status in BUSY and (safe or answer.status == 429)):
                    return answer
                problem = f"answered {answer.status}"
                pause_s = max(pause_s, _retry_after_s(answer))
            except ApiException as error:  # its name for a problem with TLS
                raise NotReady(
                    f"the API server ({self.where}) cannot be trusted: {error.reason}. Check the certificate "
                    "authority of the context, and the clock"
                ) from error
            except (urllib3.exceptions.HTTPError, OSError) as error:
                refused = isinstance(
                    error, (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
                )
                problem = f"does not answer ({type(error).__name__})"
                if not safe and not refused:
                    raise NotReady(
                        f"the API server ({self.where}) {problem}; whether '{method} {path}' was carried out "
                        "is not known: it is looked at again"
                    ) from error
            if self._clock() + pause_s > until_s:
                raise NotReady(
                    f"the API server ({self.where}) {problem} for {self._patience_s:.0f} s: check the "
                    "connection with `headroom doctor`"
                )
            self._sleep(pause_s)
            pause_s = min(2 * pause_s, 8.0)

    def _once(
        self, method: str, path: str, query: Mapping[str, str], body: Manifest | None, content_type: str
    ) -> Any:
        self.requests += 1
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        pairs = [(key, value) for key, value in query.items() if value]
        _, url, headers, sent, _ = self._client.param_serialize(
            method, path, query_params=pairs, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        response = self._client.rest_client.request(
            method,
            url,
            headers=headers,
            body=sent,
            _request_timeout=(CONNECT_S, SILENCE_S if "watch" in query else ANSWER_S),
        )
        return response


class Changes:
    """A watch: pairs of an event (ADDED, MODIFIED, DELETED, BOOKMARK) and its object."""

    def __init__(self, response: Any, where: str) -> None:
        self._response = response
        self._where = where

    def __iter__(self) -> Iterator[tuple[str, Manifest]]:
        import urllib3

        begun = b""
        try:
            for piece in self._response.stream():
                *lines, begun = (begun + piece).split(b"\n")
                for line in filter(None, lines):
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        status = change["object"]
                        raise _error(status.get("code", 500), json.dumps(status), "watch")
                    yield change["type"], change["object"]
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise NotReady(
                f"the watch of the API server ({self._where}) broke off ({type(error).__name__})"
            ) from error

    def close(self) -> None:
        """End it from another thread."""
        with suppress(OSError, ValueError, RuntimeError):  # it has ended by itself
            self._response.shutdown()


def named_context(settings: KubernetesSettings, *, setting: str = "kubernetes.context") -> str:
    """The context of the settings; never a guess: the current one changes with every `kubectl config use`."""
    from kubernetes import config

    try:
        contexts, current = config.list_kube_config_contexts()
    except config.ConfigException as error:
        raise Misconfigured(setting, f"there is no kubeconfig to take it from ({error})") from error
    names = sorted(one["name"] for one in contexts)
    if settings.context is None:
        now = current["name"] if current else "none"
        raise Misconfigured(
            setting,
            f"must be named; the current one is '{now}', and there is {', '.join(names)}",
        )
    if settings.context not in names:
        raise Misconfigured(setting, f"there is no '{settings.context}'; there is {', '.join(names)}")
    return settings.context


def _read_token(configuration: Any) -> None:
    """Before every request: the kubelet replaces the file long before the old token ends."""
    from kubernetes.config.incluster_config import SERVICE_TOKEN_FILENAME

    with open(SERVICE_TOKEN_FILENAME, encoding="utf-8") as file:
        token = f"bearer {file.read().strip()}"
    configuration.api_key.update(dict.fromkeys(configuration.api_key, token))  # its name differs by version


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" if value else key for key, value in labels.items())


def _retry_after_s(answer: Any) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0


def _error(status: int, text: str, request: str) -> Exception:
    try:
        answer = json.loads(text)
        said = str(answer.get("message", text))
    except ValueError:
        answer, said = {}, text[:300].strip()
    if status == 404:
        # Of an object or a namespace the server says which; of a kind that it does not know it cannot.
        named = bool((answer.get("details") or {}).get("name"))
        return NotFound(said) if named else NoSuchKind(f"{said} ('{request}')")
    if status == 410:
        return Expired(said)
    if status == 409:
        return Conflict(said)
    if status == 401:
        return Forbidden(
            f"the API server does not accept the credentials: {said}. Renew those of the context"
        )
    if status == 403 and any(passing in said for passing in PASSING):
        return NotReady(said)
    if status == 403:
        return Forbidden(f"{said} (`headroom doctor` lists every right that is needed)")
    if status in (400, 422):
        return Misconfigured("kubernetes", f"the API server refuses '{request}': {said}")
    return NotReady(f"the API server answered {status} to '{request}': {said}")
