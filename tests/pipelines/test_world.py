"""What a command finds when it comes, what it leaves, and what a job's settings mean to it."""

import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path

import pytest

from models.errors import Misconfigured, Unsafe
from models.ports import Function, Plan, Script
from pipelines.environments import base
from pipelines.environments.local import (
    broker_watch,
    driver_watch,
    drivers,
    environment,
    executors,
    metrics,
    replays,
)
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
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def settings(more='build = "a:b"'):
    return loading.parse(TOML + more, environment={})


class TestProcesses:
    def test_what_a_killed_command_has_left_ends_with_the_next(self, tmp_path):
        left = self._left(tmp_path)
        with environment._ours(tmp_path) as owner:
            assert owner.running() == (left,)
        assert not left.alive

    def test_a_live_job_that_ran_before_and_what_it_needs_are_left_alone(self, tmp_path):
        left = self._left(tmp_path)
        self._launched(tmp_path)
        try:
            with environment._ours(tmp_path) as owner:
                ours = owner.start("sleeper", SLEEP)
            assert left.alive
            assert not ours.alive
        finally:
            cleanup(tmp_path)

    def test_of_what_the_live_job_needs_also_what_was_replaced_meanwhile_is_left(self, tmp_path):
        before = Owner(tmp_path).acquire()
        roles = (
            "kafka",
            "spark-master",
            "spark-worker",
            "driver.orders",
            "driver.orders-e2",
            "replay.orders-e2",
        )
        old = {role: before.start(role, SLEEP) for role in roles}
        before.release()
        self._launched(tmp_path)
        try:
            with environment._ours(tmp_path) as owner:
                new = {}
                for role in ("kafka", "spark-worker", "driver.orders"):  # by the watch, or a broker_restart
                    owner.stop(old[role], kill=True)
                    new[role] = owner.start(role, SLEEP)
                copy = owner.start("driver.orders-e3", SLEEP)
            assert {role: one.alive for role, one in new.items()} == dict.fromkeys(new, True)
            assert old["spark-master"].alive
            gone = {role: old[role].alive for role in ("driver.orders-e2", "replay.orders-e2")}
            assert gone == dict.fromkeys(gone, False), "copies that a killed command has left"
            assert not copy.alive
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

    @staticmethod
    def _launched(folder):
        plan = Plan("orders", "orders", "live", Function("a:b"), 1, {"in": "a"}, {"out": "b"}, "/c")
        Records(folder / "deployments").save(Record(plan))

    @staticmethod
    def _left(folder):
        owner = Owner(folder).acquire()
        process = owner.start("spark-master", SLEEP)
        owner.release()
        return process


def test_brokers_that_ask_for_a_certificate_can_be_described():
    text = '[brokers]\nbootstrap = "one:9093"\nsecurity_protocol = "SSL"\nssl_certfile = "/etc/me.pem"\n'
    found = environment.yours(loading.parse(text, environment={}).brokers)
    assert found.client()["ssl_keyfile"] == "/etc/me.pem"
    assert found.spark()["kafka.ssl.keystore.location"] == "/etc/me.pem"
    assert {one.name for one in fields(brokers.Brokers)} == set(BrokerSettings.model_fields)


class TestChangedSettings:
    """Real adapters; no JVM, and a broker that is not asked."""

    @pytest.mark.parametrize(
        ("more", "changed"),
        [
            ("", None),
            ("scale_out = 3", None),
            ("max_offsets_per_trigger = 5000", "max_offsets_per_trigger"),
            ('conf = {"a.b" = "c"}\nargs = ["x"]', "script or build, conf"),
        ],
    )
    def test_a_job_that_runs_with_others_than_those_of_today_is_told_of(
        self, tmp_path, monkeypatch, more, changed
    ):
        monkeypatch.setattr(kafka_broker, "KafkaBroker", lambda brokers: nullcontext())
        monkeypatch.setattr(spark.LocalSpark, "ensure", lambda self: None)
        text = '[brokers]\nbootstrap = "h:1"\n[job.orders]\nscript = "my.py"\ninputs = {events = "in"}\n'
        first = loading.parse(text, environment={}).jobs["orders"]
        records = Records(tmp_path / "deployments")
        records.save(Record(job_plans.live_plan("orders", first, folder=tmp_path)))
        said = []
        with base.opened(loading.parse(text + more, environment={}), tmp_path, say=said.append):
            pass
        told = (
            "orders runs with the settings it was launched with, which differ from today's in "
            f"{changed}: to take them over, end it with `headroom cleanup` and launch it again"
        )
        assert said == ["starting Spark", *([told] if changed else [])]
        said.clear()
        records.change("orders", failed=True)
        with base.opened(loading.parse(text + more, environment={}), tmp_path, say=said.append):
            pass
        assert said == ["starting Spark"], "launching it anew takes them over"


