"""`headroom drill`, `start`, `stop`, `check` and `cleanup`, as a user calls them; the world is simulated."""

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from command import headroom
from stand_ins import plan
from waiting import until

from pipelines.environments.local.records import Record, Records
from pipelines.integrations.stores.sqlite import SqliteStore
from pipelines.processes.owner import Owner
from pipelines.processes.processes import Ended, Process
from pipelines.serving import open_service
from pipelines.settings import loading
from profiling_jobs.orders import run_order

TOML = """
[deployment]
kind = "simulated"

[job.enrichment]
build = "profiling_jobs.jobs.enrichment:build"
inputs = {events = "orders"}
outputs = {results = "answers"}
max_offsets_per_trigger = 2000
scale_out = 2
events = "generator:enrichment"
recovery_target_s = 180
profile_budget_executor_s = 200000
"""
LIVE = TOML + "allow_live_drills = true\n"
pytestmark = pytest.mark.usefixtures("no_latency")


@contextmanager
def serving(project, toml=TOML):
    """A server that owns the folder, as `headroom serve` does."""
    (project / "headroom.toml").write_text(toml)
    settings = loading.parse(toml, environment={})
    with open_service(settings, file=project / "headroom.toml", folder=project / ".headroom") as service:
        yield service


class TestDrill:
    def test_a_drill_on_a_copy(self, project):
        result = headroom("drill", "enrichment", "--kind", "driver_kill", "--rate-rps", "600", "--json")
        assert result.exit_code == 0, result.output
        (drill,) = json.loads(result.stdout)["drills"]
        assert (drill["kind"], drill["scale_out"], drill["kept"]) == ("driver_kill", 2, True)
        assert 0 < drill["downtime_s"] <= drill["recovery_s"] < 180
        assert drill["details"]["recorded"]["spark.network.timeout"] == "20s"
        with SqliteStore(project / ".headroom" / "headroom.sqlite") as store:
            assert [event.kind for event, _ in store.events("enrichment")] == ["driver_kill"]

    def test_a_promise_that_is_not_kept_is_exit_code_1(self, project):
        (project / "headroom.toml").write_text(TOML.replace("= 180", "= 5\nmax_lag_s = 60"))
        result = headroom("drill", "enrichment", "--kind", "driver_kill", "--rate-rps", "600")
        assert result.exit_code == 1
        assert "recovered after" in result.output

    def test_a_mistake_is_one_sentence_and_exit_code_2(self, project):
        for arguments, said in (
            ("nobody", "there is enrichment"),
            ("enrichment --on-live", "job.enrichment.allow_live_drills"),
            ("enrichment", "--rate-rps"),
            ("enrichment --kind node_loss --rate-rps 500", "cannot be injected here"),
            ("enrichment --rate-rps 500 --budget-executor-s 10", "not enough for one drill"),
            ("enrichment --rate-rps 500 --budget-executor-s 0", "--budget-executor-s"),
            ("enrichment --rate-rps 500 --scale-out 99", "spark.slots"),
            ("enrichment --file absent.toml", "absent.toml"),
        ):
            result = headroom("drill", *arguments.split())
            assert result.exit_code == 2, result.output
            assert said in result.output
            assert "Traceback" not in result.output

    def test_an_owner_that_takes_no_orders_is_named(self, project):
        with Owner(project / ".headroom", command="headroom cleanup"):
            result = headroom("drill", "enrichment", "--rate-rps", "500")
        assert result.exit_code == 2
        assert "(headroom cleanup), which takes no orders" in result.output

    @pytest.mark.parametrize(
        ("more", "said"),
        [
            ("", "no server runs for .headroom: start it with `headroom serve`"),
            ('blackouts = ["daily 00:00-24:00"]\n', "is in the blackout daily 00:00-24:00"),
        ],
    )
    def test_the_live_job_is_drilled_by_its_owner_alone_and_in_no_blackout(self, project, more, said):
        (project / "headroom.toml").write_text(LIVE + more)
        result = headroom("drill", "enrichment", "--on-live")
        assert (result.exit_code, said in result.output) == (2, True)


