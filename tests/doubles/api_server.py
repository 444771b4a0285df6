"""An API server of Kubernetes in this process, for tests without a cluster: it stores, and does nothing else.

    with ApiServer() as server:
        api = server.connect()
        server.faults.append(Fault(409, method="PATCH"))

As the real one: names and labels are checked, a change with an old resourceVersion is a conflict, what has
finalizers is only marked for deletion, and what an object owns goes with it. No controller and no kubelet
runs: pods stay as the tests make them.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from kubernetes import client

from pipelines.integrations.kubernetes_api import KINDS, KubernetesApi

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
PATH = re.compile(
    r"/(?:api|apis)/(?P<version>v1|[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+)(?P<sub>/(?:status|log|scale))?)?"
)
KNOWN = {(kind.api_version, kind.plural): name for name, kind in KINDS.items()}
HANGS = 0
"""As the status of a fault: no answer at all, until the server is closed."""


@dataclass
class Fault:
    """What is answered instead, to the next `times` requests that it fits."""

    status: int
    method: str = ""
    path: str = ""
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "a fault of the test"
    then: Callable[[], None] = lambda: None
    """Called as it is answered."""
    done: bool = False
    """Whether the request is carried out all the same, and its answer lost."""


class Refused(Exception):
    """An answer other than 2xx."""

    def __init__(self, status: int, message: str, **details: str) -> None:
        super().__init__(message)
        self.status, self.details = status, details


class ApiServer:
    """Objects by kind, namespace and name, behind HTTP on 127.0.0.1."""

    def __init__(self, *namespaces: str, token: str = "", missing: tuple[str, ...] = ()) -> None:
        self.namespaces = set(namespaces or ("jobs", "copies"))
        self.token = token
        """What clients must send; empty: nothing."""
        self.missing = missing
        """Kinds whose CRD is not installed."""
        self.versions: dict[str, str] = {}
        """Group -> the version that it has instead of ours."""
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        """Method and path of every request, also of those that were answered with a fault."""
        self.logs: dict[tuple[str, str], str] = {}
        """Namespace and pod -> its log."""
        self._objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._turn = threading.RLock()
        self._changed = threading.Condition(self._turn)
        self._history: list[tuple[int, str, str, str, dict[str, Any], dict[str, Any]]] = []
        """Version, kind, namespace, what has happened, the object before and after it."""
        self._oldest = 0
        self._version = 0
        self._closing = threading.Event()
        self._connections: set[socket.socket] = set()
        self._http: ThreadingHTTPServer | None = None
        self._port = 0
        self.back()

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self.away()

    def connect(self, **more: Any) -> KubernetesApi:
        """A client of it."""
        configuration: Any = client.Configuration(host=self.url, api_key={"authorization": ""})
        configuration.refresh_api_key_hook = lambda one: one.api_key.update(authorization=self.given)
        return KubernetesApi(client.ApiClient(configuration), where="test", **more)

    given = "first"
    """The token that clients of `connect` send."""

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def away(self) -> None:
        """Refuse connections, and end those that are open."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None
            for one in list(self._connections):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def back(self) -> None:
        """Listen, on the same port as before."""
        if self._http is None:
            self._http = _Server(("127.0.0.1", self._port), _handler(self))
            self._port = self._http.server_address[1]
            threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def find(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """What is stored, for tests."""
        with self._turn:
            return deepcopy(self._objects.get((kind, namespace, name)))

    def all(self, kind: str) -> list[dict[str, Any]]:
        """All of a kind, for tests."""
        with self._turn:
            return [deepcopy(one) for (found, _, _), one in self._objects.items() if found == kind]

    def forget_history(self) -> None:
        """A watch that begins now at an older version has expired."""
        with self._turn:
            self._history.clear()
            self._oldest = self._version

    def end_watches(self) -> None:
        """Cut the connections that are open."""
        for one in list(self._connections):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def changes(self, url: str) -> Iterator[dict[str, Any]]:
        """What a watch is sent, until it has lasted as long as was asked for."""
        query = {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
        found = PATH.fullmatch(unquote(urlsplit(url).path))
        assert found is not None
        kind, namespace = KNOWN[found["version"], found["plural"]], found["namespace"] or ""
        until = time.monotonic() + float(query["timeoutSeconds"])
        since = int(query["resourceVersion"])
        while time.monotonic() < until and not self._closing.is_set():
            with self._turn:
                if since < self._oldest:
                    yield {"type": "ERROR", "object": _status(410, "too old resource version")}
                    return
                news = [one for one in self._history if one[0] > since]
                if not news:
                    self._changed.wait(0.05)
            for version, of, where, how, before, made in news:
                since = version
                if of == kind and where == namespace:
                    if _fits(made, query):
                        yield {"type": how, "object": made}
                    elif _fits(before, query):  # it is none of those that are watched any more
                        yield {"type": "DELETED", "object": made}

    # ----------------------------------------------------------------------------------------- requests

    def answer(self, method: str, url: str, headers: Any, body: Any) -> tuple[int, Any, dict[str, str]]:
        """Status, answer and headers."""
        path = unquote(urlsplit(url).path)
        query = {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
        self.requests.append((method, path))
        for fault in self.faults:
            if fault.method in ("", method) and fault.path in path:
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                if fault.done:
                    with self._turn:
                        self._do(method, path, query, body)
                fault.then()
                if fault.status == HANGS:
                    self._closing.wait()
                return fault.status, _status(fault.status, fault.message), fault.headers
        if self.token and headers.get("Authorization", "").split()[-1:] != [self.token]:
            return 401, _status(401, "Unauthorized"), {}
        if path == "/version":
            return 200, {"gitVersion": "v1.34.0"}, {}
        if group := re.fullmatch(r"/apis/([^/]+)", path):
            return self._group(group[1])
        try:
            with self._turn:
                return 200, deepcopy(self._do(method, path, query, body)), {}
        except Refused as error:
            return error.status, _status(error.status, str(error), **error.details), {}

    def _group(self, group: str) -> tuple[int, Any, dict[str, str]]:
        kinds = {name: kind for name, kind in KINDS.items() if kind.group == group}
        if not kinds.keys() - set(self.missing):
            return 404, _status(404, "404 page not found"), {}
        [ours] = {kind.api_version.rpartition("/")[2] for kind in kinds.values()}
        return 200, {"versions": [{"version": self.versions.get(group, ours)}]}, {}

    def _do(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        found = PATH.fullmatch(path)
        kind = KNOWN.get((found["version"], found["plural"])) if found else None
        if found is None or kind is None or kind in self.missing:
            raise Refused(404, "404 page not found")
        namespace, name = found["namespace"] or "", found["name"] or ""
        if kind == "SelfSubjectAccessReview":
            return {**body, "status": {"allowed": True}}
        if method == "POST":
            return self._create(kind, namespace, body, dry="dryRun" in query)
        if not name:
            items = [one for one in self._list(kind, namespace) if _fits(one, query)]
            return {"items": items, "metadata": {"resourceVersion": str(self._version)}}
        key = (kind, namespace, name)
        if key not in self._objects:
            raise Refused(404, f'{found["plural"]} "{name}" not found', name=name, kind=found["plural"])
        if method == "GET":
            return self.logs.get((namespace, name), "") if found["sub"] == "/log" else self._objects[key]
        if method == "DELETE":
            return self._delete(key, body or {})
        changed = _merged(self._objects[key], body) if method == "PATCH" else body
        return self._change(key, changed, (body.get("metadata") or {}).get("resourceVersion"))

    def _list(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        return [
            one
            for (found, where, _), one in self._objects.items()
            if found == kind and namespace in ("", where)
        ]

    def _create(self, kind: str, namespace: str, body: Any, *, dry: bool) -> Any:
        made = deepcopy(body)
        about = made.setdefault("metadata", {})
        if "generateName" in about:
            about.setdefault("name", about["generateName"] + uuid.uuid4().hex[:5])
        if namespace and namespace not in self.namespaces:
            raise Refused(404, f'namespaces "{namespace}" not found', name=namespace, kind="namespaces")
        _check(made, namespace)
        key = (kind, namespace, about["name"])
        if key in self._objects:
            raise Refused(409, f'{kind} "{about["name"]}" already exists', name=about["name"])
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about.update(uid=str(uuid.uuid4()), creationTimestamp=now, generation=1)
        return made if dry else self._stored(key, made)

    def _change(self, key: tuple[str, str, str], changed: Any, read: str | None) -> Any:
        before = self._objects[key]["metadata"]
        if read is not None and read != before["resourceVersion"]:
            raise Refused(409, f"{key[2]}: the object has been modified", name=key[2])
        _check(changed, key[1])
        for field_ in ("uid", "creationTimestamp", "deletionTimestamp"):
            if field_ in before:
                changed["metadata"][field_] = before[field_]
        if "deletionTimestamp" in before and not changed["metadata"].get("finalizers"):
            return self._gone(key)
        changed["metadata"]["generation"] = before["generation"] + (
            changed.get("spec") != self._objects[key].get("spec")
        )
        return self._stored(key, changed)

    def _delete(self, key: tuple[str, str, str], options: Any) -> Any:
        about = self._objects[key]["metadata"]
        uid = (options.get("preconditions") or {}).get("uid")
        if uid not in (None, about["uid"]):
            raise Refused(409, "the UID in the precondition does not match", name=key[2])
        if about.get("finalizers"):
            about.setdefault("deletionTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            return self._stored(key, self._objects[key])
        return self._gone(key)

    def _gone(self, key: tuple[str, str, str]) -> Any:
        gone = self._objects.pop(key)
        self._version += 1
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._note(key, "DELETED", gone, gone)
        uid = gone["metadata"]["uid"]
        for other, one in list(self._objects.items()):
            if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", ())):
                self._delete(other, {})
        return gone

    def _stored(self, key: tuple[str, str, str], made: Any) -> Any:
        self._version += 1
        made["metadata"]["resourceVersion"] = str(self._version)
        self._note(key, "MODIFIED" if key in self._objects else "ADDED", self._objects.get(key, made), made)
        self._objects[key] = made
        return made

    def _note(self, key: tuple[str, str, str], how: str, before: Any, made: Any) -> None:
        self._history.append((self._version, *key[:2], how, deepcopy(before), deepcopy(made)))
        self._changed.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is no news."""


def _handler(server: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # one packet an answer: two wait 40 ms for each other

        def setup(self) -> None:
            super().setup()
            server._connections.add(self.connection)

        def finish(self) -> None:
            server._connections.discard(self.connection)
            super().finish()

        def log_message(self, *_: Any) -> None:
            pass

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, found, headers = server.answer(
                self.command, self.path, self.headers, json.loads(body) if body else None
            )
            if status == HANGS:
                self.close_connection = True
                return
            if status == 200 and "watch=true" in self.path:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.flush()
                with suppress(OSError):
                    for change in server.changes(self.path):
                        line = json.dumps(change).encode() + b"\n"
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                return
            data = (found if isinstance(found, str) else json.dumps(found)).encode()
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    return Handler


def _status(status: int, message: str, **details: str) -> Any:
    if status == 404 and not details:
        return message
    return {"kind": "Status", "status": "Failure", "message": message, "code": status, "details": details}


def _check(made: Any, namespace: str) -> None:
    about = made["metadata"]
    labels = about.get("labels") or {}
    bad = [value for value in labels.values() if not LABEL.fullmatch(value)]
    if not NAME.fullmatch(about.get("name", "")) or about.get("namespace", namespace) != namespace or bad:
        raise Refused(422, f"{about.get('name')} in {namespace}: invalid name, namespace or labels {bad}")
    if namespace:
        about["namespace"] = namespace


def _fits(one: Any, query: dict[str, str]) -> bool:
    labels = one["metadata"].get("labels") or {}
    for term in filter(None, query.get("labelSelector", "").split(",")):
        key, equals, value = term.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = term.partition("=")
        found = one
        for step in path.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        if found != value:
            return False
    return True


def _merged(before: Any, changes: Any) -> Any:
    """RFC 7386."""
    if not isinstance(changes, dict):
        return deepcopy(changes)
    result = dict(before) if isinstance(before, dict) else {}
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return deepcopy(result)
