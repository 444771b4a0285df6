"""`headroom doctor`, as a user calls it, on machines and folders in various conditions."""

import json
import os
import re
import socket
import time

import pytest
from command import headroom
from web_page import served

from models.quantities import RecoveryEvent
from pipelines.command_line import doctor as doctor_command
from pipelines.command_line.doctor import findings
from pipelines.command_line.doctor.findings import Finding, Surroundings, examined
from pipelines.command_line.doctor.folder import usage
from pipelines.command_line.doctor.jobs import attached
from pipelines.integrations.stores.sqlite import SqliteStore
from pipelines.processes.owner import Owner
from pipelines.settings import loading
from pipelines.settings.schema import Settings

SIMULATED = """
[deployment]
kind = "simulated"
"""
JOB = """
[job.orders]
build = "some.module:build"
inputs = {events = "orders"}
max_offsets_per_trigger = 2000
recovery_target_s = 60
"""
TOML = SIMULATED + JOB


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setattr(findings, "DEADLINE_S", 60.0)  # the machine may be busy


def doctor(*arguments):
    result = headroom("doctor", "--json", *arguments)
    data = json.loads(result.output)
    assert data["well"] == (result.exit_code == 0)
    return {one["what"]: one for one in reversed(data["findings"])}, result.exit_code


def test_a_healthy_machine_is_well_and_every_line_says_what_was_looked_at(project):
    found, code = doctor()
    assert code == 0, found
    assert {"settings", "Java", "clock", "disk", "folder", "owner", "leftovers", "brokers",
            "Spark", "MLflow", "store", "job orders"} <= set(found)  # fmt: skip
    assert found["job orders"]["found"].endswith("in the way of the 1 min promised")
    assert not (project / ".headroom").exists(), "looking must not make anything"


def test_it_fits_a_page(project):
    (project / "headroom.toml").write_text(JOB)
    done = headroom("doctor")
    assert done.exit_code in (0, 1)
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert "\x1b" not in done.stdout, "no colour into a pipe"


def test_one_warning_is_no_warnings(project, monkeypatch):
    one = {state: lambda _, state=state: [Finding("a", state, "x", "y")] for state in ("problem", "warning")}
    monkeypatch.setattr(doctor_command, "CHECKS", one)
    said = headroom("doctor")
    assert said.output.endswith("\n1 problem, 1 warning\n")


THEIRS = JOB.replace('build = "some.module:build"', 'attach = true\ncheckpoint = "/theirs"')
APPLIED = JOB + "mode = 'apply'\n"
SLOTS = "[spark]\nslots = "
SLOW = "[spark]\nnetwork_timeout_s = 120\n"
MLFLOW = '[mlflow]\ntracking_uri = "http://me:secret@127.0.0.1:9"\n'
CLUSTER = """
[deployment]
kind = "kubernetes"
[kubernetes]
context = "no-such-one"
[brokers]
bootstrap = "127.0.0.1:9"
"""
SASL = """[brokers]
bootstrap = "127.0.0.1:1"
security_protocol = "SASL_SSL"
sasl_mechanism = "PLAIN"
username_from = "NO_SUCH_USER"
password_from = "NO_SUCH_PASSWORD"
"""


@pytest.mark.parametrize(
    ("toml", "what", "state", "words"),
    [
        (JOB + "scale_out_mx = 4\n", "settings", "problem", "scale_out_mx|`headroom check` says it all"),
        (CLUSTER + JOB, "Kubernetes", "problem", "kubernetes.context: there is no"),
        (SLOTS + "8\n" + APPLIED, "Spark", "warning", "may be given 8 of 8 slots|spark.slots = 9 or more"),
        (SLOTS + "9\n" + APPLIED, "Spark", "ok", ""),
        (SIMULATED + THEIRS, "job orders", "warning", "job.orders.executors"),
        (SIMULATED + SLOW + JOB, "job orders", "problem", "120 s|60 s promised|spark.network_timeout_s = 15"),
        (SIMULATED + JOB + "trigger_s = 30\n", "job orders", "problem", "trigger_s is 30 s"),
        (SASL + JOB, "brokers", "problem", "NO_SUCH_USER is not set"),
        (MLFLOW + SIMULATED + JOB, "MLflow", "problem", "127.0.0.1:9 does not answer"),
    ],
)
def test_what_the_settings_show(project, toml, what, state, words):
    (project / "headroom.toml").write_text(toml)
    found, code = doctor()
    assert found[what]["state"] == state, found[what]
    assert code == 1 or state != "problem"
    said = f"{found[what]['found']} {found[what]['fix']}"
    assert all(word in said for word in words.split("|")), said
    assert "secret@" not in json.dumps(found)


