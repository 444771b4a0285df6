"""What every store promises, also to other processes, across crashes and between versions."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import together

from models.errors import NotReady, Unsafe
from models.ports import Control, Directive, Lease, Store
from models.quantities import Measurement, Misuse, RecoveryEvent
from pipelines.integrations.stores import sql
from pipelines.integrations.stores.sql import MIGRATIONS, TABLES, SqlStore
from pipelines.integrations.stores.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
SCHEMAS = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """Where a store is."""

    open: Callable[..., SqlStore]
    code: str
    """The expression that opens it in another process, which waits as long as it takes for its turn."""
    module: str = "pipelines.integrations.stores.sqlite"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.real)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        path = tmp_path / "headroom.db"
        return Place(partial(SqliteStore, path), f"SqliteStore(Path({str(path)!r}), patience_s=60.0)")
    url = request.getfixturevalue("real_postgres").url
    from pipelines.integrations.stores.postgres import PostgresStore

    given = {"variable": "HEADROOM_STORE_URL", "schema": f"contract_{next(SCHEMAS)}"}
    code = f"PostgresStore({url!r}, **{given!r}, patience_s=60.0)"
    return Place(partial(PostgresStore, url, **given), code, PostgresStore.__module__)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    with place.open() as store:
        yield store


class TestCopying:
    """From the SQLite file that was used before."""

    @pytest.fixture
    def before(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
        monkeypatch.setattr(sql, "AT_ONCE", 2)
        with SqliteStore(tmp_path / "before.db") as store:
            assert store.empty()
            for interval in range(5):
                store.record_evaluation(
                    "orders", interval=interval, at_s=30.0 * interval, evaluation={"ü": 1}
                )
            store.save_control(Control("orders", 7, {"size": 3}), expected_epoch=None)
            assert store.claim(Lease("orders", 7, "me", 100.0), now_s=50.0)
            store.direct(Directive("orders", "pin", "ann", "a sale", 10.0, None, 4))
            store.direct(Directive("orders", "pause", "bob", "a look", 20.0, 90.0))
            store.resume("orders", who="ann", why="over", now_s=30.0)
            measured = Measurement(2, 100.0, 100.0, True, None, 60.0, 120.0)
            store.add_measurement("orders", "k", measured, at_s=5.0)
            store.add_event(
                "orders", RecoveryEvent("driver_kill", 2, 40.0, 8.0, 30.0), details={"on": "copy"}
            )
            store.save_document("orders", "copies", {"made": 1})
            yield store

    def test_everything_is_there_and_goes_on(self, before: SqliteStore, store: SqlStore) -> None:
        rows = store.copy_from(before)
        assert rows == {
            **dict.fromkeys(TABLES, 1),
            "evaluations": 5,
            "directives": 3,
        }
        for both in (before, store):
            both.direct(Directive("orders", "pin", "cy", "later", 60.0, None, 5))
        for read in (
            lambda one: one.evaluations("orders", limit=1000),
            lambda one: one.control("orders"),
            lambda one: one.directives("orders", now_s=70.0),
            lambda one: one.audit("orders"),
            lambda one: one.measurements("orders"),
            lambda one: one.events("orders"),
            lambda one: one.document("orders", "copies"),
            lambda one: one.claim(Lease("orders", 6, "other", 200.0), now_s=150.0),
            lambda one: one.claim(Lease("orders", 7, "other", 200.0), now_s=60.0),
        ):
            assert read(store) == read(before)

    def test_a_store_that_is_not_empty_is_left_alone(self, before: SqliteStore, store: SqlStore) -> None:
        store.save_document("clicks", "copies", {"made": 2})
        assert not store.empty()
        with pytest.raises(Unsafe, match=r"is not empty \(there is something in documents\)"):
            store.copy_from(before)
        assert store.evaluations("orders") == ()

    def test_one_that_breaks_off_leaves_nothing(
        self, before: SqliteStore, store: SqlStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copied = sql._copied

        def broken(table: str, source: Any, target: Any) -> int:
            if table == "events":
                raise NotReady("the connection broke")
            return copied(table, source, target)

        monkeypatch.setattr(sql, "_copied", broken)
        with pytest.raises(NotReady):
            store.copy_from(before)
        assert store.empty()

    def test_every_table_and_column_is_known(self, before: SqliteStore) -> None:
        with before._reading() as connection:
            tables = before._tables(connection) - {"schema_version"}
            found = {
                one: [row[1] for row in connection.execute(f"PRAGMA table_info({one})") if row[1] != "id"]
                for one in tables
            }
        assert found == {table: list(columns) for table, columns in TABLES.items()}


class TestEvaluations:
    def test_an_interval_is_evaluated_once(self, store: Store) -> None:
        assert store.record_evaluation("orders", interval=7, at_s=210.0, evaluation={"to": 3})
        assert not store.record_evaluation("orders", interval=7, at_s=215.0, evaluation={"to": 9})
        assert store.record_evaluation("clicks", interval=7, at_s=211.0, evaluation={"to": 1})
        assert store.evaluations("orders") == ((210.0, {"to": 3}),)

    def test_the_newest_are_read_oldest_first(self, store: Store) -> None:
        for interval in (3, 1, 2, 0):
            store.record_evaluation("orders", interval=interval, at_s=30.0 * interval, evaluation={})
        assert [at_s for at_s, _ in store.evaluations("orders", limit=3)] == [30.0, 60.0, 90.0]
        assert [at_s for at_s, _ in store.evaluations("orders", since_s=60.0)] == [60.0, 90.0]
        assert [at_s for at_s, _ in store.evaluations("orders", until_s=60.0, limit=1)] == [60.0]
        assert store.evaluations("orders", since_s=61.0, until_s=89.0) == ()
        assert store.evaluations("nobody") == ()
        with pytest.raises(Misuse, match="limit"):
            store.evaluations("orders", limit=0)

    def test_old_ones_can_be_dropped(self, store: Store) -> None:
        for interval in range(4):
            store.record_evaluation("orders", interval=interval, at_s=30.0 * interval, evaluation={})
        assert store.forget_evaluations("orders", before_s=60.0) == 2
        assert [at_s for at_s, _ in store.evaluations("orders")] == [60.0, 90.0]
        assert store.forget_evaluations("clicks", before_s=60.0) == 0


class TestDocuments:
    @pytest.mark.parametrize(
        "document",
        [
            {},
            {"recovery_s": math.inf, "worst": [-math.inf, 1e-300, {"deep": math.inf}]},
            {"text": 'Größe "3" \n\u2028', "yes": True, "none": None, "whole": 2**60, "zero": -0.0},
        ],
    )
    def test_comes_back_as_it_was(self, store: Store, document: dict[str, object]) -> None:
        store.save_document("orders", "search", document)
        assert store.document("orders", "search") == document
        assert store.record_evaluation("orders", interval=1, at_s=1.0, evaluation=document)
        assert store.evaluations("orders")[0][1] == document

    def test_a_missing_value_stays_missing(self, store: Store) -> None:
        store.save_document("orders", "history", {"rps": [1.0, math.nan]})
        kept = store.document("orders", "history")
        assert kept is not None
        assert kept["rps"][0] == 1.0
        assert math.isnan(kept["rps"][1])

    def test_the_last_one_counts_per_job_and_name(self, store: Store) -> None:
        store.save_document("orders", "search", {"step": 1})
        store.save_document("orders", "search", {"step": 2})
        store.save_document("orders", "plan", {"step": 8})
        store.save_document("clicks", "search", {"step": 9})
        assert store.document("orders", "search") == {"step": 2}
        assert store.document("clicks", "plan") is None

    def test_what_was_handed_over_can_be_changed_without_harm(self, store: Store) -> None:
        document: dict[str, list[int]] = {"steps": [1]}
        store.save_document("orders", "search", document)
        document["steps"].append(2)
        read = store.document("orders", "search")
        assert read == {"steps": [1]}
        read["steps"].append(3)
        assert store.document("orders", "search") == {"steps": [1]}

    @pytest.mark.parametrize(
        ("document", "said"),
        [
            ({"a": {1: 2}}, r"search\.a: keys"),
            ({"a": [0, np.int64(3)]}, r"search\.a\[1\].*int64"),
            ({"a": {3}}, r"search\.a.*set"),
            ({"$number": "inf"}, r"search: keys"),
            ({"a": object()}, r"search\.a"),
        ],
    )
    def test_what_would_be_changed_on_its_way_is_refused(
        self, store: Store, document: dict[str, object], said: str
    ) -> None:
        with pytest.raises(Misuse, match=said):
            store.save_document("orders", "search", document)
        assert store.document("orders", "search") is None


class TestControl:
    def test_only_who_has_seen_the_latest_epoch_may_write(self, store: Store) -> None:
        assert store.control("orders") is None
        assert not store.save_control(Control("orders", 1, {"by": "late"}), expected_epoch=0)
        assert store.save_control(Control("orders", 0, {"by": "a", "seen_s": math.inf}), expected_epoch=None)
        assert not store.save_control(Control("orders", 0, {"by": "b"}), expected_epoch=None)
        assert store.control("orders") == Control("orders", 0, {"by": "a", "seen_s": math.inf})
        assert store.save_control(Control("orders", 1, {"by": "c"}), expected_epoch=0)
        assert not store.save_control(Control("orders", 1, {"by": "d"}), expected_epoch=0)
        assert store.control("orders") == Control("orders", 1, {"by": "c"})

    def test_a_tick_that_decides_nothing_keeps_the_epoch(self, store: Store) -> None:
        store.save_control(Control("orders", 4, {"tick": 1}), expected_epoch=None)
        assert store.save_control(Control("orders", 4, {"tick": 2}), expected_epoch=4)
        assert store.control("orders") == Control("orders", 4, {"tick": 2})

    def test_an_epoch_does_not_go_back(self, store: Store) -> None:
        store.save_control(Control("orders", 4, {}), expected_epoch=None)
        with pytest.raises(Misuse, match=r"control\.epoch"):
            store.save_control(Control("orders", 3, {}), expected_epoch=4)
        with pytest.raises(Misuse, match=r"control\.epoch"):
            store.save_control(Control("clicks", -1, {}), expected_epoch=None)

    def test_of_many_threads_one_wins_each_epoch(self, store: Store) -> None:
        store.save_control(Control("orders", 0, {}), expected_epoch=None)
        won: list[int] = []

        def race(who: int) -> None:
            for epoch in range(10):
                if store.save_control(Control("orders", epoch + 1, {"by": who}), expected_epoch=epoch):
                    won.append(epoch)

        together([partial(race, who) for who in range(4)])
        assert sorted(won) == list(range(len(won)))
        kept = store.control("orders")
        assert kept is not None
        assert kept.epoch == len(won)


class TestLeases:
    LEASE = Lease("orders", 5, "run-a", until_s=100.0)

    def test_one_holder_at_a_time(self, store: Store) -> None:
        assert store.claim(self.LEASE, now_s=10.0)
        assert not store.claim(replace(self.LEASE, holder="run-b"), now_s=11.0)
        assert store.claim(replace(self.LEASE, until_s=200.0), now_s=50.0)  # prolonged by its holder
        assert not store.claim(replace(self.LEASE, holder="run-b", until_s=300.0), now_s=150.0)
        assert store.claim(Lease("clicks", 1, "run-b", until_s=100.0), now_s=10.0)

    def test_a_newer_epoch_waits_for_the_one_at_work(self, store: Store) -> None:
        store.claim(self.LEASE, now_s=10.0)
        newer = Lease("orders", 6, "run-b", until_s=200.0)
        assert not store.claim(newer, now_s=50.0)
        store.release(self.LEASE)
        assert store.claim(newer, now_s=51.0)

    def test_an_older_epoch_is_refused_for_good(self, store: Store) -> None:
        store.claim(self.LEASE, now_s=10.0)
        older = replace(self.LEASE, epoch=4, until_s=900.0)
        assert not store.claim(older, now_s=11.0)  # not even to the same holder
        store.release(self.LEASE)
        assert not store.claim(older, now_s=12.0)
        assert not store.claim(older, now_s=500.0)

    def test_a_crashed_holder_is_replaced_once_its_time_is_over(self, store: Store) -> None:
        store.claim(self.LEASE, now_s=10.0)
        retry = replace(self.LEASE, holder="run-b", until_s=180.0)
        assert not store.claim(retry, now_s=99.9)
        assert store.claim(retry, now_s=100.0)
        assert not store.claim(replace(self.LEASE, until_s=300.0), now_s=101.0)

    def test_only_the_holder_releases(self, store: Store) -> None:
        store.claim(self.LEASE, now_s=10.0)
        store.release(replace(self.LEASE, holder="run-b"))
        store.release(replace(self.LEASE, epoch=4))
        store.release(Lease("nobody", 1, "run-a", until_s=1.0))
        assert not store.claim(replace(self.LEASE, holder="run-b"), now_s=11.0)

    def test_a_lease_that_is_over_when_it_begins_is_misuse(self, store: Store) -> None:
        with pytest.raises(Misuse, match="until_s"):
            store.claim(self.LEASE, now_s=100.0)
        with pytest.raises(Misuse, match="until_s"):
            Lease("orders", 1, "run-a", until_s=math.inf)


class TestDirectives:
    PAUSE = Directive("orders", "pause", "ann", "release day", since_s=10.0)

    def test_in_force_from_since_up_to_until(self, store: Store) -> None:
        store.direct(replace(self.PAUSE, until_s=20.0))
        assert store.directives("orders", now_s=9.9) == ()
        assert store.directives("orders", now_s=10.0) == (replace(self.PAUSE, until_s=20.0),)
        assert store.directives("orders", now_s=20.0) == ()
        assert store.directives("clicks", now_s=15.0) == ()

    def test_a_new_one_takes_the_place_of_its_kind_only(self, store: Store) -> None:
        pin = Directive("orders", "pin", "bob", "black friday", since_s=11.0, value=8)
        store.direct(self.PAUSE)
        store.direct(pin)
        store.direct(replace(pin, since_s=12.0, value=6))
        assert store.directives("orders", now_s=11.5) == (self.PAUSE, pin)
        assert store.directives("orders", now_s=13.0) == (self.PAUSE, replace(pin, since_s=12.0, value=6))

    def test_resume_ends_them_all_and_the_record_stays(self, store: Store) -> None:
        store.direct(self.PAUSE)
        store.direct(Directive("orders", "pin", "bob", "sale", since_s=11.0, until_s=12.0, value=8))
        store.direct(Directive("orders", "hold", "headroom", "foreign edit: 3, ours 5", since_s=12.0))
        store.direct(Directive("clicks", "pause", "ann", "", since_s=12.0))
        assert store.resume("orders", who="eve", why="all clear", now_s=30.0) == 2
        assert store.directives("orders", now_s=30.0) == ()
        assert len(store.directives("clicks", now_s=30.0)) == 1
        assert store.resume("orders", who="eve", why="again", now_s=31.0) == 0
        assert [
            (entry["at_s"], entry["what"], entry["who"], entry["why"]) for entry in store.audit("orders")
        ] == [
            (10.0, "pause", "ann", "release day"),
            (11.0, "pin", "bob", "sale"),
            (12.0, "hold", "headroom", "foreign edit: 3, ours 5"),
            (30.0, "resume", "eve", "all clear"),
            (31.0, "resume", "eve", "again"),
        ]
        assert store.audit("orders")[1]["value"] == 8
        assert store.audit("orders")[1]["until_s"] == 12.0
        assert store.audit("nobody") == ()

    def test_a_directive_after_a_resume_is_in_force(self, store: Store) -> None:
        store.direct(self.PAUSE)
        store.resume("orders", who="eve", why="", now_s=30.0)
        store.direct(replace(self.PAUSE, since_s=30.0))
        assert store.directives("orders", now_s=31.0) == (replace(self.PAUSE, since_s=30.0),)

    def test_what_was_announced_for_later_is_ended_by_resume_too(self, store: Store) -> None:
        store.direct(replace(self.PAUSE, since_s=100.0))
        assert store.resume("orders", who="eve", why="", now_s=30.0) == 1
        assert store.directives("orders", now_s=101.0) == ()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"kind": "stop"},
            {"kind": "pin"},
            {"kind": "pin", "value": 0},
            {"since_s": math.nan},
            {"until_s": 10.0},
        ],
    )
    def test_what_makes_no_sense_is_misuse(self, wrong: dict[str, object]) -> None:
        with pytest.raises(Misuse, match=r"Directive\."):
            replace(self.PAUSE, **wrong)  # type: ignore[arg-type]


class TestFacts:
    def test_a_probe_that_is_told_again_replaces_itself(self, store: Store) -> None:
        first = Measurement(2, 900.0, 880.0, sustained=False, latency_ms=12.5, standard_error_rps=4.0)
        assert store.add_measurement("orders", "e2/1", first, at_s=20.0)
        assert store.add_measurement("orders", "e1/1", replace(first, scale_out=1), at_s=10.0)
        assert not store.add_measurement("orders", "e2/1", replace(first, sustained=True), at_s=30.0)
        assert store.measurements("orders") == (
            ("e1/1", 10.0, replace(first, scale_out=1)),
            ("e2/1", 30.0, replace(first, sustained=True)),
        )
        assert store.measurements("clicks") == ()

    def test_measurements_can_be_dropped_by_their_keys(self, store: Store) -> None:
        for key in ("a", "b", "c"):
            store.add_measurement("orders", key, Measurement(2, 900.0, 880.0, sustained=True), at_s=20.0)
        store.add_measurement("clicks", "a", Measurement(2, 900.0, 880.0, sustained=True), at_s=20.0)
        assert store.forget_measurements("orders", []) == 0
        assert store.forget_measurements("orders", ["a", "c", "nothing"]) == 2
        assert [key for key, *_ in store.measurements("orders")] == ["b"]
        assert [key for key, *_ in store.measurements("clicks")] == ["a"]

    def test_those_of_one_moment_are_in_the_order_of_their_keys(self, store: Store) -> None:
        for key in ("b", "a", "B", "é", "ab"):
            store.add_measurement("orders", key, Measurement(2, 900.0, 880.0, sustained=True), at_s=20.0)
        assert [key for key, *_ in store.measurements("orders")] == ["B", "a", "ab", "b", "é"]

    def test_events_by_time_also_those_that_never_recovered(self, store: Store) -> None:
        late = RecoveryEvent("driver_kill", 4, 200.0, 30.5, math.inf)
        early = RecoveryEvent("live_out", 2, 100.0, 0.0, 12.0)
        store.add_event("orders", late, details={"restart_s": 22.0, "state_load_s": math.inf})
        store.add_event("orders", early, details={})
        assert store.events("orders") == (
            (early, {}),
            (late, {"restart_s": 22.0, "state_load_s": math.inf}),
        )

    def test_the_same_failure_told_again_is_one_failure(self, store: Store) -> None:
        event = RecoveryEvent("driver_kill", 4, 200.0, 30.5, math.inf)
        store.add_event("orders", event, details={"told": 1})
        store.add_event("orders", replace(event, recovery_s=90.0), details={"told": 2})
        store.add_event("clicks", event, details={})
        assert store.events("orders") == ((replace(event, recovery_s=90.0), {"told": 2}),)


def process(code: str, place: Place, who: str) -> subprocess.Popen[str]:
    """Another process, ready to go once it is told to."""
    head = (
        "import sys\nfrom pathlib import Path\nfrom models.ports import Control, Lease\n"
        f"from {place.module} import {place.code.partition('(')[0]}\n"
        f"who = {who!r}\nprint('ready', flush=True)\nsys.stdin.readline()\nstore = {place.code}\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + code],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def race(code: str, place: Place) -> list[list[str]]:
    """The words that two processes print which were let go at the same moment."""
    both = [process(code, place, who) for who in ("a", "b")]
    for one in both:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in both:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    words = [one.communicate(timeout=180)[0].split() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    return words


class TestTwoProcesses:
    def test_one_wins_each_epoch_and_nothing_is_lost(self, place: Place) -> None:
        # Both also create the tables at the same moment. Each adds one to a counter, again and again.
        code = """
