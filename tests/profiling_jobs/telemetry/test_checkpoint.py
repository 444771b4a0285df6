"""A checkpoint as Spark writes it, and every way in which it can be found half written, empty or foreign."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from models.quantities import Unknown
from profiling_jobs.telemetry import checkpoint
from profiling_jobs.telemetry.checkpoint import Checkpoint, Position

pytestmark = pytest.mark.fast

METADATA = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{"spark.sql.shuffle.partitions":"8"}}'
)


class Written:
    """Writes what Spark writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("offsets", "commits", "sources", "state"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text('{"id":"3f9c"}')

    def plan(self, batch: int, *sources: Any, version: str = "v1") -> None:
        lines = [s if isinstance(s, str) else json.dumps(s, separators=(",", ":")) for s in sources]
        self._put("offsets", batch, "\n".join([version, METADATA, *lines]))

    def commit(self, batch: int, *, at_s: float = 0.0) -> None:
        self._put("commits", batch, 'v1\n{"nextBatchWatermarkMs":0}')
        if at_s:
            os.utime(self.folder / "commits" / str(batch), (at_s, at_s))

    def begin(self, source: int, ends: Any) -> None:
        (self.folder / "sources" / str(source)).mkdir()
        (self.folder / "sources" / str(source) / "0").write_bytes(b"\0v1\n" + json.dumps(ends).encode())

    def batch(self, number: int, *sources: Any, at_s: float = 0.0) -> None:
        self.plan(number, *sources)
        self.commit(number, at_s=at_s)

    def _put(self, kind: str, batch: int, text: str) -> None:
        (self.folder / kind / str(batch)).write_text(text)
        (self.folder / kind / f".{batch}.crc").write_bytes(b"crc\0")


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "checkpoint")


def reader(written: Written, *topics: str) -> Checkpoint:
    return Checkpoint(str(written.folder), topics or ("orders",), job="orders")


def position(of: Checkpoint) -> Position:
    found = of.position()
    assert isinstance(found, Position), found
    return found


def reason(of: Checkpoint) -> str:
    found = of.position()
    assert isinstance(found, Unknown)
    return found.reason


def test_the_newest_commit_tells_how_far_the_query_is(written: Written) -> None:
    written.batch(9, {"orders": {"0": 5, "1": 7}}, at_s=1000.0)
    written.batch(10, {"orders": {"0": 15, "1": 7}}, at_s=1002.5)
    written.batch(2, {"orders": {"0": 1, "1": 1}})
    at = position(reader(written))
    assert (at.query, at.batch, at.committed_at_s) == ("3f9c", 10, 1002.5)
    assert at.ends == {("orders", 0): 15, ("orders", 1): 7}


def test_a_batch_that_was_planned_but_not_committed_is_not_done(written: Written) -> None:
    written.batch(3, {"orders": {"0": 5}})
    written.plan(4, {"orders": {"0": 500}})
    assert position(reader(written)).ends == {("orders", 0): 5}


def test_drafts_and_checksums_are_no_batches(written: Written) -> None:
    written.batch(3, {"orders": {"0": 5}})
    for name in (".4.0a1b.tmp", ".4.crc", "4.tmp", "_SUCCESS"):
        (written.folder / "commits" / name).write_text("v1\n{}")
    assert position(reader(written)).batch == 3


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("commits", ""),
        ("commits", "v1"),
        ("commits", 'v1\n{"next'),
        ("offsets", ""),
        ("offsets", "v1\n" + METADATA),
        ("offsets", f'v1\n{METADATA}\n{{"orders":{{"0":9'),
        ("offsets", None),
    ],
)
def test_a_half_written_file_counts_as_not_there(written: Written, kind: str, text: str | None) -> None:
    written.batch(3, {"orders": {"0": 5}})
    written.batch(4, {"orders": {"0": 9}})
    if text is None:
        (written.folder / kind / "4").unlink()
    else:
        (written.folder / kind / "4").write_text(text)
    assert position(reader(written)).batch == 3


def test_when_nothing_whole_is_left_it_says_which_file_is_broken(written: Written) -> None:
    written.batch(3, {"orders": {"0": 5}})
    (written.folder / "offsets" / "3").write_text("")
    assert "offsets/3 is cut off" in reason(reader(written))


def test_an_unknown_format_is_refused_by_name(written: Written) -> None:
    written.plan(3, {"orders": {"0": 5}}, version="v9")
    written.commit(3)
    assert "has format 'v9'; only v1 and v2 are known" in reason(reader(written))


