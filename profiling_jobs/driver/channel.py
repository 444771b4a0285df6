"""The control channel of a driver: HTTP on a Unix socket, or in a pod on a port.

On one machine only this user (and root) may connect: the socket lies in a private folder, and the kernel
names the peer of every connection. Beside that there is one token per deployment (a file with mode 0600,
compared in constant time); in a pod the token is the only protection.

A request is one small object. It has to be there whole within REQUEST_S, however slowly its bytes come.
At most CONNECTIONS without a request are kept; one more closes the oldest of them, so that a flood of
strangers closes strangers. A request with the token is served in a thread of its own.

The driver serves `status`, `scale` and `stop_between_batches`. An error there is raised as the same error
here. A driver that is dead, frozen or not up yet is NotReady. The server of `headroom serve` uses the same
channel.
"""

from __future__ import annotations

import hmac
import http.client
import io
import json
import os
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from models.errors import HeadroomError, Misconfigured, NotReady, error_from_json, error_to_json

HOST = "127.0.0.1"
ANSWER_S = 5.0  # judgement: `status` takes milliseconds, on a busy machine a second
REQUEST_S = 5.0  # judgement: our own requests come in one piece, within milliseconds
REQUEST_BYTES = 100_000  # judgement: a request is one small object
CONNECTIONS = 64  # judgement: an owner asks with a few threads, and each run of Dagster's with one

Call = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Address = Path | tuple[str, int]
"""A Unix socket, or host and port."""


