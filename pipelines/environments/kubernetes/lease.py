"""Lease of an owner: one Headroom acts on a folder's jobs, even if the volume has no reliable file locks.

The holder renews it; another takes it over once it was not renewed for its duration, counted by the clock of
the one that looks and from when it first saw the renewal: clocks of nodes differ. `check` is asked before
every change: an owner that could not renew in time changes nothing any more.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType

from models.errors import HeadroomError, NotReady, Unsafe
from profiling_jobs.periodic import Periodic

from ...integrations.kubernetes_api import Conflict, KubernetesApi, Manifest, NotFound
from .manifests import OWNER

DURATION_S = 30  # judgement: a restart of the API server is shorter; a dead owner is replaced within a minute
RENEW_S = 8.0
POLL_S = 2.0


class OwnerLease:
    """The Lease `headroom-OWNER` in a namespace."""

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        *,
        owner: str,
        holder: str = "",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._owner = owner
        self.name = f"headroom-{owner}"
        self._holder = holder or f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._renewed_s: float | None = None
        self._mine: Manifest | None = None
        """The Lease as we wrote it last: renewing it is one request."""
        self._locked = threading.Lock()
        self._thread = Periodic(self._try, every_s=RENEW_S, name="owner-lease")

    def __enter__(self) -> OwnerLease:
        self.acquire()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.close()
        self.release()

    def acquire(self) -> None:
        """Take the Lease; Unsafe, naming the holder, where another process renews it."""
        seen: str | None = None
        first_s = self._clock()
        while not self._take():
            lease = self._api.get("Lease", self._namespace, self.name)
            holder, renewed = _holder(lease), str(lease["spec"].get("renewTime"))
            if seen is not None and renewed != seen:
                raise Unsafe(
                    f"{holder} owns the jobs of this folder (Lease {self.name} in {self._namespace}): stop "
                    "that one first, or use another folder"
                )
            seen = renewed
            if self._clock() - first_s > DURATION_S:
                self._take(over=lease)
                return
            self._sleep(POLL_S)

    def renew(self) -> None:
        """Renew the Lease; Unsafe where another process has taken it."""
        if not self._take():
            with self._locked:
                self._renewed_s = None
            raise Unsafe(
                f"the Lease {self.name} in {self._namespace} was taken over: nothing is changed here"
            )

    def check(self) -> None:
        """Refuse to change anything without the Lease."""
        with self._locked:
            renewed_s = self._renewed_s
        if renewed_s is None or self._clock() - renewed_s > DURATION_S:
            raise Unsafe(
                f"the Lease {self.name} in {self._namespace} could not be renewed for {DURATION_S} s, and "
                "another Headroom may own the jobs: nothing is changed until it is renewed"
            )

    def release(self) -> None:
        """Release the Lease, so that another process can take it at once."""
        with self._locked:
            held, self._renewed_s = self._renewed_s is not None, None
        if not held:
            return
        lease = self._api.find("Lease", self._namespace, self.name)
        if lease is not None and _holder(lease) == self._holder:
            lease["spec"]["holderIdentity"] = ""
            self._api.replace("Lease", lease)

    def _try(self) -> None:
        try:
            self.renew()
        except HeadroomError:  # `check` refuses from then on; the next turn tries again
            return

    def _take(self, *, over: Manifest | None = None) -> bool:
        """Create or renew it, or take it `over` as it was seen; False where another holds it."""
        begun_s = self._clock()
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": DURATION_S,
            "renewTime": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        about = {"name": self.name, "namespace": self._namespace, "labels": {OWNER: self._owner}}
        lease = over or self._mine or self._api.find("Lease", self._namespace, self.name)
        known, self._mine = self._mine, None
        try:
            if lease is None:
                self._mine = self._api.create("Lease", {"metadata": about, "spec": spec})
            elif over is not None or _holder(lease) in ("", self._holder):
                self._mine = self._api.replace("Lease", {**lease, "spec": {**lease["spec"], **spec}})
            else:
                return False
        except (Conflict, NotFound) as error:
            if over is not None:
                raise NotReady(f"another has taken the Lease {self.name} just now: try again") from error
            return known is not None and self._take()  # it may have been edited only
        with self._locked:
            self._renewed_s = begun_s
        return True


def _holder(lease: Manifest) -> str:
    return str(lease["spec"].get("holderIdentity") or "")
