"""The control channel: one token, the same errors on both ends, silence is NotReady."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import waiting

from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe
from profiling_jobs.driver import channel
from profiling_jobs.driver.channel import HOST, Caller, ControlClient, ControlServer
from profiling_jobs.driver.launch_file import write_text

TOKEN = "t" * 43


@pytest.fixture
def asked() -> threading.Event:
    """Set once a change that takes long is under way."""
    return threading.Event()


@pytest.fixture
def answered() -> threading.Event:
    """What that change waits for."""
    return threading.Event()


@pytest.fixture
def server(asked: threading.Event, answered: threading.Event) -> Iterator[ControlServer]:
    def scale(request: Mapping[str, Any]) -> dict[str, Any]:
        wanted = request["scale_out"]
        if wanted == 1:
            raise Unsafe("an older epoch")
        if wanted == 2:
            raise Misconfigured("spark.slots", "there are 8")
        if wanted == 3:
            raise NotReady("later")
        if wanted == 4:
            raise RuntimeError("py4j")
        if wanted == 5:
            asked.set()
            assert answered.wait(60.0)
        return {"took_s": 1.5}

    server = ControlServer({"status": lambda request: {"state": "running"}, "scale": scale}, token=TOKEN)
    server.start()
    yield server
    server.close()


def test_it_answers_whoever_has_the_token(server: ControlServer) -> None:
    client = ControlClient(server.address, token=TOKEN)
    assert client.status() == {"state": "running"}
    assert client.scale(6, timeout_s=1.0) == {"took_s": 1.5}


def posted(server: ControlServer, body: bytes, headers: Mapping[str, Any]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*server.address, timeout=5)
    connection.request("POST", "/status", body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("token", [None, "", "t" * 42, "t" * 44, "é" * 43])
def test_and_nobody_else(server: ControlServer, token: str | None) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
    status, body = posted(server, b"{}", headers)
    assert (status, b"running" in body) == (401, False)


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        (1, Unsafe, "^an older epoch$"),
        (2, Misconfigured, r"^spark\.slots: there are 8$"),
        (3, NotReady, "^later$"),
        (4, NotReady, "RuntimeError: py4j"),
    ],
)
def test_what_goes_wrong_there_is_the_same_error_here(
    server: ControlServer, wanted: int, error: type[HeadroomError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        ControlClient(server.address, token=TOKEN).scale(wanted, timeout_s=1.0)
    if isinstance(caught.value, Misconfigured):
        assert caught.value.setting == "spark.slots"


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff"])
def test_what_cannot_be_read_is_refused(server: ControlServer, body: bytes) -> None:
    status, said = posted(server, body, {"Authorization": f"Bearer {TOKEN}"})
    assert (status, json.loads(said)["kind"]) == (400, "NotReady")


def test_status_answers_while_a_change_is_under_way(
    server: ControlServer, asked: threading.Event, answered: threading.Event
) -> None:
    client = ControlClient(server.address, token=TOKEN)
    change = threading.Thread(target=lambda: client.scale(5, timeout_s=60.0))
    change.start()
    assert asked.wait(60.0)
    assert client.status() == {"state": "running"}
    answered.set()
    change.join()


def test_a_driver_that_is_gone_or_silent_is_not_ready() -> None:
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(NotReady, match="did not answer 'status' within 0 s"):
            ControlClient((HOST, port), token=TOKEN).status(timeout_s=0.1)
    with pytest.raises(NotReady, match="did not answer"):
        ControlClient((HOST, port), token=TOKEN).status(timeout_s=1.0)


def test_the_token_is_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_text(path, "first")
    write_text(path, TOKEN)
    assert path.read_text() == TOKEN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(Misconfigured, match="token"):
        ControlServer({}, token="")


# ---------------------------------------------------------------------------------------------- attacked


def calls(made: list[Mapping[str, Any]]) -> dict[str, channel.Call]:
    def stop(request: Mapping[str, Any]) -> dict[str, Any]:
        made.append(request)
        return {}

    return {"stop_between_batches": stop, "status": lambda request: {"state": "running"}}


@pytest.fixture(params=["port", "socket"])
def attacked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ControlServer, list[Any]]]:
    """In a pod every other one may connect; on one machine at least every process of this user's."""
    made: list[Any] = []
    address = (HOST, 0) if request.param == "port" else tmp_path / "control.sock"
    server = ControlServer(calls(made), token=TOKEN, address=address)
    server.start()
    yield server, made
    server.close()


def connected(server: ControlServer) -> socket.socket:
    where = server.address
    found = socket.socket(socket.AF_UNIX if isinstance(where, Path) else socket.AF_INET)
    found.connect(str(where) if isinstance(where, Path) else where)
    found.settimeout(10.0)
    return found