class TestWithAServer:
    def test_the_owner_drills_a_copy_and_its_lines_are_told(self, project):
        with serving(project) as service:
            result = headroom("drill", "enrichment", "--kind", "driver_kill", "--rate-rps", "600", "--json")
            (order,) = service.server.status()["orders"]
        assert result.exit_code == 0, result.output
        assert (order["what"], order["state"]) == ("drill", "done")
        (drill,) = json.loads(result.stdout)["drills"]
        assert (drill["kind"], drill["kept"]) == ("driver_kill", True)
        run, *steps, last = result.stderr.splitlines()
        assert run.startswith("drill of enrichment: run ")
        assert (steps[0], last) == ("1 drill on a copy of enrichment", drill["said"])
        for step in ("gets ready", "undisturbed for", "driver_kill caused", "it works again after"):
            assert any(step in line for line in steps), step

    def test_the_owner_drills_the_live_job_where_that_is_allowed(self, project):
        with serving(project, LIVE) as service:
            drill = ("drill", "enrichment", "--on-live", "--kind", "driver_kill")
            result = headroom(*drill, "--yes")
            assert result.exit_code == 2
            assert "does not run here: `headroom start enrichment` starts it" in result.output
            run_order(service.server, "launch", "enrichment")
            service.environment.flow("orders", 600.0)
            asked = headroom(*drill, "--kind", "broker_restart")
            assert asked.exit_code == 2
            assert "will hit the live job enrichment" in asked.output
            assert "broker_restart is not covered by its promise" in asked.output
            assert "add --yes" in asked.output
            assert service.server.status()["orders"][-1]["what"] == "launch"
            result = headroom(*drill, "--yes")
            ((event, details),) = service.environment.store.events("enrichment")
        assert result.exit_code == 0, result.output
        assert "driver_kill, 2 executors at 600 records/s: down" in result.stdout
        assert (event.kind, details["on"], details["deployment"]) == ("driver_kill", "live", "enrichment")

    def test_the_loop_says_that_the_job_is_drilled_and_learns_its_recovery_once(self, project):
        with serving(project, LIVE + 'mode = "apply"\nevaluation_interval_s = 20\n') as service:
            server = service.server
            run_order(server, "launch", "enrichment")
            service.environment.flow("orders", 600.0)
            id = server.begin("drill", "enrichment", live=True, kinds=["driver_kill"])
            seen = {}

            def ended():
                if service.environment.clock.now_s() // 20.0 not in seen:
                    now = server.evaluate("enrichment")
                    seen[now["interval"]] = now
                return server.order(id)["state"] != "running"

            until(ended, timeout_s=60.0)
            assert server.order(id)["state"] == "done", server.order(id)
            (drill,) = server.order(id)["result"]["drills"]
            lines = server.order(id)["lines"]
            for _ in range(6):
                with service.environment.hurried(), service.environment.taking_part():
                    service.environment.clock.sleep(20.0)
                after = server.evaluate("enrichment")
            ((event, _),) = service.environment.store.events("enrichment")
        drilled = [one for one in seen.values() if "drill" in one["orders"]]
        assert len(drilled) >= 3
        assert all(one["instruction"]["reason"].startswith("drill under way") for one in drilled)
        assert all(isinstance(one["observation"]["arrival_rps"], float) for one in drilled[1:])
        assert all(one["recovering"] is None for one in (*seen.values(), after))
        assert event.recovery_s == pytest.approx(drill["recovery_s"])
        assert any("undisturbed for 60 s" in line for line in lines)
        assert any("driver_kill caused" in line for line in lines)

    def test_ctrl_c_gives_it_up(self, project):
        with serving(project) as service:
            command = [sys.executable, "-c", "from pipelines.command_line import main; main()"]
            command += ["drill", "enrichment", "--rate-rps", "600", "--repeats", "200"]
            drill = subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, text=True)
            assert drill.stderr.readline().startswith("drill of enrichment: run ")
            assert drill.stderr.readline() == "400 drills on a copy of enrichment\n"
            time.sleep(0.1)  # what has said so waits for the order by then
            drill.send_signal(signal.SIGINT)
            _, said = drill.communicate(timeout=120)
            (order,) = service.server.status()["orders"]
            until(lambda: service.server.order(order["id"])["state"] != "running")
            assert service.server.order(order["id"])["state"] == "cancelled"
            assert service.environment.deployments.names() == service.environment.failures.active() == ()
        assert "the drill is cancelled: what was injected is cleared, and the copies are stopped" in said
        assert "Traceback" not in said
        assert drill.returncode == 130


