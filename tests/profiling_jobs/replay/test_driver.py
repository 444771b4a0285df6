"""One task of a replay, without Spark: what leaves it, when, and what is known about it afterwards."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fresh_python import printed
from waiting import until

from models.errors import Misconfigured, NotReady
from models.quantities import Unknown
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver.launch_file import write_json
from profiling_jobs.replay import director
from profiling_jobs.replay.director import Director
from profiling_jobs.replay.driver import prepared
from profiling_jobs.replay.replay_plan import MICROS, Control, Replay, Schedule
from profiling_jobs.replay.tasks import Task

AT_MS = 1_700_000_000_000
BROKERS = Brokers("127.0.0.1:9092")


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., Replay]:
    rows = range(1000)
    table = pa.table(
        {
            "key": pa.array([b"k%d" % (row % 50) for row in rows], pa.binary()),
            "value": pa.array([b'{"n":%d,"at":%d}' % (row, AT_MS + row - 7) for row in rows], pa.binary()),
            "timestamp": pa.array([AT_MS + row for row in rows], pa.timestamp("ms", tz="UTC")),
        }
    )
    pq.write_table(table, tmp_path / "source.parquet")

    def make(**given: object) -> Replay:
        made = {
            "topic": "events",
            "source": str(tmp_path / "source.parquet"),
            "schedule": Schedule.constant(1000, duration_s=0.5),
            "brokers": BROKERS,
            "folder": tmp_path / "replay",
            **given,
        }
        return Replay(**made)  # type: ignore[arg-type]

    return make


def run(
    wanted: Replay, *, late_s: float = 0.0, partitions: int = 4
) -> tuple[list[tuple[float, dict]], float]:
    """Everything that its tasks send, with the moment, and when the schedule began."""
    wanted.write()
    work = prepared(wanted, partitions)
    start_s = time.time() + 0.1 - late_s
    write_json(wanted.folder / "start.json", {"schema": 1, "start_us": int(start_s * MICROS)})
    sent: list[tuple[float, dict]] = []

    def collect(task: int) -> None:
        for batch in Task(work, task).records():
            now_s = time.time()
            sent.extend((now_s, json.loads(value)) for value in batch.column("value").to_pylist())

    threads = [threading.Thread(target=collect, args=(task,)) for task in range(wanted.tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sent, start_s


@pytest.mark.parametrize("tasks", [1, 3])
def test_exactly_what_is_due_leaves_and_nothing_before_its_time(
    plan: Callable[..., Replay], tasks: int
) -> None:
    sent, start_s = run(plan(tasks=tasks))
    assert sorted(one["n"] for _, one in sent) == list(range(500))
    schedule = Schedule.constant(1000, duration_s=0.5)
    for index, (at_s, _) in enumerate(sorted(sent, key=lambda one: one[0])):
        assert schedule.due(int((at_s - start_s) * MICROS)) >= index or at_s - start_s > 0.5


def test_in_its_own_time_records_are_deleted_or_replicated(plan: Callable[..., Replay]) -> None:
    """A thousand records in a second: at 300/s about every third leaves, at 3 000/s each three times."""
    few, _ = run(plan(schedule=Schedule.constant(300, duration_s=0.5)))
    numbers = [one["n"] for _, one in few]
    assert len(numbers) == len(set(numbers)) == 150
    assert max(numbers) <= 501
    many, _ = run(plan(schedule=Schedule.constant(3000, duration_s=0.2), folder=plan().folder / "2"))
    counted = np.bincount([one["n"] for _, one in many])
    assert counted.sum() == 600
    assert set(counted) == {3}


def test_event_times_move_by_as_much_as_the_record(plan: Callable[..., Replay]) -> None:
    sent, start_s = run(plan(event_time="at"))
    for _, one in sent:
        arrived_ms = one["at"] + 7
        assert start_s * 1000 <= arrived_ms <= start_s * 1000 + 521


@pytest.mark.parametrize("stamp_ms", [AT_MS // 1000, 0, -1, AT_MS - 12 * 3_600_000, AT_MS * 2])
def test_an_event_whose_record_is_stamped_wrongly_is_late_and_never_ahead(
    plan: Callable[..., Replay], stamp_ms: int
) -> None:
    wanted = plan(event_time="at")
    table = pq.read_table(wanted.source)
    stamps = table["timestamp"].cast("int64").to_pylist()
    stamps[77] = stamp_ms
    moved = pa.array(stamps, pa.int64()).cast(table["timestamp"].type)
    pq.write_table(
        table.set_column(table.schema.get_field_index("timestamp"), "timestamp", moved), wanted.source
    )
    sent, start_s = run(wanted)
    arrived_ms = [one["at"] + 7 for _, one in sorted(sent, key=lambda each: each[1]["n"])]
    assert arrived_ms.pop(77) < start_s * 1000
    assert start_s * 1000 <= min(arrived_ms)
    assert max(arrived_ms) <= start_s * 1000 + 521


def test_what_is_far_too_late_is_given_up_and_counted(plan: Callable[..., Replay]) -> None:
    wanted = plan(schedule=Schedule.constant(1000, duration_s=20.4), tasks=1)
    sent, _ = run(wanted, late_s=20.0)
    told = json.loads((wanted.folder / "task-0.json").read_text())
    assert told["sent"] == len(sent)
    assert told["sent"] + told["given_up"] == 20_400
    assert told["given_up"] > 19_000


@pytest.mark.parametrize("sync_s", [0.0, 0.6], ids=["a fast disk", "a slow disk"])
def test_the_rate_changes_while_it_runs_and_it_ends_when_told(
    plan: Callable[..., Replay], monkeypatch: pytest.MonkeyPatch, sync_s: float
) -> None:
    wanted = plan(schedule=Schedule.constant(0, duration_s=60), tasks=2)
    control = Control(wanted.folder)
    changed: list[float] = []

    def command() -> None:
        until(lambda: control.started_s)
        with monkeypatch.context() as disk:
            disk.setattr(os, "fsync", lambda handle: time.sleep(sync_s))
            changed.append(control.set_rate(2000))
        time.sleep(max(0.0, changed[0] + 0.6 - time.time()))
        control.finish()

    commander = threading.Thread(target=command)
    commander.start()
    began_s = time.monotonic()
    sent, _ = run(wanted)
    commander.join()
    assert time.monotonic() - began_s < 30, "not the 60 s of the plan"
    (_, resting), (changed_us, rate) = control.schedule.stretches
    assert (resting, rate) == (0, 2_000_000)
    assert len(sent) == pytest.approx(2000 * (control.schedule.end_us - changed_us) / MICROS, abs=1)
    assert len(sent) >= 1000
    assert min(at_s for at_s, _ in sent) >= changed[0]


class Broker:
    """Ends that grow by 80 a second from the start of the schedule."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def ends(self) -> dict[int, int]:
        now_s, started_s = time.time(), self._control.started_s
        return {0: 100 + int(80 * max(0.0, now_s - (started_s or now_s))), 1: 50}


