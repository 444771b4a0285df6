"""`headroom serve` as a user runs it: pages and orders are answered, and nothing is left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from command import headroom
from fake_broker import FakeBroker
from stand_ins import plan
from temporary_store import TemporaryStore
from waiting import until

from models import codec
from models.errors import NotReady
from pipelines.command_line import serve
from pipelines.environments import base
from pipelines.environments.local import driver_watch, drivers
from pipelines.environments.local.records import Record, Records
from pipelines.integrations import kafka_broker, spark
from pipelines.integrations.mlflow_registry import MlflowRegistry
from pipelines.integrations.stores.opening import STORE
from pipelines.integrations.stores.sqlite import SqliteStore
from pipelines.orchestration import retention
from pipelines.orchestration.pages import Pages
from pipelines.processes import logs, owner
from pipelines.processes.owner import Owner, cleanup, holder, owner_id
from pipelines.processes.processes import marked
from pipelines.server.client import Client
from pipelines.serving import open_service
from pipelines.settings import job_plans, loading
from pipelines.web.access import read_token
from profiling_jobs.driver.launch_file import write_json
from profiling_jobs.experiments.copies import Copies
from profiling_jobs.orders import run_order
from profiling_jobs.recording.recorded import Slice, slice_file
from profiling_jobs.training import workload_history
from profiling_jobs.training.champions import Champions
from profiling_jobs.training.promoting import TrainingContext, refit
from profiling_jobs.training.training_data import Purpose

TOML = """
[deployment]
kind = "simulated"
[job.orders]
build = "a:b"
inputs = {events = "in"}
outputs = {alerts = "out"}
scale_out = 2
evaluation_interval_s = 10
"""
SILENT_S = 600.0  # more than the 240 s that its pages may take to start


class Serve:
    """The command in a process of its own."""

    def __init__(self, project, *options, before=""):
        """`before`: a statement that it runs first."""
        self.folder = project / ".headroom"
        program = f"{before}; from pipelines.command_line import main; main()".lstrip("; ")
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--json", *options],
            cwd=project,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.end(signal.SIGTERM)

    @contextmanager
    def within(self, seconds):
        """It is killed where it says nothing for so long."""
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def line(self):
        """Its one line of JSON."""
        with self.within(SILENT_S):
            line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def says(self, begin):
        """Its next line for people that begins so."""
        with self.within(SILENT_S):
            return next(line.rstrip() for line in self.process.stderr if line.startswith(begin))

    def end(self, number, *, within_s=180.0):
        self.process.send_signal(number)
        try:
            _, self.said = self.process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode

    def got(self, address, *, body=None, token=True):
        """A page, asked for with the token of this server."""
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {read_token(self.folder)}"
        request = urllib.request.Request(address, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=60.0) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read()

    def query(self, dagster, text):
        """What Dagster answers; nothing while it starts or is away."""
        status, body = self.got(f"{dagster}/graphql", body=json.dumps({"query": text}).encode())
        return json.loads(body)["data"] if status == 200 else {}


def listening(folder):
    """The ports of all processes of this folder, but for the one that owns it."""
    found = set()
    for process in marked(owner_id(folder)):
        with suppress(psutil.NoSuchProcess):
            for one in psutil.Process(process.pid).net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:
                    found.add(f"http://{one.laddr.ip}:{one.laddr.port}")
    return found


def open_to_others(folder):
    """The Unix sockets of these processes that other users of the machine could reach."""
    found = set()
    for process in marked(owner_id(folder)):
        with suppress(psutil.NoSuchProcess):
            sockets = psutil.Process(process.pid).net_connections("unix")
            paths = [path for one in sockets if one.laddr and (path := Path(one.laddr)).exists()]
            found |= {path for path in paths if path.stat().st_mode & path.parent.stat().st_mode & 0o077}
    return found


def left(folder):
    return [process.command for process in marked(owner_id(folder))]


@pytest.mark.long
def test_pages_come_back_after_what_goes_wrong_and_sigterm_ends_everything(project):
    """One start of Dagster and MLflow for all of it: each takes seconds."""
    database = project / ".headroom" / "mlflow.sqlite"
    database.parent.mkdir()
    database.write_bytes(b"no database" * 100)
    patched = "from pipelines.orchestration import pages; pages.UNANSWERED_S, pages.LOOK_EVERY_S = 30.0, 1.0"
    with Serve(project, "--launch-all", "--print-url", before=patched) as serve:
        found = serve.line()
        pages, dagster = found["pages"], found["dagster"]
        assert found["url"] == f"{pages}/?token={read_token(serve.folder)}"
        assert (dagster, found["pid"]) == (f"{pages}/dagster", serve.process.pid)

        # Without MLflow the jobs are evaluated, and it comes back.
        assert serve.got(f"{dagster}/server_info")[0] == 200
        assert "mlflow" not in found
        status, body = serve.got(f"{pages}/mlflow/")
        assert (status, b"MLflow is starting or away" in body) == (503, True)
        assert "damaged or no database: move it aside" in serve.says("without MLflow's pages")
        job = Client(serve.folder).status()["jobs"]["orders"]
        assert (job["state"], job["declared_scale_out"]) == ("running", 2)
        database.rename(database.with_suffix(".aside"))
        assert serve.says("MLflow:").split()[-1] == f"{pages}/mlflow"
        assert serve.got(f"{pages}/mlflow/health") == (200, b"OK")

        # Nobody reaches anything without the token.
        assert listening(serve.folder) == {pages}
        assert open_to_others(serve.folder) == set()
        for page in ("", "/dagster/", "/dagster/server_info", "/mlflow/", "/mlflow/health"):
            assert serve.got(f"{pages}{page}", token=False)[0] == 401
        assert b"orders" in serve.got(f"{pages}/")[1]

        nodes_of = "nodes { assetNodes { assetKey { path } } }"
        loaded = f"{{ repositoriesOrError {{ ... on RepositoryConnection {{ {nodes_of} }} }} }}"
        nodes = []

        def has_loaded():
            nodes[:] = serve.query(dagster, loaded).get("repositoriesOrError", {}).get("nodes") or []
            return nodes

        until(has_loaded, timeout_s=SILENT_S, every_s=0.5)
        assets = {tuple(one["assetKey"]["path"]) for one in nodes[0]["assetNodes"]}
        assert {("recording",), ("profiling_points",), ("decision",), ("scale_out",)} <= assets
        roles = {process.role for process in marked(owner_id(serve.folder))}
        assert roles >= {"dagster-code", "dagster-daemon"}

        # When Dagster's inner code server is killed evaluations come again: the proxy before it lives on
        # and its port answers, but nothing would ever be evaluated again.
        newest = evaluated_after(serve.folder, 0.0)
        until(lambda: len(inner_servers(serve.folder)) == 1)
        inner_servers(serve.folder)[0].signal(signal.SIGKILL)
        assert serve.says("dagster-code has not answered for").endswith("dagster-code is restarted")
        evaluated_after(serve.folder, newest + 30.0)  # more than can have been under way

        assert serve.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert left(serve.folder) == []
        assert holder(serve.folder) is None
        with pytest.raises(NotReady, match="headroom serve"):
            Client(serve.folder).status()


def inner_servers(folder):
    """The servers of Dagster's definitions, which a proxy starts."""
    return [one for one in marked(owner_id(folder)) if {"api", "grpc"} < set(one.command)]