def folder_mode(folder):
    folder.chmod(0o755)


def secret_mode(folder):
    (folder / "server.token").write_text("x")
    (folder / "server.token").chmod(0o644)


def damaged(folder):
    (folder / "headroom.sqlite").write_bytes(b"no database" * 1000)


def uncleared(folder):
    (folder / "failures").mkdir()
    injection = {"kind": "executor_freeze", "deployment": "orders"}
    note = {"schema": 1, "injection": injection, "victims": []}
    (folder / "failures" / "x.json").write_text(json.dumps(note))


class TestAttached:
    """Jobs that another system runs."""

    def told(self, job, folder, *, real=True):
        text = ("" if real else SIMULATED) + job.replace("/theirs", str(folder))
        found = loading.parse(text, environment={})
        return attached("orders", found.jobs["orders"], Surroundings(found, folder / "h.toml", folder, 0.0))

    def test_what_is_missing_comes_with_its_fix(self, tmp_path):
        found = self.told(THEIRS, tmp_path / "none")
        said = [(one.state, one.found) for one in found]
        assert [state for state, _ in said] == ["warning", "warning", "warning", "problem"]
        assert said[0][1].startswith("job.orders.executors is not set")
        assert said[1][1].startswith("its program is not here")
        assert "brokers.bootstrap is not set" in said[2][1]
        assert "is not there" in said[3][1]
        assert all(one.fix for one in found)
        grouped = self.told(THEIRS + 'consumer_group = "done"\n', tmp_path / "none")
        assert [one.state for one in grouped] == ["warning"] * 3, "then its group tells how far it is"
        made_up = self.told(THEIRS, tmp_path / "none", real=False)
        assert len(made_up) == 2, "a made-up owner has no checkpoint"

    def test_one_that_can_be_watched_and_profiled_is_well(self, tmp_path):
        for part in ("offsets", "commits"):
            (tmp_path / part).mkdir()
        (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"orders": {"0": 7}}')
        (tmp_path / "commits" / "0").write_text("v1\n{}")
        whole = THEIRS + 'build = "a:b"\nexecutors = 4\n[brokers]\nbootstrap = "kafka:9092"\n'
        assert self.told(whole, tmp_path) == []


def test_a_measured_downtime_beyond_the_target_is_told(project):
    with SqliteStore(project / ".headroom" / "headroom.sqlite") as store:
        for at_s, downtime_s in ((1e9, 70.0), (2e9, 95.0)):
            event = RecoveryEvent("driver_kill", 2, at_s, downtime_s, 300.0)
            store.add_event("orders", event, details={})
    found, code = doctor()
    assert code == 1
    assert "95 s or more: longer than the 60 s promised" in found["job orders"]["found"]


