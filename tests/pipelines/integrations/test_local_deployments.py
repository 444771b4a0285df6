"""Deployments on this machine, with a driver that needs no Spark: what is remembered, restarted, refused."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import stand_ins
from waiting import until

from models.errors import Misconfigured, NotReady, Unsafe
from models.quantities import Unknown
from pipelines.environments.local import driver_watch, drivers
from pipelines.environments.local import failures as local_failures
from pipelines.environments.local.deployments import LocalDeployments
from pipelines.environments.local.failures import LocalFailures
from pipelines.integrations.spark import MASTER, WORKER, ExecutorProcess
from pipelines.processes.owner import Owner, cleanup, owner_id
from pipelines.processes.processes import Process, descendants, marked
from pipelines.processes.records import boot_id
from pipelines.server import live_jobs
from pipelines.settings import loading
from pipelines.settings.schema import SparkSettings
from profiling_jobs.brokers import Brokers
from profiling_jobs.orders import Launch

STUB = Path(__file__).parent / "stub_driver.py"
SETTINGS = SparkSettings(slots=6, scale_timeout_s=20.0, network_timeout_s=5)


class NoSpark:
    """Executors are what the stub has started."""

    def __init__(self, owner):
        self._owner = owner
        self.dead = ()
        self.broken = 0
        self.tidied = 0

    def tidy(self):
        self.tidied += 1
        raise OSError("the disk stumbles")

    def ensure(self):
        if self.broken:
            self.broken -= 1
            raise NotReady("the Spark worker did not start")
        self.dead = ()

    def lost(self):
        return self.dead

    def environment(self):
        return {}

    def job_conf(self, name, *, conf=None):
        return dict(conf or {})

    def executors(self, name):
        there = (one for one in marked(self._owner.id) if one.role == f"executor.{name}")
        found = [one for one in there if os.getsid(one.pid) == one.pid]
        numbered = (ExecutorProcess(one, one.command[-2], one.command[-1]) for one in found)
        return tuple(sorted(numbered, key=lambda one: one.executor_id))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(drivers, "COMMAND", (sys.executable, str(STUB)))
    monkeypatch.setattr(drivers, "EXECUTORS_LEAVE_S", 0.1)
    monkeypatch.setattr(driver_watch, "POLL_S", 0.05)
    monkeypatch.setattr(driver_watch, "PULSE_S", 0.2)
    monkeypatch.setattr(driver_watch, "ANSWER_S", 0.3)
    monkeypatch.setattr(driver_watch, "PAUSE_S", 0.05)
    monkeypatch.setattr(driver_watch, "FRUITLESS", 2)


@pytest.fixture
def owner(tmp_path):
    owner = Owner(tmp_path / ".headroom").acquire()
    try:
        yield owner
    finally:
        while left := owner.everything():
            for process in left:
                process.signal(signal.SIGKILL)
        owner.release()


def deployments(owner, spark=None, **settings):
    chosen = SETTINGS.model_copy(update=settings)
    return LocalDeployments(owner, spark or NoSpark(owner), Brokers("h:1"), settings=chosen)


@pytest.fixture
def local(owner):
    with deployments(owner) as local:
        yield local


def plan(there, name="stub", *, wrong="", **changes):
    """`wrong` is what the stub does wrong, perhaps by its incarnation."""
    given = {
        "checkpoint": str(there.folder(name).parents[1] / "checkpoints" / name),
        "conf": wrong if isinstance(wrong, dict) else {"stub": wrong},
        **changes,
    }
    return stand_ins.plan(name, **given)


def remembered(local):
    return dict(json.loads((local.folder("stub") / "deployment.json").read_text()))


def run(local, name="stub", **changes):
    local.launch(plan(local, name, **changes))
    until(lambda: local.status(name).state == "running")


def test_a_job_is_launched_rescaled_and_stopped(owner, local):
    assert local.names() == ()
    run(local)
    status = local.status("stub")
    assert (status.declared_scale_out, status.executors_alive, status.run_id) == (1, 1, "run-1")
    out = local.scale("stub", 3, epoch=1)
    assert (out.path, out.before, out.after) == ("live", 1, 3)
    assert out.took_s < 5
    assert [one.executor_id for one in local.executors("stub")] == ["0", "1", "2"]
    assert local.plan("stub").scale_out == 3
    assert local.scale("stub", 2, epoch=2).before == 3
    local.stop("stub")
    assert local.status("stub").state == "stopped"
    assert local.names() == ()
    assert owner.everything() == ()
    local.stop("stub")  # twice is not an error
    local.forget("stub")
    assert not local.folder("stub").exists()
    with pytest.raises(Misconfigured):
        local.status("stub")


def test_a_crash_of_ours_in_the_middle_of_a_restart_stops_no_job(owner, monkeypatch):
    with deployments(owner) as first:
        run(first)
        until(lambda: first.said("stub")["batches"] > 1)

    def crash(record):
        raise KeyboardInterrupt

    monkeypatch.setattr(first._drivers, "start", crash)
    with pytest.raises(KeyboardInterrupt):
        first.scale("stub", 2, epoch=4, path="restart")
    second = deployments(owner)
    assert second.status("stub").state == "restarting"
    with second:
        until(lambda: second.status("stub").run_id == "run-2")
        assert second.scale("stub", 2, epoch=4, path="restart").after == 2


def test_a_job_that_is_being_stopped_is_not_launched_meanwhile(local, monkeypatch):
    run(local)
    end = local._drivers.end

    def meanwhile(record):
        """The stop would end the driver of the launch, too."""
        with pytest.raises(NotReady, match="being changed already"):
            local.launch(plan(local))
        return end(record)

    monkeypatch.setattr(local._drivers, "end", meanwhile)
    local.stop("stub")
    assert local.status("stub").state == "stopped"
    run(local)


def test_what_is_written_of_a_deployment_that_is_being_forgotten_does_not_bring_it_back(local, monkeypatch):
    run(local)
    local.stop("stub")
    save, writing, gone = local._records.save, threading.Event(), threading.Event()

    def late(record):
        writing.set()
        gone.wait(0.5)
        return save(record)

    monkeypatch.setattr(local._records, "save", late)
    watch = threading.Thread(target=lambda: local._records.change("stub", reason="Spark is away"))
    watch.start()
    assert writing.wait(5.0)
    local.forget("stub")
    gone.set()
    watch.join()
    assert not local.folder("stub").exists()


class Stuck:
    """A process that outlives its kill, as one does whose disk hangs."""

    pid, frozen = 7, False

    def __init__(self, role):
        self.role = role

    def signal(self, number):
        return True

    def wait(self, timeout_s):
        return False


@pytest.mark.parametrize("part", ["executor", "driver"])
def test_what_outlives_its_kill_is_not_waited_for_for_ever_nor_started_beside(local, monkeypatch, part):
    run(local)
    with monkeypatch.context() as hanging:
        hanging.setattr(drivers, "marked", lambda owner: (Stuck(f"{part}.stub"),))
        hanging.setattr(drivers, "KILLED_S", 0.2)
        with pytest.raises(NotReady, match=rf"{part} of stub \(process 7\)"):
            local.stop("stub")
        if part == "driver":
            with pytest.raises(NotReady, match="driver of stub"):
                local.launch(plan(local))
    assert local.status("stub").state == "stopped"
    run(local)


def test_what_cannot_be_is_refused_with_the_setting(local):
    run(local, scale_out=2)
    with pytest.raises(Misconfigured, match=r"spark\.slots: 7 executors for stub .* 6 free of 6: raise"):
        local.scale("stub", 7, epoch=1)
    with pytest.raises(Misconfigured, match=r"spark\.slots: 5 executors for other .* \(stub holds 2\)"):
        local.launch(plan(local, "other", scale_out=5))
    for call in (local.status, local.stop, local.plan, lambda name: local.scale(name, 1, epoch=1)):
        with pytest.raises(Misconfigured, match="there is no 'nobody' here; there is stub"):
            call("nobody")


def test_an_older_epoch_is_refused_for_ever(local):
    run(local)
    local.scale("stub", 2, epoch=7)
    with pytest.raises(Unsafe, match="epoch 6 is older than 7"):
        local.scale("stub", 3, epoch=6)
    assert local.scale("stub", 2, epoch=7).after == 2, "the same one again is a retry"
    local.stop("stub")
    run(local)
    with pytest.raises(Unsafe, match="older than 7"):
        local.scale("stub", 3, epoch=6)


def test_an_older_epoch_that_was_held_up_does_not_win(local, monkeypatch):
    run(local)
    reached, done = threading.Event(), threading.Event()
    status = local.status

    def late(name):
        """The driver of the older one answers only when the newer one may long be done."""
        found = status(name)
        if threading.current_thread().name == "older":
            reached.set()
            done.wait(5.0)
        return found

    monkeypatch.setattr(local, "status", late)
    said = []

    def change(scale_out, epoch):
        try:
            said.append(local.scale("stub", scale_out, epoch=epoch).after)
        except (NotReady, Unsafe) as error:
            said.append(error)

    older = threading.Thread(target=change, args=(4, 5), name="older")
    older.start()
    reached.wait(5.0)
    change(2, 6)
    done.set()
    older.join()
    first, second = said
    assert isinstance(first, NotReady), "while the older one is looked at, the newer one has to try again"
    assert second == 4
    change(2, 6)
    assert (said[-1], local.plan("stub").scale_out, len(local.executors("stub"))) == (2, 2, 2)
    with pytest.raises(Unsafe, match="older than 6"):
        local.scale("stub", 4, epoch=5)


def test_two_jobs_that_grow_at_once_share_what_is_free(local, monkeypatch):
    run(local)
    run(local, "other")
    status = local.status

    def meanwhile(name):
        """The other one is asked for more between the look at the slots and the declaration."""
        if name == "stub":
            with pytest.raises(Misconfigured, match=r"stub holds 4"):
                local.scale("other", 4, epoch=1)
        return status(name)

    monkeypatch.setattr(local, "status", meanwhile)
    assert local.scale("stub", 4, epoch=1).after == 4
    monkeypatch.undo()
    assert local.scale("other", 2, epoch=2).after == 2


def test_a_checkpoint_belongs_to_one_job(owner, local):
    run(local)
    mine = str(owner.folder / "checkpoints" / "stub")
    with pytest.raises(Unsafe, match=r"job\.other\.checkpoint.*in use by stub"):
        local.launch(plan(local, "other", checkpoint=mine))
    local.stop("stub")
    with pytest.raises(Misconfigured, match=r"job\.other\.checkpoint: .*another query, job 'stub'"):
        local.launch(plan(local, "other", checkpoint=mine))


def test_a_killed_driver_comes_back_from_its_checkpoint(local):
    run(local)
    local.scale("stub", 2, epoch=1)
    until(lambda: local.said("stub")["batches"] > 1)
    (driver,) = local.driver("stub")
    driver.signal(signal.SIGKILL)
    until(lambda: local.status("stub").state == "restarting")
    until(lambda: local.status("stub").state == "running")
    status = local.status("stub")
    assert (status.run_id, status.executors_alive, status.declared_scale_out) == ("run-2", 2, 2)


def test_a_record_that_cannot_be_read_for_a_moment_ends_no_watch(local, monkeypatch):
    run(local)
    all_of_them, refused = local._records.all, threading.Event()

    def unreadable():
        if not refused.is_set():
            refused.set()
            raise Unsafe("deployment.json was written by another version of Headroom")
        return all_of_them()

    monkeypatch.setattr(local._records, "all", unreadable)
    assert refused.wait(10.0)
    for process in local.driver("stub"):
        process.signal(signal.SIGKILL)
    until(lambda: local.status("stub").run_id == "run-2")


def test_what_nobody_has_expected_ends_no_watch(local, monkeypatch):
    run(local)
    refused = threading.Event()

    def no_thread():
        refused.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(local._drivers, "mend_cluster", no_thread)
    assert refused.wait(10.0)
    for process in local.driver("stub"):
        process.signal(signal.SIGKILL)
    until(lambda: local.status("stub").run_id == "run-2", timeout_s=20.0)


def test_what_a_killed_driver_has_left_on_the_disk_goes_before_the_next_one_starts(
    local,
):
    run(local)
    until(lambda: local.said("stub")["batches"] > 1)
    (driver,) = local.driver("stub")
    there = f"SPARK_LOCAL_DIRS={local.folder('stub') / 'local'}".encode()
    assert there in Path(f"/proc/{driver.pid}/environ").read_bytes().split(b"\0")
    left = local.folder("stub") / "local" / "blockmgr-1"
    left.mkdir()
    driver.signal(signal.SIGKILL)
    until(lambda: local.status("stub").run_id == "run-2")
    assert not left.exists()
    left.mkdir()
    local.stop("stub")
    assert not left.exists()


def test_while_jobs_run_the_disk_is_freed_now_and_then_of_what_executors_have_left(owner, monkeypatch):
    spark = NoSpark(owner)
    with deployments(owner, spark) as local:
        run(local)
        until(lambda: spark.tidied)
        time.sleep(0.5)
        assert spark.tidied == 1
        monkeypatch.setattr(drivers, "TIDY_EVERY_S", 0.1)
        until(lambda: spark.tidied > 2)
        assert local.status("stub").state == "running", "an error is no reason to touch the job"


@pytest.mark.long
def test_a_silent_driver_is_ended_and_started_again(owner):
    local = deployments(owner)
    run(local, wrong={"spark.network.timeout": "1s"})
    (driver,) = local.driver("stub")
    driver.signal(signal.SIGSTOP)
    status = local.status("stub")
    assert (status.state, isinstance(status.executors_alive, Unknown)) == ("running", True)
    with pytest.raises(NotReady):
        local.scale("stub", 2, epoch=1)
    with local:
        until(lambda: not driver.alive)
        until(lambda: local.status("stub").run_id == "run-2")
        assert "was silent for 1 s" in remembered(local)["reason"]


def test_whoever_comes_and_goes_keeps_running_what_runs_and_starts_nothing_else(owner):
    first = deployments(owner)
    for name in ("stub", "dead"):
        run(first, name, scale_out=3)
    for process in first.driver("dead"):
        process.signal(signal.SIGKILL)
        process.wait(5.0)
    local = deployments(owner)
    local.leave_the_dead()
    with local:
        assert local.names() == ("stub",)
        status = local.status("dead")
        assert status.state == "stopped"
        assert status.reason == "it is not kept running: start `headroom serve`"
        (driver,) = local.driver("stub")
        driver.signal(signal.SIGKILL)
        until(lambda: local.status("stub").run_id == "run-2")
        run(local, "dead-d1", job="dead", role="profile", scale_out=3)  # into the slots of the dead
        assert local.driver("dead") == ()
        local.stop("dead-d1")
    with deployments(owner) as later:
        until(lambda: later.status("dead").state == "running")


def test_jobs_survive_the_worker_and_are_started_again_with_a_new_master(owner):
    spark = NoSpark(owner)
    with deployments(owner, spark) as local:
        run(local)
        spark.dead = (WORKER,)
        until(lambda: spark.dead == ())
        time.sleep(0.2)
        assert local.status("stub").run_id == "run-1"
        spark.dead = (MASTER, WORKER)
        until(lambda: local.status("stub").run_id == "run-2")
        assert "master had died" in remembered(local)["reason"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("throw", r"job\.stub\.build: .*before its first batch.*ValueError: boom"),
        ("refuse", r"job\.stub\.inputs\.events: there is no topic 'nowhere'"),
    ],
)
def test_what_would_fail_again_is_left_alone(local, wrong, reason):
    local.launch(plan(local, wrong=wrong))
    until(lambda: local.status("stub").state == "failed")
    status = local.status("stub")
    assert status.executors_alive == 0
    assert re.search(reason, status.reason)
    time.sleep(0.3)
    assert remembered(local)["incarnation"] == 1
    with pytest.raises(NotReady, match="does not run"):
        local.scale("stub", 2, epoch=1)
    local.stop("stub")
    run(local)


def test_a_job_that_has_failed_is_launched_anew_with_what_was_corrected(owner, local):
    said = []
    order = SimpleNamespace(job="stub", say=said.append)

    def launch(conf, topic):
        text = f'[job.stub]\nbuild = "a:b"\ninputs = {{events = "{topic}"}}\nconf = {{stub = "{conf}"}}\n'
        context = SimpleNamespace(
            environment=SimpleNamespace(deployments=local, own_topics=False, kind="simulated"),
            job=lambda order: loading.parse(text, environment={}).jobs[order.job],
            folder=owner.folder,
            started_at_s={},
            clock=lambda order: SimpleNamespace(now_s=time.time, sleep=lambda seconds: time.sleep(0.05)),
        )
        return live_jobs.launch(context, order, Launch())

    with pytest.raises(Misconfigured, match="there is no topic 'nowhere'"):
        launch("refuse", "nowhere")
    assert launch("", "somewhere") == {"launched": True, "state": "running", "scale_out": 1}
    assert local.plan("stub").inputs == {"events": "somewhere"}
    assert any(re.search(r"^stub has failed .*no topic 'nowhere'.* starting it again", line) for line in said)
    assert launch("", "elsewhere")["launched"] is False
    assert local.plan("stub").inputs == {"events": "somewhere"}
    assert said[-1] == "stub was launched before, and is running"


@pytest.mark.parametrize("meanwhile", ["not ready", "throw", "die"])
def test_what_has_worked_is_tried_again_however_long_something_is_away(local, meanwhile):
    away = {f"stub.{start}": meanwhile for start in range(2, 3 + driver_watch.FRUITLESS)}
    back = 4 + driver_watch.FRUITLESS
    local.launch(plan(local, wrong={"stub.1": "throw later", **away, f"stub.{back - 1}": "throw"}))
    until(lambda: local.status("stub").run_id == f"run-{back}" or local.status("stub").state == "failed")
    assert local.status("stub").state == "running"


def test_a_broker_that_is_away_counts_for_nothing_against_a_new_job(local):
    away = {f"stub.{start}": "not ready" for start in range(1, 2 + driver_watch.FRUITLESS)}
    back = 3 + driver_watch.FRUITLESS
    local.launch(plan(local, wrong={**away, f"stub.{back - 1}": "die"}))
    until(lambda: local.status("stub").run_id == f"run-{back}" or local.status("stub").state == "failed")
    assert local.status("stub").state == "running"


@pytest.mark.parametrize("first", ["", "idle"])
def test_an_idle_job_outlives_any_number_of_restarts_of_ours(owner, first):
    with deployments(owner) as local:
        run(local, wrong={"stub": "idle", "stub.1": first})
        until(lambda: first == "idle" or local.said("stub")["batches"] > 1)
    for life in range(2, 4 + driver_watch.FRUITLESS):
        owner.stop_all(grace_s=2.0)  # as when `headroom serve` leaves
        with deployments(owner) as local:
            until(lambda local=local: local.status("stub").state in ("running", "failed"))
            assert local.status("stub").run_id == f"run-{life}"


def test_a_job_that_was_ended_with_us_before_its_first_batch_is_started_again(owner):
    unwatched = deployments(owner)
    unwatched.launch(plan(unwatched, wrong={"stub.1": "throw"}))  # as one does whose JVM was ended before it
    until(lambda: unwatched.status("stub").state == "failed")
    with deployments(owner) as local:
        until(lambda: local.status("stub").run_id == "run-2")


def test_a_query_that_was_cut_short_before_its_first_batch_is_started_again(local):
    """As by whoever could reach Spark's page; one that fails again fails by itself."""
    local.launch(plan(local, wrong={"stub.1": "query failed"}))
    until(lambda: local.status("stub").run_id == "run-2" or local.status("stub").state == "failed")
    assert local.status("stub").state == "running"
    local.launch(plan(local, "other", wrong="query failed"))
    until(lambda: local.status("other").state == "failed")
    assert json.loads((local.folder("other") / "deployment.json").read_text())["incarnation"] == 2


