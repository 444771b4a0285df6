"""The five stages as Dagster sees them, and each of them at work in a simulated world."""

import time
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from simulated_service import ORDERS
from temporary_store import TemporaryStore

from models.quantities import Unknown
from models.simulation import sampling
from pipelines.definitions import built
from pipelines.environments import base
from pipelines.orchestration.resources import RefusingIOManager
from pipelines.server.client import Client
from pipelines.server.in_process import InProcessServer
from pipelines.settings import loading, time_windows
from profiling_jobs.orders import run_order

ROOT = Path(__file__).parents[2]
TOML = f"""{ORDERS}
scale_out = 2
scale_out_max = 4
probe_s = 30
profile_scale_outs = [1, 2]
profile_budget_executor_s = 600
failure_kinds = ["executor_kill"]
profile_cron = "0 3 * * Sun"
"""


def definitions(tmp_path, text=TOML):
    if text is not None:
        (tmp_path / "headroom.toml").write_text(text)
    return built(tmp_path / "headroom.toml", tmp_path / ".headroom", environment={})


def graph(defs):
    return {
        spec.key.to_user_string(): (spec.group_name, {dep.asset_key.to_user_string() for dep in spec.deps})
        for spec in defs.resolve_all_asset_specs()
    }


class TestGraph:
    @staticmethod
    def skipped(found, *, server):
        """Why a tick has started nothing."""
        sensor = next(one for one in found.sensors if one.name == "optimization_sensor")
        around = {"server": server, "store": TemporaryStore()}
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_sensor_context(instance=instance, resources=around)
            return sensor(context).skip_reason.skip_message

    def test_five_stages_lead_from_the_input_to_what_runs(self, tmp_path):
        found = graph(definitions(tmp_path))
        assert {group for group, _ in found.values()} == {"record", "profile", "model", "decide", "apply"}
        assert found["recording"] == ("record", {"input_topics"})
        assert found["workload_history"] == ("record", {"input_topics", "recording"})
        assert found["profiling_points"] == ("profile", {"recording"})
        assert found["failure_drills"] == ("profile", {"recording"})
        models = {"workload_model", "capacity_model", "latency_model", "recovery_model"}
        assert found["decision"] == ("decide", models)
        assert found["scale_out"] == ("apply", {"decision"})
        assert found["running_query"] == ("apply", {"scale_out"})

    def test_everything_that_can_be_launched_is_there(self, tmp_path):
        found = definitions(tmp_path)
        dg.Definitions.validate_loadable(found)
        jobs = {job.name for job in found.resolve_all_job_defs()}
        assert {"optimization", "profile", "record", "drill", "model"} <= jobs
        assert {schedule.name for schedule in found.schedules} == {"profile_orders"}
        assert all(s.default_status == dg.DefaultSensorStatus.RUNNING for s in found.sensors)
        for one in (*found.sensors, *found.schedules):
            assert one.description
            assert "`" not in one.description, "Dagster shows it as plain text"

    def test_the_checks_of_decision_are_there_and_a_change_of_the_size_waits_for_none(self, tmp_path):
        found = definitions(tmp_path)
        keys = {key.to_user_string() for key in found.resolve_asset_graph().asset_check_keys}
        assert {"decision:promise_kept", "decision:freshness"} <= keys
        assert "decision_checks" in {one.name for one in found.sensors}
        nodes = {node.name for node in found.resolve_job_def("optimization").nodes}
        assert nodes == {"decision", "scale_out"}

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            (None, "there is no such file"),
            ("[job.orders]\nmode = 'sometimes'", "mode"),
            ("[job", "is not valid TOML"),
            ('[job.orders]\nbuild = "a:b"\ninputs = {e = "t"}\nprofile_cron = "whenever"', "profile_cron"),
        ],
    )
    def test_wrong_settings_leave_the_stages_and_say_what_is_wrong(self, tmp_path, text, told):
        found = definitions(tmp_path, text)
        dg.Definitions.validate_loadable(found)
        assert "decision" in graph(found)
        reason = self.skipped(found, server=None)
        assert told in reason
        assert "reload this code location" in reason
        assert told in str(found.metadata["problem"])

    def test_a_schedule_that_dagster_refuses_is_left_out_and_jobs_are_evaluated(self, tmp_path, monkeypatch):
        monkeypatch.setattr(time_windows, "cron_problem", lambda line: "")
        found = definitions(tmp_path, TOML + 'drill_cron = "0 4 30 2 *"\n')
        dg.Definitions.validate_loadable(found)
        assert {schedule.name for schedule in found.schedules} == {"profile_orders"}
        assert "job.orders.drill_cron: no drill comes round" in str(found.metadata["problem"])
        reason = self.skipped(found, server=Client(tmp_path / ".headroom"))
        assert reason.startswith("orders was not evaluated: ")

    def test_no_job_yet_is_not_wrong(self, tmp_path):
        found = definitions(tmp_path, "")
        dg.Definitions.validate_loadable(found)
        assert "none" in str(found.metadata["problem"])


