"""Deployments on this machine, with a driver that needs no Spark: what is remembered, restarted, refused."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.errors import Misconfigured, NotReady, Unsafe
from models.ports import Function, Plan, Rescaled, Status
from models.quantities import Unknown
from pipelines.environments.local import driver_watch, drivers
from pipelines.environments.local.deployments import LocalDeployments
from pipelines.environments.local.failures import LocalFailures
from pipelines.integrations.spark import MASTER, WORKER, ExecutorProcess
from pipelines.processes.owner import Owner, cleanup
from pipelines.processes.processes import marked
from pipelines.server import live_jobs
from pipelines.settings import loading
from pipelines.settings.schema import SparkSettings
from profiling_jobs.brokers import Brokers
from profiling_jobs.orders import Launch

STUB = Path(__file__).parent / "stub_driver.py"
SETTINGS = SparkSettings(slots=6, scale_timeout_s=20.0, network_timeout_s=5)


def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    limit = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < limit, "the condition was not reached"
        time.sleep(0.02)


class NoSpark:
    """Executors are what the stub has started."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.dead: tuple[str, ...] = ()
        self.broken = 0
        self.tidied = 0

    def tidy(self) -> None:
        self.tidied += 1
        raise OSError("the disk stumbles")

    def ensure(self) -> None:
        if self.broken:
            self.broken -= 1
            raise NotReady("the Spark worker did not start")
        self.dead = ()

    def lost(self) -> tuple[str, ...]:
        return self.dead

    def environment(self) -> dict[str, str]:
        return {}

    def job_conf(self, name: str, *, conf: Any = None) -> dict[str, str]:
        return dict(conf or {})

    def executors(self, name: str) -> tuple[ExecutorProcess, ...]:
        found = [
            one
            for one in marked(self._owner.id)
            if one.role == f"executor.{name}" and os.getsid(one.pid) == one.pid
        ]
        numbered = (ExecutorProcess(one, one.command[-2], one.command[-1]) for one in found)
        return tuple(sorted(numbered, key=lambda one: one.executor_id))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "COMMAND", (sys.executable, str(STUB)))
    monkeypatch.setattr(drivers, "EXECUTORS_LEAVE_S", 0.1)
    monkeypatch.setattr(driver_watch, "POLL_S", 0.05)
    monkeypatch.setattr(driver_watch, "PULSE_S", 0.2)
    monkeypatch.setattr(driver_watch, "ANSWER_S", 0.3)
    monkeypatch.setattr(driver_watch, "PAUSE_S", 0.05)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(tmp_path / ".headroom").acquire()
    try:
        yield owner
    finally:
        while left := owner.everything():
            for process in left:
                process.signal(signal.SIGKILL)
        owner.release()


def deployments(owner: Owner, spark: NoSpark | None = None, **settings: Any) -> LocalDeployments:
    return LocalDeployments(
        owner,
        spark or NoSpark(owner),
        Brokers("h:1"),
        settings=SETTINGS.model_copy(update=settings),
    )


@pytest.fixture
def local(owner: Owner) -> Iterator[LocalDeployments]:
    with deployments(owner) as local:
        yield local


def plan(owner: Owner, name: str = "stub", **changes: Any) -> Plan:
    wrong = changes.pop("wrong", "")
    base = Plan(
        name=name,
        job=name,
        role="live",
        program=Function("a:b"),
        scale_out=1,
        inputs={"events": f"{name}-in"},
        outputs={"alerts": f"{name}-out"},
        checkpoint=str(owner.folder / "checkpoints" / name),
        conf=wrong if isinstance(wrong, dict) else {"stub": wrong},
    )
    return replace(base, **changes)


def run(local: LocalDeployments, plan: Plan) -> None:
    local.launch(plan)
    until(lambda: local.status(plan.name).state == "running")


def test_a_job_is_launched_rescaled_and_stopped(owner: Owner, local: LocalDeployments) -> None:
    assert local.names() == ()
    run(local, plan(owner))
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


def test_the_other_way_is_a_restart_from_the_checkpoint(owner: Owner, local: LocalDeployments) -> None:
    run(local, plan(owner))
    changed = local.scale("stub", 2, epoch=4, path="restart")
    assert replace(changed, took_s=0.0) == Rescaled("restart", 1, 2, 0.0)
    assert local.status("stub").run_id == "run-2"
    assert len(local.executors("stub")) == 2
    local.scale("stub", 2, epoch=4, path="restart")
    assert local.status("stub").run_id == "run-2", "the same one again is a retry, not another restart"


