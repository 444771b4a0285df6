"""What only a file can promise: crashes, other processes, other versions, full disks."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from models.errors import Misconfigured, NotReady, Unsafe
from models.ports import Control, Directive
from pipelines.integrations.sqlite_store import MIGRATIONS, SqliteStore

ROOT = Path(__file__).parents[3]


def process(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process, ready to go once it is told to."""
    head = (
        "import sys\nfrom pathlib import Path\nfrom models.ports import Control, Lease\n"
        "from pipelines.integrations.sqlite_store import SqliteStore\n"
        "path, who = Path(sys.argv[1]), sys.argv[2]\nprint('ready', flush=True)\nsys.stdin.readline()\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + code, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def race(code: str, path: Path) -> list[list[str]]:
    """The words that two processes print which were let go at the same moment."""
    both = [process(code, path, who) for who in ("a", "b")]
    for one in both:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in both:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    words = [one.communicate(timeout=60)[0].split() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    return words


class TestTwoProcesses:
    def test_one_wins_each_epoch_and_nothing_is_lost(self, tmp_path: Path) -> None:
        # Both also create the file at the same moment. Each adds one to a counter, again and again.
        code = """
store = SqliteStore(path)
for _ in range(40):
    while True:
        seen = store.control("orders")
        epoch, count = (seen.epoch, seen.state["count"]) if seen else (None, 0)
        mine = Control("orders", 0 if epoch is None else epoch + 1, {"count": count + 1, "by": who})
        if store.save_control(mine, expected_epoch=epoch):
            print(mine.epoch)
            break
"""
        won = race(code, tmp_path / "headroom.db")
        assert sorted(int(epoch) for words in won for epoch in words) == list(range(80))
        with SqliteStore(tmp_path / "headroom.db") as store:
            kept = store.control("orders")
        assert kept is not None
        assert kept.state["count"] == 80

    def test_one_claims_each_epoch(self, tmp_path: Path) -> None:
        code = """
store = SqliteStore(path)
for epoch in range(40):
    if store.claim(Lease("orders", epoch, who, until_s=1000.0 * epoch + 1000.0), now_s=1000.0 * epoch):
        print(epoch)
"""
        won = race(code, tmp_path / "headroom.db")
        claimed = sorted(int(epoch) for words in won for epoch in words)
        assert len(claimed) == len(set(claimed))
        assert 39 in claimed

    def test_an_interval_is_evaluated_by_one_of_them(self, tmp_path: Path) -> None:
        code = """
store = SqliteStore(path)
for interval in range(40):
    if store.record_evaluation("orders", interval=interval, at_s=30.0 * interval, evaluation={"by": who}):
        print(interval)
"""
        won = race(code, tmp_path / "headroom.db")
        assert sorted(int(interval) for words in won for interval in words) == list(range(40))

    def test_a_command_from_outside_sees_what_an_owner_with_two_stores_writes(self, tmp_path: Path) -> None:
        """Closing any descriptor of the file drops every lock of the process: the next process that leaves
        then deletes the log under the owner, and from there on neither sees what the other writes."""
        path = tmp_path / "headroom.sqlite"
        code = """
with SqliteStore(path) as store:
    seen = store.document("orders", "search")
    store.save_document("orders", "answer", {"to": seen["step"]})
    print(seen["step"])
"""
        with SqliteStore(path) as owner, SqliteStore(path) as second:
            for step in range(3):
                owner.save_document("orders", "search", {"step": step})
                command = process(code, path, "outside")
                assert command.communicate("go\n", timeout=60)[0].split() == ["ready", str(step)]
                assert command.returncode == 0
                assert owner.document("orders", "answer") == {"to": step}
                assert second.document("orders", "answer") == {"to": step}
                SqliteStore(path).close()  # a run inside the owner


class TestCrashes:
    def test_what_was_said_to_be_written_survives_a_kill(self, tmp_path: Path) -> None:
        code = """
store = SqliteStore(path)
for step in range(10**9):
    store.save_document("orders", "search", {"step": step, "ballast": "x" * 5000})
    print(step, flush=True)
"""
        writer = process(code, tmp_path / "headroom.db", "a")
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.stdin.write("go\n")
        writer.stdin.flush()
        for _ in range(20):
            writer.stdout.readline()
        writer.kill()
        confirmed = int((writer.communicate()[0].split() or ["19"])[-1])
        with SqliteStore(tmp_path / "headroom.db") as store:
            kept = store.document("orders", "search")
            assert kept is not None
            assert kept["step"] >= confirmed
            store.save_document("orders", "search", {})  # the dead one's lock is gone

    def test_a_fork_gets_a_connection_of_its_own(self, tmp_path: Path) -> None:
        with SqliteStore(tmp_path / "headroom.db") as store:
            store.save_document("orders", "search", {"by": "parent"})
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    store.save_document("orders", "search", {"by": "child"})
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
            assert store.document("orders", "search") == {"by": "child"}
            store.save_document("orders", "search", {"by": "parent"})
            assert store.document("orders", "search") == {"by": "parent"}


class TestVersions:
    LATER = (*MIGRATIONS, ("ALTER TABLE documents ADD COLUMN author TEXT", "CREATE TABLE extra (x INTEGER)"))

    def test_an_older_file_comes_forward_with_all_it_holds(self, tmp_path: Path) -> None:
        path = tmp_path / "headroom.db"
        with SqliteStore(path) as store:
            store.direct(Directive("orders", "pin", "ann", "sale", since_s=1.0, value=4))
        with SqliteStore(path, migrations=self.LATER) as store:
            assert len(store.directives("orders", now_s=2.0)) == 1
        with sqlite3.connect(path) as plain:
            assert plain.execute("SELECT version FROM schema_version").fetchall() == [(len(MIGRATIONS) + 1,)]
        plain.close()

    def test_a_newer_file_is_refused_with_what_to_do_and_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "headroom.db"
        SqliteStore(path, migrations=self.LATER).close()
        before = path.read_bytes()
        with pytest.raises(Unsafe, match=r"newer Headroom \(schema 2.* up to 1\): update Headroom"):
            SqliteStore(path)
        assert path.read_bytes() == before

    def test_a_migration_that_fails_leaves_the_old_version(self, tmp_path: Path) -> None:
        path = tmp_path / "headroom.db"
        SqliteStore(path).close()
        with pytest.raises(Unsafe, match="no_such"):
            SqliteStore(path, migrations=(*self.LATER, ("ALTER TABLE no_such ADD COLUMN x",)))
        with SqliteStore(path) as store:
            assert store.audit("orders") == ()

    def test_an_open_store_notices_that_the_file_has_moved_on(self, tmp_path: Path) -> None:
        """Two versions of Headroom at once: the older one must not write into what it does not know."""
        path = tmp_path / "headroom.db"
        with SqliteStore(path) as older:
            SqliteStore(path, migrations=self.LATER).close()
            with pytest.raises(Unsafe, match="newer Headroom"):
                older.save_document("orders", "search", {})

    def test_another_programs_database_is_not_touched(self, tmp_path: Path) -> None:
        path = tmp_path / "headroom.db"
        with sqlite3.connect(path) as plain:
            plain.execute("CREATE TABLE theirs (x INTEGER)")
        plain.close()
        before = path.read_bytes()
        with pytest.raises(Unsafe, match="another program's database: move it aside"):
            SqliteStore(path)
        assert path.read_bytes() == before


class TestTrouble:
    def test_a_lock_that_is_held_too_long_is_not_ready(self, tmp_path: Path) -> None:
        path = tmp_path / "headroom.db"
        with SqliteStore(path, patience_s=0.1) as store:
            plain = sqlite3.connect(path, isolation_level=None)
            plain.execute("BEGIN IMMEDIATE")
            assert store.control("orders") is None  # reading goes on
            with pytest.raises(NotReady, match="locked"):
                store.save_document("orders", "search", {})
            plain.execute("ROLLBACK")
            plain.close()
            store.save_document("orders", "search", {})

    def test_a_lock_that_is_held_for_a_moment_is_waited_for(self, tmp_path: Path) -> None:
        path = tmp_path / "headroom.db"
        with SqliteStore(path) as store:
            plain = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            plain.execute("BEGIN IMMEDIATE")
            timer = threading.Timer(0.3, lambda: plain.execute("ROLLBACK"))
            timer.start()
            store.save_document("orders", "search", {})
            timer.join()
            plain.close()

    def test_a_damaged_file_is_said_to_be_damaged(self, tmp_path: Path) -> None:
        path = tmp_path / "headroom.db"
        path.write_bytes(b"no database at all " * 100)
        with pytest.raises(Unsafe, match="damaged or no database"):
            SqliteStore(path)

    def test_a_folder_in_its_place_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(Misconfigured, match="cannot be opened"):
            SqliteStore(tmp_path)

    def test_a_full_disk_loses_nothing_that_was_there(self, tmp_path: Path) -> None:
        with SqliteStore(tmp_path / "headroom.db") as store:
            store.save_document("orders", "search", {"step": 1})
            # The file may grow no further: to SQLite the same as a disk without room.
            with store._file.reading() as connection:
                connection.execute("PRAGMA max_page_count = 1")
            with pytest.raises(NotReady, match="disk is full"):
                store.save_document("orders", "big", {"text": "x" * 500_000})
            assert store.document("orders", "search") == {"step": 1}
            assert store.document("orders", "big") is None

    def test_only_its_owner_may_read_it(self, tmp_path: Path) -> None:
        SqliteStore(tmp_path / "new" / "headroom.db").close()
        assert stat.S_IMODE((tmp_path / "new" / "headroom.db").stat().st_mode) == 0o600

    def test_it_can_be_closed_and_used_again(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "headroom.db")
        store.save_control(Control("orders", 3, {}), expected_epoch=None)
        store.close()
        assert store.control("orders") == Control("orders", 3, {})
        store.close()
