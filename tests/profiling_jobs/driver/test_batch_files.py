"""A batch comes out once, however often it is run, and only for the checkpoint that it belongs to."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import HeadroomError, Misconfigured, Unsafe
from models.ports import Function, Plan
from profiling_jobs import plans
from profiling_jobs.driver import before_start
from profiling_jobs.driver.batch_files import BatchFiles, owner_of, publish, read_batches

pytestmark = pytest.mark.fast

KEY = "job.orders.outputs.answers"


@dataclass
class Frame:
    """As much of a batch's DataFrame as the sink asks: its query, and how it is written."""

    values: list[int]
    query: str = "query-1"
    killed: bool = False
    """In the middle of its files."""
    seen: list[list[int]] = field(default_factory=list)
    """What a reader sees while they are being written."""

    @property
    def sparkSession(self) -> Frame:
        return self

    @property
    def sparkContext(self) -> Frame:
        return self

    @property
    def write(self) -> Frame:
        return self

    def getLocalProperty(self, name: str) -> str:
        assert name == "sql.streaming.queryId"
        return self.query

    def parquet(self, path: str) -> None:
        draft = Path(path.removeprefix("file://"))
        draft.mkdir()
        for part, value in enumerate(self.values):
            pq.write_table(pa.table({"value": [value]}), draft / f"part-{part}.parquet")
            self.seen.append(values(draft.parent))
            if self.killed:
                raise KeyboardInterrupt
        if not self.values:
            pq.write_table(pa.table({"value": pa.array([], pa.int64())}), draft / "part-0.parquet")
        (draft / "_SUCCESS").touch()


def values(folder: Path) -> list[int]:
    return [value for _, table in read_batches(folder) for value in table["value"].to_pylist()]


def write(folder: Path, batch: int, frame: Frame) -> None:
    """By a driver that has just started."""
    BatchFiles(folder, setting=KEY)(frame, batch)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_batches_are_read_in_their_order_and_empty_ones_count(tmp_path: Path) -> None:
    sink = BatchFiles(tmp_path / "new" / "answers")
    for batch in range(12):
        sink(Frame([] if batch == 3 else [batch, 100 + batch]), batch)
    found = dict(read_batches(tmp_path / "new" / "answers"))
    assert list(found) == list(range(12))
    assert found[3].num_rows == 0
    assert found[11]["value"].to_pylist() == [11, 111]
    assert found[11].column_names == ["value"]
    assert list(read_batches(tmp_path / "none")) == []


def test_a_batch_that_is_run_again_replaces(tmp_path: Path) -> None:
    write(tmp_path, 0, Frame([1]))
    write(tmp_path, 1, Frame([2, 3]))
    again = Frame([3, 2])
    write(tmp_path, 1, again)
    assert values(tmp_path) == [1, 3, 2]
    assert again.seen == [[1, 2, 3]] * 2, "until it is whole the earlier one is seen"
    assert names(tmp_path) == ["_headroom.json", "batch=0", "batch=1"]


def test_nothing_is_seen_of_a_batch_that_was_cut_short_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    write(tmp_path, 0, Frame([1]))
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, 1, Frame([2, 3], killed=True))
    assert values(tmp_path) == [1]
    assert len(list(tmp_path.glob(".draft-*"))) == 1
    write(tmp_path, 1, Frame([2, 3]))
    assert values(tmp_path) == [1, 2, 3]
    assert not list(tmp_path.glob(".*"))


def test_a_driver_killed_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    write(tmp_path, 0, Frame([1]))
    (tmp_path / "batch=0").rename(tmp_path / ".replaced-0-x")
    write(tmp_path, 0, Frame([1]))
    assert values(tmp_path) == [1]
    assert names(tmp_path) == ["_headroom.json", "batch=0"]


