"""Attached jobs in a simulated environment: what the server does and refuses."""

import json

import pytest
from command import headroom
from fake_broker import FakeBroker
from simulated_service import SIMULATED, opened
from stand_ins import plan

from models.errors import Misconfigured, Unsafe
from pipelines.environments import base
from pipelines.environments.local.records import Record, Records
from pipelines.integrations import kafka_broker
from pipelines.settings import loading
from profiling_jobs.orders import run_order

TOML = f"""{SIMULATED}
[job.orders]
attach = true
executors = 3
checkpoint = "/theirs/orders"
inputs = {{events = "in"}}
outputs = {{alerts = "out"}}
scale_out_max = 4
max_offsets_per_trigger = 2000
failure_kinds = ["driver_kill"]
probe_s = 60
warm_up_s = 10
profile_scale_outs = [1]
profile_budget_executor_s = 2000
"""
PROGRAM = 'build = "a:b"\n'


pytestmark = pytest.mark.usefixtures("no_latency")


@pytest.fixture
def service(request, tmp_path):
    with opened(tmp_path, TOML + getattr(request, "param", "")) as service:
        service.environment.flow("in", 700.0)
        yield service


@pytest.fixture
def live(service):
    """What really runs, behind the adapter for attached jobs."""
    return service.environment.deployments._ours.job("orders")


class TestWatched:
    def test_it_is_watched_without_being_started(self, service):
        service.passes(130.0)
        found = service.server.evaluate("orders")
        assert found["observation"]["arrival_rps"] == pytest.approx(700.0, rel=0.05)
        assert found["observation"]["lag_records"] < 20_000.0
        assert found["scale_out"] == 3
        assert found["apply"] is None
        assert json.loads(json.dumps(found)) == found
        assert "which needs its program: give job.orders" in found["decision"]["reason"]
        status = service.server.status()["jobs"]["orders"]
        assert (status["state"], status["declared_scale_out"], status["ours"]) == ("running", 3, False)
        assert "unknown" in status["executors_alive"]

    def test_its_input_can_be_recorded(self, service):
        done = run_order(service.server, "record", "orders", seconds=20)
        assert done["recordings"]["events"]["ended"] == "complete"


class TestHandsOff:
    @pytest.mark.parametrize("service", ["", PROGRAM], indirect=True, ids=["alone", "with its program"])
    def test_what_would_touch_it_is_refused(self, service, live):
        for what, details, said in (
            ("launch", {}, "not started here"),
            ("stop", {}, "not stopped here"),
            ("apply", {"epoch": 1, "to": 4}, "not rescaled here"),
            ("drill", {"live": True}, "not hurt here"),
        ):
            with pytest.raises(Unsafe, match=rf"^job\.orders\.attach = true: it is run elsewhere.* {said}"):
                service.server.begin(what, "orders", **details)
        assert (live.state in ("starting", "running"), live.declared) == (True, 3)


@pytest.mark.parametrize("service", [PROGRAM], indirect=True, ids=["with its program"])
class TestCopies:
    def test_a_copy_is_profiled_and_the_live_one_goes_on(self, service, live):
        service.passes(60.0)
        runs, before = live.runs, live.checkpoint.batch
        done = run_order(service.server, "profile", "orders")
        assert 600.0 < done["capacity_rps"]["1"]["mid"] < 900.0
        assert (live.runs, live.declared) == (runs, 3)
        assert live.checkpoint.batch > before, "it was not stopped meanwhile"
        assert service.environment.deployments.names() == ()

    def test_a_copy_is_drilled_at_the_size_that_its_owner_has_given_it(self, service, live):
        done = run_order(service.server, "drill", "orders", rates_rps=[500.0])
        (row,) = done["drills"]
        assert (row["kind"], row["scale_out"], row["kept"]) == ("driver_kill", 3, True)
        assert live.runs <= 1
        assert service.environment.failures.active() == ()


class TestCommands:
    def test_drill_says_why_not_before_it_starts_anything(self, project):
        done = headroom("drill", "orders")
        assert done.exit_code == 2
        assert "its program is not here: add `script` or `build`" in " ".join(done.output.split())
        live = headroom("drill", "orders", "--on-live")
        assert live.exit_code == 2
        assert "it is run elsewhere, so it is not hurt here" in " ".join(live.output.split())
        assert not (project / ".headroom").exists()

    def test_a_pin_is_a_recommendation_to_its_owner(self, project):
        done = headroom("pin", "orders", "4", "--why", "sale tonight", "--no-wait")
        assert done.exit_code == 0
        said = " ".join(done.output.split())
        assert "It runs outside Headroom: the pin is only shown as a recommendation." in said
        assert 'mode = "apply"' not in said


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
        monkeypatch.setattr(kafka_broker, "KafkaBroker", lambda brokers: FakeBroker({"in": [1_000]}))
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
            with pytest.raises(Misconfigured, match="there is no 'orders' here"):
                there.failures.inject("orders", "driver_kill")
        assert said == []

    def test_one_that_was_launched_here_is_not_taken_for_an_attached_one(self, found, tmp_path):
        records = Records(tmp_path / "h" / "deployments")
        records.save(Record(plan(checkpoint="/theirs/orders")))
        refused = pytest.raises(Unsafe, match=r"^job\.orders\.attach = true .*`headroom cleanup`")
        with refused, base.opened(found, tmp_path / "h"):
            pass
        records.change("orders", wanted="stopped")
        with base.opened(found, tmp_path / "h") as there:
            assert there.deployments.names() == ()
