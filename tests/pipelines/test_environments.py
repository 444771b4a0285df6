"""What a command finds when it comes, what it leaves, and what a job's settings mean to it."""

import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from stand_ins import plan
from waiting import until

from models.errors import Misconfigured, Unsafe
from pipelines.environments import base, metrics, real, replay
from pipelines.environments.local import broker_watch, driver_watch, drivers, environment, executors
from pipelines.environments.local.records import Record, Records
from pipelines.integrations import embedded_kafka, kafka_broker, spark
from pipelines.processes.owner import Owner, cleanup
from pipelines.settings import job_plans, loading
from pipelines.settings.schema import BrokerSettings
from profiling_jobs import brokers

TOML = """
[deployment]
kind = "simulated"
[spark]
slots = 6
[job.orders]
inputs = {events = "in"}
outputs = {alerts = "out"}
scale_out_max = 6
"""
LOCAL = '[brokers]\nbootstrap = "h:1"\n[job.orders]\nscript = "my.py"\ninputs = {events = "in"}\n'
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def settings(more='build = "a:b"'):
    return loading.parse(TOML + more, environment={})


@pytest.fixture
def services(monkeypatch):
    """Real adapters; no JVM, and a broker that is not asked."""
    monkeypatch.setattr(kafka_broker, "KafkaBroker", lambda brokers: nullcontext())
    monkeypatch.setattr(spark.LocalSpark, "ensure", lambda self: None)


class TestProcesses:
    def test_what_a_killed_command_has_left_ends_with_the_next(self, tmp_path):
        killed = Owner(tmp_path).acquire()
        left = killed.start("spark-master", SLEEP)
        killed.release()
        with environment._ours(tmp_path) as owner:
            assert owner.running() == (left,)
        assert not left.alive

    def test_a_live_job_that_ran_before_and_what_it_needs_are_left_also_where_it_was_replaced(self, tmp_path):
        before = Owner(tmp_path).acquire()
        roles = "kafka spark-master spark-worker driver.orders driver.orders-e2 replay.orders-e2"
        old = {role: before.start(role, SLEEP) for role in roles.split()}
        before.release()
        self._launched(tmp_path)
        try:
            with environment._ours(tmp_path) as owner:
                new = {}
                for role in ("kafka", "spark-worker", "driver.orders"):  # by the watch, or a broker_restart
                    owner.stop(old[role], kill=True)
                    new[role] = owner.start(role, SLEEP)
                ours = [owner.start(role, SLEEP) for role in ("driver.orders-e3", "sleeper")]
            assert {role: one.alive for role, one in new.items()} == dict.fromkeys(new, True)
            assert old["spark-master"].alive
            gone = {role: old[role].alive for role in ("driver.orders-e2", "replay.orders-e2")}
            assert gone == dict.fromkeys(gone, False), "copies that a killed command has left"
            assert not any(one.alive for one in ours)
        finally:
            cleanup(tmp_path)

    def test_what_only_looks_at_the_live_job_keeps_nothing_running(self, tmp_path):
        before = Owner(tmp_path).acquire()
        page = before.start("mlflow-page", SLEEP)
        before.release()
        self._launched(tmp_path)
        with environment._ours(tmp_path) as owner:
            driver = owner.start("driver.orders", SLEEP)
        assert (page.alive, driver.alive) == (False, False), "it did not run before"

    def test_a_folder_that_cannot_be_read_is_given_up_again(self, tmp_path, monkeypatch):
        def unreadable(records):
            raise Unsafe("deployment.json was written by another version of Headroom")

        monkeypatch.setattr(Records, "all", unreadable)
        with pytest.raises(Unsafe, match="another version"), environment._ours(tmp_path):
            pass
        with monkeypatch.context() as full:
            full.setattr(Owner, "everything", unreadable)
            with pytest.raises(Unsafe, match="another version"):
                Owner(tmp_path).take_over()
        Owner(tmp_path).acquire().release()

    @staticmethod
    def _launched(folder):
        Records(folder / "deployments").save(Record(plan()))