def test_the_pause_between_fruitless_starts_grows_to_a_minute(monkeypatch):
    monkeypatch.setattr(driver_watch, "PAUSE_S", 60.0)
    pauses = [driver_watch.pause_s(starts) for starts in (0, 1, 2, 5, 6, 100_000)]
    assert pauses == [0.0, 2.0, 4.0, 32.0, 60.0, 60.0]


def test_a_driver_that_never_gets_anywhere_is_given_up(local):
    local.launch(plan(local, wrong="die"))
    until(lambda: local.status("stub").state == "failed")
    assert "was killed: see" in local.status("stub").reason
    record = remembered(local)
    assert record["incarnation"] == 1 + driver_watch.FRUITLESS


def test_a_program_that_comes_to_its_end_has_stopped(local):
    local.launch(plan(local, wrong="finish"))
    until(lambda: local.status("stub").state == "stopped")
    until(lambda: local.names() == ())
    assert local.status("stub").reason == "the program came to its end"


def test_a_change_that_fails_is_not_declared(local):
    run(local, wrong="stuck")
    with pytest.raises(NotReady, match="1 of 2 executors"):
        local.scale("stub", 2, epoch=3)
    assert local.plan("stub").scale_out == 1
    with pytest.raises(Unsafe, match="older than 3"):
        local.scale("stub", 2, epoch=2)