def test_two_drivers_at_the_same_batch_leave_one_of_it(tmp_path: Path, monkeypatch) -> None:
    """One that was taken for dead puts its own in place between the two steps of the other."""
    write(tmp_path, 0, Frame([1]))
    rename, drafts = Path.rename, []

    def meddled(self: Path, target: Path) -> Path:
        if self.name.startswith(".draft-") and not drafts:
            drafts.append(self)
            shutil.copytree(self, target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", meddled)
    write(tmp_path, 0, Frame([1]))
    assert drafts
    assert values(tmp_path) == [1]
    assert names(tmp_path) == ["_headroom.json", "batch=0"]


def test_a_driver_that_others_have_overtaken_is_refused(tmp_path: Path) -> None:
    for batch in range(3):
        write(tmp_path, batch, Frame([batch]))
    with pytest.raises(Unsafe, match=rf"{KEY}: batch 2 lies in .* already, while batch 1"):
        write(tmp_path, 1, Frame([7, 8]))
    assert values(tmp_path) == [0, 1, 2]


def test_another_query_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, 0, Frame([1]))
    with pytest.raises(Misconfigured, match=r"query-1.*query-2.*new folder") as caught:
        write(tmp_path, 0, Frame([2], query="query-2"))
    assert caught.value.setting == KEY
    assert values(tmp_path) == [1]
    assert owner_of(tmp_path) == "query-1"


@pytest.mark.parametrize("there", ["batch=0", "warehouse.db", "_delta_log"])
def test_a_folder_that_is_used_for_something_else_is_refused(tmp_path: Path, there: str) -> None:
    (tmp_path / there).mkdir()
    with pytest.raises(Misconfigured, match="something else"):
        write(tmp_path, 0, Frame([1]))
    assert names(tmp_path) == [there]


def test_executors_that_write_elsewhere_are_noticed(tmp_path: Path) -> None:
    (tmp_path / ".draft-0-x").mkdir()
    with pytest.raises(Misconfigured, match="share"):
        publish(tmp_path / ".draft-0-x", 0, setting=KEY)


def plan(folder: Path, output: str, **changes: object) -> Plan:
    given = {"inputs": {"events": "orders"}, "outputs": {"answers": output}, **changes}
    return Plan(
        "orders", "orders", "live", Function("a:b"), 1, checkpoint=str(folder / "checkpoint"), **given
    )


def test_a_fresh_checkpoint_on_an_old_folder_is_refused_before_anything_starts(tmp_path: Path) -> None:
    live = plan(tmp_path, f"files:{tmp_path}/answers")
    before_start.check_checkpoint(live)
    write(tmp_path / "answers", 0, Frame([1]))
    with pytest.raises(Misconfigured, match=r"query-1, but the checkpoint is new.*new folder") as caught:
        before_start.check_checkpoint(live)
    assert caught.value.setting == KEY
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"query-1"}')
    before_start.check_checkpoint(live)
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"query-2"}')
    with pytest.raises(Misconfigured, match="query-2"):
        before_start.check_checkpoint(live)
    (tmp_path / "checkpoint" / "main" / "offsets").mkdir(
        parents=True
    )  # of a script that keeps its queries in folders of their own
    (tmp_path / "checkpoint" / "main" / "metadata").write_text('{"id":"query-1"}')
    before_start.check_checkpoint(live)


@pytest.mark.parametrize(
    "outputs",
    [
        {"answers": "files:answers"},
        {"answers": "files:"},
        {"answers": "files:s3a://bucket/answers"},
        {"answers": "files:{tmp}/checkpoint"},
        {"answers": "files:{tmp}/checkpoint/answers"},
        {"other": "files:{tmp}/a", "answers": "files:{tmp}/a/b"},
    ],
)
def test_the_folder_is_a_path_of_its_own(tmp_path: Path, outputs: dict[str, str]) -> None:
    named = {name: output.replace("{tmp}", str(tmp_path)) for name, output in outputs.items()}
    with pytest.raises(Misconfigured) as caught:
        plans.check(plan(tmp_path, "", outputs=named))
    assert caught.value.setting == KEY
    assert plans.check(plan(tmp_path, f"files:{tmp_path}/answers"))


@pytest.mark.parametrize("output", ["answers", "answers/below", "checkpoint/x", "."])
def test_a_copy_does_not_write_into_folders_of_the_live_job(tmp_path: Path, output: str) -> None:
    live = plan(tmp_path, f"files:{tmp_path}/answers")
    copy = plan(tmp_path, f"files:{tmp_path}/{output}", inputs={"events": "scratch"})
    changed = {"name": "orders-copy", "role": "profile", "checkpoint": str(tmp_path / "other")}
    copy = Plan(**{**vars(copy), **changed})
    with pytest.raises(HeadroomError, match=r"job\.orders\.outputs"):
        plans.apart(copy, live)
