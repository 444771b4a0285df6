"""A real recording and a real replay: one broker, one Spark driver each."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from waiting import until

from models.errors import Misconfigured, NotReady
from models.quantities import Unknown
from pipelines.environments.local.tasks import LocalTask
from pipelines.environments.replay import RunningReplay, record, start_recording
from pipelines.integrations.embedded_kafka import EmbeddedBroker
from pipelines.integrations.kafka_broker import KafkaBroker
from pipelines.integrations.spark import LocalSpark
from pipelines.processes.owner import Owner
from profiling_jobs.brokers import Brokers
from profiling_jobs.recording.recorder import Request
from profiling_jobs.replay.replay_plan import Control, Replay, Schedule

PATIENCE_S = 240.0


def test_what_never_ran_has_nothing_to_say(tmp_path):
    with Owner(tmp_path / ".headroom") as owner:
        source = RunningReplay(LocalTask(owner, "replay.orders"))
        assert source.wait(0.1)
        source.stop()
        with pytest.raises(NotReady, match="does not run"):
            source.set_rate(5.0)
        LocalTask(owner, "recording.orders").stop()


def test_a_function_that_moves_event_times_is_found_beside_the_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalSpark, "environment", lambda self: {})  # it would look for Java
    (tmp_path / "payments.py").write_text("def moved(values, by_ms): return values")
    with Owner(tmp_path / ".headroom") as owner:
        environment = LocalTask(owner, "replay.orders").environment(Brokers("127.0.0.1:9092"))
        code = "from profiling_jobs.replay.event_time import shift_by; print(shift_by('payments:moved'))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=owner.folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
    assert "function moved" in done.stdout, done.stderr


def test_what_a_run_has_said_is_known_also_where_the_log_of_before_was_put_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(LocalSpark, "environment", lambda self: {})
    monkeypatch.setattr("pipelines.processes.logs.LOG_BYTES", 300)  # each run is longer than half of it
    with Owner(tmp_path / ".headroom") as owner:
        task = LocalTask(owner, "recording.orders")
        log = owner.log(task.role)
        log.parent.mkdir()
        log.write_text("of an earlier run\n" * 1000)
        for _ in range(2):
            task.start("json.tool", tmp_path / "nowhere.json", Brokers("127.0.0.1:9092"))
            until(lambda: not task.alive)
            code, said = task.said()
            assert (code == 0, said.count("usage:"), "earlier" in said) == (False, 1, False), said


# ------------------------------------------------------------------------------------------------- real


@pytest.fixture(scope="module")
def brokers(owner):
    return EmbeddedBroker(owner).start()


@pytest.fixture(scope="module")
def broker(brokers):
    with KafkaBroker(brokers) as broker:
        yield broker


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "source.parquet"
    rows = range(20_000)
    table = pa.table(
        {
            "key": pa.array([b"key-%d" % (row % 100) for row in rows], pa.binary()),
            "value": pa.array([b'{"row":%d}' % row for row in rows], pa.binary()),
        }
    )
    pq.write_table(table, path)
    return path


def head(broker, topic):
    return sum(broker.ends([topic]).values())


@pytest.mark.real
def test_a_replay_follows_its_rate_is_recorded_meanwhile_and_nothing_is_lost_or_twice(
    owner, brokers, broker, source, tmp_path
):
    """The recorder is killed in between, and started again; the source changes its rate under it."""
    broker.create("live", partitions=3)
    plan = Replay(
        topic="live",
        source=str(source),
        schedule=Schedule.constant(500, duration_s=600),
        brokers=brokers,
        folder=tmp_path,
    )
    replay = RunningReplay(LocalTask(owner, "replay.live")).start(plan)
    task = LocalTask(owner, "recording.live")
    request = Request("live", tmp_path / "recording", duration_s=15.0)
    start_recording(task, request, brokers)
    victim = task.process
    assert victim is not None
    until(lambda: (tmp_path / "recording" / "slices" / "000000.json").exists())
    assert victim.signal(signal.SIGKILL)
    victim.wait(10.0)
    changed_s = replay.set_rate(1500)
    recorded = record(task, request, brokers, timeout_s=PATIENCE_S)
    until(lambda: time.time() > changed_s + 8.0)
    slow = replay.achieved(changed_s - 4.0, changed_s - 1.0)
    # A report that a busy machine delays is waited for.
    until(lambda: not isinstance(replay.achieved(changed_s + 1.0, changed_s + 7.0).achieved_rps, Unknown))
    fast = replay.achieved(changed_s + 1.0, changed_s + 7.0)
    replay.stop()
    assert Control(replay.folder).ended == ("finished", "the schedule is over")
    assert (slow.commanded_rps, fast.commanded_rps) == (pytest.approx(500), pytest.approx(1500))
    # Counted as the broker counts by its records' timestamps, apart from what was on its way.
    arrived = [sum(broker.offsets_at("live", at_s).values()) for at_s in (changed_s + 1.0, changed_s + 7.0)]
    assert fast.achieved_rps == pytest.approx((arrived[1] - arrived[0]) / 6, rel=0.2)

    # All that was due has come, but for what a busy machine made too late.
    schedule = Control(replay.folder).schedule
    last = Control(replay.folder).reports()[-1]
    assert head(broker, "live") == last["sent"]
    assert schedule.due(schedule.end_us) == pytest.approx(
        last["sent"] + last["given_up"], abs=last["given_up"]
    )
    # Every offset of the stretch exactly once, across the crash.
    assert recorded.ended == "complete"
    table = pa.concat_tables(
        [pq.read_table(file) for one in recorded.slices for file in one.files(request.folder)]
    )
    assert table.schema.names == ["key", "value", "headers", "timestamp", "partition", "offset"]
    places = sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    ends, firsts = broker.offsets_at("live", recorded.until_s), broker.offsets_at("live", recorded.from_s)
    assert places == [
        (part, at) for (_, part), end in ends.items() for at in range(firsts["live", part], end)
    ]
    first_second, rate = recorded.rate_rps()
    assert (first_second, rate.size, rate.sum()) == (recorded.from_s, 15, table.num_rows)
    ordered = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
    rows = [int(value[7:-1]) for value in ordered["value"].to_pylist()]
    for key in set(ordered["key"].to_pylist()):
        of_key = [row for row, its in zip(rows, ordered["key"].to_pylist(), strict=True) if its == key]
        steps = {(after - before) % 20_000 for before, after in pairwise(of_key)}
        assert steps <= ({100} if not last["given_up"] else set(range(100, 10_000, 100)))
    # Nobody's consumer group came into being.
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(**brokers.client())
    assert admin.list_groups() == []
    admin.close()


@pytest.mark.real
def test_a_recording_is_replayed_in_its_partitions_with_its_key_shares(owner, brokers, broker, tmp_path):
    from kafka import KafkaProducer

    broker.create("skewed", partitions=3)
    broker.create("again", partitions=3)
    producer = KafkaProducer(**brokers.client(), linger_ms=20)
    start_s = float(int(time.time()) - 20)
    for row in range(6000):  # ten seconds; three of four records have one key, all in the last partition
        key = b"hot" if row % 4 else b"cold-%d" % (row % 40)
        at_ms = int(start_s * 1000) + row * 10 // 6
        producer.send(
            "skewed",
            b'{"at":%d}' % at_ms,
            key=key,
            partition=2,
            timestamp_ms=at_ms,
            headers=[("trace", b"%d" % row)],
        )
    producer.flush()
    producer.close()
    request = Request("skewed", tmp_path / "recording", duration_s=10.0, from_s=start_s)
    recorded = record(LocalTask(owner, "recording.skewed"), request, brokers, timeout_s=PATIENCE_S)
    assert recorded.records == 6000
    rate = recorded.rate_rps()
    assert isinstance(rate, tuple)
    assert set(rate[1]) == {600.0}

    plan = Replay(
        topic="again",
        source=str(request.folder),
        schedule=Schedule.steps([(1, 400), (1, 800), (1, 1200)]),
        brokers=brokers,
        folder=tmp_path,
        event_time="at",
    )
    began_ms = time.time() * 1000
    replay = RunningReplay(LocalTask(owner, "replay.again")).start(plan)
    assert replay.wait(PATIENCE_S)
    assert Control(replay.folder).ended == ("finished", "the schedule is over")
    sent = Control(replay.folder).reports()[-1]["sent"]
    assert {part: end for (_, part), end in broker.ends(["again"]).items()} == {0: 0, 1: 0, 2: sent}
    assert 0 < sent <= 2400, "but for what a busy machine made too late"
    copied = record(
        LocalTask(owner, "recording.again"),
        Request(
            "again",
            tmp_path / "copied",
            duration_s=float(int(time.time() - began_ms / 1000) + 2),
            from_s=float(int(began_ms / 1000)),
        ),
        brokers,
        timeout_s=PATIENCE_S,
    )
    table = pa.concat_tables(
        [pq.read_table(file) for one in copied.slices for file in one.files(copied.folder)]
    )
    assert table.num_rows == sent
    share = Counter(table["key"].to_pylist())[b"hot"] / sent
    assert share == pytest.approx(0.75, abs=0.05)
    assert all(headers[0]["key"] == "trace" for headers in table["headers"].to_pylist())
    # Happened when they were sent, to within a slice and what the machine was late by.
    delays = [
        stamp.timestamp() * 1000 - int(value[6:-1])
        for stamp, value in zip(table["timestamp"].to_pylist(), table["value"].to_pylist(), strict=True)
    ]
    assert min(delays) > -50
    assert sorted(delays)[sent // 2] < 15_000


@pytest.mark.real
def test_a_source_that_cannot_start_says_which_setting_is_wrong(owner, brokers, source, tmp_path):
    plan = Replay(
        topic="no-such-topic",
        source=str(source),
        schedule=Schedule.constant(1, duration_s=1),
        brokers=brokers,
        folder=tmp_path,
    )
    with pytest.raises(Misconfigured, match="no-such-topic"):
        RunningReplay(LocalTask(owner, "replay.wrong")).start(plan)