def test_a_driver_that_dies_in_the_middle_comes_back_with_the_new_size(local):
    run(local, wrong={"stub.1": "dies scaling"})
    until(lambda: local.said("stub")["batches"] > 1)
    changed = local.scale("stub", 2, epoch=1)
    assert (changed.path, changed.after) == ("restart", 2)
    assert local.status("stub").run_id == "run-2"


def test_after_a_crash_of_ours_the_next_one_adopts_everything(owner):
    with deployments(owner) as first:
        run(first)
        first.scale("stub", 2, epoch=5)
        run(first, "other")
    owner.release()  # as if we had died
    later = Owner(owner.folder).acquire()
    until(lambda: first.said("other")["batches"] > 1)
    first.driver("other")[0].signal(signal.SIGKILL)
    second = deployments(later)
    assert second.names() == ("other", "stub")
    status = second.status("stub")
    assert (status.state, status.run_id, status.executors_alive) == ("running", "run-1", 2)
    until(lambda: second.status("other").state == "restarting")
    with pytest.raises(Unsafe, match="older than 5"):
        second.scale("stub", 1, epoch=4)
    assert second.scale("stub", 1, epoch=6).path == "live"
    with second:
        until(lambda: second.status("other").run_id == "run-2")
        second.stop("stub")
    later.release()