class TestFolder:
    @pytest.mark.parametrize(
        ("spoil", "what", "words"),
        [
            (folder_mode, "folder", "chmod 700 .headroom"),
            (secret_mode, "folder", "chmod 600 .headroom/server.token"),
            (damaged, "store", "damaged|restore a copy, or move it aside"),
            (uncleared, "leftovers", "executor_freeze of orders"),
        ],
    )
    def test_what_is_wrong_in_it(self, project, spoil, what, words):
        (project / ".headroom").mkdir(mode=0o700)
        spoil(project / ".headroom")
        found, code = doctor()
        assert (code, found[what]["state"]) == (1, "problem")
        said = f"{found[what]['found']} {found[what]['fix']}"
        assert all(word in said for word in words.split("|")), said

    def test_who_uses_how_much_of_the_disk(self, project):
        folder = project / ".headroom"
        for file, size in (
            ("headroom.sqlite", 1_000_000),
            ("headroom.sqlite-wal", 2_000_000),
            ("mlflow-artifacts/orders/model", 5_000_000),
            ("mlflow.lock", 0),
            ("dagster/history/runs/index.db", 1_500_000),
            ("logs/kafka.log", 40_000),
        ):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(bytes(range(250)) * (size // 250))
        with (folder / "logs" / "sparse.index").open("wb") as sparse:
            sparse.truncate(100_000_000)
        # Alone: the check of the store opens the same files, and SQLite deletes a log that it cannot use.
        (found,) = usage(Surroundings(Settings(), project / "headroom.toml", folder, 0.0))
        said = found.found
        assert found.state == "ok"
        parts = re.findall(r"(\w+) ([\d.]+) MB[,;]", said)
        assert [name for name, _ in parts] == ["mlflow", "store", "dagster", "rest"]
        sizes = [float(size) for _, size in parts]
        assert sizes == pytest.approx([5.0, 3.0, 1.5, 0.04], abs=0.1)
        assert re.search(r"; [\d.,]+ [GM]B are free$", said)

    def test_a_file_in_the_way_of_the_folder(self, project):
        (project / "file").write_text("in the way")
        found, code = doctor("--folder", "file/under/.headroom")
        assert (code, found["folder"]["state"]) == (1, "problem")
        assert found["folder"]["found"].endswith("file is a file")

    def test_an_owner_that_runs_and_the_note_of_one_that_has_gone(self, project):
        owner = Owner(project / ".headroom", command="headroom serve").acquire()
        found, _ = doctor()
        assert found["owner"]["found"].startswith(f"headroom serve, process {os.getpid()}")
        owner.release()
        note = project / ".headroom" / "owner.lock"
        note.write_text(json.dumps(json.loads(note.read_text()) | {"started_ticks": 1}))
        found, code = doctor()
        assert (code, found["owner"]["state"]) == (0, "ok")
        assert found["owner"]["found"] == "no server runs here"

    def test_what_a_killed_run_has_left(self, project):
        owner = Owner(project / ".headroom").acquire()
        child = owner.start("spark-worker", ["sleep", "60"])
        note = project / ".headroom" / "owner.lock"
        owner.release()
        note.write_text("")
        try:
            found, code = doctor()
        finally:
            child.signal(9)
        assert (code, found["leftovers"]["fix"]) == (1, "`headroom cleanup` ends them")
        assert f"spark-worker ({child.pid})" in found["leftovers"]["found"]

    def test_an_owner_that_does_not_evaluate(self, project):
        with Owner(project / ".headroom", command="headroom serve"):
            with SqliteStore(project / ".headroom" / "headroom.sqlite") as store:
                store.record_evaluation("orders", interval=1, at_s=time.time() - 3600, evaluation={})
            found, code = doctor()
        assert code == 1
        assert "orders was evaluated last 1 h" in found["store"]["found"]


class TestMachine:
    def test_no_java(self, project, monkeypatch):
        (project / "headroom.toml").write_text(JOB)
        monkeypatch.setenv("JAVA_HOME", str(project))
        monkeypatch.setenv("PATH", str(project))
        found, code = doctor()
        assert (code, found["Java"]["state"]) == (1, "problem")
        assert "install" in found["Java"]["fix"]


class TestServices:
    def test_brokers_that_do_not_listen(self, project):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            (project / "headroom.toml").write_text(f'[brokers]\nbootstrap = "127.0.0.1:{port}"\n' + JOB)
            found, code = doctor()
        assert (code, found["brokers"]["state"]) == (1, "problem")
        assert found["brokers"]["found"] == f"nothing listens on 127.0.0.1:{port}"

    @pytest.mark.parametrize(("status", "state"), [(200, "ok"), (404, "problem"), (401, "warning")])
    def test_an_mlflow_server(self, project, status, state):
        with served(status) as uri:
            (project / "headroom.toml").write_text(f'[mlflow]\ntracking_uri = "{uri}"\n' + SIMULATED + JOB)
            found, _ = doctor()
        assert found["MLflow"]["state"] == state


def test_a_check_that_breaks_or_hangs_does_not_hide_the_others(project):
    def broken(patient):
        raise RuntimeError("oh")

    around = Surroundings(Settings(), project / "headroom.toml", project, 0.0)
    fine, hangs = (lambda p: [Finding("b", "ok", "fine")]), (lambda p: time.sleep(5) or [])
    found = examined(around, {"a": broken, "b": fine, "c": hangs}, deadline_s=0.3)
    assert [(one.what, one.state) for one in found] == [("a", "warning"), ("b", "ok"), ("c", "warning")]
    assert "did not answer within 0.3 s" in found[2].found