def test_what_was_achieved_is_said_beside_what_was_commanded(plan: Callable[..., Replay]) -> None:
    wanted = plan(schedule=Schedule.constant(100, duration_s=3.2), tasks=1)
    wanted.write()
    control = Control(wanted.folder)
    director = Director(wanted, Broker(control))  # type: ignore[arg-type]
    (wanted.folder / "ready.0").touch()
    director.start()
    while (started_s := control.started_s) is None:
        time.sleep(0.01)
    assert isinstance(control.achieved(started_s, started_s + 3).achieved_rps, Unknown)
    time.sleep(max(0.0, started_s + 3.1 - time.time()))
    director.finish()
    seen = control.achieved(started_s, started_s + 3)
    assert seen.achieved_rps == pytest.approx(80, rel=0.05)
    assert seen.commanded_rps == pytest.approx(100)
    late = control.achieved(started_s, started_s + 30)
    assert "last answer" in late.achieved_rps.reason  # type: ignore[union-attr]
    before = control.achieved(started_s - 10, started_s + 1)
    assert "not started" in before.achieved_rps.reason  # type: ignore[union-attr]


def directed(wanted: Replay, *answers: object) -> Director:
    """A director whose broker gives these answers, the last one for ever."""
    left = list(answers)

    class Ends:
        def ends(self) -> dict[int, int]:
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[return-value]

    wanted.write()
    (wanted.folder / "ready.0").touch()
    return Director(wanted, Ends())  # type: ignore[arg-type]