def test_others_may_look_without_owning_the_folder(owner, local):
    run(local)
    reader = deployments(Owner(owner.folder))
    assert reader.status("stub") == local.status("stub")
    assert reader.names() == ("stub",)


# ---------------------------------------------------------------------------------------------- failures


@pytest.fixture
def failures(owner, local):
    return LocalFailures(owner, local)


def test_only_what_can_be_caused_here(local, failures):
    assert failures.kinds() == {"executor_kill", "executor_freeze", "driver_kill", "driver_freeze"}
    run(local)
    with pytest.raises(Misconfigured, match="'broker_restart' cannot be caused here; there is driver_freeze"):
        failures.inject("stub", "broker_restart")


def test_a_broker_that_is_being_restarted_is_not_restarted_again(owner, local):
    class Broker:
        """One that takes its time, and counts."""

        starts = 0
        may_start = threading.Event()

        def stop(self): ...

        def start(self, *, keep_ports):
            self.starts += 1
            self.may_start.wait(20.0)

        def ensure(self, *, keep_ports):
            assert keep_ports, "clients know no others"

    broker = Broker()
    failures = LocalFailures(owner, local, broker=broker)
    run(local)
    first = failures.inject("stub", "broker_restart")
    with pytest.raises(NotReady, match="is being restarted already"):
        failures.inject("stub", "broker_restart")
    assert failures.active() == (first,)
    broker.may_start.set()
    failures.clear(first.id)
    assert (broker.starts, failures.active()) == (1, ())
    failures.clear(failures.inject("stub", "broker_restart").id)
    assert broker.starts == 2
    with failures.restarting, pytest.raises(NotReady, match="is being restarted already"):  # it had died
        failures.inject("stub", "broker_restart")


