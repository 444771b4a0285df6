"""The control channel: one token, the same errors on both ends, silence is NotReady."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe
from profiling_jobs.driver.channel import HOST, ControlClient, ControlServer, write_token

TOKEN = "t" * 43


@pytest.fixture
def server() -> Iterator[ControlServer]:
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
            time.sleep(2)
        return {"took_s": 1.5}

    server = ControlServer({"status": lambda request: {"state": "running"}, "scale": scale}, token=TOKEN)
    server.start()
    yield server
    server.close()


def test_it_answers_whoever_has_the_token(server: ControlServer) -> None:
    client = ControlClient(server.port, token=TOKEN)
    assert client.status() == {"state": "running"}
    assert client.scale(6, timeout_s=1.0) == {"took_s": 1.5}


@pytest.mark.parametrize("token", ["", "t" * 42, "t" * 44, "é" * 43])
def test_and_nobody_else(server: ControlServer, token: str) -> None:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=5)
    connection.request("POST", "/status", "{}", {"Authorization": f"Bearer {token}".encode()})
    assert connection.getresponse().status == 401
    connection.close()


def test_without_a_header_nothing_is_told(server: ControlServer) -> None:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=5)
    connection.request("POST", "/status", "{}")
    answer = connection.getresponse()
    assert (answer.status, b"running" in answer.read()) == (401, False)
    connection.close()


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
        ControlClient(server.port, token=TOKEN).scale(wanted, timeout_s=1.0)
    if isinstance(caught.value, Misconfigured):
        assert caught.value.setting == "spark.slots"


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff"])
def test_what_cannot_be_read_is_refused(server: ControlServer, body: bytes) -> None:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=5)
    connection.request("POST", "/status", body, {"Authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["kind"]) == (400, "NotReady")
    connection.close()


def test_status_answers_while_a_change_is_under_way(server: ControlServer) -> None:
    client = ControlClient(server.port, token=TOKEN)
    change = threading.Thread(target=lambda: client.scale(5, timeout_s=5.0))
    change.start()
    before = time.monotonic()
    client.status()
    assert time.monotonic() - before < 1.5
    change.join()


def test_a_driver_that_is_gone_or_silent_is_not_ready() -> None:
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(NotReady, match="did not answer 'status' within 0 s"):
            ControlClient(port, token=TOKEN).status(timeout_s=0.1)
    with pytest.raises(NotReady, match="did not answer"):
        ControlClient(port, token=TOKEN).status(timeout_s=1.0)


def test_the_token_is_for_this_user_only(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_token(path, "first")
    write_token(path, TOKEN)
    assert path.read_text() == TOKEN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(Misconfigured, match="token"):
        ControlServer({}, token="")