def test_a_broker_that_does_not_answer_at_the_start_is_asked_again(
    plan: Callable[..., Replay], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(director, "PAUSE_S", 0.01)
    wanted = plan(tasks=1)
    begun = directed(wanted, NotReady("away"), NotReady("away"), {0: 5})
    begun.start()
    until(lambda: Control(wanted.folder).started_s)
    begun.finish()


@pytest.mark.parametrize("answers", [(), ({0: 5},)], ids=["at the start", "later"])
def test_a_director_that_cannot_go_on_ends_the_replay_with_the_reason(
    plan: Callable[..., Replay], monkeypatch: pytest.MonkeyPatch, answers: tuple[object, ...]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    wanted = plan(tasks=1)
    begun = directed(wanted, *answers, Misconfigured("topic events", "is not there"))
    begun.start()
    until(lambda: codes)
    begun.finish()  # does not raise, or it would hide what Spark says
    assert codes == [1]
    assert Control(wanted.folder).ended == ("threw", "topic events: is not there")


def test_a_broker_that_was_silent_in_between_leaves_the_edges_known(tmp_path: Path) -> None:
    write_json(tmp_path / "start.json", {"schema": 1, "start_us": 1000 * MICROS})
    Schedule.constant(10, duration_s=100).write(tmp_path)
    heads = [(second, None if 20 <= second <= 40 else second * 10) for second in range(61)]
    lines = [json.dumps({"at_s": 1000 + at, "head": head}) for at, head in heads]
    (tmp_path / "achieved.jsonl").write_text("\n".join([*lines, '{"half']))
    control = Control(tmp_path)
    assert control.achieved(1010, 1050).achieved_rps == pytest.approx(10)
    assert control.achieved(1010.5, 1050.5).achieved_rps == pytest.approx(10)
    assert "did not answer" in control.achieved(1010, 1030).achieved_rps.reason  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"event_time": "no_such"}, "event_time"),
        ({"event_time": "no.such:hook"}, "event_time"),
        ({"source": "/no/such"}, "source"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_before_spark_starts(
    plan: Callable[..., Replay], given: dict[str, object], setting: str
) -> None:
    wanted = plan(**given)
    wanted.write()
    with pytest.raises(Misconfigured, match=setting):
        prepared(wanted, 4)


def test_kafkas_producer_gives_up_before_the_replay_does() -> None:
    assert director.OVERTIME_S > 120


IN_A_WORKER = """
import io, json, sys, time
from pathlib import Path
from pyspark.sql.conversion import ArrowBatchTransformer
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from profiling_jobs.driver.launch_file import write_json
from profiling_jobs.replay.driver import in_a_task
from profiling_jobs.replay.replay_plan import Replay
from profiling_jobs.replay.sources import open_source
from profiling_jobs.replay.tasks import Work

replay = Replay.read(Path(sys.argv[1]))
work = Work(replay, open_source(replay.source, folder=replay.folder), ("key", "value"))
write_json(replay.folder / "start.json", {"schema": 1, "start_us": int(time.time() * 1e6)})
spark, sent = ArrowStreamSerializer(write_start_stream=True), io.BytesIO()
with Path(sys.argv[2]).open("rb") as given:
    batches = map(ArrowBatchTransformer.flatten_struct, spark.load_stream(given))
    spark.dump_stream(map(ArrowBatchTransformer.wrap_struct, in_a_task(work)(batches)), sent)
loaded = [name for name in ("pandas", "kafka") if sys.modules.get(name)]
sent.seek(4)  # a mark of Spark's
print(json.dumps([sum(batch.num_rows for batch in spark.load_stream(sent)) > 0, loaded]))
"""


@pytest.mark.parametrize("event_time", ["at", "payload.at"])
def test_a_worker_of_spark_sends_without_30_mb_of_pandas(
    plan: Callable[..., Replay], tmp_path: Path, event_time: str
) -> None:
    """In PySpark's own reading and writing; events are moved in place, or parsed."""
    given = tmp_path / "given"
    numbers = pa.StructArray.from_arrays([pa.array([0], pa.int64())], names=["id"])
    batch = pa.record_batch([numbers], names=["_0"])
    with pa.OSFile(str(given), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    replay = plan(event_time=event_time)
    written = replay.write()
    assert printed(IN_A_WORKER, written or replay.folder / "replay.json", given) == [True, []]
