import socket

from pipelines.integrations import ports


def test_free_ports_are_free_distinct_and_not_those_of_connections():
    chosen = ports.free_ports(20)
    assert len(set(chosen)) == 20
    assert all(ports.is_free(port) for port in chosen)
    assert max(chosen) < int(ports.RANGE.read_text().split()[0])


def test_any_range_of_the_kernel_leaves_ports(tmp_path, monkeypatch):
    monkeypatch.setattr(ports, "RANGE", tmp_path / "range")
    for text in ("1024 65535", "", "x"):
        (tmp_path / "range").write_text(text)
        (port,) = ports.free_ports(1)
        assert 10_000 <= port < 60_000


def test_a_port_that_is_listened_on_is_not_free():
    (port,) = ports.free_ports(1)
    with socket.socket() as server:
        server.bind((ports.HOST, port))
        server.listen()
        assert not ports.is_free(port)
        assert not ports.wait_until_free((port,), timeout_s=0.1)
    assert ports.wait_until_free((port,), timeout_s=5.0)


def test_ports_are_kept_and_what_cannot_be_read_is_none(tmp_path):
    assert ports.kept(tmp_path) is None
    ports.keep(tmp_path, (20001, 20002))
    assert ports.kept(tmp_path) == (20001, 20002)
    for text in ("", "[1]", "7", '["a", "b"]'):
        (tmp_path / "ports.json").write_text(text)
        assert ports.kept(tmp_path) is None