def test_the_format_that_names_its_sources_is_read_too(written: Written) -> None:
    written.plan(3, '1:{"orders":{"0":5}}', "0:-", version="v2")
    written.begin(0, {"clicks": {"0": 2}})
    written.commit(3)
    assert position(reader(written, "orders", "clicks")).ends == {("orders", 0): 5, ("clicks", 0): 2}


def test_several_sources_and_topics(written: Written) -> None:
    written.batch(1, {"orders": {"0": 5}, "returns": {"0": 3}}, {"clicks": {"0": 8, "1": 9}})
    ends = position(reader(written, "orders", "returns", "clicks")).ends
    assert ends == {("orders", 0): 5, ("returns", 0): 3, ("clicks", 0): 8, ("clicks", 1): 9}
    assert position(reader(written, "clicks")).ends == {("clicks", 0): 8, ("clicks", 1): 9}


def test_a_topic_that_is_read_twice_is_as_far_as_its_slower_reader(written: Written) -> None:
    written.batch(1, {"orders": {"0": 5, "1": 9}}, {"orders": {"0": 7, "1": 2}})
    assert position(reader(written)).ends == {("orders", 0): 5, ("orders", 1): 2}


def test_sources_that_are_not_kafka_are_left_out(written: Written) -> None:
    written.batch(1, {"logOffset": 4}, "51", {"orders": {"0": 5}}, {"a": {"b": "c"}})
    assert position(reader(written)).ends == {("orders", 0): 5}


def test_a_source_without_data_stands_where_it_began(written: Written) -> None:
    written.begin(1, {"clicks": {"0": 40}})
    written.batch(1, {"orders": {"0": 5}}, "-")
    assert position(reader(written, "orders", "clicks")).ends == {("orders", 0): 5, ("clicks", 0): 40}


def test_before_the_first_commit_the_query_stands_where_it_began(written: Written) -> None:
    written.begin(0, {"orders": {"0": 40, "1": 2}})
    written.plan(0, {"orders": {"0": 90, "1": 8}})
    at = position(reader(written))
    assert at.ends == {("orders", 0): 40, ("orders", 1): 2}
    assert isinstance(at.batch, Unknown)
    assert "wait for the first one" in at.batch.reason


def test_an_empty_checkpoint_is_unknown_not_zero(written: Written) -> None:
    assert "no batch is committed yet: wait" in reason(reader(written))


@pytest.mark.parametrize("ends", [{"payments": {"0": 5}}, {"logOffset": 3}])
def test_a_checkpoint_of_another_query_is_refused_with_both_names(written: Written, ends: Any) -> None:
    written.batch(1, ends)
    text = reason(reader(written))
    assert "nothing of orders" in text
    assert "job.orders.inputs" in text
    assert ("payments" in text) == ("payments" in ends)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    text = reason(Checkpoint(str(tmp_path / "nowhere"), ["orders"], job="orders"))
    assert text.startswith("job.orders.checkpoint: ")
    assert "is not there" in text


@pytest.mark.parametrize("location", ["s3a://bucket/checkpoint", "hdfs://name/checkpoint"])
def test_an_object_store_says_what_else_tells(location: str) -> None:
    checkpoint = Checkpoint(location, ["orders"], job="orders")
    assert "consumer group" in reason(checkpoint)
    assert checkpoint.commits(after=0, until=9) == ()


def test_a_location_with_a_scheme_is_a_folder(written: Written) -> None:
    written.batch(1, {"orders": {"0": 5}})
    for location in (f"file://{written.folder}", f"file:{written.folder}"):
        assert isinstance(Checkpoint(location, ["orders"], job="orders").position(), Position)


def test_every_commit_since_the_last_look_with_its_time(written: Written) -> None:
    for batch in range(8, 13):
        written.batch(batch, {"orders": {"0": 10 * batch}}, at_s=1000.0 + batch)
    (written.folder / "commits" / "11").write_text("")
    checkpoint = reader(written)
    found = checkpoint.commits(after=8, until=12)
    assert [(commit.batch, commit.at_s) for commit in found] == [(9, 1009), (10, 1010), (12, 1012)]
    assert len(checkpoint.commits(after=Unknown("none yet"), until=12)) == 4
    assert [commit.batch for commit in checkpoint.commits(after=8, until=10)] == [9, 10]
    assert checkpoint.commits(after=12, until=12) == ()


