"""Whatever the records of a replay come from, each task gets its share of them, in order."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import codec
from models.errors import Misconfigured
from profiling_jobs.driver.launch_file import write_json
from profiling_jobs.recording.recorded import Recorded, data_folder, slice_file
from profiling_jobs.recording.recorder import described
from profiling_jobs.replay import sources, tape
from profiling_jobs.replay.sources import MICRO, Source, draw, open_source
from profiling_jobs.replay.tape import Tape, owners

AT = 1_700_000_000_000


def numbered(count: int, *, keys: int = 7, start: int = 0) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([b"k%d" % (row % keys) for row in range(start, start + count)], pa.binary()),
            "value": pa.array([b"%d" % row for row in range(start, start + count)], pa.binary()),
            "timestamp": pa.array(
                [AT + 10 * row for row in range(start, start + count)], pa.timestamp("ms", tz="UTC")
            ),
        }
    )


def values(source: Source, chosen: np.ndarray, *, task: int = 0, tasks: int = 1) -> list[int]:
    taken = Tape(source, task=task, tasks=tasks).take(chosen)
    return [int(value) for records in taken for value in records.batch.column("value").to_pylist()]


def begin(folder: Path, *, seconds: int, first: dict[str, int]) -> None:
    """The folder of a recording that has begun."""
    for name in ("slices", "data"):
        (folder / name).mkdir(parents=True)
    head = {"schema": 1, "topic": "t", "from_s": AT / 1000, "until_s": AT / 1000 + seconds, "first": first}
    write_json(folder / "recording.json", head)


def stamped(table: pa.Table, times_ms: list[int]) -> pa.Table:
    """The same records with other timestamps."""
    at = table.schema.get_field_index("timestamp")
    return table.set_column(at, "timestamp", pa.array(times_ms, pa.timestamp("ms", tz="UTC")))


@pytest.fixture
def parquet(tmp_path: Path) -> Source:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(numbered(100), folder / "a.parquet", row_group_size=30)
    pq.write_table(numbered(50, start=100), folder / "b.parquet")
    (folder / "_SUCCESS").touch()
    return open_source(str(folder), folder=tmp_path)


def test_parquet_files_are_one_sequence_with_a_time_of_its_own(parquet: Source) -> None:
    assert [block.records for block in parquet.blocks] == [30, 30, 30, 10, 50]
    assert parquet.records == 150
    assert parquet.span_us == 1_500_000
    assert values(parquet, np.arange(150)) == list(range(150))


def test_after_the_end_it_begins_again(parquet: Source) -> None:
    assert values(parquet, np.arange(140, 160)) == [*range(140, 150), *range(10)]
    assert values(parquet, np.array([5, 5, 155, 155, 305])) == [5] * 5


@settings(max_examples=30)
@given(
    st.integers(1, 400).flatmap(lambda n: st.lists(st.integers(0, 1000), max_size=n).map(sorted)),
    st.integers(1, 4),
)
def test_the_tasks_share_the_records_out_by_key_and_keep_their_order(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[int], tasks: int
) -> None:
    folder = tmp_path_factory.mktemp("source")
    pq.write_table(numbered(150), folder / "a.parquet", row_group_size=40)
    source = open_source(str(folder / "a.parquet"), folder=folder)
    shares = [values(source, np.array(chosen, np.int64), task=task, tasks=tasks) for task in range(tasks)]
    wanted = [place % 150 for place in chosen]
    assert sorted(value for share in shares for value in share) == sorted(wanted)
    keys = [{value % 7 for value in share} for share in shares]
    assert sum(len(one) for one in keys) == len(set().union(*keys)), "no key has two tasks"
    for share in shares:
        mine = {value % 7 for value in share}
        assert share == [value for value in wanted if value % 7 in mine]


def test_records_without_a_key_are_dealt_out_in_turn() -> None:
    keys = pa.array([None, b"a", None, None, b"a", None], pa.binary())
    dealt = owners(keys, tasks=2)
    assert dealt[[0, 2, 3, 5]].tolist() == [0, 0, 1, 1]
    assert dealt[1] == dealt[4]


def test_a_recording_is_merged_by_time_and_never_against_the_offsets(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    times = {0: [0, 100, 50, 300], 1: [10, 20, 200, 210]}  # the third of partition 0 has an older timestamp
    begin(folder, seconds=1, first={"0": 5, "1": 5})
    target = data_folder(folder, 0)
    target.mkdir()
    for part, at in times.items():
        table = pa.table(
            {
                "key": pa.array([b"k"] * 4, pa.binary()),
                "value": pa.array([b"%d" % (part * 10 + row) for row in range(4)], pa.binary()),
                "headers": pa.array([[{"key": "h", "value": b"1"}], None, [], None], tape.HEADERS),
                "timestamp": pa.array([AT + ms for ms in at], pa.timestamp("ms", tz="UTC")),
                "partition": pa.array([part] * 4, pa.int32()),
                "offset": pa.array([5 + row for row in range(4)], pa.int64()),
            }
        )
        pq.write_table(table, target / f"part-{part}.parquet")
    piece = described(target, 0, {0: 5, 1: 5}, {0: 9, 1: 9}, 0)
    write_json(slice_file(folder, 0), codec.to_json(piece))
    write_json(folder / "ended.json", {"schema": 1, "how": "complete"})
    assert Recorded.read(folder).slices == (piece,)
    source = open_source(str(folder), folder=tmp_path)
    assert (source.records, source.span_us, source.partitions) == (8, 1_000_000, 2)
    assert values(source, np.arange(8)) == [0, 10, 11, 1, 2, 12, 13, 3]
    (records,) = Tape(source).take(np.arange(8))
    assert records.batch.column("partition").to_pylist() == [0, 1, 1, 0, 0, 1, 1, 0]
    assert records.batch.column("headers").to_pylist()[:2] == [[{"key": "h", "value": b"1"}]] * 2
    assert (records.at_ms - AT).tolist() == [0, 10, 20, 100, 50, 200, 210, 300]


def test_when_a_record_was_there_is_unknown_where_its_producer_stamps_wrongly(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    begin(folder, seconds=20, first={"0": 0})
    for number in range(2):
        times = [AT // 1000 if row % 10 == 3 else AT + 1000 * number + 10 * row for row in range(100)]
        table = stamped(numbered(100, start=100 * number), times)
        table = table.append_column("headers", pa.nulls(100, tape.HEADERS))
        table = table.append_column("partition", pa.array([0] * 100, pa.int32()))
        table = table.append_column("offset", pa.array(range(100 * number, 100 * number + 100), pa.int64()))
        target = data_folder(folder, number)
        target.mkdir()
        pq.write_table(table, target / "part-0.parquet")
        piece = described(target, number, {0: 100 * number}, {0: 100 * number + 100}, 0)
        write_json(slice_file(folder, number), codec.to_json(piece))
    source = open_source(str(folder), folder=tmp_path)
    for task in range(2):
        for records in Tape(source, task=task, tasks=2).take(np.arange(200)):
            right = [AT + 10 * int(value) for value in records.batch.column("value").to_pylist()]
            wrong = [int(value) % 10 == 3 for value in records.batch.column("value").to_pylist()]
            assert records.at_ms.tolist() == np.where(wrong, -1, right).tolist()


def test_in_its_own_time_or_one_after_the_other(parquet: Source) -> None:
    assert parquet.position(1_500_000, due=99) == 150 * MICRO
    timeless = Source("x", parquet.blocks, 0, parquet.columns)
    assert timeless.position(10**9, due=99) == 99 * MICRO


@pytest.mark.parametrize("off_ms", [0, -86_400_000, 86_400_000, -AT, -AT - 1])
def test_one_stray_timestamp_leaves_the_keys_their_shares(tmp_path: Path, off_ms: int) -> None:
    times = [AT + 10 * row + (off_ms if row == 3000 else 0) for row in range(6000)]
    pq.write_table(stamped(numbered(6000, keys=100), times), tmp_path / "a.parquet", row_group_size=900)
    source = open_source(str(tmp_path / "a.parquet"), folder=tmp_path)
    assert source.span_us == pytest.approx(60e6, rel=0.001)
    slice_us, each = 100_000, 50
    counts = np.zeros(100)
    for number in range(600):
        position = source.position(number * slice_us, number * each)
        further = source.position((number + 1) * slice_us, (number + 1) * each)
        chosen = draw(position=position, advance=further - position, count=each, seed=1, number=number)
        counts += np.bincount(chosen % 6000 % 100, minlength=100)
    expected = 600 * each / 100
    assert ((counts - expected) ** 2 / expected).sum() < 148.2, "chi-square, 99 degrees of freedom, 0.1 %"


def test_a_few_records_far_from_the_others_are_part_of_the_time(tmp_path: Path) -> None:
    quiet = [AT + 1000 * row for row in (50, 150, 280)]  # then it begins: not everything uneven is wrong
    times = [*quiet, *(AT + 300_000 + 1000 * row for row in range(297))]
    pq.write_table(stamped(numbered(300), times), tmp_path / "a.parquet")
    assert open_source(str(tmp_path / "a.parquet"), folder=tmp_path).span_us == 546_000_000 * 300 // 299


def test_row_groups_too_large_for_a_task_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK_RECORDS", 60)
    monkeypatch.setattr(sources, "WRITTEN_RECORDS", 40)
    pq.write_table(numbered(100), tmp_path / "a.parquet")
    (tmp_path / "work").mkdir()
    source = open_source(str(tmp_path / "a.parquet"), folder=tmp_path / "work")
    assert max(block.records for block in source.blocks) <= 40
    assert values(source, np.arange(100)) == list(range(100))


def test_a_tape_keeps_what_fits_and_no_more(parquet: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "CACHED_BYTES", 2000)
    kept = Tape(parquet)
    for start in range(0, 600, 7):
        for _ in kept.take(np.arange(start, start + 7)):
            pass
        assert len(kept._loaded) < 4


def test_generated_events_are_read_as_they_lie_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "WRITTEN_RECORDS", 100)
    source = open_source("generator:enrichment?count=450", folder=tmp_path)
    assert [(block.records, block.plain) for block in source.blocks] == [(100, True)] * 4 + [(50, True)]
    alone, shared = Tape(source), [Tape(source, task=task, tasks=2) for task in range(2)]
    orders = [
        {
            json.loads(text)["order"]
            for records in tape.take(np.arange(450))
            for text in records.batch["value"].to_pylist()
        }
        for tape in (alone, *shared)
    ]
    assert len(orders[0]) == 450
    assert orders[0] == orders[1] | orders[2]
    assert not orders[1] & orders[2]
    assert (len(alone._loaded), len(shared[0]._loaded)) == (1, 5), (
        "one task need not keep what it reads so easily"
    )


def test_the_events_of_a_job_are_a_source(tmp_path: Path) -> None:
    source = open_source("generator:enrichment?count=500&hot_keys=1", folder=tmp_path, seed=3)
    assert (source.records, source.span_us) == (500, 0), "its own pace means nothing"
    (records,) = Tape(source).take(np.arange(500))
    texts = [json.loads(value) for value in records.batch.column("value").to_pylist()]
    assert len({text["order"] for text in texts}) == 500
    again = open_source("generator:enrichment?count=500&hot_keys=1", folder=tmp_path, seed=3)
    assert next(Tape(again).take(np.arange(500))).batch.equals(records.batch)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("/no/such/path", "there is no"),
        ("{tmp}", "no Parquet files"),
        ("{tmp}/text", "cannot be read as Parquet"),
        ("{tmp}/columns", "no column `value`, but a"),
        ("{tmp}/nothing", "no records"),
        ("{tmp}/times", "not a time"),
        ("generator:no-such-job", "no generator"),
        ("generator:enrichment?speed=1", "no option speed"),
        ("generator:enrichment?count=-1", "count"),
        ("generator:enrichment?count=0", "no records"),
    ],
)
def test_what_is_no_source_is_said(tmp_path: Path, name: str, says: str) -> None:
    if name != "{tmp}":
        (tmp_path / "text").write_text("hello")
        pq.write_table(pa.table({"a": [1]}), tmp_path / "columns")
        pq.write_table(numbered(0), tmp_path / "nothing")
        pq.write_table(pa.table({"value": [b"a"], "timestamp": ["noon"]}), tmp_path / "times")
    with pytest.raises(Misconfigured, match=f"source.*{says}"):
        open_source(name.format(tmp=tmp_path), folder=tmp_path)
