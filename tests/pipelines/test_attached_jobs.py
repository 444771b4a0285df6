"""Attached jobs in a simulated environment: what the server does and refuses."""

import json
import time

import pytest
from click.testing import CliRunner

from models.errors import Misconfigured, Unsafe
from models.ports import Function, Plan
from models.quantities import Unknown
from models.simulation import sampling
from pipelines.command_line import main
from pipelines.environments import base
from pipelines.environments.local.records import Record, Records
from pipelines.integrations import kafka_broker
from pipelines.server.in_process import InProcessServer
from pipelines.settings import loading
from profiling_jobs.orders import run_order

TOML = """
[deployment]
kind = "simulated"
[spark]
slots = 8
[job.orders]
attach = true
executors = 3
checkpoint = "/theirs/orders"
inputs = {events = "in"}
outputs = {alerts = "out"}
scale_out_max = 4
max_offsets_per_trigger = 2000
failure_kinds = ["driver_kill"]
probe_s = 60
warm_up_s = 10
profile_scale_outs = [1]
profile_budget_executor_s = 2000
"""
PROGRAM = 'build = "a:b"\n'


@pytest.fixture(autouse=True)
def _nobody_asks_the_twin_for_latency(monkeypatch):
    """Nine tenths of its time, and probes reckon their own."""
    none = Unknown("left out")
    monkeypatch.setattr(sampling, "_percentiles", lambda *arguments: [none, none, none])


class Service:
    def __init__(self, there, server):
        self.environment, self.server = there, server

    def passes(self, seconds):
        """Simulated time; the server's own thread sees to it."""
        until = self.environment.clock.now_s() + seconds
        while self.environment.clock.now_s() < until:
            time.sleep(0.002)

    @property
    def live(self):
        """What really runs, behind the adapter that keeps our hands off."""
        return self.environment.deployments._ours.job("orders")


@pytest.fixture
def service(request, tmp_path):
    settings = loading.parse(TOML + getattr(request, "param", ""), environment={})
    with base.opened(settings, tmp_path) as there, InProcessServer(there, settings, tmp_path) as server:
        there.flow("in", 700.0)
        yield Service(there, server)


class TestWatched:
    def test_it_is_watched_without_being_started(self, service):
        service.passes(130.0)
        found = service.server.evaluate("orders")
        assert found["observation"]["arrival_rps"] == pytest.approx(700.0, rel=0.05)
        assert found["observation"]["lag_records"] < 20_000.0
        assert found["scale_out"] == 3
        assert found["apply"] is None
        assert json.loads(json.dumps(found)) == found
        assert (
            "profile the job (`headroom profile`), which needs its program: give job.orders"
            in found["decision"]["reason"]
        )
        status = service.server.status()["jobs"]["orders"]
        assert (status["state"], status["declared_scale_out"], status["ours"]) == ("running", 3, False)
        assert "unknown" in status["executors_alive"]

    def test_it_is_none_of_our_deployments(self, service):
        assert service.environment.deployments.names() == ()

    def test_its_input_can_be_recorded(self, service):
        done = run_order(service.server, "record", "orders", seconds=20)
        assert done["recordings"]["events"]["ended"] == "complete"


class TestHandsOff:
    @pytest.mark.parametrize("service", ["", PROGRAM], indirect=True, ids=["alone", "with its program"])
    @pytest.mark.parametrize(
        ("what", "details", "said"),
        [
            ("launch", {}, "not started here"),
            ("stop", {}, "not stopped here"),
            ("apply", {"epoch": 1, "to": 4}, "not rescaled here"),
            ("drill", {"live": True}, "not hurt here"),
        ],
    )
    def test_what_would_touch_it_is_refused(self, service, what, details, said):
        with pytest.raises(Unsafe, match=rf"^job\.orders\.attach = true: it is run elsewhere.* {said}"):
            service.server.begin(what, "orders", **details)
        assert (service.live.state in ("starting", "running"), service.live.declared) == (True, 3)

    @pytest.mark.parametrize("what", ["profile", "drill"])
    def test_without_its_program_there_are_no_copies_and_it_says_what_to_do(self, service, what):
        with pytest.raises(Misconfigured, match=r"job\.orders\.attach: .* add `script` or `build`"):
            service.server.begin(what, "orders")
        with pytest.raises(Misconfigured, match="its program is not here"):
            service.server.begin("probe", "orders", scale_out=1, rate_rps=300.0)


