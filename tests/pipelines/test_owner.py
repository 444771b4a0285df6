"""Real processes, no Java: what an owner starts is found again, and nothing else is touched."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from models.errors import Misconfigured, NotReady, Unsafe
from pipelines.command_line import main
from pipelines.processes.owner import Owner, cleanup, holder, owner_id
from pipelines.processes.processes import OWNER, Process, cpu_seconds, descendants, end, identify, marked

SLEEP = ("sleep", "600")


def until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    limit = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < limit, "the condition was not reached"
        time.sleep(0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / ".headroom"
    yield path
    cleanup(path, grace_s=0.2, end_owner=True)
    assert not marked(owner_id(path))


@pytest.fixture
def bystander() -> Iterator[Process]:
    """Somebody else's process."""
    with subprocess.Popen(SLEEP) as child:
        process = identify(child.pid)
        assert process is not None
        yield process
        child.kill()


def test_a_process_is_started_marked_recorded_and_logged(folder: Path) -> None:
    with Owner(folder) as owner:
        process = owner.start("talker", ["sh", "-c", "echo hello; exec sleep 600"])
        assert owner.running("talker") == (process,)
        assert owner.running("listener") == ()
        until(lambda: marked(owner.id))  # the kernel shows the environment of a new process a moment late
        assert [one.role for one in marked(owner.id)] == ["talker"]
        until(lambda: owner.log("talker").read_text() == "hello\n")
        assert os.getsid(process.pid) == process.pid
    assert not process.alive
    assert not list((folder / "processes").iterdir())