class ControlServer:
    """Server of the control channel, in the driver."""

    def __init__(self, calls: Mapping[str, Call], *, token: str, address: Address = (HOST, 0)) -> None:
        if len(token) < 32:
            raise Misconfigured("token", "is shorter than 32 characters")
        handler = _handler(calls, token)
        self._server = _OnSocket(address, handler) if isinstance(address, Path) else _OnPort(address, handler)

    @property
    def address(self) -> Address:
        """Address on which it listens."""
        return self._server.address

    def start(self) -> None:
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="headroom-control", daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Caller:
    """Client of a control channel. `who` is how messages name the other end."""

    def __init__(self, address: Address, *, token: str, who: str) -> None:
        self._address = address
        self._token = token
        self._who = who

    def call(self, name: str, request: Mapping[str, Any], *, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        connection = _connection(self._address, timeout_s)
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
    """The client of a driver."""

    def __init__(self, address: Address, *, token: str) -> None:
        super().__init__(address, token=token, who="the driver")

    def status(self, *, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        return self.call("status", {}, timeout_s=timeout_s)

    def scale(self, scale_out: int, *, timeout_s: float) -> dict[str, Any]:
        request = {"scale_out": scale_out, "timeout_s": timeout_s}
        return self.call("scale", request, timeout_s=timeout_s + ANSWER_S)

    def stop_between_batches(self, *, timeout_s: float) -> dict[str, Any]:
        """Let the running batch finish, then end the queries."""
        request = {"timeout_s": timeout_s}
        return self.call("stop_between_batches", request, timeout_s=timeout_s + ANSWER_S)


# ------------------------------------------------------------------------------------------ the transport


class _Bounded(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """A thread for each connection; their number and the time until a request is there are limited."""

    daemon_threads = True

    def __init__(self, address: Any, handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._silent: dict[socket.socket, float] = {}
        """Those without a whole request, the oldest first -> when they are closed."""
        self._served = 0
        super().__init__(address, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if len(self._open) >= 3 * CONNECTIONS:  # silent, served, and on their way out
                return False
            if len(self._silent) >= CONNECTIONS:
                self._hang_up(next(iter(self._silent)))
            self._open.add(request)
            self._silent[request] = time.monotonic() + REQUEST_S
        return True

    def service_actions(self) -> None:
        """Called many times a second: the deadline of a request is one, and no byte puts it off."""
        with self._lock:
            now_s = time.monotonic()
            for late in [one for one, until_s in self._silent.items() if until_s < now_s]:
                self._hang_up(late)

    @contextmanager
    def serving(self, request: socket.socket) -> Iterator[bool]:
        """The request is there whole, and has the token. False where too many are served already."""
        with self._lock:
            still_there = self._silent.pop(request, None) is not None
            room = still_there and self._served < CONNECTIONS
            self._served += room
        try:
            yield room
        finally:
            with self._lock:
                self._served -= room

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._silent.pop(request, None)
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: who hangs up in the middle must not fill the log."""

    def _hang_up(self, connection: socket.socket) -> None:
        """Shut a connection down; its thread then closes it."""
        del self._silent[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class _OnPort(_Bounded, socketserver.TCPServer):
    allow_reuse_address = True
    request_queue_size = CONNECTIONS

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.server_address[:2]
        return str(host), int(port)


class _OnSocket(_Bounded, socketserver.UnixStreamServer):
    request_queue_size = CONNECTIONS

    def __init__(self, address: Path, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address = address
        super().__init__(str(address), handler)

    def server_bind(self) -> None:
        self.address.unlink(missing_ok=True)  # of a process that was killed
        with _reachable(self.address) as path:
            self.socket.bind(path)
        self.address.chmod(0o600)

    def server_close(self) -> None:
        super().server_close()
        self.address.unlink(missing_ok=True)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        peer = request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size)
        _, user, _ = UCRED.unpack(peer)
        return user in (os.geteuid(), 0) and super().verify_request(request, client_address)


UCRED = struct.Struct("3i")  # struct ucred: pid, uid, gid


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """A path for a socket. The kernel takes 107 characters, and folders may be deep."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, *, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.timeout: float = timeout
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        # Where the queue is full, a socket with a time-out of Python's own would give up at once.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(self.timeout))
        try:
            with _reachable(self._path) as path:
                self.sock.connect(path)
        except BlockingIOError as error:
            raise TimeoutError("the other end takes no more connections") from error
        self.sock.settimeout(self.timeout)


def _timeval(seconds: float) -> bytes:
    """struct timeval; zero would be no time-out."""
    return struct.pack("ll", int(seconds), max(1, int(seconds % 1.0 * 1e6)))


def _connection(address: Address, timeout_s: float) -> http.client.HTTPConnection:
    if isinstance(address, Path):
        return _SocketConnection(address, timeout=timeout_s)
    return http.client.HTTPConnection(*address, timeout=timeout_s)


class _AtMost(socket.SocketIO):
    """Reads so much of a connection, and then its end."""

    _left = REQUEST_BYTES

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(memoryview(buffer)[: self._left])
        self._left -= count or 0
        return count


def _handler(calls: Mapping[str, Call], token: str) -> type[BaseHTTPRequestHandler]:
    expected = f"Bearer {token}".encode()

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        timeout = 30.0  # judgement: of the answer; the request has its own
        server: _Bounded
        connection: socket.socket

        def setup(self) -> None:
            super().setup()
            self.rfile.close()
            self.rfile = io.BufferedReader(_AtMost(self.connection, "r"))

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
                request = self._request()
            except (ValueError, RecursionError) as error:
                self._answer(400, {"kind": "NotReady", "message": f"the request cannot be read: {error}"})
                return
            with self.server.serving(self.request) as room:
                if not room:
                    self._answer(503, {"kind": "NotReady", "message": "too many requests at once: try again"})
                    return
                try:
                    self._answer(200, dict(call(request)))
                except Exception as error:  # noqa: BLE001 - whatever py4j or Spark throws belongs to the caller
                    self._answer(409 if isinstance(error, HeadroomError) else 500, error_to_json(error))

        def _request(self) -> dict[str, Any]:
            length = int(self.headers.get("Content-Length", "-1"))
            if not 0 <= length <= REQUEST_BYTES:
                raise ValueError(f"{length} bytes")
            body = self.rfile.read(length)
            if len(body) < length:
                raise ValueError("it is cut off")
            request = json.loads(body or b"{}")
            if not isinstance(request, dict):
                raise ValueError("not an object")
            return request

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