def test_brokers_that_ask_for_a_certificate_can_be_described():
    text = '[brokers]\nbootstrap = "one:9093"\nsecurity_protocol = "SSL"\nssl_certfile = "/etc/me.pem"\n'
    found = real.yours(loading.parse(text, environment={}).brokers)
    assert found.client()["ssl_keyfile"] == "/etc/me.pem"
    assert found.spark()["kafka.ssl.keystore.location"] == "/etc/me.pem"
    ours = {"password_file"}  # of the Kafka that we start
    assert {one.name for one in fields(brokers.Brokers)} - ours == set(BrokerSettings.model_fields)


class TestChangedSettings:
    @pytest.mark.parametrize(
        ("more", "changed"),
        [
            ("", None),
            ("scale_out = 3", None),
            ("max_offsets_per_trigger = 5000", "max_offsets_per_trigger"),
            ('conf = {"a.b" = "c"}\nargs = ["x"]', "script or build, conf"),
        ],
    )
    def test_a_job_that_runs_with_others_than_todays_is_told_of(self, tmp_path, services, more, changed):
        first = loading.parse(LOCAL, environment={}).jobs["orders"]
        records = Records(tmp_path / "deployments")
        records.save(Record(job_plans.live_plan("orders", first, folder=tmp_path)))
        said = []
        with base.opened(loading.parse(LOCAL + more, environment={}), tmp_path, say=said.append):
            pass
        told = (
            "orders runs with the settings it was launched with, which differ from today's in "
            f"{changed}: to take them over, end it with `headroom cleanup` and launch it again"
        )
        assert said == ["starting Spark", *([told] if changed else [])]
        said.clear()
        records.change("orders", failed=True)
        with base.opened(loading.parse(LOCAL + more, environment={}), tmp_path, say=said.append):
            pass
        assert said == ["starting Spark"], "launching it anew takes them over"


def test_our_own_broker_is_looked_after_while_the_environment_is_open(tmp_path, monkeypatch, services):
    looked = threading.Event()
    own = SimpleNamespace(ensure=lambda **more: brokers.Brokers("127.0.0.1:9"), log=tmp_path, process=None)
    monkeypatch.setattr(embedded_kafka, "EmbeddedBroker", lambda owner: own)
    monkeypatch.setattr(broker_watch.BrokerWatch, "look", lambda self: looked.set())
    monkeypatch.setattr(broker_watch, "LOOK_S", 0.01)
    with base.opened(loading.parse("", environment={}), tmp_path):
        assert looked.wait(20.0)


def test_what_is_forgotten_of_a_copy_is_never_a_job(tmp_path, services):
    found = loading.parse(LOCAL, environment={})
    live = job_plans.live_plan("orders", found.jobs["orders"], folder=tmp_path)
    copy = replace(live, name="orders-p1", role="profile", checkpoint=f"{live.checkpoint}-p1")
    for known in (live, copy):
        Records(tmp_path / "deployments").save(Record(known, wanted="stopped"))
        Path(known.checkpoint).mkdir(parents=True)
    with base.opened(found, tmp_path) as here:
        with pytest.raises(Unsafe, match="orders is a job itself"):
            here.forget("orders")
        here.forget("orders-p1")
        here.forget("orders-p2")
        assert [record.plan for record in Records(tmp_path / "deployments").all()] == [live]
    assert (Path(live.checkpoint).exists(), Path(copy.checkpoint).exists()) == (True, False)


@pytest.mark.parametrize("serving", [False, True])
def test_a_command_that_comes_and_goes_starts_no_job(tmp_path, monkeypatch, services, serving):
    monkeypatch.setattr(driver_watch, "POLL_S", 0.01)
    started = []
    monkeypatch.setattr(
        drivers.LocalDrivers, "start", lambda self, record: started.append(record.name) or record
    )
    found = loading.parse(LOCAL, environment={})
    plan = job_plans.live_plan("orders", found.jobs["orders"], folder=tmp_path)
    Records(tmp_path / "deployments").save(Record(plan))  # as Ctrl-C has left it
    with Owner(tmp_path) if serving else nullcontext() as owner, base.opened(found, tmp_path, owner=owner):
        if serving:
            until(lambda: started)
        time.sleep(0.3)
    assert set(started) == ({"orders"} if serving else set())