def test_a_restart_of_the_broker_that_cannot_begin_leaves_it_to_the_watch(owner, local, monkeypatch):
    failures = LocalFailures(owner, local, broker=SimpleNamespace(stop=lambda: None))
    run(local)

    def full(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError, match="new thread"):
            failures.inject("stub", "broker_restart")
    assert not failures.restarting.locked()


def test_the_oldest_executor_is_killed_with_all_it_has_started(local, failures):
    run(local, scale_out=2)
    first, second = local.executors("stub")
    before = time.time()
    injection = failures.inject("stub", "executor_kill")
    assert before <= injection.at_s <= time.time()
    assert injection.victim.startswith(f"executor 0 (process {first.process.pid} and 1")
    assert not first.process.alive
    assert second.process.alive
    assert failures.active() == (injection,)
    failures.clear(injection.id)
    failures.clear(injection.id)
    assert failures.active() == ()


def test_what_is_frozen_is_woken(local, failures):
    run(local, scale_out=2)
    first, second = local.executors("stub")
    injection = failures.inject("stub", "executor_freeze")
    assert first.process.frozen
    again = failures.inject("stub", "executor_freeze")
    assert second.process.frozen, "one that is frozen already is not chosen again"
    with pytest.raises(NotReady, match="no executor registered"):
        failures.inject("stub", "executor_freeze")
    failures.clear(injection.id)
    assert not first.process.frozen
    assert second.process.frozen
    failures.clear(again.id)
    assert first.process.alive
    assert not second.process.frozen


