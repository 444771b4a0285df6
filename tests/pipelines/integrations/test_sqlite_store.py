"""What only a file can promise; the rest is in tests/contracts/test_store_contract.py."""

import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from models.errors import Misconfigured, NotReady, Unsafe
from models.ports import Control, Lease
from pipelines.integrations.stores.sqlite import SqliteStore

ROOT = Path(__file__).parents[3]


class TestLocks:
    def test_a_command_from_outside_sees_what_an_owner_with_two_stores_writes(self, tmp_path):
        """Closing any descriptor of the file drops every lock of the process: the next process that leaves
        then deletes the log under the owner, and from there on neither sees what the other writes."""
        path = tmp_path / "headroom.sqlite"
        code = """
import sys
from pathlib import Path
from pipelines.integrations.stores.sqlite import SqliteStore
with SqliteStore(Path(sys.argv[1])) as store:
    seen = store.document("orders", "search")
    store.save_document("orders", "answer", {"to": seen["step"]})
    print(seen["step"])
"""
        with SqliteStore(path) as owner, SqliteStore(path) as second:
            for step in range(3):
                owner.save_document("orders", "search", {"step": step})
                command = subprocess.run(
                    [sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True
                )
                assert (command.stdout, command.returncode) == (f"{step}\n", 0), command.stderr
                assert owner.document("orders", "answer") == {"to": step}
                assert second.document("orders", "answer") == {"to": step}
                SqliteStore(path).close()  # a run inside the owner


class TestVersions:
    def test_another_programs_database_is_not_touched(self, tmp_path):
        path = tmp_path / "headroom.db"
        with sqlite3.connect(path) as plain:
            plain.execute("CREATE TABLE theirs (x INTEGER)")
        plain.close()
        before = path.read_bytes()
        with pytest.raises(Unsafe, match="another program's database: move it aside"):
            SqliteStore(path)
        assert path.read_bytes() == before


class TestTrouble:
    def test_a_lock_that_is_held_for_a_moment_is_waited_for(self, tmp_path):
        path = tmp_path / "headroom.db"
        with SqliteStore(path) as store:
            plain = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            plain.execute("BEGIN IMMEDIATE")
            timer = threading.Timer(0.3, lambda: plain.execute("ROLLBACK"))
            timer.start()
            store.save_document("orders", "search", {})
            timer.join()
            plain.close()

    def test_a_damaged_file_and_a_folder_in_its_place_are_said(self, tmp_path):
        path = tmp_path / "headroom.db"
        path.write_bytes(b"no database at all " * 100)
        with pytest.raises(Unsafe, match="damaged or no database"):
            SqliteStore(path)
        with pytest.raises(Misconfigured, match="cannot be opened"):
            SqliteStore(tmp_path)

    def test_a_full_disk_loses_nothing_that_was_there(self, tmp_path):
        with SqliteStore(tmp_path / "headroom.db") as store:
            store.save_document("orders", "search", {"step": 1})
            # The file may grow no further: to SQLite the same as a disk without room.
            with store._reading() as connection:
                connection.execute("PRAGMA max_page_count = 1")
            with pytest.raises(NotReady, match="disk is full"):
                store.save_document("orders", "big", {"text": "x" * 500_000})
            assert store.document("orders", "search") == {"step": 1}
            assert store.document("orders", "big") is None

    def test_a_transaction_that_could_not_be_rolled_back_is_not_the_end_of_it(self, tmp_path):
        with SqliteStore(tmp_path / "headroom.db") as store:
            store.save_document("orders", "search", {"step": 1})
            with store._reading() as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("DELETE FROM documents")
            assert store.document("orders", "search") == {"step": 1}
            store.save_document("orders", "search", {"step": 2})
            assert store.document("orders", "search") == {"step": 2}

    def test_only_its_owner_may_read_it_and_it_can_be_closed_and_used_again(self, tmp_path):
        path = tmp_path / "new" / "headroom.db"
        store = SqliteStore(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        store.save_control(Control("orders", 3, {}), expected_epoch=None)
        store.close()
        assert store.control("orders") == Control("orders", 3, {})
        store.close()


class TestLeasesAndTheClock:
    """A lease of 45 s was refused for 50 minutes after the clock had been set back by an hour."""

    LEASE = Lease("orders", 5, "run-a", until_s=10_045.0)

    def claims(self, store, holder, now_s):
        return store.claim(replace(self.LEASE, holder=holder, until_s=now_s + 45.0), now_s=now_s)

    def test_a_clock_that_is_set_does_not_move_them(self, tmp_path):
        uptime = [500.0]
        with SqliteStore(tmp_path / "headroom.db", uptime_s=lambda: uptime[0]) as store:
            assert store.claim(self.LEASE, now_s=10_000.0)
            uptime[0] += 44.0
            for now_s in (6_444.0, 10_044.0, 13_644.0):  # back by an hour, not at all, forward by one
                assert not self.claims(store, "run-b", now_s)
            uptime[0] += 2.0
            assert self.claims(store, "run-b", 6_446.0)

    def test_one_that_was_renewed_while_others_waited_for_their_turn_is_held(self, tmp_path, monkeypatch):
        uptime = [500.0]
        with SqliteStore(tmp_path / "headroom.db", uptime_s=lambda: uptime[0]) as store:
            assert store.claim(self.LEASE, now_s=10_000.0)
            writing, waited = store._writing, []

            @contextmanager
            def in_turn():
                if not waited:
                    waited.append(True)
                    uptime[0] += 1.0
                    assert self.claims(store, "run-a", 10_001.0)
                with writing() as connection:
                    yield connection

            monkeypatch.setattr(store, "_writing", in_turn)
            assert not self.claims(store, "run-b", 10_000.0)

    @pytest.mark.parametrize("uptime_s", [5.0, 460.0])
    def test_nobody_holds_one_from_before_the_machine_was_started(self, uptime_s, tmp_path):
        with SqliteStore(tmp_path / "headroom.db", uptime_s=lambda: 100_000.0) as store:
            assert store.claim(self.LEASE, now_s=10_000.0)
        with SqliteStore(tmp_path / "headroom.db", uptime_s=lambda: uptime_s) as store:
            assert self.claims(store, "run-b", 10_001.0)

    def test_nobody_holds_one_of_a_version_that_went_by_the_clock(self, tmp_path):
        with SqliteStore(tmp_path / "headroom.db") as store:
            assert store.claim(self.LEASE, now_s=10_000.0)
        with SqliteStore(tmp_path / "headroom.db", uptime_s=lambda: 500.0) as store:
            assert self.claims(store, "run-b", 10_001.0)
