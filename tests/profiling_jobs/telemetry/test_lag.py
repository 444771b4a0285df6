"""How far a job is: checkpoint and consumer group together, every commit once, and lag from offsets."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import offsets

from models.errors import NotReady
from models.ports import Function, Offsets, Plan
from models.quantities import Unknown
from profiling_jobs.telemetry import lag as backlog
from profiling_jobs.telemetry.lag import Standing

pytestmark = pytest.mark.fast


class Group:
    """Of a broker, the consumer group."""

    def __init__(self) -> None:
        self.asked = 0
        self.end: int | None = None
        self.silent = False

    def committed(self, group: str, topics: Sequence[str]) -> Offsets:
        assert (group, list(topics)) == ("headroom.orders", ["orders"])
        self.asked += 1
        if self.silent:
            raise NotReady("the broker does not answer")
        return {} if self.end is None else {("orders", 0): self.end}


class Query:
    """A checkpoint with one Kafka source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("offsets", "commits", "sources/0"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text('{"id":"q1"}')
        (folder / "sources/0/0").write_text('v1\n{"orders":{"0":0}}')

    def commit(self, batch: int, end: int, at_s: float) -> None:
        (self.folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps({'orders': {'0': end}})}")
        file = self.folder / "commits" / str(batch)
        file.write_text("v1\n{}")
        os.utime(file, (at_s, at_s))

    def forget(self, batch: int) -> None:
        (self.folder / "commits" / str(batch)).unlink()


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "checkpoint")


@pytest.fixture
def group() -> Group:
    return Group()


def plan(checkpoint: object) -> Plan:
    program = Function("jobs:build")
    return Plan("orders", "orders", "live", program, 2, {"events": "orders"}, {}, str(checkpoint))


@pytest.fixture
def standing(query: Query) -> Standing:
    return Standing(plan(query.folder))


def look(standing: Standing, group: Group, now_s: float) -> tuple[object, str, list[object]]:
    stand, commits = standing.look(group, now_s=now_s)  # type: ignore[arg-type]
    end = stand.ends if isinstance(stand.ends, Unknown) else stand.ends.get(("orders", 0))
    return end, stand.source, [commit.batch for commit in commits]


def test_the_checkpoint_leads_and_every_commit_is_told_once(
    query: Query, standing: Standing, group: Group
) -> None:
    query.commit(3, 30, at_s=100.0)
    assert look(standing, group, 101.0) == (30, "checkpoint", [])
    query.commit(4, 40, at_s=101.5)
    query.commit(5, 50, at_s=102.5)
    group.end = 40
    assert look(standing, group, 103.0) == (50, "checkpoint", [4, 5])
    assert look(standing, group, 104.0) == (50, "checkpoint", [])


def test_the_first_batches_of_a_query(query: Query, standing: Standing, group: Group) -> None:
    assert look(standing, group, 100.0) == (0, "checkpoint", [])
    query.commit(0, 10, at_s=101.0)
    query.commit(1, 20, at_s=102.0)
    assert look(standing, group, 103.0) == (20, "checkpoint", [0, 1])


def test_the_group_is_asked_now_and_then_and_hides_no_lag_behind_a_checkpoint_that_can_be_read(
    query: Query, standing: Standing, group: Group
) -> None:
    query.commit(3, 30, at_s=100.0)
    for second in range(20):
        look(standing, group, 100.0 + second)
    assert group.asked == 4
    group.end = 35  # by whoever may write to the brokers
    assert look(standing, group, 125.0) == (30, "checkpoint", [])
    assert look(standing, group, 135.0) == (30, "checkpoint", [])


def test_without_a_checkpoint_the_group_tells_and_its_moves_are_commits(group: Group) -> None:
    standing = Standing(plan("s3a://bucket/checkpoint"))
    end, source, _ = look(standing, group, 100.0)
    assert isinstance(end, Unknown)
    assert source == "neither"
    assert "cannot be read from here" in end.reason
    assert "consumer group has committed nothing" in end.reason
    group.end = 10
    assert look(standing, group, 101.0) == (10, "group", [])
    assert look(standing, group, 102.0) == (10, "group", [])
    group.end = 20
    stand, commits = standing.look(group, now_s=103.0)  # type: ignore[arg-type]
    assert [(commit.at_s, commit.ends) for commit in commits] == [(103.0, {("orders", 0): 20})]
    assert isinstance(commits[0].batch, Unknown)
    assert stand.last_commit_at_s == 103.0


