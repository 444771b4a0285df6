"""What a copy is sent, and when it says that it happened."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.errors import NotReady
from pipelines.environments import replay
from pipelines.settings import loading
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver.launch_file import write_json
from profiling_jobs.replay.driver import prepared
from profiling_jobs.replay.replay_plan import MICROS, Replay, Schedule
from profiling_jobs.replay.tasks import Task

AT_MS = 1_700_000_000_000
SPAN_S = 0.2
TOML = """
[job.orders]
build = "a:b"
inputs = {events = "in"}
"""


class Kept:
    """In the place of a replay: it only keeps its plan."""

    def __init__(self, task):
        self.plan, self.rate_rps = None, 1.0

    def start(self, plan):
        self.plan = plan
        return self

    def set_rate(self, rate_rps):
        self.rate_rps = rate_rps
        return 0.0

    def stop(self): ...


@pytest.fixture
def replayed(tmp_path, monkeypatch):
    """The replay of a copy of the job with these settings."""
    monkeypatch.setattr(replay, "RunningReplay", Kept)

    def made(toml):
        job = loading.parse(toml, environment={}).jobs["orders"]
        inputs = {own: f"headroom.orders-p1.{own}" for own in job.inputs}
        there = {"name": "orders", "job": job, "copy": "orders-p1", "inputs": inputs}
        return replay.replay(str, Brokers("127.0.0.1:9092"), folder=tmp_path, **there)

    return made


@pytest.fixture
def planned(replayed):
    """What a replay would be told for these settings."""
    return lambda more: replayed(TOML + more).plan


def recording(path, *, records, every_ms):
    path.mkdir(parents=True)
    columns = {"value": pa.array([b"{}"] * records, pa.binary())}
    if every_ms:
        times = [AT_MS + every_ms * row for row in range(records)]
        columns["timestamp"] = pa.array(times, pa.timestamp("ms", tz="UTC"))
    pq.write_table(pa.table(columns), path / "all.parquet")


@pytest.mark.parametrize(
    ("few_ms", "shares"),
    [(100, [10.0, 1.0]), (None, [1.0, 3.0])],
    ids=["one ended early, at its size", "one has no time of its own"],
)
def test_each_input_has_the_share_that_it_has_live(tmp_path, replayed, few_ms, shares):
    recording(tmp_path / "events" / "many", records=100, every_ms=10)
    recording(tmp_path / "events" / "few", records=300, every_ms=few_ms)
    toml = TOML.replace('events = "in"', 'many = "m", few = "f"') + f'events = "{tmp_path / "events"}"'
    source = replayed(toml)
    source.set_rate(sum(shares))
    assert [part.rate_rps for part, _ in source._parts] == pytest.approx(shares)


@pytest.fixture
def recorded(tmp_path):
    """A fifth of a second of events, each of which the broker had seven milliseconds after it happened."""
    rows = range(int(SPAN_S * 1000))
    values = pa.array([b'{"at":%d}' % (AT_MS + row - 7) for row in rows], pa.binary())
    times = pa.array([AT_MS + row for row in rows], pa.timestamp("ms", tz="UTC"))
    pq.write_table(pa.table({"value": values, "timestamp": times}), tmp_path / "recorded.parquet")
    return tmp_path / "recorded.parquet"


def sent(plan):
    """The event times of everything that is sent, in turn."""
    plan.write()
    work = prepared(plan, partitions=1)
    write_json(plan.folder / "start.json", {"schema": 1, "start_us": int(time.time() * MICROS)})
    batches = Task(work, 0).records()
    return [json.loads(value)["at"] for batch in batches for value in batch.column("value").to_pylist()]


def test_windows_on_kafkas_own_timestamp_need_nothing_to_be_moved(planned, recorded):
    plan = planned(f'events = "{recorded}"\nevent_time = "kafka-timestamp"\nlongest_window_s = 10')
    assert plan.event_time is None
    assert "timestamp" not in prepared(replace(plan, folder=recorded.parent), partitions=1).columns


def test_event_times_go_on_when_a_recording_is_walked_past_its_end(planned, recorded):
    plan = planned(f'events = "{recorded}"\nevent_time = "at"\nlongest_window_s = 10')
    began_ms = time.time() * 1000
    times = sent(replace(plan, schedule=Schedule.constant(1000, duration_s=3.5 * SPAN_S)))
    assert len(times) > 3 * SPAN_S * 1000
    assert times == sorted(times)
    assert began_ms - 100 < times[0] < times[-1] < time.time() * 1000 + 100


@pytest.mark.parametrize(
    ("more", "field", "unit"),
    [
        ('events = "generator:enrichment?count=5"', "at_ms", "ms"),
        ('events = "generator:nexmark-q5-long"\nlongest_window_s = 300', "event_time", "ms"),
        ('events = "generator:word-count"', None, "ms"),
        ('events = "generator:traffic"\nevent_time = "a.b"\nevent_time_unit = "iso"', "a.b", "iso"),
    ],
)
def test_of_a_generator_the_field_is_known_unless_the_job_names_one(planned, more, field, unit):
    plan = planned(more)
    assert (plan.event_time, plan.event_time_unit) == (field, unit)


class Running:
    """A task that runs until it is stopped."""

    frozen, log = False, "replay.log"

    def __init__(self, folder):
        self.role, self.folder, self.alive = "replay.orders-p1", folder, False

    def conf(self):
        return {}

    def start(self, module, file, brokers):
        self.alive = True

    def stop(self):
        self.alive = False


PLAN = {"topic": "t", "source": "generator:enrichment", "brokers": Brokers("h:1"), "tasks": 1}


def test_a_replay_that_is_interrupted_while_it_starts_is_stopped(tmp_path, monkeypatch):
    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(replay.time, "sleep", interrupted)
    task = Running(tmp_path)
    plan = Replay(**PLAN, schedule=Schedule.constant(1.0, duration_s=9.0), folder=tmp_path / "any")
    with pytest.raises(KeyboardInterrupt):
        replay.RunningReplay(task).start(plan)
    assert not task.alive


def test_a_replay_is_stopped_also_where_it_cannot_be_told_to_finish(tmp_path, monkeypatch):
    def full():
        raise OSError("the disk is full")

    task = Running(tmp_path)
    source = replay.RunningReplay(task)
    source._control = SimpleNamespace(started_s=1.0, finish=full)
    task.alive = True
    with pytest.raises(OSError, match="full"):
        source.stop()
    assert not task.alive


def test_of_several_inputs_all_are_stopped_where_one_cannot_be_started(tmp_path, replayed, monkeypatch):
    stopped = []

    def start(self, plan):
        self.plan = plan
        if plan.topic.endswith("c"):
            raise NotReady("it did not start")
        return self

    def stop(self):
        stopped.append(self.plan.topic)
        raise NotReady("it does not stop")

    monkeypatch.setattr(Kept, "start", start)
    monkeypatch.setattr(Kept, "stop", stop)
    for own in "abc":
        recording(tmp_path / "events" / own, records=10, every_ms=10)
    toml = TOML.replace('events = "in"', 'a = "a", b = "b", c = "c"') + f'events = "{tmp_path / "events"}"'
    with pytest.raises(NotReady, match="did not start"):
        replayed(toml)
    assert sorted(topic[-1] for topic in stopped) == ["a", "b"]