for _ in range(40):
    while True:
        seen = store.control("orders")
        epoch, count = (seen.epoch, seen.state["count"]) if seen else (None, 0)
        mine = Control("orders", 0 if epoch is None else epoch + 1, {"count": count + 1, "by": who})
        if store.save_control(mine, expected_epoch=epoch):
            print(mine.epoch)
            break
"""
        won = race(code, place)
        assert sorted(int(epoch) for words in won for epoch in words) == list(range(80))
        with place.open() as store:
            kept = store.control("orders")
        assert kept is not None
        assert kept.state["count"] == 80

    def test_one_claims_each_epoch(self, place: Place) -> None:
        code = """
for epoch in range(40):
    if store.claim(Lease("orders", epoch, who, until_s=1000.0 * epoch + 1000.0), now_s=1000.0 * epoch):
        print(epoch)
"""
        won = race(code, place)
        claimed = sorted(int(epoch) for words in won for epoch in words)
        assert len(claimed) == len(set(claimed))
        assert 39 in claimed

    def test_an_interval_is_evaluated_by_one_of_them(self, place: Place) -> None:
        code = """
for interval in range(40):
    if store.record_evaluation("orders", interval=interval, at_s=30.0 * interval, evaluation={"by": who}):
        print(interval)
"""
        won = race(code, place)
        assert sorted(int(interval) for words in won for interval in words) == list(range(40))


class TestRepeated:
    """A caller that does not know whether a write has arrived makes it once more."""

    def test_a_write_made_twice_has_the_effect_of_one(self, store: Store) -> None:
        lease = Lease("orders", 5, "run-a", until_s=100.0)
        pause = Directive("orders", "pause", "ann", "release day", since_s=10.0)
        for first in (True, False):
            assert store.record_evaluation("orders", interval=7, at_s=210.0, evaluation={}) is first
            assert store.save_control(Control("clicks", 0, {}), expected_epoch=None) is first
            store.direct(pause)
        for _ in range(2):
            assert store.save_control(Control("clicks", 0, {"tick": 2}), expected_epoch=0)
            assert store.claim(lease, now_s=10.0)
            assert store.directives("orders", now_s=11.0) == (pause,)
            assert len(store.evaluations("orders")) == 1
        for _ in range(2):
            store.release(lease)
        assert store.claim(replace(lease, holder="run-b"), now_s=11.0)


class TestCrashes:
    def test_what_was_said_to_be_written_survives_a_kill(self, place: Place) -> None:
        code = """