def evaluated_after(folder, at_s):
    """When `orders` was evaluated after this."""
    with SqliteStore(folder / STORE) as store:
        found = []

        def came():
            found[:] = store.evaluations("orders", since_s=at_s)
            return found

        until(came, "an evaluation", timeout_s=SILENT_S, every_s=0.5)
        return found[-1][0]


def test_ctrl_c_ends_everything(project):
    with Serve(project, "--no-pages") as serve:
        assert serve.line() == {"schema": 1, "folder": str(serve.folder), "pid": serve.process.pid}
        assert serve.end(signal.SIGINT) == 130
        assert "nothing is evaluated" in serve.said
        assert serve.said.splitlines()[-1] == "everything that was started has ended"
        assert left(serve.folder) == []


def test_a_recording_that_an_owners_death_has_cut_short_counts_from_the_next_start_on(project):
    recordings = project / ".headroom" / "recordings"
    folder = workload_history.folder_of(recordings, "orders", began_s=1_763_500_000, own="events")
    (folder / "slices").mkdir(parents=True)
    asked = {"topic": "in", "from_s": 1_763_500_000.0, "until_s": 1_763_503_600.0, "first": {"0": 0}}
    write_json(folder / "recording.json", {"schema": 1, **asked})
    arrivals = {1_763_500_000 + second: 50 for second in range(41)}
    piece = Slice(0, {0: 0}, {0: 2050}, 2050, 1, 1, arrivals, ())
    write_json(slice_file(folder, 0), codec.to_json(piece))
    settings, said = loading.parse(TOML, environment={}), []
    for _ in range(2):
        file = project / "headroom.toml"
        with open_service(settings, file=file, folder=project / ".headroom", say=said.append) as service:
            grid = workload_history.history(service.environment.store, "orders")
    assert grid.values.tolist() == [50.0] * 4
    assert said == ["orders: 40 s of recorded arrivals were added to its history"]