@pytest.mark.parametrize("service", [PROGRAM], indirect=True, ids=["with its program"])
class TestCopies:
    def test_a_copy_is_profiled_and_the_live_one_goes_on(self, service):
        service.passes(60.0)
        runs, before = service.live.runs, service.live.checkpoint.batch
        done = run_order(service.server, "profile", "orders")
        assert 600.0 < done["capacity_rps"]["1"]["mid"] < 900.0
        assert (service.live.runs, service.live.declared) == (runs, 3)
        assert service.live.checkpoint.batch > before, "it was not stopped meanwhile"
        assert service.environment.deployments.names() == ()

    def test_a_copy_is_drilled_at_the_size_that_its_owner_has_given_it(self, service):
        done = run_order(service.server, "drill", "orders", rates_rps=[500.0])
        (row,) = done["drills"]
        assert (row["kind"], row["scale_out"], row["kept"]) == ("driver_kill", 3, True)
        assert service.live.runs <= 1
        assert service.environment.failures.active() == ()


class TestCommands:
    def test_drill_says_why_not_before_it_starts_anything(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "headroom.toml").write_text(TOML)
        done = CliRunner().invoke(main, ["drill", "orders"])
        assert done.exit_code == 2
        assert "its program is not here: add `script` or `build`" in " ".join(done.output.split())
        live = CliRunner().invoke(main, ["drill", "orders", "--on-live"])
        assert live.exit_code == 2
        assert "it is run elsewhere, so it is not hurt here" in " ".join(live.output.split())
        assert not (tmp_path / ".headroom").exists()

    def test_cleanup_finds_nothing_of_it(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "headroom.toml").write_text(TOML)
        with base.opened(loading.load(tmp_path / "headroom.toml", environment={}), tmp_path / ".headroom"):
            pass
        done = CliRunner().invoke(main, ["cleanup", "--json"])
        assert done.exit_code == 0
        assert json.loads(done.output) == {"schema": 1, "ended": [], "deployments": [], "failures": []}

    def test_a_pin_is_a_recommendation_to_its_owner(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "headroom.toml").write_text(TOML)
        done = CliRunner().invoke(main, ["pin", "orders", "4", "--why", "sale tonight", "--no-wait"])
        assert done.exit_code == 0
        said = " ".join(done.output.split())
        assert "It runs outside Headroom: the pin is only shown as a recommendation." in said
        assert 'mode = "apply"' not in said


class Broker:
    """In place of the brokers' client: one topic, and nothing to write with."""

    def __init__(self, brokers):
        self.asked_of = brokers.bootstrap

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def topics(self):
        return {"in": 1}

    def starts(self, topics):
        return {("in", 0): 0}

    def ends(self, topics):
        return {("in", 0): 1_000}

    def committed(self, group, topics):
        return {}


class TestLocal:
    """Real adapters and a checkpoint on the disk; no JVM, and a broker that is made up."""

    TEXT = """
[brokers]
bootstrap = "kafka:9092"
[job.orders]
attach = true
executors = 4
checkpoint = "CHECKPOINT"
inputs = {events = "in"}
"""

    @pytest.fixture
    def found(self, tmp_path, monkeypatch):
        monkeypatch.setattr(kafka_broker, "KafkaBroker", Broker)
        return loading.parse(self.TEXT.replace("CHECKPOINT", str(tmp_path / "theirs")), environment={})

    def test_it_is_watched_by_its_checkpoint_and_no_spark_is_started(self, found, tmp_path):
        for part, text in (("offsets", 'v1\n{}\n{"in": {"0": 900}}'), ("commits", "v1\n{}")):
            (tmp_path / "theirs" / part).mkdir(parents=True)
            (tmp_path / "theirs" / part / "7").write_text(text)
        said = []
        with base.opened(found, tmp_path / "h", say=said.append) as there:
            assert there.owner.running() == ()
            assert there.deployments.status("orders").state == "unknown", "nobody has looked"
            sample = there.metrics.sample("orders")
            assert (sample.lag_records, sample.last_batch) == (100, 7)
            status = there.deployments.status("orders")
            assert (status.state, status.declared_scale_out) == ("running", 4)
            with pytest.raises(Unsafe, match="not hurt here"):
                there.failures.inject("orders", "driver_kill")
        assert said == []

    def test_a_server_evaluates_it_and_tells_what_is_missing(self, found, tmp_path):
        with (
            base.opened(found, tmp_path / "h") as there,
            InProcessServer(there, found, tmp_path / "h") as server,
        ):
            evaluation = server.evaluate("orders")
        assert evaluation["attached"] is True
        assert evaluation["instruction"]["do"] == "hold"
        assert evaluation["apply"] is None

    def test_one_that_was_launched_here_is_not_taken_for_somebody_else_s(self, found, tmp_path):
        plan = Plan("orders", "orders", "live", Function("a:b"), 1, {"in": "in"}, {}, "/theirs/orders")
        records = Records(tmp_path / "h" / "deployments")
        records.save(Record(plan))
        refused = pytest.raises(Unsafe, match=r"^job\.orders\.attach = true .*`headroom cleanup`")
        with refused, base.opened(found, tmp_path / "h"):
            pass
        records.change("orders", wanted="stopped")
        with base.opened(found, tmp_path / "h") as there:
            assert there.deployments.names() == ()
