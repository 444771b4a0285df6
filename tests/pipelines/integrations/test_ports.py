from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pipelines.integrations import ports


def test_free_ports_are_free_distinct_and_not_those_of_connections() -> None:
    chosen = ports.free_ports(20)
    assert len(set(chosen)) == 20
    assert all(ports.is_free(port) for port in chosen)
    assert max(chosen) < int(ports.RANGE.read_text().split()[0])


@pytest.mark.parametrize("text", ["1024 65535", "", "x"])
def test_any_range_of_the_kernel_leaves_ports(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "RANGE", tmp_path / "range")
    (tmp_path / "range").write_text(text)
    (port,) = ports.free_ports(1)
    assert 10_000 <= port < 60_000


def test_a_port_that_is_listened_on_is_not_free() -> None:
    (port,) = ports.free_ports(1)
    assert not ports.answers(port)
    with socket.socket() as server:
        server.bind((ports.HOST, port))
        server.listen()
        assert not ports.is_free(port)
        assert ports.answers(port)
        assert not ports.wait_until_free((port,), timeout_s=0.1)
    assert ports.wait_until_free((port,), timeout_s=5.0)