def sent(connection: socket.socket, data: bytes) -> bool:
    """False once the other end has closed."""
    try:
        connection.sendall(data)
    except OSError:
        return False
    return True


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_a_flood_without_the_token_costs_so_many_connections_and_hides_nobody(
    attacked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "REQUEST_S", 120.0)  # none is closed for its age
    server, _ = attacked
    flood = []
    for _ in range(5 * channel.CONNECTIONS):
        flood.append(connected(server))
        sent(flood[-1], b"POST /status HTTP/1.1\r\n")
    client = ControlClient(server.address, token=TOKEN)
    for _ in range(3):
        assert client.status(timeout_s=30.0) == {"state": "running"}
    waiting.until(lambda: sum(map(is_open, flood)) <= channel.CONNECTIONS)
    threads = [one for one in threading.enumerate() if "process_request_thread" in one.name]
    assert len(threads) <= 3 * channel.CONNECTIONS
    for one in flood:
        one.close()


def test_no_byte_puts_off_the_end_of_a_request(attacked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = attacked
    monkeypatch.setattr(channel, "REQUEST_S", 0.5)
    slow, began_s = connected(server), time.monotonic()
    while sent(slow, b"x") and time.monotonic() - began_s < 60.0:
        time.sleep(0.05)
    assert not sent(slow, b"x")
    slow.close()


def test_a_request_without_end_is_not_kept(attacked: Any) -> None:
    server, _ = attacked
    huge = connected(server)
    lines = [b"POST /status HTTP/1.1\r\n", *[b"X-More: " + b"x" * 40_000 + b"\r\n"] * 1000]
    assert not all(sent(huge, line) for line in lines)
    huge.close()


@pytest.mark.parametrize(
    "cut_off",
    [
        f"POST /stop_between_batches HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n",
        f"POST /stop_between_batches HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_a_request_that_is_cut_off_is_not_carried_out(attacked: Any, cut_off: str) -> None:
    server, made = attacked
    connection = connected(server)
    connection.sendall(cut_off.encode())
    connection.shutdown(socket.SHUT_WR)
    assert b" 400 " in connection.recv(1000)
    connection.close()
    assert made == []


def test_deep_json_is_refused_as_any_other_that_cannot_be_read(attacked: Any) -> None:
    server, _ = attacked
    with pytest.raises(NotReady, match="cannot be read"):
        Deep(server.address, token=TOKEN, who="the driver").call("status", {})


class Deep(Caller):
    """Sends more brackets than Python's parser can follow."""

    def call(self, name: str, request: Mapping[str, Any], *, timeout_s: float = 5.0) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(channel.json, "dumps", lambda data: "[" * 50_000 if data is request else REAL(data))
            return super().call(name, request, timeout_s=timeout_s)


REAL = json.dumps
AS_ANOTHER_USER = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(10)
connection.connect(sys.argv[1])
head = f"POST /status HTTP/1.1\\r\\nAuthorization: Bearer {sys.argv[2]}\\r\\nContent-Length: 2\\r\\n\\r\\n"
connection.sendall(head.encode() + b"{}")
print(connection.recv(1000))
"""


def test_another_user_gets_no_answer_even_with_the_token() -> None:
    """Also where the folder, against all care, is open to him."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    with tempfile.TemporaryDirectory() as place:
        server = ControlServer(calls([]), token=TOKEN, address=Path(place) / "control.sock")
        server.start()
        try:
            assert stat.S_IMODE((Path(place) / "control.sock").stat().st_mode) == 0o600
            for folder_mode, socket_mode, said in (
                (0o700, 0o777, "PermissionError"),
                (0o755, 0o600, "PermissionError"),
                (0o755, 0o777, ""),
            ):
                os.chmod(place, folder_mode)
                os.chmod(Path(place) / "control.sock", socket_mode)
                done = subprocess.run(
                    ["/usr/bin/env", "python3", "-c", AS_ANOTHER_USER, f"{place}/control.sock", TOKEN],
                    user=65534,
                    group=65534,
                    extra_groups=[],
                    cwd="/",
                    capture_output=True,
                    text=True,
                )
                assert said in done.stderr
                assert "running" not in done.stdout
            assert ControlClient(server.address, token=TOKEN).status() == {"state": "running"}
        finally:
            server.close()


def test_a_folder_may_be_deeper_than_the_path_of_a_socket_may_be_long(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    (deep / "control.sock").write_text("of a driver that was killed")
    server = ControlServer(calls([]), token=TOKEN, address=deep / "control.sock")
    server.start()
    assert ControlClient(server.address, token=TOKEN).status() == {"state": "running"}
    server.close()
    assert not (deep / "control.sock").exists()
