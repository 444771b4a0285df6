"""Objects of a cluster, kept up to date by a watch: reading them sends no request.

    with Watched(api, "Pod", namespace, labels={"headroom.io/owner": owner}) as pods:
        pods.all({"headroom.io/copy": "orders"})

A list is asked for once, then changes are followed from its resourceVersion. A watch that the server ends is
taken up where it was; one that has expired (410) begins with a new list. While the server does not answer,
reading asks it directly, so that an outage is an error and never an old answer. What we write ourselves is
given to `remember`: reading sees it at once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType

from models.errors import HeadroomError

from .kubernetes_api import Changes, Expired, KubernetesApi, Manifest

LASTS_S = 300  # judgement: the server ends a watch after it; the API server's own default is 30 to 60 minutes
CLOSE_S = 2.0  # an attempt to reach a server that is away is not waited for
PAUSE_S = 1.0  # judgement: between attempts; reading asks the server directly meanwhile


class Watched:
    """The objects of a kind in a namespace that carry these labels. Not to be changed by who reads them."""

    def __init__(self, api: KubernetesApi, kind: str, namespace: str, *, labels: Mapping[str, str]) -> None:
        self._api = api
        self._kind = kind
        self._namespace = namespace
        self._labels = labels
        self._turn = threading.Lock()
        self._objects: dict[str, Manifest] = {}
        """By name."""
        self._gone: dict[str, int] = {}
        """uid -> the version at which it was not there any more: older changes of it may still arrive."""
        self._version = ""
        self._current = False
        self._closing = threading.Event()
        self._changes: Changes | None = None
        self._thread = threading.Thread(target=self._run, name=f"headroom-watch-{kind}", daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        with self._turn:
            self._current = False
            changes = self._changes
        if changes is not None:
            changes.close()
        self._thread.join(CLOSE_S)

    # --------------------------------------------------------------------------------------------- reading

    def all(self, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        """Those with these labels too."""
        with self._turn:
            if self._current:
                return [one for one in self._objects.values() if _carries(one, labels or {})]
        return self.ask(labels)

    def find(self, name: str) -> Manifest | None:
        """Object of this name, where there is one; the server is asked where it is not known."""
        with self._turn:
            if self._current and name in self._objects:
                return self._objects[name]
        return self._api.find(self._kind, self._namespace, name)

    def ask(self, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        """The objects that the server has now."""
        found, version = self._api.list_at(self._kind, self._namespace, {**self._labels, **(labels or {})})
        with self._turn:
            there = {one["metadata"]["name"] for one in found}
            for name, one in list(self._objects.items()):
                if name not in there and _carries(one, labels or {}) and _version(one) <= int(version):
                    self._forget(one, int(version))
            for one in found:
                self._remember(one)
        return found

    def remember(self, written: Manifest) -> None:
        """Take over what the server has answered to a change of ours."""
        with self._turn:
            self._remember(written)

    # ------------------------------------------------------------------------------------------- following

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._follow()
            except Expired:
                self._version = ""
            except HeadroomError:  # who reads meanwhile gets it as an error of that request
                self._closing.wait(PAUSE_S)

    def _follow(self) -> None:
        try:
            if not self._version:
                self._begin()
            with self._api.changes(
                self._kind, self._namespace, self._labels, since=self._version, lasts_s=LASTS_S
            ) as changes:
                with self._turn:
                    self._changes, self._current = changes, not self._closing.is_set()
                for how, found in changes:
                    with self._turn:
                        self._take(how, found)
        finally:
            with self._turn:
                self._changes, self._current = None, False

    def _begin(self) -> None:
        found, version = self._api.list_at(self._kind, self._namespace, self._labels)
        with self._turn:
            self._objects = {one["metadata"]["name"]: one for one in found}
            self._gone.clear()
            self._version = version

    def _take(self, how: str, found: Manifest) -> None:
        self._version = found["metadata"]["resourceVersion"]
        if how == "DELETED":
            self._forget(found, _version(found))
        elif how != "BOOKMARK":
            self._remember(found)

    def _remember(self, found: Manifest) -> None:
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        known = self._objects.get(name)
        if _version(found) <= self._gone.get(uid, -1):
            return
        if known is None or _version(known) <= _version(found):
            self._objects[name] = found

    def _forget(self, found: Manifest, version: int) -> None:
        name, uid = found["metadata"]["name"], found["metadata"]["uid"]
        self._gone[uid] = version
        known = self._objects.get(name)
        if known is not None and known["metadata"]["uid"] == uid:
            del self._objects[name]


def _carries(found: Manifest, labels: Mapping[str, str]) -> bool:
    return labels.items() <= found["metadata"].get("labels", {}).items()


def _version(found: Manifest) -> int:
    """Versions of one kind grow, as numbers (Kubernetes promises so since 1.35, and etcd always did)."""
    return int(found["metadata"]["resourceVersion"])
