"""The control channel of a driver: HTTP on loopback.

One token per deployment (a file with mode 0600, compared in constant time). The driver serves `status`,
`scale` and `stop_between_batches` in threads of its own. An error there is raised as the same error here. A
driver that is dead, frozen or not up yet is NotReady. The server of `headroom serve` uses the same channel.
"""

from __future__ import annotations

import hmac
import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from models.errors import HeadroomError, Misconfigured, NotReady, error_from_json, error_to_json

HOST = "127.0.0.1"
ANSWER_S = 5.0  # judgement: `status` takes milliseconds, on a busy machine a second
REQUEST_BYTES = 100_000  # judgement: a request is one small object
CALLS = ("status", "scale", "stop_between_batches")

Call = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ControlServer:
    """The driver's end."""

    def __init__(self, calls: Mapping[str, Call], *, token: str, host: str = HOST) -> None:
        if len(token) < 32:
            raise Misconfigured("token", "is shorter than 32 characters")
        self._server = ThreadingHTTPServer((host, 0), _handler(calls, token))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])

    def start(self) -> None:
        """Serve from now on, in a thread."""
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="headroom-control", daemon=True
        ).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class Caller:
    """The client. `who` is how messages name the other end."""

    def __init__(self, port: int, *, token: str, who: str, host: str = HOST) -> None:
        self._address = (host, port)
        self._token = token
        self._who = who

    def call(self, name: str, request: Mapping[str, Any], *, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """Ask for one call, and wait for its answer."""
        connection = http.client.HTTPConnection(*self._address, timeout=timeout_s)
        try:
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            connection.request("POST", f"/{name}", json.dumps(request), headers)
            answer = connection.getresponse()
            body = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            silent = isinstance(error, (TimeoutError, socket.timeout))
            why = f"within {timeout_s:.0f} s" if silent else f"({error})"
            raise NotReady(f"{self._who} did not answer '{name}' {why}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise error_from_json(body)
        return dict(body)


class ControlClient(Caller):
    """The end that asks a driver."""

    def __init__(self, port: int, *, token: str, host: str = HOST) -> None:
        super().__init__(port, token=token, who="the driver", host=host)

    def status(self, *, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """The status of the driver."""
        return self.call("status", {}, timeout_s=timeout_s)

    def scale(self, scale_out: int, *, timeout_s: float) -> dict[str, Any]:
        """Change the number of executors, seen done."""
        request = {"scale_out": scale_out, "timeout_s": timeout_s}
        return self.call("scale", request, timeout_s=timeout_s + ANSWER_S)

    def stop_between_batches(self, *, timeout_s: float) -> dict[str, Any]:
        """Let the running batch finish, then end the queries."""
        request = {"timeout_s": timeout_s}
        return self.call("stop_between_batches", request, timeout_s=timeout_s + ANSWER_S)


def write_token(path: Path, token: str) -> None:
    """Only this user may read it; never readable in between."""
    partial = path.with_suffix(".part")
    with suppress(FileNotFoundError):
        partial.unlink()
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(token)
    partial.replace(path)


def _handler(calls: Mapping[str, Call], token: str) -> type[BaseHTTPRequestHandler]:
    expected = f"Bearer {token}".encode()

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        timeout = 30.0  # a silent client must not keep a thread for ever

        def do_POST(self) -> None:
            given = self.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(given, expected):
                self._answer(401, {"kind": "Unsafe", "message": "the token is missing or wrong"})
                return
            call = calls.get(self.path.removeprefix("/"))
            if call is None:
                self._answer(404, {"kind": "NotReady", "message": f"there is no call '{self.path}'"})
                return
            try:
                length = int(self.headers.get("Content-Length", "0"))
                if not 0 <= length <= REQUEST_BYTES:
                    raise ValueError(f"{length} bytes")
                request = json.loads(self.rfile.read(length) or b"{}")
                if not isinstance(request, dict):
                    raise ValueError("not an object")
            except ValueError as error:
                self._answer(400, {"kind": "NotReady", "message": f"the request cannot be read: {error}"})
                return
            try:
                self._answer(200, dict(call(request)))
            except Exception as error:  # noqa: BLE001 - whatever py4j or Spark throws belongs to the caller
                self._answer(409 if isinstance(error, HeadroomError) else 500, error_to_json(error))

        def _answer(self, code: int, body: Mapping[str, Any]) -> None:
            data = json.dumps(body).encode()
            with suppress(OSError):  # the caller has gone
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *values: Any) -> None:
            """Nothing: `status` is asked every few seconds."""

    return Handler