def test_what_nobody_needs_any_more_goes_while_it_serves(project, monkeypatch):
    monkeypatch.setattr(logs, "LOG_BYTES", 10)
    monkeypatch.setattr(logs, "LOOK_S", 0.05)
    monkeypatch.setattr(retention, "FIRST_S", 0.0)
    folder, file = project / ".headroom", project / "headroom.toml"
    old, newest = (
        workload_history.folder_of(
            folder / "recordings", "orders", began_s=time.time() - days * retention.DAY_S, own="events"
        )
        for days in (40, 1)
    )
    for recording in (old, newest):
        recording.mkdir(parents=True)
        write_json(recording / "recording.json", {"schema": 1})
        write_json(recording / "ended.json", {"schema": 1, "how": "complete"})
    with open_service(loading.parse(TOML, environment={}), file=file, folder=folder) as service:
        log = service.owner.log("talker")
        log.parent.mkdir(exist_ok=True)
        log.write_text("a line that is too long\n")
        until(lambda: log.read_text() == "")
        until(lambda: service.owner.log(retention.ROLE).exists())  # what is on the pages
        until(lambda: not old.exists())
        assert newest.exists()


def test_a_champion_that_was_chosen_while_nobody_served_is_in_charge_from_the_next_start_on(project, lived):
    folder, file = project / ".headroom", project / "headroom.toml"
    settings, said = loading.load(file, environment={}), []
    room = TrainingContext(TemporaryStore(), MlflowRegistry.of(settings.mlflow, folder), folder)
    for seed in (1, 2):
        lived(room.store, hours=0, drills=0, seed=seed)
        assert refit("capacity", Purpose("orders", 270.0, tuple(range(1, 9))), room).champion == seed
    room.registry.promote("orders.capacity", 1)  # as anybody can on MLflow's pages
    with open_service(settings, file=file, folder=folder, say=said.append):
        assert Champions.load(folder, "orders").versions == {"capacity": 2}  # nobody has to wait for it
        until(lambda: said)
        assert Champions.load(folder, "orders").versions == {"capacity": 1}
    assert said == ["orders.capacity version 1 is in charge in MLflow, and now of decisions too"]