for step in range(10**9):
    store.save_document("orders", "search", {"step": step, "ballast": "x" * 5000})
    print(step, flush=True)
"""
        writer = process(code, place, "a")
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.stdin.write("go\n")
        writer.stdin.flush()
        for _ in range(20):
            writer.stdout.readline()
        writer.kill()
        confirmed = int((writer.communicate()[0].split() or ["19"])[-1])
        with place.open() as store:
            kept = store.document("orders", "search")
            assert kept is not None
            assert kept["step"] >= confirmed
            store.save_document("orders", "search", {})  # the dead one's lock is gone

    def test_a_fork_gets_a_connection_of_its_own(self, place: Place) -> None:
        with place.open() as store:
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


class TestLocks:
    def test_one_that_is_held_too_long_is_not_ready(self, place: Place) -> None:
        with place.open() as holder, place.open(patience_s=0.1) as store:
            with holder._writing():
                assert store.control("orders") is None  # reading goes on
                with pytest.raises(NotReady, match="another process keeps it locked"):
                    store.save_document("orders", "search", {})
            store.save_document("orders", "search", {})


class TestVersions:
    LATER = (*MIGRATIONS, ("ALTER TABLE documents ADD COLUMN author TEXT", "CREATE TABLE extra (x INTEGER)"))

    def test_an_older_database_comes_forward_with_all_it_holds(self, place: Place) -> None:
        with place.open() as store:
            store.direct(Directive("orders", "pin", "ann", "sale", since_s=1.0, value=4))
        with place.open(migrations=self.LATER) as store:
            assert len(store.directives("orders", now_s=2.0)) == 1

    def test_a_newer_one_is_refused_with_what_to_do_and_left_alone(self, place: Place) -> None:
        with place.open(migrations=self.LATER) as newer:
            newer.save_control(Control("orders", 1, {}), expected_epoch=None)
            with pytest.raises(Unsafe, match=r"newer Headroom \(schema 2.* up to 1\): update Headroom"):
                place.open()
            assert newer.control("orders") == Control("orders", 1, {})

    def test_a_migration_that_fails_leaves_the_old_version(self, place: Place) -> None:
        place.open().close()
        with pytest.raises(Unsafe, match="no_such"):
            place.open(migrations=(*self.LATER, ("ALTER TABLE no_such ADD COLUMN x TEXT",)))
        with place.open() as store:
            assert store.audit("orders") == ()

    def test_an_open_store_notices_that_the_database_has_moved_on(self, place: Place) -> None:
        """Two versions of Headroom at once: the older one must not write into what it does not know."""
        with place.open() as older:
            place.open(migrations=self.LATER).close()
            with pytest.raises(Unsafe, match="newer Headroom"):
                older.save_document("orders", "search", {})