def test_a_process_inherits_no_secret_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_TOKEN", "hidden")
    with Owner(folder) as owner:
        owner.start("printer", ["env"], environment={"GIVEN": "on purpose"})
        until(lambda: OWNER in owner.log("printer").read_text())
        text = owner.log("printer").read_text()
    assert "hidden" not in text
    assert "GIVEN=on purpose" in text
    assert f"{OWNER}={owner.id}" in text


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "--no-pages"],
        ["demo", "--deployment", "simulated"],
        ["drill", "orders", "--rate-rps", "5"],
    ],
)
def test_a_folder_that_cannot_be_made_is_one_sentence(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = '[job.orders]\nbuild = "a:b"\ninputs = {events = "in"}\n'
    (tmp_path / "headroom.toml").write_text(f'[deployment]\nkind = "simulated"\n{job}')
    (tmp_path / "file").write_text("in the way")
    said = CliRunner().invoke(main, [*command, "--folder", "file/under"])
    assert said.exit_code == 2
    assert "file/under: cannot be used (Not a directory" in said.stderr
    assert "name another --folder" in said.stderr


def test_a_file_where_a_folder_of_ours_should_be_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headroom.toml").write_text('[deployment]\nkind = "simulated"\n')
    (tmp_path / ".headroom").mkdir(mode=0o700)
    (tmp_path / ".headroom" / "server").write_text("in the way")
    said = CliRunner().invoke(main, ["serve", "--no-pages"])
    assert said.exit_code == 2
    assert "File exists" in said.stderr
    assert ".headroom/server" in said.stderr


def test_what_cannot_be_recorded_does_not_run(folder: Path) -> None:
    with Owner(folder) as owner:
        (folder / "processes").write_text("a file where the folder should be")
        with pytest.raises(NotReady, match="worker was not started"):
            owner.start("worker", SLEEP)
        assert marked(owner.id) == ()
        (folder / "processes").unlink()


def test_a_second_owner_is_told_who_the_first_one_is(folder: Path) -> None:
    with Owner(folder, command="headroom serve"):
        with pytest.raises(Unsafe, match=rf"process {os.getpid()} \(headroom serve, since "):
            Owner(folder).acquire()
        with pytest.raises(Unsafe, match="stop that one first"):
            cleanup(folder)
    Owner(folder).acquire().release()


def test_only_the_owner_starts_processes(folder: Path) -> None:
    with pytest.raises(Unsafe, match="only its owner"):
        Owner(folder).start("talker", SLEEP)


@pytest.mark.parametrize("role", ["", "Kafka", "a/b", "../x", "driver.", "a b"])
def test_a_role_is_a_file_name(folder: Path, role: str) -> None:
    with Owner(folder) as owner, pytest.raises(Misconfigured, match="role"):
        owner.start(role, SLEEP)


def test_a_command_that_does_not_exist_is_named(folder: Path) -> None:
    with Owner(folder) as owner, pytest.raises(Misconfigured, match="no-such-program"):
        owner.start("talker", ["no-such-program"])


OWNING = """
import sys, time
from pathlib import Path
from pipelines.processes.owner import Owner, exit_on_signals
exit_on_signals()
with Owner(Path(sys.argv[1]), command="headroom demo") as owner:
    process = owner.start("worker", ["sh", "-c", "sleep 601 & sleep 602 & wait"])
    print(process.pid, flush=True)
    time.sleep(600)
"""


@contextmanager
def owning(folder: Path, *before: str) -> Iterator[subprocess.Popen[str]]:
    command = [*before, sys.executable, "-c", OWNING, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert int(child.stdout.readline())
            until(lambda: len(marked(owner_id(folder))) == 3)
            yield child
        finally:
            child.kill()  # leaving Popen waits for ever for one that no signal has ended


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_foreground_owner_leaves_nothing_behind(folder: Path, number: int) -> None:
    with owning(folder) as child:
        child.send_signal(number)
        child.wait(timeout=30)
    assert marked(owner_id(folder)) == ()


def test_an_owner_that_was_told_to_ignore_the_hang_up_outlives_it(folder: Path) -> None:
    with owning(folder, "nohup") as child:
        child.send_signal(signal.SIGHUP)
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 128 + signal.SIGTERM


def test_after_a_crash_of_ours_the_next_owner_adopts(folder: Path) -> None:
    with owning(folder) as child:
        child.kill()
    assert holder(folder) is None
    owner = Owner(folder).acquire()
    (process,) = owner.running("worker")
    owner.stop(process)
    assert owner.everything() == ()
    owner.release()


def test_what_no_later_command_adopts_ends_when_the_folder_is_taken_over(folder: Path) -> None:
    earlier = Owner(folder).acquire()
    kept = [earlier.start(role, SLEEP) for role in ("kafka", "driver.orders", "spark-master")]
    pages = ("dagster-daemon", "dagster-code", "mlflow")
    ended = [
        earlier.start(role, SLEEP) for role in (*pages, "replay.orders-e2.events", "recording.orders-in")
    ]
    earlier.release()  # as if we had died
    with Owner(folder) as owner:
        assert set(owner.running()) == set(kept)
        assert not any(process.alive for process in ended)
        assert all(process.alive for process in kept)


def test_after_a_crash_of_ours_cleanup_ends_everything_and_says_what(folder: Path) -> None:
    with owning(folder) as child:
        child.kill()
    ended = cleanup(folder)
    assert len(ended) == 3
    assert {one.process.role for one in ended} == {"worker"}
    assert {one.how for one in ended} == {"terminated"}
    assert marked(owner_id(folder)) == ()
    assert cleanup(folder) == ()


def test_cleanup_ends_the_owner_too_when_asked(folder: Path) -> None:
    with owning(folder) as child:
        child.send_signal(signal.SIGSTOP)  # even when it hangs
        ended = cleanup(
            folder, end_owner=True, grace_s=60
        )  # on a busy machine it needs its time to end in order
        assert child.wait(timeout=60) == 128 + signal.SIGTERM
    assert ended[0].process.command == ("headroom demo",)
    assert marked(owner_id(folder)) == ()


def test_cleanup_finds_children_after_the_folder_was_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    with owning(folder) as child:
        child.kill()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    assert len(cleanup(folder)) == 3
    assert not folder.exists()


def test_frozen_processes_are_woken_and_may_end_in_order(folder: Path) -> None:
    owner = Owner(folder).acquire()
    script = "trap 'echo in order; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    process = owner.start("sleeper", ["bash", "-c", script])
    until(lambda: "ready" in owner.log("sleeper").read_text())
    process.signal(signal.SIGSTOP)
    until(lambda: process.frozen)
    owner.release()
    (ended,) = (one for one in cleanup(folder) if one.process == process)
    assert ended.how == "terminated"
    assert "in order" in owner.log("sleeper").read_text()


def test_a_process_that_will_not_stop_is_killed(folder: Path) -> None:
    with Owner(folder) as owner:
        process = owner.start(
            "stubborn", ["bash", "-c", "trap '' TERM; echo ready; while :; do sleep 0.02; done"]
        )
        until(lambda: "ready" in owner.log("stubborn").read_text())
        ended = owner.stop_all(grace_s=0.2)
    assert [one.how for one in ended if one.process == process] == ["killed"]


def test_unrecorded_children_are_found_without_their_parent(folder: Path) -> None:
    owner = Owner(folder).acquire()
    process = owner.start("parent", ["sh", "-c", "sleep 600 & echo $!; wait"])
    until(lambda: owner.log("parent").read_text())
    child = int(owner.log("parent").read_text())
    owner.stop(process, kill=True)
    owner.release()
    assert owner.running() == ()
    (ended,) = cleanup(folder)
    assert (ended.process.pid, ended.process.role) == (child, "parent")


def test_children_that_cleared_their_environment_are_found_through_their_parent(folder: Path) -> None:
    with Owner(folder) as owner:
        process = owner.start("parent", ["sh", "-c", "env -i sleep 600 & echo $!; wait"])
        until(
            lambda: [one.command[:1] for one in descendants([process])] == [("sleep",)]
        )  # empty while it starts
        assert {one.process.pid for one in owner.stop_all()} == {
            process.pid,
            int(owner.log("parent").read_text()),
        }


def test_processor_time_counts_what_ended_children_used(folder: Path, bystander: Process) -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    with Owner(folder) as owner:
        process = owner.start("burner", ["sh", "-c", f"{sys.executable} -c '{burn}'; exec sleep 600"])
        until(lambda: cpu_seconds([process])[process] >= 0.3)  # counted in hundredths, rounded down
        earlier = replace(process, started_ticks=1)  # the pid has another owner now
        assert set(cpu_seconds([process, bystander, earlier])) == {process, bystander}


def test_a_reused_pid_is_not_touched(folder: Path, bystander: Process) -> None:
    with Owner(folder) as owner:
        process = owner.start("worker", SLEEP)
        (note,) = (folder / "processes").iterdir()
        owner.stop(process)
        record = json.loads(json.dumps({**RECORD, "owner": owner.id, "pid": bystander.pid}))
        note.write_text(json.dumps(record))  # its start time is another one
        assert owner.running() == ()
        note.write_text(json.dumps({**record, "started_ticks": bystander.started_ticks}))  # other boot
        assert owner.running() == ()
    assert cleanup(folder) == ()
    assert bystander.alive


RECORD = {"schema": 1, "boot": "another", "pid": 0, "started_ticks": 1, "role": "worker", "command": ["x"]}


def test_no_signal_reaches_a_later_process_with_the_same_pid(bystander: Process) -> None:
    earlier = replace(bystander, started_ticks=bystander.started_ticks - 1)
    assert not earlier.alive
    assert not earlier.signal(signal.SIGKILL)
    assert earlier.wait(0.0)
    assert end([earlier], grace_s=0.1) == ()
    assert bystander.alive


def test_a_copied_folder_does_not_end_the_original_s_processes(folder: Path, tmp_path: Path) -> None:
    with Owner(folder) as owner:
        process = owner.start("worker", SLEEP)
        copy = tmp_path / "copy"
        (copy / "processes").mkdir(parents=True)
        for note in (folder / "processes").iterdir():
            (copy / "processes" / note.name).write_bytes(note.read_bytes())
        assert cleanup(copy) == ()
        assert process.alive


@pytest.mark.parametrize("text", ["", "{", "[]", '{"owner": 3}', '{"pid": "x"}'])
def test_a_torn_record_is_ignored_and_tidied_away(folder: Path, text: str) -> None:
    (folder / "processes").mkdir(parents=True)
    (folder / "processes" / "worker-1.json").write_text(text)
    (folder / "processes" / "worker-2.part").write_text(text)
    assert cleanup(folder) == ()
    assert list((folder / "processes").iterdir()) == []


@contextmanager
def no_file_handle_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
    held = []
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for handle in held:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_moment_without_file_handles_is_nobodys_death(folder: Path) -> None:
    with Owner(folder) as owner:
        process = owner.start("driver.orders", SLEEP)
        with no_file_handle_left():
            questions: dict[str, Callable[[], object]] = {
                "running": owner.running,
                "everything": owner.everything,
                "wait": lambda: process.wait(0.0),
                "signal": lambda: process.signal(signal.SIGCONT),
                "marked": lambda: marked(owner.id),
                "identify": lambda: identify(process.pid),
            }
            for name, question in questions.items():
                with pytest.raises(NotReady, match="Too many open files"):
                    pytest.fail(f"{name} says {question()}")
            assert process.alive
        assert owner.running() == (process,)


def test_what_cannot_be_identified_after_its_start_does_not_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_left(pid: int) -> Process:
        raise NotReady("Too many open files")

    with Owner(folder) as owner:
        monkeypatch.setattr("pipelines.processes.owner.identify", nothing_left)
        with pytest.raises(NotReady, match="worker was not started"):
            owner.start("worker", SLEEP)
        assert marked(owner.id) == ()


def test_a_zombie_counts_as_ended(folder: Path) -> None:
    with Owner(folder) as owner:
        process = owner.start("short", ["true"])
        until(lambda: not process.alive)
        assert owner.exit_code(process) == 0
        assert owner.running() == ()


def test_cleanup_spares_the_one_who_calls_it(folder: Path) -> None:
    """A command that a marked process has started (a run of the orchestrator) may clean up."""
    calling = (
        "import sys, pathlib, pipelines.processes.owner as o; print(o.cleanup(pathlib.Path(sys.argv[1])))"
    )
    environment = {**os.environ, OWNER: owner_id(folder)}
    folder.mkdir()
    script = f"{sys.executable} -c '{calling}' {folder}; echo still here"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["()", "still here"]


def test_a_long_log_is_put_aside_at_the_next_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.processes.owner.LOG_BYTES", 3)
    with Owner(folder) as owner:
        for word in ("first", "second"):
            owner.start("talker", ["echo", word])
            until(lambda word=word: word in owner.log("talker").read_text())
        assert owner.log("talker").read_text() == "second\n"
        assert owner.log("talker").with_suffix(".log.1").read_text() == "first\n"