def test_our_own_broker_is_started_again_while_the_world_is_open(tmp_path, monkeypatch):
    class Broker:
        log = tmp_path / "kafka.log"

        def __init__(self, owner):
            made.append(self)
            self.process, self.again = None, threading.Event()

        def ensure(self, *, keep_ports=False):
            self.process = object()
            return brokers.Brokers("127.0.0.1:9")

        def start(self, *, keep_ports):
            assert keep_ports
            self.again.set()
            return self.ensure()

    made, said = [], []
    monkeypatch.setattr(kafka_broker, "KafkaBroker", lambda brokers: nullcontext())
    monkeypatch.setattr(embedded_kafka, "EmbeddedBroker", Broker)
    monkeypatch.setattr(broker_watch, "LOOK_S", 0.01)
    with base.opened(loading.parse("", environment={}), tmp_path, say=said.append):
        (broker,) = made
        assert not broker.again.wait(0.1)
        broker.process = None
        assert broker.again.wait(20.0)
    broker.again.clear()
    broker.process = None
    assert not broker.again.wait(0.1)
    assert said[-1] == "Kafka runs again on 127.0.0.1:9"


def test_what_is_forgotten_of_a_copy_is_never_a_job(tmp_path, monkeypatch):
    monkeypatch.setattr(kafka_broker, "KafkaBroker", lambda brokers: nullcontext())
    monkeypatch.setattr(spark.LocalSpark, "ensure", lambda self: None)
    text = '[brokers]\nbootstrap = "h:1"\n[job.orders]\nscript = "my.py"\ninputs = {events = "in"}\n'
    found = loading.parse(text, environment={})
    live = job_plans.live_plan("orders", found.jobs["orders"], folder=tmp_path)
    copy = replace(live, name="orders-p1", role="profile", checkpoint=f"{live.checkpoint}-p1")
    for plan in (live, copy):
        Records(tmp_path / "deployments").save(Record(plan, wanted="stopped"))
        Path(plan.checkpoint).mkdir(parents=True)
    with base.opened(found, tmp_path) as here:
        with pytest.raises(Unsafe, match="orders is a job itself"):
            here.forget("orders")
        here.forget("orders-p1")
        here.forget("orders-p2")
        assert [record.plan for record in Records(tmp_path / "deployments").all()] == [live]
    assert (Path(live.checkpoint).exists(), Path(copy.checkpoint).exists()) == (True, False)


@pytest.mark.parametrize("serving", [False, True])
def test_a_command_that_comes_and_goes_starts_no_job(tmp_path, monkeypatch, serving):
    monkeypatch.setattr(kafka_broker, "KafkaBroker", lambda brokers: nullcontext())
    monkeypatch.setattr(spark.LocalSpark, "ensure", lambda self: None)
    monkeypatch.setattr(driver_watch, "POLL_S", 0.01)
    started = []
    monkeypatch.setattr(
        drivers.LocalDrivers, "start", lambda self, record: started.append(record.name) or record
    )
    text = '[brokers]\nbootstrap = "h:1"\n[job.orders]\nscript = "my.py"\ninputs = {events = "in"}\n'
    found = loading.parse(text, environment={})
    plan = job_plans.live_plan("orders", found.jobs["orders"], folder=tmp_path)
    Records(tmp_path / "deployments").save(Record(plan))  # as Ctrl-C has left it
    with Owner(tmp_path) if serving else nullcontext() as owner, base.opened(found, tmp_path, owner=owner):
        time.sleep(0.3)
    assert set(started) == ({"orders"} if serving else set())


def test_what_is_remembered_of_a_copy_is_forgotten_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(kafka_broker, "KafkaBroker", lambda brokers: nullcontext())
    forgotten = []
    for kind in (metrics.LocalMetrics, executors.LocalExecutors):
        monkeypatch.setattr(kind, "forget", lambda self, name: forgotten.append((type(self).__name__, name)))
    found = loading.parse('[brokers]\nbootstrap = "h:1"\n', environment={})
    with base.opened(found, tmp_path) as there:
        there.forget("orders-p1")
    assert forgotten == [("LocalMetrics", "orders-p1"), ("LocalExecutors", "orders-p1")]