def test_what_a_crash_of_ours_has_left_is_cleared_by_the_next(owner):
    unwatched = deployments(owner, network_timeout_s=300)
    run(unwatched)
    kinds = ("executor_freeze", "driver_freeze")
    left = [LocalFailures(owner, unwatched).inject("stub", kind) for kind in kinds]
    owner.release()  # as if we had died
    later = Owner(owner.folder).acquire()
    failures = LocalFailures(later, deployments(later))
    assert failures.active() == failures.left_over() == tuple(left)
    with failures:
        assert failures.active() == ()
        (executor,) = unwatched.executors("stub")
        (driver,) = unwatched.driver("stub")
        assert not executor.process.frozen
        assert not driver.frozen
        assert unwatched.status("stub").run_id == "run-1"
    later.release()


OWNER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from pipelines.environments.local.failures import LocalFailures
from pipelines.processes.owner import Owner

owner = Owner(Path(sys.argv[1])).acquire()
victim = owner.start("driver.stub", ["sleep", "300"])
status = SimpleNamespace(state="running", executors_alive=1)
one = SimpleNamespace(plan=str, status=lambda name: status, driver=lambda name: (victim,))
LocalFailures(owner, one).inject("stub", "driver_freeze")
print(victim.pid, victim.started_ticks, flush=True)
sys.stdin.read()
"""


def test_what_is_frozen_is_woken_when_its_owner_is_killed(tmp_path):
    folder = tmp_path / ".headroom"
    command = [sys.executable, "-c", OWNER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dying:
        try:
            assert dying.stdout is not None
            frozen = Process(*map(int, dying.stdout.readline().split()))
            assert frozen.frozen
            watchdogs = []  # the kernel shows the environment of a new process a moment late

            def has_watchdog():
                watchdogs[:] = [one for one in marked(owner_id(folder)) if one.role == "watchdog.stub"]
                return watchdogs

            until(has_watchdog)
            (watchdog,) = watchdogs
            assert psutil.Process(watchdog.pid).memory_info().rss < 20e6
            dying.kill()
            until(lambda: not frozen.frozen)
            assert frozen.alive
            assert watchdog.wait(10.0)
        finally:
            dying.kill()
            cleanup(folder)


def test_what_is_forgotten_is_woken_after_a_while(local, failures, monkeypatch):
    run(local)
    monkeypatch.setattr(local_failures, "FROZEN_S", 0.5)
    failures.inject("stub", "executor_freeze")
    (executor,) = local.executors("stub")
    until(lambda: not executor.process.frozen)
    assert executor.process.alive


def test_a_process_of_the_victim_that_ends_just_now_is_no_obstacle(local, failures, monkeypatch):
    run(local)
    (executor,) = local.executors("stub")
    with subprocess.Popen(["true"]) as brief:
        pass
    victims = (Process(brief.pid, 1), executor.process)
    monkeypatch.setattr(failures, "_choose", lambda *asked: ("executor", victims))
    failures.inject("stub", "executor_freeze")
    assert executor.process.frozen


def test_nothing_is_frozen_without_a_handle_on_each(local, failures, monkeypatch):
    run(local)
    (executor,) = local.executors("stub")
    handle, full = os.pidfd_open, [True]

    def scarce(pid):
        if pid == executor.process.pid and full.pop():
            raise OSError(errno.EMFILE, "Too many open files")
        return handle(pid)

    monkeypatch.setattr(local_failures.os, "pidfd_open", scarce)
    with pytest.raises(NotReady, match=r"cannot be watched: .*Too many open files"):
        failures.inject("stub", "executor_freeze")
    monkeypatch.undo()
    assert not executor.process.frozen


def test_a_watchdog_goes_when_what_it_watches_is_woken_or_gone(owner, local, failures):
    run(local)
    failures.clear(failures.inject("stub", "executor_freeze").id)
    assert owner.running("watchdog.stub") == ()
    failures.inject("stub", "executor_freeze")
    (executor,) = local.executors("stub")
    for one in (executor.process, *descendants([executor.process])):
        one.signal(signal.SIGKILL)
    until(lambda: owner.running("watchdog.stub") == ())


def test_after_a_reboot_nobody_who_has_the_pid_is_touched(owner, local, failures):
    """Start times count from the boot, so both may be those of another process."""
    run(local)
    injection = failures.inject("stub", "executor_freeze")
    (executor,) = local.executors("stub")
    path = owner.folder / "failures" / f"{injection.id}.json"
    path.write_text(path.read_text().replace(boot_id(), "of an earlier boot"))
    LocalFailures(owner, local).clear(injection.id)
    assert executor.process.frozen
    executor.process.signal(signal.SIGCONT)


def test_one_that_cannot_be_cleared_leaves_no_other_uncleared(local, failures, monkeypatch):
    run(local)
    broken = failures.inject("stub", "driver_kill")
    until(lambda: local.status("stub").run_id == "run-2")
    failures.inject("stub", "executor_freeze")

    def no_driver(name):
        raise NotReady("the Spark master did not start")

    with monkeypatch.context() as broken_spark:
        broken_spark.setattr(local, "revive", no_driver)
        with pytest.raises(NotReady, match="the Spark master"):
            failures.clear_all()
        assert failures.active() == failures.left_over() == (broken,)
        with failures:  # a world that cannot be opened could not be put right
            assert failures.active() == (broken,)
            broken_spark.undo()
    assert failures.active() == ()


def test_it_is_written_down_before_it_is_done(owner, local, failures, monkeypatch):
    run(local)

    def crash(kind, processes):
        raise KeyboardInterrupt

    monkeypatch.setattr(failures, "_do", crash)
    with pytest.raises(KeyboardInterrupt):
        failures.inject("stub", "executor_freeze")
    (noted,) = LocalFailures(owner, local).active()
    assert failures.left_over() == (noted,)
    assert noted.kind == "executor_freeze"
    assert "executor 0" in noted.victim
    assert LocalFailures(owner, local).clear_all() == (noted,)
