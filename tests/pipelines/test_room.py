"""A disk that is full is said, and evaluations go on when there is room."""

import os
import subprocess

import pytest
from simulated_service import ORDERS, opened
from waiting import until

from models.errors import HeadroomError
from pipelines.processes.room import RoomWatch


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place):
    """Until not a byte is left; what makes room again."""
    path = place / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return path.unlink


def test_it_is_said_once_and_so_is_the_end_of_it(small_disk):
    said = []
    watch = RoomWatch(small_disk, said.append)
    watch.look()
    assert (said, watch.problem) == ([], "")
    make_room = fill(small_disk)
    watch.look()
    watch.look()
    assert len(said) == 1
    assert "No space left on device" in said[0]
    assert "nothing is evaluated or decided until there is room; jobs run on" in said[0]
    assert watch.problem == said[0]
    make_room()
    watch.look()
    assert said[1:] == [f"{small_disk} can be written to again: evaluations go on"]
    assert watch.problem == ""
    assert list(small_disk.iterdir()) == []


def test_evaluations_stop_loudly_and_go_on(small_disk, monkeypatch):
    monkeypatch.setattr("pipelines.server.in_process.LOOK_S", 0.2)
    (small_disk / "headroom.toml").write_text(ORDERS)
    with opened(small_disk / ".headroom", ORDERS) as service:
        service.launched()
        service.passes(60)
        assert service.server.evaluate("orders")["job"] == "orders"
        service.server._looking.close()  # or the disk is full of its attempt, which it removes
        make_room = fill(small_disk)
        service.server._looking.start()
        until(lambda: service.server.status()["problem"])
        service.passes(60)
        with pytest.raises(HeadroomError, match="the disk is full: make room"):
            service.server.evaluate("orders")
        make_room()
        until(lambda: not service.server.status()["problem"])
        service.passes(60)
        assert service.server.evaluate("orders")["job"] == "orders"