class TestRecordProfileAndModel:
    @pytest.mark.long
    def test_from_a_running_job_to_models_in_charge(self, project):
        small = "profile_scale_outs = [1, 2]\nprobe_s = 30\nwarm_up_s = 10\nprofile_most_probes = 2\n"
        with serving(project, TOML + small) as service:
            run_order(service.server, "launch", "enrichment")
            service.environment.flow("orders", 600.0)
            recorded = headroom("record", "enrichment", "--json")
            assert recorded.exit_code == 0, recorded.output
            (topic,) = json.loads(recorded.stdout)["recordings"].values()
            assert topic["mean_rps"] == pytest.approx(600.0, rel=0.1)
            assert "recording orders for 120 s" in recorded.stderr
            profiled = headroom("profile", "enrichment", "--json")
            assert profiled.exit_code == 0, profiled.output
            known = json.loads(profiled.stdout)["capacity_rps"]
            assert known["2"]["mid"] > known["1"]["mid"] > 300.0
            orders = [one["what"] for one in service.server.status()["orders"]]
            assert orders == ["launch", "record", "profile"]
            fitted = headroom("model", "enrichment", "--kind", "capacity", "--json")
            assert fitted.exit_code == 0, fitted.output
            models = json.loads(fitted.stdout)["models"]
            assert all(one["in_charge"] == 1 for one in models.values())
            assert set(service.server.context.champions.champions("enrichment").versions) == {"capacity"}
            # Runs like any other: the pages show what they have materialised.
            import dagster as dg

            with dg.DagsterInstance.from_config(str(project / ".headroom" / "dagster")) as instance:
                key = dg.AssetKey("recording")
                assert instance.get_materialized_partitions(key) == {"enrichment"}
                jobs = sorted(run.job_name for run in instance.get_runs())
        assert jobs == ["model", "profile", "record"]

    def test_a_model_without_data_is_exit_code_1(self, project):
        result = headroom("model", "enrichment", "--kind", "capacity")
        assert result.exit_code == 1, result.output
        assert "capacity" in result.stdout

    def test_a_latency_that_nobody_bounds_may_be_unknown_and_its_line_says_why(self, project):
        result = headroom("model", "enrichment", "--kind", "latency")
        assert result.exit_code == 0, result.output
        assert "latency is read against utilisation, and capacity is unknown" in " ".join(
            result.stdout.split()
        )
        (project / "headroom.toml").write_text(TOML + "latency_bound_ms = 5000\n")
        assert headroom("model", "enrichment", "--kind", "latency").exit_code == 1

    def test_the_input_is_recorded_by_the_server_alone(self, project):
        result = headroom("record", "enrichment", "--json")
        assert result.exit_code == 2
        said = {"error": "no server runs for .headroom", "fix": "start it with `headroom serve`"}
        assert json.loads(result.stdout) == {"schema": 1, **said}


class TestStartAndStop:
    def test_one_job_is_stopped_and_started_and_the_other_left_alone(self, project):
        both = TOML + TOML.partition("[job.enrichment]")[2].replace("orders", "clicks").join(
            ["[job.other]", ""]
        ).replace("answers", "others")
        with serving(project, both) as service:
            started = headroom("start", "enrichment")
            assert (started.exit_code, started.stdout) == (0, "enrichment runs with 2 executors\n")
            assert "starting enrichment with 2 executors" in started.stderr
            assert headroom("start", "other", "--json").exit_code == 0
            again = headroom("start", "enrichment")
            assert (again.exit_code, again.stdout) == (0, "enrichment was running before\n")
            stopped = headroom("stop", "enrichment", "--json")
            said = {"schema": 1, "job": "enrichment", "stopped": True}
            assert (stopped.exit_code, json.loads(stopped.stdout)) == (0, said)
            assert service.environment.deployments.names() == ("other",)
            twice = headroom("stop", "enrichment")
            assert (twice.exit_code, twice.stdout) == (0, "enrichment did not run\n")
            assert headroom("start", "enrichment").stdout == "enrichment runs with 2 executors\n"

    @pytest.mark.parametrize("command", ["start", "stop"])
    def test_only_who_serves_can_do_it(self, project, command):
        result = headroom(command, "enrichment")
        assert result.exit_code == 2
        assert "no server runs for .headroom: start it with `headroom serve`" in result.output
        result = headroom(command, "enrichmint")
        assert result.exit_code == 2
        assert "did you mean enrichment?" in result.output

    @pytest.mark.parametrize(("command", "done"), [("start", "started"), ("stop", "stopped")])
    def test_an_attached_job_is_left_alone(self, project, command, done):
        with serving(project, TOML + "attach = true\nexecutors = 2\ncheckpoint = '/c'\n"):
            result = headroom(command, "enrichment")
        assert result.exit_code == 2
        assert f"it is run elsewhere, so it is not {done} here" in result.output


SCRIPT = 'script = "my_job.py"\nargs = ["{input_topic}", "{output_topic}", "{checkpoint}", "{brokers}"]'