def test_a_restart_that_is_cut_short_is_carried_on(owner: Owner) -> None:
    spark = NoSpark(owner)
    with deployments(owner, spark) as local:
        run(local, plan(owner))
        until(lambda: local.said("stub")["batches"] > 1)
        spark.broken = 1
        with pytest.raises(NotReady, match="worker did not start"):
            local.scale("stub", 2, epoch=4, path="restart")
        until(lambda: local.status("stub").run_id == "run-2")
        assert local.names() == ("stub",)
        assert local.scale("stub", 2, epoch=4, path="restart").after == 2
        assert local.status("stub").run_id == "run-2", "its retry finds it done"


def test_a_crash_of_ours_in_the_middle_of_a_restart_stops_no_job(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deployments(owner) as first:
        run(first, plan(owner))
        until(lambda: first.said("stub")["batches"] > 1)

    def crash(record: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(first._drivers, "start", crash)
    with pytest.raises(KeyboardInterrupt):
        first.scale("stub", 2, epoch=4, path="restart")
    second = deployments(owner)
    assert second.status("stub").state == "restarting"
    with second:
        until(lambda: second.status("stub").run_id == "run-2")
        assert second.scale("stub", 2, epoch=4, path="restart").after == 2


def test_what_cannot_be_is_refused_with_the_setting(owner: Owner, local: LocalDeployments) -> None:
    run(local, plan(owner, scale_out=2))
    with pytest.raises(Misconfigured, match=r"job\.stub\.scale_out: .*at least 1.*0"):
        local.scale("stub", 0, epoch=1)
    with pytest.raises(
        Misconfigured, match=r"spark\.slots: 7 executors for stub .* 6 free of 6: raise spark.slots"
    ):
        local.scale("stub", 7, epoch=1)
    with pytest.raises(
        Misconfigured, match=r"spark\.slots: 5 executors for other .* 4 free of 6 \(stub holds 2\)"
    ):
        local.launch(plan(owner, "other", scale_out=5))
    with pytest.raises(Misconfigured, match=r"job\.other\.scale_out"):
        local.launch(plan(owner, "other", scale_out=0))
    with pytest.raises(Unsafe, match="launched already"):
        local.launch(plan(owner))
    for call in (local.status, local.stop, local.plan, lambda name: local.scale(name, 1, epoch=1)):
        with pytest.raises(Misconfigured, match="there is no 'nobody' here; there is stub"):
            call("nobody")


def test_an_older_epoch_is_refused_for_ever(owner: Owner, local: LocalDeployments) -> None:
    run(local, plan(owner))
    local.scale("stub", 2, epoch=7)
    with pytest.raises(Unsafe, match="epoch 6 is older than 7"):
        local.scale("stub", 3, epoch=6)
    assert local.scale("stub", 2, epoch=7).after == 2, "the same one again is a retry"
    local.stop("stub")
    run(local, plan(owner))
    with pytest.raises(Unsafe, match="older than 7"):
        local.scale("stub", 3, epoch=6)


def test_an_older_epoch_that_was_held_up_does_not_win(
    owner: Owner, local: LocalDeployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(local, plan(owner))
    reached, done = threading.Event(), threading.Event()
    status = local.status

    def late(name: str) -> Status:
        """The driver of the older one answers only when the newer one may long be done."""
        found = status(name)
        if threading.current_thread().name == "older":
            reached.set()
            done.wait(5.0)
        return found

    monkeypatch.setattr(local, "status", late)
    said: list[object] = []

    def change(scale_out: int, epoch: int) -> None:
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


def test_two_jobs_that_grow_at_once_share_what_is_free(
    owner: Owner, local: LocalDeployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(local, plan(owner))
    run(local, plan(owner, "other"))
    status = local.status

    def meanwhile(name: str) -> Status:
        """The other one is asked for more between the look at the slots and the declaration."""
        if name == "stub":
            with pytest.raises(Misconfigured, match=r"stub holds 4"):
                local.scale("other", 4, epoch=1)
        return status(name)

    monkeypatch.setattr(local, "status", meanwhile)
    assert local.scale("stub", 4, epoch=1).after == 4
    monkeypatch.undo()
    assert local.scale("other", 2, epoch=2).after == 2


def test_a_copy_beside_its_live_job_keeps_away_from_it(owner: Owner, local: LocalDeployments) -> None:
    run(local, plan(owner))
    copy = plan(owner, "stub-copy", job="stub", role="profile")
    for change in (
        {"outputs": {"alerts": "stub-out"}},
        {"checkpoint": str(owner.folder / "checkpoints/stub")},
    ):
        with pytest.raises(Unsafe, match=r"job\.stub\."):
            local.launch(replace(copy, **change))
    run(local, copy)
    assert local.names() == ("stub", "stub-copy")


def test_a_checkpoint_belongs_to_one_job(owner: Owner, local: LocalDeployments) -> None:
    run(local, plan(owner))
    mine = str(owner.folder / "checkpoints" / "stub")
    with pytest.raises(Unsafe, match=r"job\.other\.checkpoint.*in use by stub"):
        local.launch(plan(owner, "other", checkpoint=mine))
    local.stop("stub")
    with pytest.raises(
        Misconfigured, match=r"job\.other\.checkpoint: .*belongs to another query, job 'stub'"
    ):
        local.launch(plan(owner, "other", checkpoint=mine))


def test_a_killed_driver_comes_back_from_its_checkpoint(owner: Owner, local: LocalDeployments) -> None:
    run(local, plan(owner))
    local.scale("stub", 2, epoch=1)
    until(lambda: local.said("stub")["batches"] > 1)
    (driver,) = local.driver("stub")
    driver.signal(signal.SIGKILL)
    until(lambda: local.status("stub").state == "restarting")
    until(lambda: local.status("stub").state == "running")
    status = local.status("stub")
    assert (status.run_id, status.executors_alive, status.declared_scale_out) == ("run-2", 2, 2)


def test_a_record_that_cannot_be_read_for_a_moment_ends_no_watch(
    owner: Owner, local: LocalDeployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(local, plan(owner))
    all_of_them, refused = local._records.all, threading.Event()

    def unreadable() -> Any:
        if not refused.is_set():
            refused.set()
            raise Unsafe("deployment.json was written by another version of Headroom")
        return all_of_them()

    monkeypatch.setattr(local._records, "all", unreadable)
    assert refused.wait(10.0)
    for process in local.driver("stub"):
        process.signal(signal.SIGKILL)
    until(lambda: local.status("stub").run_id == "run-2")


def test_what_a_killed_driver_has_left_on_the_disk_goes_before_the_next_one_starts(
    owner: Owner, local: LocalDeployments
) -> None:
    run(local, plan(owner))
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


def test_while_jobs_run_the_disk_is_freed_now_and_then_of_what_executors_have_left(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = NoSpark(owner)
    with deployments(owner, spark) as local:
        run(local, plan(owner))
        until(lambda: spark.tidied)
        time.sleep(0.5)
        assert spark.tidied == 1
        monkeypatch.setattr(drivers, "TIDY_EVERY_S", 0.1)
        until(lambda: spark.tidied > 2)
        assert local.status("stub").state == "running", "an error is no reason to touch the job"


def test_a_silent_driver_is_ended_and_started_again(owner: Owner) -> None:
    local = deployments(owner)
    run(local, plan(owner))
    (driver,) = local.driver("stub")
    driver.signal(signal.SIGSTOP)
    status = local.status("stub")
    assert (status.state, isinstance(status.executors_alive, Unknown)) == ("running", True)
    with pytest.raises(NotReady):
        local.scale("stub", 2, epoch=1)
    with local:
        until(lambda: not driver.alive)
        until(lambda: local.status("stub").run_id == "run-2")
        assert (
            "was silent for 5 s"
            in json.loads((local.folder("stub") / "deployment.json").read_text())["reason"]
        )


def test_whoever_comes_and_goes_keeps_running_what_runs_and_starts_nothing_else(owner: Owner) -> None:
    first = deployments(owner)
    for name in ("stub", "dead"):
        run(first, plan(owner, name, scale_out=3))
    for process in first.driver("dead"):
        process.signal(signal.SIGKILL)
        process.wait(5.0)
    local = deployments(owner)
    local.leave_the_dead()
    with local:
        assert local.names() == ("stub",)
        status = local.status("dead")
        assert (status.state, status.reason) == (
            "stopped",
            "it is not kept running: start `headroom serve`",
        )
        (driver,) = local.driver("stub")
        driver.signal(signal.SIGKILL)
        until(lambda: local.status("stub").run_id == "run-2")
        run(
            local, plan(owner, "dead-d1", job="dead", role="profile", scale_out=3)
        )  # into the slots of the dead
        assert local.driver("dead") == ()
        local.stop("dead-d1")
    with deployments(owner) as later:
        until(lambda: later.status("dead").state == "running")


def test_jobs_survive_the_worker_and_are_started_again_with_a_new_master(owner: Owner) -> None:
    spark = NoSpark(owner)
    with deployments(owner, spark) as local:
        run(local, plan(owner))
        spark.dead = (WORKER,)
        until(lambda: spark.dead == ())
        time.sleep(0.2)
        assert local.status("stub").run_id == "run-1"
        spark.dead = (MASTER, WORKER)
        until(lambda: local.status("stub").run_id == "run-2")
        assert (
            "master had died" in json.loads((local.folder("stub") / "deployment.json").read_text())["reason"]
        )


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("throw", r"job\.stub\.build: .*before its first batch.*ValueError: boom"),
        ("refuse", r"job\.stub\.inputs\.events: there is no topic 'nowhere'"),
    ],
)
def test_what_would_fail_again_is_left_alone(
    owner: Owner, local: LocalDeployments, wrong: str, reason: str
) -> None:
    local.launch(plan(owner, wrong=wrong))
    until(lambda: local.status("stub").state == "failed")
    status = local.status("stub")
    assert status.executors_alive == 0
    assert re.search(reason, status.reason)
    time.sleep(0.3)
    assert json.loads((local.folder("stub") / "deployment.json").read_text())["incarnation"] == 1
    with pytest.raises(NotReady, match="does not run"):
        local.scale("stub", 2, epoch=1)
    local.stop("stub")
    run(local, plan(owner))


def test_a_job_that_has_failed_is_launched_anew_with_what_was_corrected(
    owner: Owner, local: LocalDeployments
) -> None:
    said: list[str] = []
    order = SimpleNamespace(job="stub", say=said.append)

    def launch(conf: str, topic: str) -> Any:
        text = f'[job.stub]\nbuild = "a:b"\ninputs = {{events = "{topic}"}}\nconf = {{stub = "{conf}"}}\n'
        context = SimpleNamespace(
            environment=SimpleNamespace(deployments=local, own_topics=False, kind="simulated"),
            job=lambda order: loading.parse(text, environment={}).jobs[order.job],
            folder=owner.folder,
            clock=lambda order: SimpleNamespace(now_s=time.time, sleep=lambda seconds: time.sleep(0.05)),
        )
        return live_jobs.launch(context, order, Launch())  # type: ignore[arg-type]

    with pytest.raises(Misconfigured, match="there is no topic 'nowhere'"):
        launch("refuse", "nowhere")
    assert launch("", "somewhere") == {"launched": True, "state": "running", "scale_out": 1}
    assert local.plan("stub").inputs == {"events": "somewhere"}
    assert any(re.search(r"^stub has failed .*no topic 'nowhere'.* starting it again", line) for line in said)
    assert launch("", "elsewhere")["launched"] is False
    assert local.plan("stub").inputs == {"events": "somewhere"}
    assert said[-1] == "stub was launched before, and is running"


def test_what_has_worked_is_tried_again(owner: Owner, local: LocalDeployments) -> None:
    local.launch(plan(owner, wrong={"stub.1": "throw later", "stub.2": "throw", "stub.3": "not ready"}))
    until(lambda: local.status("stub").run_id == "run-4")
    assert "does not answer" in json.loads((local.folder("stub") / "deployment.json").read_text())["reason"]


def remembered(local: LocalDeployments) -> dict[str, Any]:
    return dict(json.loads((local.folder("stub") / "deployment.json").read_text()))


@pytest.mark.parametrize("meanwhile", ["not ready", "throw", "die"])
def test_what_has_worked_is_tried_again_however_long_something_is_away(
    owner: Owner, local: LocalDeployments, meanwhile: str
) -> None:
    away = {f"stub.{start}": meanwhile for start in range(2, 3 + driver_watch.FRUITLESS)}
    back = 4 + driver_watch.FRUITLESS
    local.launch(plan(owner, wrong={"stub.1": "throw later", **away, f"stub.{back - 1}": "throw"}))
    until(lambda: local.status("stub").run_id == f"run-{back}" or local.status("stub").state == "failed")
    assert local.status("stub").state == "running"


def test_a_broker_that_is_away_counts_for_nothing_against_a_new_job(
    owner: Owner, local: LocalDeployments
) -> None:
    away = {f"stub.{start}": "not ready" for start in range(1, 2 + driver_watch.FRUITLESS)}
    back = 3 + driver_watch.FRUITLESS
    local.launch(plan(owner, wrong={**away, f"stub.{back - 1}": "die"}))
    until(lambda: local.status("stub").run_id == f"run-{back}" or local.status("stub").state == "failed")
    assert local.status("stub").state == "running"


def test_that_it_has_worked_is_remembered_from_its_first_batch_on(
    owner: Owner, local: LocalDeployments
) -> None:
    run(local, plan(owner))
    until(lambda: remembered(local)["progressed"])
    assert (remembered(local)["incarnation"], remembered(local)["fruitless"]) == (1, 0)


@pytest.mark.parametrize("first", ["", "idle"])
def test_an_idle_job_outlives_any_number_of_restarts_of_ours(owner: Owner, first: str) -> None:
    with deployments(owner) as local:
        run(local, plan(owner, wrong={"stub": "idle", "stub.1": first}))
        until(lambda: first == "idle" or local.said("stub")["batches"] > 1)
    for life in range(2, 4 + driver_watch.FRUITLESS):
        owner.stop_all(grace_s=2.0)  # as when `headroom serve` leaves
        with deployments(owner) as local:
            until(lambda local=local: local.status("stub").state in ("running", "failed"))
            assert local.status("stub").run_id == f"run-{life}"


def test_a_job_that_was_ended_with_us_before_its_first_batch_is_started_again(owner: Owner) -> None:
    unwatched = deployments(owner)
    unwatched.launch(plan(owner, wrong={"stub.1": "throw"}))  # as one does whose JVM was ended before it
    until(lambda: unwatched.status("stub").state == "failed")
    with deployments(owner) as local:
        until(lambda: local.status("stub").run_id == "run-2")


def test_the_pause_between_fruitless_starts_grows_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_watch, "PAUSE_S", 60.0)
    pauses = [driver_watch.pause_s(starts) for starts in (0, 1, 2, 5, 6, 100_000)]
    assert pauses == [0.0, 2.0, 4.0, 32.0, 60.0, 60.0]


def test_a_driver_that_never_gets_anywhere_is_given_up(owner: Owner, local: LocalDeployments) -> None:
    local.launch(plan(owner, wrong="die"))
    until(lambda: local.status("stub").state == "failed")
    assert "was killed: see" in local.status("stub").reason
    record = json.loads((local.folder("stub") / "deployment.json").read_text())
    assert record["incarnation"] == 1 + driver_watch.FRUITLESS


def test_a_program_that_comes_to_its_end_has_stopped(owner: Owner, local: LocalDeployments) -> None:
    local.launch(plan(owner, wrong="finish"))
    until(lambda: local.status("stub").state == "stopped")
    until(lambda: local.names() == ())
    assert local.status("stub").reason == "the program came to its end"


def test_a_change_that_fails_is_not_declared(owner: Owner, local: LocalDeployments) -> None:
    run(local, plan(owner, wrong="stuck"))
    with pytest.raises(NotReady, match="1 of 2 executors"):
        local.scale("stub", 2, epoch=3)
    assert local.plan("stub").scale_out == 1
    with pytest.raises(Unsafe, match="older than 3"):
        local.scale("stub", 2, epoch=2)


def test_a_driver_that_dies_in_the_middle_comes_back_with_the_new_size(
    owner: Owner, local: LocalDeployments
) -> None:
    run(local, plan(owner, wrong={"stub.1": "dies scaling"}))
    until(lambda: local.said("stub")["batches"] > 1)
    changed = local.scale("stub", 2, epoch=1)
    assert (changed.path, changed.after) == ("restart", 2)
    assert local.status("stub").run_id == "run-2"


def test_after_a_crash_of_ours_the_next_one_adopts_everything(owner: Owner) -> None:
    with deployments(owner) as first:
        run(first, plan(owner))
        first.scale("stub", 2, epoch=5)
        run(first, plan(owner, "other"))
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


def test_others_may_look_without_owning_the_folder(owner: Owner, local: LocalDeployments) -> None:
    run(local, plan(owner))
    reader = deployments(Owner(owner.folder))
    assert reader.status("stub") == local.status("stub")
    assert reader.names() == ("stub",)


def test_forgotten_is_forgotten(owner: Owner, local: LocalDeployments) -> None:
    run(local, plan(owner))
    local.forget("stub")
    assert not local.folder("stub").exists()
    with pytest.raises(Misconfigured):
        local.status("stub")


# ---------------------------------------------------------------------------------------------- failures


@pytest.fixture
def failures(owner: Owner, local: LocalDeployments) -> LocalFailures:
    return LocalFailures(owner, local)


def test_only_what_can_be_caused_here(owner: Owner, local: LocalDeployments, failures: LocalFailures) -> None:
    assert failures.kinds() == {"executor_kill", "executor_freeze", "driver_kill", "driver_freeze"}
    with pytest.raises(Misconfigured, match="there is no 'stub'"):
        failures.inject("stub", "executor_kill")
    run(local, plan(owner))
    with pytest.raises(Misconfigured, match="'broker_restart' cannot be caused here; there is driver_freeze"):
        failures.inject("stub", "broker_restart")
    with pytest.raises(Misconfigured, match="'explosion' is no kind of failure"):
        failures.inject("stub", "explosion")
    local.stop("stub")
    with pytest.raises(NotReady, match="stub does not run"):
        failures.inject("stub", "executor_kill")
    assert failures.active() == ()


def test_a_broker_that_is_being_restarted_is_not_restarted_again(
    owner: Owner, local: LocalDeployments
) -> None:
    class Broker:
        """One that takes its time, and counts."""

        starts = 0
        may_start = threading.Event()

        def stop(self) -> None: ...

        def start(self, *, keep_ports: bool) -> None:
            self.starts += 1
            self.may_start.wait(20.0)

        def ensure(self, *, keep_ports: bool) -> None:
            assert keep_ports, "clients know no others"

    broker = Broker()
    failures = LocalFailures(owner, local, broker=broker)  # type: ignore[arg-type]
    run(local, plan(owner))
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


def test_the_oldest_executor_is_killed_with_all_it_has_started(
    owner: Owner, local: LocalDeployments, failures: LocalFailures
) -> None:
    run(local, plan(owner, scale_out=2))
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


def test_what_is_frozen_is_woken(owner: Owner, local: LocalDeployments, failures: LocalFailures) -> None:
    run(local, plan(owner, scale_out=2))
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


@pytest.mark.parametrize("kind", ["driver_kill", "driver_freeze"])
def test_a_driver_that_is_hit_comes_back(
    owner: Owner, local: LocalDeployments, failures: LocalFailures, kind: str
) -> None:
    run(local, plan(owner))
    until(lambda: local.said("stub")["batches"] > 1)
    injection = failures.inject("stub", kind)
    with pytest.raises(NotReady):
        failures.inject("stub", kind)
    until(lambda: local.status("stub").run_id == "run-2")
    failures.clear(injection.id)
    assert local.status("stub").run_id == "run-2"


def test_what_a_crash_of_ours_has_left_is_cleared_by_the_next(owner: Owner) -> None:
    unwatched = deployments(owner, network_timeout_s=300)
    unwatched.launch(plan(owner))
    until(lambda: unwatched.status("stub").state == "running")
    left = [
        LocalFailures(owner, unwatched).inject("stub", kind) for kind in ("executor_freeze", "driver_freeze")
    ]
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


def test_one_that_cannot_be_cleared_leaves_no_other_uncleared(
    owner: Owner, local: LocalDeployments, failures: LocalFailures, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(local, plan(owner))
    broken = failures.inject("stub", "driver_kill")
    until(lambda: local.status("stub").run_id == "run-2")
    failures.inject("stub", "executor_freeze")

    def no_driver(name: str) -> None:
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


def test_it_is_written_down_before_it_is_done(
    owner: Owner, local: LocalDeployments, failures: LocalFailures, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(local, plan(owner))

    def crash(kind: str, processes: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(failures, "_do", crash)
    with pytest.raises(KeyboardInterrupt):
        failures.inject("stub", "executor_freeze")
    (noted,) = LocalFailures(owner, local).active()
    assert failures.left_over() == (noted,)
    assert noted.kind == "executor_freeze"
    assert "executor 0" in noted.victim
    assert LocalFailures(owner, local).clear_all() == (noted,)


def test_cleanup_ends_what_was_frozen(owner: Owner, local: LocalDeployments, failures: LocalFailures) -> None:
    run(local, plan(owner))
    failures.inject("stub", "executor_freeze")
    local.close()
    owner.release()
    assert len(cleanup(owner.folder, grace_s=1.0)) >= 2
    assert marked(owner.id) == ()
