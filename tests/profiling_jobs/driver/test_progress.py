"""What a driver writes down of its batches, and how far a batch has come."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace as Event

import pytest

from profiling_jobs.driver import progress
from profiling_jobs.driver.progress import Ends, QueryEnds

pytestmark = pytest.mark.fast


def test_half_a_line_of_a_killed_driver_is_not_a_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    clock = iter([10.0, 20.0, 30.0]).__next__
    progress.ProgressFile(path, incarnation=1, clock=clock).write("started", run_id="a")
    with path.open("a") as file:
        file.write('\n{"event": "progress", "at_s": 15.0, "inca')
    progress.ProgressFile(path, incarnation=2, clock=clock).write("started", run_id="b")
    assert [(one["incarnation"], one["at_s"], one["run_id"]) for one in progress.read(path)] == [
        (1, 10.0, "a"),
        (2, 20.0, "b"),
    ]


def test_a_large_file_is_put_aside_and_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FILE_BYTES", 200)
    file = progress.ProgressFile(tmp_path / "progress.jsonl", incarnation=1)
    for number in range(6):
        file.write("idle", number=number)
    numbers = [one["number"] for one in progress.read(tmp_path / "progress.jsonl")]
    assert numbers == list(range(6))[-len(numbers) :]
    assert len(numbers) >= 4
    assert len(list(tmp_path.iterdir())) == 2


def test_no_file_is_no_events(tmp_path: Path) -> None:
    assert list(progress.read(tmp_path / "progress.jsonl")) == []


def source(ends: object, description: str = "KafkaV2[Subscribe[orders]]") -> dict[str, object]:
    return {"description": description, "startOffset": None, "endOffset": ends, "latestOffset": None}


@pytest.mark.parametrize(
    ("sources", "ends"),
    [
        ([source({"orders": {"0": 5, "1": 0}})], {("orders", 0): 5, ("orders", 1): 0}),
        ([source(json.dumps({"orders": {"0": 5}}))], {("orders", 0): 5}),
        ([source({"a": {"0": 1}}), source({"b": {"0": 2}})], {("a", 0): 1, ("b", 0): 2}),
        ([source({"a": {"0": 7}}), source({"a": {"0": 4}})], {("a", 0): 4}),
        ([source(3, "RateStreamV2")], {}),
        ([source({"a": {"0": 1}}, "FileStreamSource[/data]")], {}),
        ([source(None)], {}),
        ([source("not json")], {}),
        ([], {}),
    ],
)
def test_end_offsets_of_every_kafka_source(
    sources: list[dict[str, object]], ends: dict[tuple[str, int], int]
) -> None:
    assert progress.end_offsets({"sources": sources}) == ends


def test_what_the_slowest_query_of_a_script_has_done_is_handed_on(tmp_path: Path) -> None:
    given: list[object] = []
    reports: list[str] = []
    file = progress.ProgressFile(tmp_path / "progress.jsonl", incarnation=1)
    heard = progress.listener(file, QueryEnds(given.append), lambda report: reports.append(report["id"]))

    def report(query: str, end: int) -> None:
        told = {"id": query, "sources": [source({"orders": {"0": end}})]}
        heard.onQueryProgress(Event(progress=Event(id=query, runId="r", json=json.dumps(told))))

    for query in ("archive", "counts", "users"):
        heard.onQueryStarted(Event(id=query, runId="r", name=None))
    report("archive", 10)
    report("counts", 7)
    heard.onQueryIdle(Event(id="users", runId="r"))
    report("archive", 20)
    report("counts", 17)
    heard.onQueryTerminated(Event(id="counts", runId="r", exception=None))
    assert given == [{("orders", 0): end} for end in (7, 17, 20)]
    assert reports == ["archive", "counts"] * 2
    assert [one["event"] for one in progress.read(tmp_path / "progress.jsonl")] == [
        *["started"] * 3,
        *["progress"] * 2,
        "idle",
        *["progress"] * 2,
        "ended",
    ]


def test_a_full_disk_does_not_keep_the_group_from_moving() -> None:
    class Full:
        def write(self, event: str, **details: object) -> None:
            raise OSError("No space left on device")

    given: list[object] = []
    batches: list[object] = []
    heard = progress.listener(Full(), QueryEnds(given.append), batches.append)  # type: ignore[arg-type]
    told = {"id": "a", "sources": [source({"orders": {"0": 10}})]}
    for tell, event in (
        (heard.onQueryStarted, Event(id="a", runId="r", name=None)),
        (heard.onQueryProgress, Event(progress=Event(id="a", runId="r", json=json.dumps(told)))),
    ):
        with pytest.raises(OSError, match="No space left"):
            tell(event)
    assert (given, batches) == ([{("orders", 0): 10}], [told])


# How far a script of several queries has come


TOPIC = ("orders", 0)


class Group(list[int | dict[tuple[str, int], int]]):
    """What the consumer group is given; of one partition its end alone."""

    def give(self, ends: Ends) -> None:
        self.append(ends[TOPIC] if set(ends) == {TOPIC} else dict(ends))


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def ends(group: Group) -> QueryEnds:
    return QueryEnds(group.give)


@pytest.mark.parametrize(
    ("story", "events", "told"),
    [
        ("one query tells of every batch", "a; a 10; a; a 20; a 20; a 30", [10, 20, 30]),
        ("of two queries the slower one counts", "a; b; a 10; b 7; a 11; b 8; a 12; b 9", [7, 8, 9]),
        ("nothing is told before all have said where they are", "a; b; a 10", []),
        ("one with nothing to do does not keep the others from telling", "a; b; a 10; b -", [10]),
        ("one that came to its end holds nobody up", "b 4; a 10; b ended", [4, 10]),
        ("one that failed stands where it was", "b 4; a 10; b failed; a 20; b; a 30", [4]),
        ("until it is started again", "b 4; a 10; b failed; a 20; b; a 30; b 15", [4, 15]),
        ("stopped one by one they have not come further", "b 4; a 10; stopping; b ended; a 12; a ended", [4]),
    ],
)
def test_the_group_is_told_how_far_all_queries_are(
    ends: QueryEnds, group: Group, story: str, events: str, told: list[int]
) -> None:
    """An event is a query that starts, or that reports its end offset or none, or how it ended."""
    for event in events.split("; "):
        query, _, what = event.partition(" ")
        if query == "stopping":
            ends.stopping()
        elif what in ("ended", "failed"):
            ends.ended(query, failed=what == "failed")
        elif what:
            ends.reported(query, {} if what == "-" else {TOPIC: int(what)})
        else:
            ends.started(query)
    assert group == told


def test_each_partition_counts_for_those_who_read_it(ends: QueryEnds, group: Group) -> None:
    ends.reported("a", {TOPIC: 5, ("clicks", 0): 9})
    ends.reported("b", {TOPIC: 3, ("users", 0): 1})
    assert group[-1] == {TOPIC: 3, ("clicks", 0): 9, ("users", 0): 1}
