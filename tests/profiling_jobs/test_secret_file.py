"""A secret is made once, for its owner alone, and nothing that is wrong with it is taken for one."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from models.errors import HeadroomError, Unsafe
from profiling_jobs import secret_file

pytestmark = pytest.mark.fast


def test_it_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    first = secret_file.kept(path)
    assert len(first) == 64
    assert secret_file.kept(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["key"]
    assert secret_file.kept(tmp_path / "other") != first


def test_of_several_at_once_all_have_the_same(tmp_path: Path) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(secret_file.kept(tmp_path / "key"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.parametrize("content", ["", "\n", "abc", "f" * 63])
def test_one_that_is_empty_or_cut_short_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(Unsafe, match="empty or cut short: delete it"):
        secret_file.kept(path)


def test_one_that_everybody_reads_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    secret_file.kept(path)
    path.chmod(0o644)
    with pytest.raises(Unsafe, match="every user of this machine: delete it"):
        secret_file.kept(path)
    path.chmod(0o660)  # as Kubernetes leaves it on a volume
    assert secret_file.kept(path)


def test_a_place_that_cannot_hold_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadroomError, match="file/key"):
        secret_file.kept(tmp_path / "file" / "key")