def test_what_is_remembered_of_a_copy_is_forgotten_with_it(tmp_path, monkeypatch, services):
    forgotten = []
    for kind in (metrics.JobMetrics, executors.LocalExecutors):
        monkeypatch.setattr(kind, "forget", lambda self, name: forgotten.append((type(self).__name__, name)))
    found = loading.parse('[brokers]\nbootstrap = "h:1"\n', environment={})
    with base.opened(found, tmp_path) as there:
        there.forget("orders-p1")
    assert forgotten == [("JobMetrics", "orders-p1"), ("LocalExecutors", "orders-p1")]


@pytest.mark.fast
class TestSettings:
    def test_a_job_of_somebody_else_cannot_be_copied(self, tmp_path):
        job = settings('attach = true\ncheckpoint = "/c"').jobs["orders"]
        with pytest.raises(Misconfigured, match=r"job\.orders\.attach"):
            job_plans.live_plan("orders", job, folder=tmp_path)

    @pytest.mark.parametrize(("rescale", "live"), [("live", True), ("restart", False)])
    def test_copies_are_rescaled_as_the_job_is(self, rescale, live, tmp_path):
        found = settings(f'build = "a:b"\nrescale = "{rescale}"')
        with base.opened(found, tmp_path / ".headroom") as here:
            assert here.around("orders", found.jobs["orders"]).rescales_live is live

    def test_the_search_visits_sizes_that_differ_between_the_bounds_with_the_strategy_that_is_set(self):
        found = settings()
        search = job_plans.search("orders", found.jobs["orders"], found.spark)
        assert (search.scale_outs, search.strategy, search.first_guess) == ((1, 3, 4, 6), "adaptive", None)
        search = job_plans.search("orders", found.jobs["orders"], found.spark, tasks=4)
        assert search.scale_outs == (1, 2, 4, 6), "3 executors take two waves for four tasks, as 2 do"
        stepped = 'strategy = "stepped"\nprofile_scale_outs = [2]\nprofile_step_rps = 50'
        found = settings(f'build = "a:b"\n{stepped}')
        search = job_plans.search("orders", found.jobs["orders"], found.spark)
        assert (search.scale_outs, search.strategy, search.grid) == ((2,), "stepped", (1000.0, 50.0))

    @pytest.mark.parametrize(("window_s", "recorded_s"), [(0, 120.0), (60, 120.0), (600, 600.0)])
    def test_a_recording_is_as_long_as_the_longest_window(self, window_s, recorded_s):
        found = settings(f'build = "a:b"\nlongest_window_s = {window_s}\nevent_time = "at"')
        assert job_plans.recorded_s(found.jobs["orders"]) == recorded_s
        found = settings('build = "a:b"\nprofile_scale_outs = [9]')
        with pytest.raises(Misconfigured, match=r"job\.orders\.profile_scale_outs"):
            job_plans.search("orders", found.jobs["orders"], found.spark)

    def test_a_benchmark_job_has_its_fixed_settings_where_the_file_has_none(self, tmp_path):
        job = settings('build = "profiling_jobs.jobs.nexmark:q5_long"').jobs["orders"]
        assert job_plans.rules(job).longest_window_s == 300.0
        plan = job_plans.live_plan("orders", job, folder=tmp_path)
        assert (plan.max_offsets_per_trigger, plan.state_partitions) == (20_000, 12)
        assert plan.conf["spark.sql.adaptive.enabled"] == "false"
        assert job.event_time == "event_time"

    def test_what_the_file_says_of_a_benchmark_job_counts(self, tmp_path):
        job = settings(
            'build = "profiling_jobs.jobs.nexmark:q5_long"\n'
            'longest_window_s = 0\nstate_partitions = 4\nevent_time = "at"\n'
            'conf = {"spark.sql.adaptive.enabled" = "true", "spark.x" = "1"}'
        ).jobs["orders"]
        plan = job_plans.live_plan("orders", job, folder=tmp_path)
        assert (job.longest_window_s, plan.state_partitions, job.event_time) == (0.0, 4, "at")
        assert plan.conf["spark.sql.adaptive.enabled"] == "true"
        assert plan.conf["spark.x"] == "1"
        assert plan.conf["spark.sql.adaptive.streaming.stateless.enabled"] == "false"

    def test_the_drill_records_what_alone_can_break_a_promise_and_no_secret(self):
        found = settings()
        drill = job_plans.drill_settings(found.jobs["orders"], found.spark)
        assert drill.recorded["spark.network.timeout"] == "20s"
        assert drill.max_lag_s == 90.0
        own, slow = 'conf = {"spark.x" = "job"}', '"spark.network.timeout" = "90s"'
        found = settings(f'build = "a:b"\n{own}\n[spark.conf]\n{slow}\n"spark.x" = "all"')
        recorded = job_plans.drill_settings(found.jobs["orders"], found.spark).recorded
        assert (recorded["spark.network.timeout"], recorded["spark.x"]) == ("90s", "job")
        conf = '"spark.hadoop.fs.s3a.access.key" = "k-123", "spark.db.password" = "p-123", "spark.x" = "1"'
        found = settings(f'build = "a:b"\nconf = {{{conf}}}')
        recorded = job_plans.drill_settings(found.jobs["orders"], found.spark).recorded
        assert recorded["spark.x"] == "1"
        assert recorded["spark.db.password"] == recorded["spark.hadoop.fs.s3a.access.key"] == "(redacted)"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("events", "found"),
    [
        ("generator:join?count=5", "generator:join/bids?count=5"),
        ("generator:join", "generator:join/bids"),
        ("data/recorded", "data/recorded/bids"),
    ],
)
def test_each_of_several_inputs_has_events_of_its_own(events, found):
    assert replay.events_of(events, "bids") == found