@pytest.mark.parametrize("purpose", ["p", "d"])
def test_copies_that_an_owners_death_has_left_are_ended_at_the_next_start(project, monkeypatch, purpose):
    settings, said = loading.parse(TOML, environment={}), []
    folder, file = project / ".headroom", project / "headroom.toml"
    with base.opened(settings, folder) as there:
        live = job_plans.live_plan("orders", settings.jobs["orders"], folder=folder)
        around = there.around("orders", settings.jobs["orders"])
        Copies(live, around, partitions={"events": 2, "alerts": 2}, purpose=purpose).launch(4)
        assert there.deployments.names() == (f"orders-{purpose}1",)
        monkeypatch.setattr(base, "opened", lambda *given, **more: nullcontext(there))
        for _ in range(2):
            with open_service(settings, file=file, folder=folder, say=said.append) as service:
                assert service.environment.deployments.names() == ()
                assert service.environment.broker.topics() == {}
    assert said == [f"orders: orders-{purpose}1, a copy that an earlier server has left, was stopped"]


class TestAJobThatWasTakenOutOfTheSettings:
    """Real adapters; no JVM, and a broker that is only asked to delete topics."""

    @pytest.fixture
    def here(self, project, monkeypatch):
        started, deleted = [], []
        broker = FakeBroker({"old": [0]})
        broker.delete = deleted.append
        monkeypatch.setattr(kafka_broker, "KafkaBroker", lambda brokers: broker)
        monkeypatch.setattr(spark.LocalSpark, "ensure", lambda self: None)
        monkeypatch.setattr(spark.LocalSpark, "lost", lambda self: ())
        monkeypatch.setattr(driver_watch, "POLL_S", 0.01)
        monkeypatch.setattr(drivers.LocalDrivers, "start", lambda self, record: started.append(record.name))
        (project / "headroom.toml").write_text('[brokers]\nbootstrap = "h:1"\n')
        folder = project / ".headroom"
        for name, role in (("old", "live"), ("old-p1", "profile")):
            old = plan(name, job="old", role=role, inputs={"in": name}, outputs={})
            Records(folder / "deployments").save(Record(old))
        with SqliteStore(folder / STORE) as store:
            store.save_document("old", "copies", {"made": 1, "copies": {"old-p1": ["headroom.old-p1.in"]}})
        yield SimpleNamespace(project=project, folder=folder, started=started, deleted=deleted)
        cleanup(folder)

    @staticmethod
    @contextmanager
    def open_service(here, said):
        file = here.project / "headroom.toml"
        settings = loading.load(file, environment={})
        with open_service(settings, file=file, folder=here.folder, say=said.append) as service:
            time.sleep(0.3)
            yield service

    @staticmethod
    def left_running(here, role):
        earlier = Owner(here.folder).acquire()
        process = earlier.start(role, [sys.executable, "-c", "import time; time.sleep(600)"])
        earlier.release()
        return process

    def test_it_is_not_started_again_and_nothing_of_its_copies_is_left(self, here):
        copy, said = self.left_running(here, "driver.old-p1"), []
        ended = "old: old-p1, a copy that an earlier server has left, was stopped"
        for expected in (["old is not in headroom.toml any more: it is not started again", ended], []):
            with self.open_service(here, said) as service:
                assert service.environment.deployments.names() == ()
            assert said == expected
            said.clear()
        assert (here.started, here.deleted, copy.alive) == ([], ["headroom.old-p1.in"], False)
        assert [(one.name, one.wanted) for one in Records(here.folder / "deployments").all()] == [
            ("old", "stopped")
        ]

    def test_one_that_still_runs_is_left_running_until_it_is_stopped(self, here):
        driver, said = self.left_running(here, "driver.old"), []
        with self.open_service(here, said) as service:
            assert said[0].startswith("old is not in headroom.toml any more, and still runs: it is left")
            assert said[0].endswith("`headroom stop old` ends it")
            assert driver.alive
            assert service.environment.deployments.names() == ("old",)
            stopped = headroom("stop", "old")
            assert (stopped.exit_code, stopped.stdout) == (0, "old is stopped\n"), stopped.stderr
            assert not driver.alive
            assert headroom("stop", "old").stdout == "old did not run\n"
            for command in (["stop", "odd"], ["start", "old"], ["stop", "old-p1"]):
                refused = headroom(*command)
                assert (refused.exit_code, "is not in headroom.toml" in refused.stderr) == (2, True)
        assert here.started == []

    def test_and_if_it_dies_it_stays_so(self, here):
        driver, said = self.left_running(here, "driver.old"), []
        with self.open_service(here, said) as service:
            driver.signal(signal.SIGKILL)
            driver.wait(5.0)
            time.sleep(0.3)
            assert service.environment.deployments.names() == ()
        assert here.started == []