@pytest.mark.fast
class TestSettings:
    def test_a_function_and_a_script(self, tmp_path):
        job = settings().jobs["orders"]
        plan = job_plans.live_plan("orders", job, folder=tmp_path / ".headroom")
        assert (plan.program, plan.role) == (Function("a:b"), "live")
        assert plan.checkpoint == str(tmp_path / ".headroom" / "checkpoints" / "orders")
        job = settings('script = "my.py"\nargs = ["--in", "{input_topic}"]').jobs["orders"]
        assert job_plans.live_plan("orders", job, folder=tmp_path).program == Script(
            "my.py", ("--in", "{input_topic}")
        )

    def test_a_job_of_somebody_else_cannot_be_copied(self, tmp_path):
        job = settings('attach = true\ncheckpoint = "/c"').jobs["orders"]
        with pytest.raises(Misconfigured, match=r"job\.orders\.attach"):
            job_plans.live_plan("orders", job, folder=tmp_path)

    @pytest.mark.parametrize(("rescale", "live"), [("live", True), ("restart", False)])
    def test_copies_are_rescaled_as_the_job_is(self, rescale, live, tmp_path):
        found = settings(f'build = "a:b"\nrescale = "{rescale}"')
        with base.opened(found, tmp_path / ".headroom") as here:
            assert here.around("orders", found.jobs["orders"]).rescales_live is live

    def test_the_search_visits_sizes_between_the_bounds_with_the_strategy_that_is_set(self):
        found = settings()
        search = job_plans.search("orders", found.jobs["orders"], found.spark)
        assert (search.scale_outs, search.strategy, search.first_guess) == ((1, 3, 4, 6), "adaptive", None)
        found = settings(
            'build = "a:b"\nstrategy = "stepped"\nprofile_scale_outs = [2]\nprofile_step_rps = 50'
        )
        search = job_plans.search("orders", found.jobs["orders"], found.spark)
        assert (search.scale_outs, search.strategy, search.grid) == ((2,), "stepped", (1000.0, 50.0))

    def test_sizes_that_can_do_no_more_than_smaller_ones_are_not_profiled(self):
        found = settings()
        search = job_plans.search("orders", found.jobs["orders"], found.spark, tasks=4)
        assert search.scale_outs == (1, 2, 4, 6), "3 executors take two waves for four tasks, as 2 do"

    def test_whoever_knows_about_what_an_executor_carries_saves_the_run_that_finds_out(self):
        found = settings('build = "a:b"\nprofile_guess_rps = 800\nprofile_most_probes = 2')
        search = job_plans.search("orders", found.jobs["orders"], found.spark)
        assert (search.first_guess, search.most_probes) == (800.0, 2)

    def test_sizes_beyond_the_slots_name_the_setting(self):
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

    def test_the_drill_records_what_alone_can_break_a_promise(self):
        found = settings()
        drill = job_plans.drill_settings(found.jobs["orders"], found.spark)
        assert drill.recorded["spark.network.timeout"] == "20s"
        assert drill.max_lag_s == 90.0
        slow = '"spark.network.timeout" = "90s"'
        found = loading.parse(
            f'{TOML}build = "a:b"\nconf = {{"spark.x" = "job"}}\n[spark.conf]\n{slow}\n"spark.x" = "all"\n',
            environment={},
        )
        recorded = job_plans.drill_settings(found.jobs["orders"], found.spark).recorded
        assert (recorded["spark.network.timeout"], recorded["spark.x"]) == ("90s", "job")

    def test_the_drill_records_no_secret(self):
        conf = '"spark.hadoop.fs.s3a.access.key" = "k-123", "spark.db.password" = "p-123", "spark.x" = "1"'
        found = loading.parse(f'{TOML}build = "a:b"\nconf = {{{conf}}}\n', environment={})
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
    assert replays.events_of(events, "bids") == found


def test_without_events_the_newest_recording_that_ended_is_played(tmp_path):
    job = settings().jobs["orders"]
    with pytest.raises(Misconfigured, match=r"job\.orders\.events: is not set, and .* launch `record`"):
        replays.events_for(tmp_path, "orders", job, "events", several=False)
    for name, ended in (("100-events", "complete"), ("99-events", "complete"), ("101-events", "")):
        folder = tmp_path / "recordings" / "orders" / name
        folder.mkdir(parents=True)
        (folder / "recording.json").write_text('{"topic": "in", "from_s": 0, "until_s": 9, "first": {}}')
        (folder / "ended.json").write_text(f'{{"how": "{ended}"}}')
    found = replays.events_for(tmp_path, "orders", job, "events", several=False)
    assert found == str(tmp_path / "recordings" / "orders" / "100-events")
    generated = settings('build = "a:b"\nevents = "generator:join"').jobs["orders"]
    assert replays.events_for(tmp_path, "orders", generated, "events", several=False) == "generator:join"


@pytest.mark.parametrize(
    ("path", "found"), [("data/orders", "{project}/data/orders"), ("/data/x", "/data/x")]
)
def test_a_path_of_events_is_meant_from_the_folder_of_the_settings(tmp_path, path, found):
    job = settings(f'build = "a:b"\nevents = "{path}"').jobs["orders"]
    folder = tmp_path / ".headroom"
    said = replays.events_for(folder, "orders", job, "events", several=False)
    assert said == found.format(project=tmp_path)


class TestSimulated:
    def test_partitions_are_those_of_the_live_topics(self, tmp_path):
        found = settings()
        job = found.jobs["orders"]
        plan = job_plans.live_plan("orders", job, folder=tmp_path)
        with base.opened(found, tmp_path) as there:
            assert there.partitions(plan, job) == {"events": 12, "alerts": 12}
            wider = job.model_copy(update={"topic_partitions": 16})
            assert there.partitions(plan, wider) == {"events": 16, "alerts": 16}
            there.broker.create("in", partitions=3)
            assert there.partitions(plan, wider) == {"events": 3, "alerts": 3}