def test_without_events_the_newest_recording_that_ended_is_played(tmp_path):
    job = settings().jobs["orders"]
    with pytest.raises(Misconfigured, match=r"is not set, and .* run `headroom record orders` first"):
        replay.events_for(tmp_path, "orders", job, "events", several=False)
    for name, ended in (("100-events", "complete"), ("99-events", "complete"), ("101-events", "")):
        folder = tmp_path / "recordings" / "orders" / name
        folder.mkdir(parents=True)
        (folder / "recording.json").write_text('{"topic": "in", "from_s": 0, "until_s": 9, "first": {}}')
        (folder / "ended.json").write_text(f'{{"how": "{ended}"}}')
    found = replay.events_for(tmp_path, "orders", job, "events", several=False)
    assert found == str(tmp_path / "recordings" / "orders" / "100-events")
    generated = settings('build = "a:b"\nevents = "generator:join"').jobs["orders"]
    assert replay.events_for(tmp_path, "orders", generated, "events", several=False) == "generator:join"


@pytest.mark.parametrize(
    ("path", "found"), [("data/orders", "{project}/data/orders"), ("/data/x", "/data/x")]
)
def test_a_path_of_events_is_meant_from_the_folder_of_the_settings(tmp_path, path, found):
    job = settings(f'build = "a:b"\nevents = "{path}"').jobs["orders"]
    folder = tmp_path / ".headroom"
    said = replay.events_for(folder, "orders", job, "events", several=False)
    assert said == found.format(project=tmp_path)


def test_partitions_are_those_of_the_live_topics(tmp_path):
    found = settings()
    job = found.jobs["orders"]
    plan = job_plans.live_plan("orders", job, folder=tmp_path)
    with base.opened(found, tmp_path) as there:
        assert there.partitions(plan, job) == {"events": 12, "alerts": 12}
        wider = job.model_copy(update={"topic_partitions": 16})
        assert there.partitions(plan, wider) == {"events": 16, "alerts": 16}
        there.broker.create("in", partitions=3)
        assert there.partitions(plan, wider) == {"events": 3, "alerts": 3}