@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")  # Dagster, of itself
class TestAutomation:
    """Models are fitted when there is something new, and once per search."""

    @pytest.fixture
    def instance(self):
        with dg.DagsterInstance.ephemeral() as found:
            found.add_dynamic_partitions("points", ["orders/e1/r700", "orders/e2/r900"])
            yield found

    def test_capacity_is_fitted_once_all_points_of_a_search_are_there(self, tmp_path, instance):
        defs, cursor = definitions(tmp_path), None
        wanted = []
        for key in (None, "orders/e1/r700", "orders/e2/r900", None):
            if key:
                made = dg.AssetMaterialization("profiling_points", partition=key)
                instance.report_runless_asset_event(made)
            found = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=cursor)
            cursor = found.cursor
            wanted.append(set(found.get_requested_partitions(dg.AssetKey("capacity_model"))))
        assert wanted == [set(), set(), {"orders"}, set()]

    def test_a_drill_and_new_arrivals_are_news_for_their_models(self, tmp_path, instance):
        defs = definitions(tmp_path)
        first = dg.evaluate_automation_conditions(defs=defs, instance=instance)
        for asset in ("failure_drills", "workload_history"):
            instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition="orders"))
        found = dg.evaluate_automation_conditions(defs=defs, instance=instance, cursor=first.cursor)
        for model in ("recovery_model", "workload_model"):
            assert set(found.get_requested_partitions(dg.AssetKey(model))) == {"orders"}


def test_no_value_of_an_asset_is_kept_nor_read():
    @dg.asset
    def before():
        return dg.MaterializeResult()

    @dg.asset
    def after(before):
        return dg.MaterializeResult()

    @dg.asset
    def careless():
        return 3

    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [before, after, careless],
            resources={"io_manager": RefusingIOManager()},
            instance=instance,
            raise_on_error=False,
        )
    failed = {event.step_key: event.step_failure_data for event in done.all_events if event.is_step_failure}
    assert set(failed) == {"after", "careless"}
    assert "nothing is pickled here" in str(failed["careless"].user_failure_data.description)


def failure(done):
    """What the first step that has failed says."""
    failed = next(event for event in done.all_events if event.is_step_failure)
    return failed.step_failure_data.user_failure_data.description


class Service:
    """The definitions of a simulated world whose owner sits at the server."""

    def __init__(self, there, server, defs, instance):
        self.environment, self.server, self.instance = there, server, instance
        self.resources = {**defs.resources, "server": server, "store": there.store}
        self.assets = [one for one in defs.assets if isinstance(one, dg.AssetsDefinition)]
        self.defs = dg.Definitions(
            assets=defs.assets, jobs=defs.jobs, resources=self.resources, executor=dg.in_process_executor
        )

    def materialised(self, asset, partition="orders", **config):
        done = dg.materialize(
            self.assets,
            selection=[asset],
            partition_key=partition,
            instance=self.instance,
            resources=self.resources,
            run_config={"ops": {asset: {"config": config}}} if config else None,
            raise_on_error=False,
        )
        if not done.success:
            return done, failure(done)
        (made, *_) = done.asset_materializations_for_node(asset)
        return done, {name: one.value for name, one in made.metadata.items()}

    def logged(self, done):
        return "\n".join(one.message for one in self.instance.all_logs(done.run_id) if one.message)

    def launched(self, job, partition="orders"):
        return self.defs.resolve_job_def(job).execute_in_process(
            partition_key=partition, instance=self.instance, raise_on_error=False
        )


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """One for all stages: a Dagster instance takes seconds."""
    tmp_path = tmp_path_factory.mktemp("service")
    none = Unknown("left out")  # nine tenths of the twin's time
    settings = loading.parse(TOML, environment={})
    with (
        pytest.MonkeyPatch.context() as patch,
        # At a bounded pace: a twin that computes as fast as it can leaves Dagster's thread no processor.
        base.opened(settings, tmp_path / ".headroom", since_s=time.time()) as there,
        InProcessServer(there, settings, tmp_path / ".headroom") as server,
        dg.DagsterInstance.ephemeral() as instance,
    ):
        patch.setattr(sampling, "_p95_ms", lambda *arguments: none)
        run_order(server, "launch", "orders")
        there.flow("in", 700.0)
        yield Service(there, server, definitions(tmp_path), instance)