@pytest.fixture
def script(tmp_path: Path) -> dict[str, Written]:
    """Two queries of one script, each with a folder in that of the job."""
    found = {name: Written(tmp_path / "checkpoint" / name) for name in ("archive", "counts")}
    for name, query in found.items():
        (query.folder / "metadata").write_text(json.dumps({"id": name}))
    return found


def of_script(script: dict[str, Written], *topics: str) -> Checkpoint:
    return Checkpoint(str(script["archive"].folder.parent), topics or ("orders",), job="orders")


def test_of_several_queries_the_slowest_counts(script: dict[str, Written]) -> None:
    script["archive"].batch(7, {"orders": {"0": 50, "1": 3}}, at_s=1000.0)
    script["counts"].batch(2, {"orders": {"0": 20, "1": 9}}, at_s=1002.5)
    at = position(of_script(script))
    assert at.ends == {("orders", 0): 20, ("orders", 1): 3}
    assert (at.query, at.committed_at_s) == ("archive counts", 1002.5)
    assert isinstance(at.batch, Unknown)
    assert "several queries" in at.batch.reason


def test_each_of_several_queries_may_read_some_of_the_topics(script: dict[str, Written]) -> None:
    script["archive"].batch(7, {"orders": {"0": 50}})
    script["counts"].batch(2, {"orders": {"0": 20}}, {"clicks": {"0": 4}})
    assert position(of_script(script, "orders", "clicks")).ends == {("orders", 0): 20, ("clicks", 0): 4}
    assert position(of_script(script, "clicks")).ends == {("clicks", 0): 4}
    assert "nothing of users" in reason(of_script(script, "orders", "users"))


def test_a_query_without_a_commit_stands_where_it_began(script: dict[str, Written]) -> None:
    script["archive"].begin(0, {"orders": {"0": 1}})
    script["counts"].begin(0, {"orders": {"0": 4}})
    at = position(of_script(script))
    assert at.ends == {("orders", 0): 1}
    assert isinstance(at.committed_at_s, Unknown)
    script["counts"].batch(0, {"orders": {"0": 20}}, at_s=1000.0)
    at = position(of_script(script))
    assert (at.ends, at.committed_at_s) == ({("orders", 0): 1}, 1000.0)


def test_with_one_query_that_cannot_be_read_nothing_is_known(script: dict[str, Written]) -> None:
    script["archive"].batch(7, {"orders": {"0": 50}})
    assert "checkpoint/counts no batch is committed yet" in reason(of_script(script))
    script["counts"].batch(2, {"orders": {"0": 20}})
    (script["counts"].folder / "offsets" / "2").write_text("v1")
    assert "is cut off" in reason(of_script(script))


# ---------------------------------------------------------------------------------------------- attacked


@pytest.mark.parametrize("where", ["commits/7", "offsets/7", "metadata"])
def test_a_pipe_in_a_checkpoint_is_not_waited_for(written: Written, where: str) -> None:
    """Whoever may write there could otherwise halt the sampling of all jobs."""
    written.batch(7, {"orders": {"0": 5}})
    path = written.folder / where
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    found: list[Position | Unknown] = []
    look = threading.Thread(target=lambda: found.append(reader(written).position()), daemon=True)
    look.start()
    look.join(10.0)
    if look.is_alive():
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    assert found, "it is still waiting"
    unknown = found[0].query if isinstance(found[0], Position) else found[0]
    assert isinstance(unknown, Unknown)
    assert str(path) in unknown.reason


@pytest.mark.parametrize("where", ["commits/7", "offsets/7", "metadata"])
def test_json_that_is_nested_too_deep_is_a_broken_file(written: Written, where: str) -> None:
    written.batch(7, {"orders": {"0": 5}})
    deep = "[" * 100_000
    (written.folder / where).write_text(deep if where == "metadata" else f"v1\n{deep}\n{deep}\n")
    found = reader(written).position()
    unknown = found.query if isinstance(found, Position) else found
    assert isinstance(unknown, Unknown)


def test_a_file_without_end_is_not_read_to_it(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    written.batch(7, {"orders": {"0": 5}})
    monkeypatch.setattr(checkpoint, "LARGEST", 1000)
    (written.folder / "offsets" / "7").write_bytes(b"v1\n" + b"x" * 1001)
    assert "more than 1,000 bytes" in reason(reader(written))