def test_a_silent_broker_does_not_hide_a_checkpoint(query: Query, group: Group) -> None:
    query.commit(3, 30, at_s=100.0)
    group.silent = True
    assert look(Standing(plan(query.folder)), group, 101.0) == (30, "checkpoint", [])


def test_after_a_rollback_the_group_is_not_believed_until_it_moves(
    query: Query, standing: Standing, group: Group
) -> None:
    query.commit(3, 30, at_s=100.0)
    query.commit(4, 40, at_s=101.0)
    group.end = 40
    assert look(standing, group, 102.0) == (40, "checkpoint", [])
    query.forget(4)
    assert look(standing, group, 110.0) == (30, "checkpoint", [])
    assert look(standing, group, 120.0) == (30, "checkpoint", [])
    query.commit(4, 38, at_s=121.0)
    assert look(standing, group, 122.0) == (38, "checkpoint", [4])
    group.end = 45
    assert look(standing, group, 130.0) == (38, "checkpoint", [])
    query.folder.rename(query.folder.with_name("away"))
    assert look(standing, group, 131.0)[:2] == (45, "group")


def test_a_rollback_while_nobody_could_read_the_checkpoint(
    query: Query, standing: Standing, group: Group
) -> None:
    query.commit(3, 30, at_s=100.0)
    shutil.copytree(query.folder, backup := query.folder.with_name("backup"))
    query.commit(4, 40, at_s=101.0)
    group.end = 40
    assert look(standing, group, 102.0) == (40, "checkpoint", [])
    query.folder.rename(bad := query.folder.with_name("bad"))
    assert look(standing, group, 103.0) == (40, "group", [])
    backup.rename(query.folder)
    for now_s in (104.0, 110.0, 200.0):
        assert look(standing, group, now_s) == (30, "checkpoint", [])
    query.folder.rename(bad.with_name("worse"))
    end, source, _ = look(standing, group, 201.0)
    assert isinstance(end, Unknown), "the group has not become true because the checkpoint is away"
    assert "consumer group has not moved since the checkpoint" in end.reason
    assert source == "neither"
    group.end = 45
    assert look(standing, group, 202.0) == (45, "group", [])


@pytest.mark.parametrize("silent_s", [0.0, 20.0])
def test_a_rollback_soon_after_the_group_had_moved(
    query: Query, standing: Standing, group: Group, silent_s: float
) -> None:
    query.commit(3, 30, at_s=100.0)
    group.end = 30
    now_s = 100.0
    while not group.asked:
        now_s += 1.0
        look(standing, group, now_s)
    query.commit(4, 40, at_s=now_s + 0.5)
    group.end = 40
    assert look(standing, group, now_s + 1.0) == (40, "checkpoint", [4])
    assert group.asked == 1, "where the group is now was not read"
    query.forget(4)
    group.silent = silent_s > 0.0
    assert look(standing, group, now_s + 2.0) == (30, "checkpoint", [])
    group.silent = False
    for later_s in (2.5, 6.0, 100.0):
        assert look(standing, group, now_s + silent_s + later_s) == (30, "checkpoint", [])


def test_a_group_of_an_earlier_life_does_not_outweigh_the_checkpoint(
    query: Query, standing: Standing, group: Group
) -> None:
    query.commit(3, 30, at_s=100.0)
    group.end = 1_000_000
    for batch in range(4, 14):
        query.commit(batch, 10 * batch, at_s=97.0 + batch)
        assert look(standing, group, 97.5 + batch)[:2] == (10 * batch, "checkpoint")
    assert group.asked >= 2
    query.folder.rename(query.folder.with_name("away"))
    end, _, _ = look(standing, group, 112.0)
    assert isinstance(end, Unknown), "nor does it become true because the checkpoint is away"
    group.end = 140
    assert look(standing, group, 113.0) == (140, "group", [])


def test_a_group_that_moved_while_the_checkpoint_was_away_is_believed_so_long(
    query: Query, standing: Standing, group: Group
) -> None:
    query.commit(3, 30, at_s=100.0)
    away = query.folder.rename(query.folder.with_name("away"))
    group.end = 30
    assert look(standing, group, 101.0) == (30, "group", [])
    group.end = 40
    assert look(standing, group, 102.0)[:2] == (40, "group")
    away.rename(query.folder)
    assert look(standing, group, 103.0)[:2] == (30, "checkpoint")