@pytest.mark.fast
class TestCheck:
    def test_a_file_that_is_right(self, project):
        result = headroom("check")
        assert (result.exit_code, result.output) == (0, "headroom.toml is right: enrichment\n")

    def test_every_mistake_has_a_line_of_its_own(self, project):
        wrong = TOML.replace("scale_out = 2", "scale_out = 0\nmood = 1").replace('"simulated"', '"moon"')
        (project / "headroom.toml").write_text(wrong)
        result = headroom("check")
        assert result.exit_code == 1
        lines = result.output.splitlines()
        assert len(lines) == 3
        assert lines[0].startswith("headroom.toml: line 3: deployment.kind: must be one of simulated, local")
        said = json.loads(headroom("check", "--json").output)
        assert (said["right"], len(said["mistakes"]), said["mistakes"][0]["line"]) == (False, 3, 3)

    def test_a_trigger_of_the_script_that_is_not_declared(self, project):
        script = TOML.replace('build = "profiling_jobs.jobs.enrichment:build"', SCRIPT)
        (project / "headroom.toml").write_text(script)
        (project / "my_job.py").write_text('writer.trigger(processingTime="1 second").start()')
        result = headroom("check")
        assert result.exit_code == 1
        expected = "job.enrichment.trigger_s: is 0, but the query is triggered every 1 s → set it to 1"
        assert expected in result.output
        (project / "headroom.toml").write_text(script + "trigger_s = 1\n")
        assert headroom("check").exit_code == 0

    def test_what_is_not_toml_and_what_is_not_there(self, project):
        (project / "headroom.toml").write_text("[job.\n")
        assert headroom("check").exit_code == 1
        (project / "headroom.toml").unlink()
        assert headroom("check").exit_code == 2


class TestCleanup:
    def test_nothing_to_do(self, project):
        result = headroom("cleanup")
        assert (result.exit_code, result.output) == (0, "nothing was running\n")

    def test_what_a_killed_command_has_left_is_ended_also_when_frozen(self, project):
        killed = Owner(project / ".headroom").acquire()
        sleeper, frozen = (killed.start(role, ["sleep", "600"]) for role in ("sleeper", "frozen"))
        killed.release()
        frozen.signal(signal.SIGSTOP)
        result = headroom("cleanup", "--json")
        assert result.exit_code == 0, result.output
        ended = {row["pid"]: row["role"] for row in json.loads(result.output)["ended"]}
        assert (ended[sleeper.pid], ended[frozen.pid]) == ("sleeper", "frozen")
        assert (sleeper.alive, frozen.alive) == (False, False)

    def test_its_drivers_are_not_started_again(self, project):
        folder = project / ".headroom"
        Records(folder / "deployments").save(Record(plan()))
        result = headroom("cleanup")
        assert "orders: will not be started again" in result.output
        assert Records(folder / "deployments").known("orders").wanted == "stopped"

    def test_failures_that_nobody_has_cleared_are_forgotten_with_what_they_hit(self, project):
        cause = {"injection": {"kind": "executor_freeze", "deployment": "orders"}, "victims": []}
        noted = project / ".headroom" / "failures" / "1f.json"
        for arguments in ([], ["--json"]):
            noted.parent.mkdir(parents=True, exist_ok=True)
            noted.write_text(json.dumps(cause))
            result = headroom("cleanup", *arguments)
            assert result.exit_code == 0
            assert not noted.exists()
            if arguments:
                assert json.loads(result.output)["failures"] == ["executor_freeze of orders"]
            else:
                assert "executor_freeze of orders: over, what it hit has ended" in result.output

    def test_failures_are_kept_where_something_could_not_be_ended(self, project, monkeypatch):
        noted = project / ".headroom" / "failures" / "1f.json"
        noted.parent.mkdir(parents=True)
        noted.write_text("{}")
        survived = (Ended(Process(1, 2, "executor.orders"), "survived"),)
        monkeypatch.setattr("pipelines.processes.owner.cleanup", lambda folder, end_owner: survived)
        assert headroom("cleanup").exit_code == 1
        assert noted.exists()

    def test_a_record_of_another_version_is_one_sentence(self, project):
        folder = project / ".headroom" / "deployments" / "orders"
        folder.mkdir(parents=True)
        (folder / "deployment.json").write_text('{"schema": 2, "program": {}}')
        result = headroom("cleanup")
        assert result.exit_code == 2
        assert "orders/deployment.json was written by another version of Headroom" in result.stderr

    def test_a_folder_that_a_living_command_owns_is_left_alone(self, project):
        with Owner(project / ".headroom"):
            result = headroom("cleanup")
        assert result.exit_code == 2
        assert "is owned by process" in result.output