def test_a_job_that_cannot_be_started_does_not_keep_the_others_from_it(project):
    big = '[job.big]\nbuild = "a:b"\ninputs = {e = "in"}\nscale_out = 8\n'
    (project / "headroom.toml").write_text(TOML + big)
    with Serve(project, "--no-pages", "--launch-all") as serve:
        serve.line()
        jobs = Client(serve.folder).status()["jobs"]
        assert (jobs["orders"]["state"], jobs["big"]["state"]) == ("running", "stopped")
        serve.end(signal.SIGTERM)
        assert "big was not started: spark.slots: 8 executors" in serve.said


def test_a_job_that_nobody_knows_is_told_before_anything_starts(project):
    said = headroom("serve", "--no-pages", "--launch", "ordrs")
    assert said.exit_code == 2
    assert "job.ordrs: is not in" in said.stderr
    assert "did you mean orders?" in said.stderr
    assert not (project / ".headroom").exists()


def test_pages_that_do_not_come_end_no_job(project, monkeypatch):
    monkeypatch.setattr(owner, "exit_on_signals", lambda: None)
    monkeypatch.setattr(serve, "LOOK_S", 0.01)
    monkeypatch.setattr(Pages, "start", lambda pages: pages)
    looked = []

    def wait(pages):
        raise NotReady("dagster-webserver is not ready within 240 s")

    def watch(pages):
        looked.append(Client(project / ".headroom").status()["jobs"]["orders"]["state"])
        raise KeyboardInterrupt

    monkeypatch.setattr(Pages, "wait", wait)
    monkeypatch.setattr(Pages, "watch", watch)
    said = headroom("serve", "--launch-all")
    assert (said.exit_code, looked) == (130, ["running"])
    assert "dagster-webserver is not ready within 240 s" in said.output
    assert "nothing is evaluated or decided" in said.output


def test_a_terminal_that_has_gone_or_a_full_disk_ends_no_job(project):
    with open("/dev/full", "w") as full:
        process = subprocess.Popen(
            [sys.executable, "-c", "from pipelines.command_line import main; main()", "serve", "--no-pages"],
            cwd=project,
            stdout=full,
            stderr=full,
            start_new_session=True,
        )
    try:
        server = Client(project / ".headroom")

        def answers():
            assert process.poll() is None
            with suppress(NotReady):
                return server.status()["kind"] == "simulated"

        until(answers, every_s=0.1)
        time.sleep(1.0)  # it has more to say
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(180.0)
    assert left(project / ".headroom") == []


def test_a_simulated_clock_goes_on_where_it_was(project):
    settings = loading.load(project / "headroom.toml", environment={})
    where = {"file": project / "headroom.toml", "folder": project / ".headroom"}
    with open_service(settings, **where, since_s=time.time() + 500.0) as service:
        run_order(service.server, "launch", "orders")
        first = service.server.evaluate("orders")
    with open_service(settings, **where) as service:
        assert service.environment.clock.now_s() > first["at_s"]
        before = service.environment.clock.now_s()
        service.environment.clock.sleep(0.5)
        assert service.environment.clock.now_s() >= before + 0.5
