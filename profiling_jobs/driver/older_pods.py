"""Waits in a driver's pod until no older pod can write to the same checkpoint any more.

Kubernetes makes a new pod as soon as the old one is told to end, and gives the old one its grace period for
the batch in hand. Two drivers on one checkpoint would process a batch twice.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from models.errors import NotReady

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
POLL_S = 1.0
LATE_S = 30.0  # judgement: one that is still there so long after its grace period is on a node that is gone
ANSWER_S = 10.0

Pod = Mapping[str, Any]


def await_end(
    path: str,
    own: str,
    *,
    say: Callable[[str], None],
    ask: Callable[[str], Iterable[Pod]] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once no older pod of `path`, the drivers of this job, runs. `own`: the name of this pod."""
    said: list[str] = []
    while names := older((ask or _ask)(path), own, now=now()):
        if names != said:
            say(f"{', '.join(names)} still runs: waiting for its end")
            said = names
        sleep(POLL_S)


def older(there: Iterable[Pod], own: str, *, now: datetime) -> list[str]:
    """Those that were made before `own` and have a container that runs."""
    found = {one["metadata"]["name"]: one for one in there}
    if own not in found:
        raise NotReady(f"the API server does not list this pod, {own}: try again")
    return [
        name
        for name, one in sorted(found.items())
        if _made(one) < _made(found[own]) and _runs(one) and not late(one, now)
    ]


def late(pod: Pod, now: datetime) -> bool:
    """Whether it should have gone long ago: its node does not say so, and starts nothing of it again.

    `deletionTimestamp` is when its grace period ends.
    """
    ends = pod["metadata"].get("deletionTimestamp")
    return ends is not None and (now - datetime.fromisoformat(ends)).total_seconds() > LATE_S


def _made(pod: Pod) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def _runs(pod: Pod) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return any("running" in one.get("state", {}) for one in statuses)


def _ask(path: str) -> Iterable[Pod]:
    """With the rights of the driver's own account."""
    trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    server = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    connection = http.client.HTTPSConnection(*server, context=trusted, timeout=ANSWER_S)
    try:
        token = (ACCOUNT / "token").read_text().strip()
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotReady(f"the API server does not answer ({error}): is it reachable from drivers?") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise NotReady(f"the API server does not list the drivers of this job: {body.get('message', body)}")
    found: list[Pod] = body["items"]
    return found