def test_a_checkpoint_that_was_made_anew_begins_at_its_beginning(tmp_path: Path, group: Group) -> None:
    Query(tmp_path / "new")
    group.end = 900
    standing = Standing(plan(tmp_path / "new"))
    assert look(standing, group, 100.0) == (0, "checkpoint", [])
    assert look(standing, group, 110.0) == (0, "checkpoint", [])


def test_a_batch_that_is_run_again_between_two_looks_is_told_again(
    query: Query, standing: Standing, group: Group
) -> None:
    query.commit(4, 40, at_s=101.0)
    look(standing, group, 102.0)
    query.commit(4, 40, at_s=107.0)
    assert look(standing, group, 108.0) == (40, "checkpoint", [4])


def test_jobs_do_not_all_ask_in_the_same_round(query: Query, group: Group) -> None:
    query.commit(4, 40, at_s=101.0)
    jobs = [Standing(replace(plan(query.folder), name=f"orders-{number}")) for number in range(20)]
    asked = []
    for second in range(20):
        for job in jobs:
            look(job, group, 100.0 + second)
        asked.append(group.asked)
    assert max(after - before for before, after in pairwise(asked)) <= 10


def test_a_batch_that_ends_while_we_look_is_told_the_next_time(
    query: Query, standing: Standing, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.commit(3, 30, at_s=100.0)
    look(standing, group, 101.0)
    query.commit(4, 40, at_s=102.0)
    read = standing._checkpoint.position

    def position() -> object:
        found = read()
        query.commit(5, 50, at_s=103.0)
        return found

    monkeypatch.setattr(standing._checkpoint, "position", position)
    assert look(standing, group, 103.0) == (40, "checkpoint", [4])
    monkeypatch.undo()
    assert look(standing, group, 104.0) == (50, "checkpoint", [5])


def test_what_all_queries_of_a_script_have_done_is_told_once(tmp_path: Path, group: Group) -> None:
    archive, counts = (Query(tmp_path / "checkpoint" / name) for name in ("archive", "counts"))
    archive.commit(3, 30, at_s=100.0)
    counts.commit(8, 20, at_s=100.5)
    standing = Standing(plan(tmp_path / "checkpoint"))
    assert look(standing, group, 101.0) == (20, "checkpoint", [])
    archive.commit(4, 60, at_s=101.5)
    assert look(standing, group, 102.0) == (20, "checkpoint", [])
    counts.commit(9, 45, at_s=102.5)
    stand, commits = standing.look(group, now_s=103.0)  # type: ignore[arg-type]
    assert [(commit.at_s, commit.ends) for commit in commits] == [(102.5, {("orders", 0): 45})]
    assert isinstance(commits[0].batch, Unknown)
    assert (stand.source, stand.last_commit_at_s) == ("checkpoint", 102.5)
    assert look(standing, group, 104.0) == (45, "checkpoint", [])


def test_after_one_query_of_a_script_was_rolled_back_the_group_has_to_move(
    tmp_path: Path, group: Group
) -> None:
    archive, counts = (Query(tmp_path / "checkpoint" / name) for name in ("archive", "counts"))
    for batch in (3, 4):
        archive.commit(batch, 10 * batch, at_s=100.0)
        counts.commit(batch, 10 * batch, at_s=100.0)
    group.end = 40
    standing = Standing(plan(tmp_path / "checkpoint"))
    assert look(standing, group, 102.0)[:2] == (40, "checkpoint")
    counts.forget(4)
    for now_s in (110.0, 120.0):
        assert look(standing, group, now_s)[:2] == (30, "checkpoint")
    (tmp_path / "checkpoint").rename(tmp_path / "away")
    assert look(standing, group, 125.0)[1] == "neither"
    group.end = 45
    assert look(standing, group, 130.0)[:2] == (45, "group")


# From offsets alone


CASES = [
    # what                                         head          committed       log start   lag
    ("level", (100, 50), (100, 50), (0, 0), 0),
    ("behind in one partition", (100, 50), (80, 50), (0, 0), 20),
    ("an idle partition", (100, 0), (90, 0), (0, 0), 10),
    ("the topic gained a partition", (100, 50, 30), (100, 50), (0, 0, 0), 30),
    ("retention has overtaken the job", (100, 50), (10, 50), (60, 0), 40),
    ("retention has deleted everything", (100, 50), (10, 50), (100, 50), 0),
    ("retention behind the job", (100, 50), (90, 50), (60, 50), 10),
    ("a partition was never read and is half gone", (100, 50), (100,), (0, 20), 30),
    ("nothing is in the topic", (0, 0), (0, 0), (0, 0), 0),
]


@pytest.mark.parametrize(
    ("head", "committed", "start", "lag"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_how_many_records_wait(head: Any, committed: Any, start: Any, lag: int) -> None:
    assert backlog.lag(offsets(*head), offsets(*committed), offsets(*start)) == lag


def test_a_lag_without_commits_is_unknown_and_keeps_the_reason() -> None:
    assert backlog.lag(offsets(5), Unknown("no checkpoint"), offsets(0)) == Unknown("no checkpoint")


@pytest.mark.parametrize(
    ("head", "committed"),
    [((5, 5), (100, 5)), ((5,), (5, 100)), ((0, 0), (0, 1))],
    ids=["shorter than before", "fewer partitions", "empty again"],
)
def test_a_topic_that_was_made_again_is_no_lag_of_zero(head: Any, committed: Any) -> None:
    lag = backlog.lag(offsets(*head), offsets(*committed), offsets(*[0] * len(head)))
    assert isinstance(lag, Unknown)
    assert "made again; the job needs a new checkpoint" in lag.reason


@pytest.mark.parametrize(
    ("before", "after", "arrived"),
    [
        ((10, 20), (15, 20), 5),
        ((10, 20), (10, 20), 0),
        ((10, 20), (10, 20, 7), 7),
        ((10, 20), (4, 21), 5),
    ],
    ids=["one grew", "silence", "a new partition", "one was made again"],
)
def test_how_many_records_came(before: Any, after: Any, arrived: int) -> None:
    assert backlog.arrived(offsets(*before), offsets(*after)) == arrived


@pytest.mark.parametrize(
    ("before", "after", "start", "processed"),
    [
        ((10, 20), (15, 22), (0, 0), 7),
        ((10, 20), (10, 20), (0, 0), 0),
        ((10, 20), (5, 30), (0, 0), 10),
        ((10, 20), (90, 20), (80, 0), 10),
        ((10,), (10, 7), (0, 3), 4),
    ],
    ids=[
        "a batch",
        "none",
        "rolled back in one",
        "leapt over what retention took",
        "first read of a partition",
    ],
)
def test_how_many_records_were_processed(before: Any, after: Any, start: Any, processed: int) -> None:
    assert backlog.processed(offsets(*before), offsets(*after), log_start=offsets(*start)) == processed


# ---------------------------------------------------------------------- what always holds

counts = st.lists(st.integers(0, 10**6), min_size=1, max_size=6)


@given(counts, st.data())
def test_lag_is_never_negative_and_never_more_than_the_topic_holds(ends: list[int], data: Any) -> None:
    committed = [data.draw(st.integers(0, end)) for end in ends]
    start = [data.draw(st.integers(0, end)) for end in ends]
    lag = backlog.lag(offsets(*ends), offsets(*committed), offsets(*start))
    assert not isinstance(lag, Unknown)
    assert 0 <= lag <= sum(ends) - sum(start)


@given(counts, st.data())
def test_lag_grows_by_what_arrives_and_shrinks_by_what_is_processed(ends: list[int], data: Any) -> None:
    """As long as nothing expires: Δlag = arrived − processed, whatever happens to the partitions."""
    committed = [data.draw(st.integers(0, end)) for end in ends]
    later = [end + data.draw(st.integers(0, 1000)) for end in ends] + data.draw(counts)
    done = [c + data.draw(st.integers(0, later[i] - c)) for i, c in enumerate(committed)]
    none = offsets(*[0] * len(later))
    before = backlog.lag(offsets(*ends), offsets(*committed), none)
    after = backlog.lag(offsets(*later), offsets(*done), none)
    came = backlog.arrived(offsets(*ends), offsets(*later))
    worked = backlog.processed(offsets(*committed), offsets(*done), log_start=none)
    assert not isinstance(before, Unknown)
    assert not isinstance(after, Unknown)
    assert after - before == came - worked
