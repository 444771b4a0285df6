"""The server over a Unix socket: `Listener` in the server's process, `Client` in others.

The protocol of a driver's control channel. `server/address.json` names the socket, `server/token` (mode 0600)
is the key; all are removed when the listener is closed. The socket stands beside them; where `.headroom` is a
volume without sockets, in a folder of this user's below the one for temporary files.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from models.errors import NotReady
from profiling_jobs.driver.channel import Caller, ControlServer
from profiling_jobs.driver.launch_file import read_json, write_json, write_text
from profiling_jobs.orders import Json, Server, ServerBusy

from ..processes.owner import holder

ANSWER_S = 30.0  # judgement: a tick takes a tenth of a second, on a machine that is busy with a profile more
START_IT = "start it with `headroom serve`"
SOCKET, SOCKETS = "owner.sock", "headroom-owner-"
"""In the folder of the server, or in one for temporary files of this name where it cannot be there."""
NO_SERVER = f"no server runs for {{}}: {START_IT}"


class Listener:
    """Answers every process that may read the folder."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._folder = folder / "server"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._tidy()  # after a server that was killed
        token = secrets.token_hex(32)
        write_text(self._folder / "token", token)

        def begin(request: Json) -> Json:
            return {"id": server.begin(request["what"], request["job"], **request.get("details", {}))}

        def cancel(request: Json) -> Json:
            server.cancel(request["id"])
            return {}

        calls = {
            "evaluate": lambda request: server.evaluate(request["job"]),
            "begin": begin,
            "order": lambda request: server.order(request["id"], since=request.get("since", 0)),
            "cancel": cancel,
            "status": lambda request: server.status(),
            "metrics": lambda request: {"text": server.metrics()},
            "alive": lambda request: {},  # for probes: it waits for no driver, and for no API server
        }
        try:
            self._server = ControlServer(calls, token=token, address=self._folder / SOCKET)
        except OSError:  # a network file system may know no sockets
            beside = Path(tempfile.mkdtemp(prefix=SOCKETS)) / SOCKET
            self._server = ControlServer(calls, token=token, address=beside)

    def start(self) -> None:
        """Listen from now on."""
        self._server.start()
        address = {"schema": 2, "socket": str(self._server.address), "pid": os.getpid()}
        write_json(self._folder / "address.json", address)

    def close(self) -> None:
        """Stop listening."""
        self._server.close()
        self._tidy()

    def _tidy(self) -> None:
        sockets = Path((read_json(self._folder / "address.json") or {}).get("socket", "")).parent
        if sockets.name.startswith(SOCKETS):
            shutil.rmtree(sockets, ignore_errors=True)
        for name in ("address.json", "token", SOCKET):
            (self._folder / name).unlink(missing_ok=True)


class Client:
    """The server that owns a folder, reached from another process. Nothing is kept open between two calls."""

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

    def metrics(self) -> str:
        return str(self._call("metrics", {})["text"])

    def _call(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        caller = self._caller()
        try:
            return caller.call(name, request, timeout_s=self._answer_s)
        except NotReady as silent:
            if silent.__cause__ is None:  # it is the answer
                raise
            if holder(self._folder) is None:
                raise NotReady(NO_SERVER.format(self._folder)) from silent
            raise ServerBusy(str(silent)) from silent

    def _caller(self) -> Caller:
        with suppress(OSError, ValueError, KeyError):
            address = json.loads((self._folder / "server" / "address.json").read_text())
            token = (self._folder / "server" / "token").read_text().strip()
            return Caller(Path(address["socket"]), token=token, who="the server")
        living = holder(self._folder)
        if living is not None:
            raise NotReady(
                f"{self._folder} is owned by process {living.process.pid} ({living.process.command[0]}), "
                "which takes no orders, or not yet: wait for it, or stop it and start `headroom serve`"
            )
        raise NotReady(NO_SERVER.format(self._folder))