class TestStages:
    def test_the_input_is_recorded(self, service):
        done, found = service.materialised("recording", seconds=20.0)
        assert found["records"] == pytest.approx(14_000, rel=0.01)
        assert found["mean_arrival_rps"] == pytest.approx(700.0, rel=0.01)
        assert "records of in" in service.logged(done)

    def test_what_a_recording_takes_on_the_disk_can_be_bounded(self, service):
        done, found = service.materialised("recording", seconds=20.0, max_bytes=1)
        assert (done.success, found["records"]) == (True, 0)
        assert "it ended at the size limit" in service.logged(done)

    def test_a_decision_has_its_figures_and_its_table(self, service):
        _, found = service.materialised("decision")
        assert found["said"].startswith("2 executors held, no decision")
        assert found["scale_out"] == 2
        assert found["recovery_target_s"] == 180.0
        assert found["timeline"].startswith("![the decisions of orders](data:image/png;base64,")
        assert found["sizes"].startswith("| executors | verdict |")

    def test_optimization_launched_by_hand_changes_nothing_that_need_not_change(self, service):
        done = service.launched("optimization")
        assert done.success
        (made,) = done.asset_materializations_for_node("scale_out")
        assert (made.metadata["did"].value, made.metadata["scale_out"].value) == ("nothing", 2)

    def test_a_search_that_is_ended_leaves_missing_what_it_had_asked_for(self, service, monkeypatch):
        def cut_short(server, what, job, /, *, say, seen, **details):
            def look(order):
                seen(order)
                if any(line.startswith("probe 0") for line in order["lines"]):
                    raise DagsterExecutionInterruptedError  # as where a run is terminated

            return run_order(server, what, job, say=say, seen=look, **details)

        monkeypatch.setattr("assets.orders.run_order", cut_short)
        assert not service.launched("profile").success
        asked = set(service.instance.get_dynamic_partitions("points"))
        assert asked - service.instance.get_materialized_partitions(dg.AssetKey("profiling_points"))
        while any(order["state"] == "running" for order in service.server.status()["orders"]):
            time.sleep(0.05)
        assert service.server.status()["orders"][-1]["state"] == "cancelled"

    def test_the_next_search_adds_its_points_and_tells_what_it_has_measured(self, service):
        assert service.launched("profile").success
        points = service.instance.get_dynamic_partitions("points")
        assert {key.split("/r")[0] for key in points} == {"orders/e1", "orders/e2"}
        key = dg.AssetKey("profiling_points")
        assert service.instance.get_materialized_partitions(key) == set(points), "nothing is left missing"
        kept = {f"e{one.scale_out}" for _, _, one in service.environment.store.measurements("orders")}
        assert kept == {"e1", "e2"}
        record = service.instance.fetch_materializations(key, limit=1).records[0]
        assert record.run_id == "", "it needs no run of its own"
        assert record.asset_materialization.metadata["throughput_rps"].value > 100.0

        again = max(points)
        before = len(service.environment.store.measurements("orders"))
        done, found = service.materialised("profiling_points", again)
        assert found["verdict"] in ("sustained", "not sustained")
        assert found["scale_out"] == int(again.split("/")[1][1:])
        assert len(service.environment.store.measurements("orders")) in (before, before + 1)
        order = service.instance.get_run_by_id(done.run_id).tags["headroom/order"]
        assert service.server.order(order)["details"] == {
            "scale_out": found["scale_out"],
            "rate_rps": float(again.split("/r")[1]),
        }

    def test_a_drill_shows_what_a_failure_costs(self, service):
        _, found = service.materialised("failure_drills", scale_outs=[2], rates_rps=[400.0])
        assert (found["drills"], found["valid_drills"], found["kept"]) == (1, 1, True)
        assert 0.0 < found["downtime_s"] <= found["recovery_s"] < 180.0
        assert "| executor_kill | 2 | 400 |" in found["each"]

    def test_what_the_owner_refuses_is_one_sentence(self, service):
        done, said = service.materialised("failure_drills", live=True)
        assert not done.success
        assert said.startswith("job.orders.allow_live_drills is false")

    def test_a_key_that_names_no_point_is_told(self, service):
        service.instance.add_dynamic_partitions("points", ["orders/4x"])
        _, said = service.materialised("profiling_points", "orders/4x")
        assert "for example orders/e4/r30000" in said


def test_without_an_owner_a_run_says_what_to_start(tmp_path):
    defs = definitions(tmp_path)
    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_job_def("optimization")
        done = job.execute_in_process(partition_key="orders", instance=instance, raise_on_error=False)
    assert "headroom serve" in failure(done)


def test_dagster_accepts_what_dagster_yaml_says(tmp_path):
    (tmp_path / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.telemetry_enabled is False
        assert instance.nux_enabled is False
        assert instance.run_monitoring_enabled
        pools = instance.get_concurrency_config().pool_config
        assert (pools.default_pool_limit, pools.pool_granularity.value) == (1, "run")
