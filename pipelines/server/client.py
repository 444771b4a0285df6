"""How does another process on this machine reach the owner's desk?

HTTP on loopback, as a driver's control channel: `desk/address.json` says where, `desk/token` (mode 0600) is
the key. Both go when the desk is closed; what a killed owner has left leads nowhere, and is told so.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from models.errors import NotReady
from profiling_jobs.driver.channel import Caller, ControlServer, write_token
from profiling_jobs.driver.launch_file import write_json

from ..processes.owner import holder
from .protocol import Desk, Json, Late

ANSWER_S = 30.0  # judgement: a tick takes a tenth of a second, on a machine that is busy with a profile more
START_IT = "start it with `headroom serve`"


class DeskServer:
    """The owner's end: the desk, for every process that may read the folder."""

    def __init__(self, desk: Desk, folder: Path) -> None:
        self._folder = folder / "desk"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = secrets.token_hex(32)
        write_token(self._folder / "token", token)

        def order(request: Json) -> Json:
            return desk.order(str(request["id"]), since=int(request.get("since", 0)))

        def begin(request: Json) -> Json:
            details = dict(request.get("details") or {})
            return {"id": desk.begin(str(request["what"]), str(request["job"]), **details)}

        def cancel(request: Json) -> Json:
            desk.cancel(str(request["id"]))
            return {}

        self._server = ControlServer(
            {
                "evaluate": lambda request: desk.evaluate(str(request["job"])),
                "begin": begin,
                "order": order,
                "cancel": cancel,
                "status": lambda request: desk.status(),
            },
            token=token,
        )

    def start(self) -> None:
        """Serve from now on."""
        self._server.start()
        write_json(
            self._folder / "address.json", {"schema": 1, "port": self._server.port, "pid": os.getpid()}
        )

    def close(self) -> None:
        """Serve no more."""
        for name in ("address.json", "token"):
            (self._folder / name).unlink(missing_ok=True)
        self._server.close()


class DeskClient:
    """The desk of whoever owns the folder. Nothing is kept open: it may be started before the owner."""

    def __init__(self, folder: Path, *, answer_s: float = ANSWER_S) -> None:
        self._folder, self._answer_s = folder, answer_s

    def evaluate(self, job: str) -> Json:
        return self._call("evaluate", {"job": job})

    def begin(self, what: str, job: str, /, **details: Any) -> str:
        return str(self._call("begin", {"what": what, "job": job, "details": details})["id"])

    def order(self, id: str, *, since: int = 0) -> Json:
        return self._call("order", {"id": id, "since": since})

    def cancel(self, id: str) -> None:
        self._call("cancel", {"id": id})

    def status(self) -> Json:
        return self._call("status", {})

    def _call(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        caller = self._caller()
        try:
            return caller.call(name, request, timeout_s=self._answer_s)
        except NotReady as silent:
            if silent.__cause__ is None:  # it is the answer
                raise
            if holder(self._folder) is None:
                raise NotReady(f"nobody owns {self._folder} now: {START_IT}") from silent
            raise Late(str(silent)) from silent

    def _caller(self) -> Caller:
        with suppress(OSError, ValueError, KeyError):
            address = json.loads((self._folder / "desk" / "address.json").read_text())
            token = (self._folder / "desk" / "token").read_text().strip()
            return Caller(int(address["port"]), token=token, who="the owner of the jobs")
        living = holder(self._folder)
        if living is not None:
            raise NotReady(
                f"{self._folder} is owned by process {living.process.pid} ({living.process.command[0]}), "
                "which does not serve a desk, or not yet: wait for it, or stop it and start `headroom serve`"
            )
        raise NotReady(f"nobody owns {self._folder} now: {START_IT}")
