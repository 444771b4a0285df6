"""Real processes, no Java: what an owner starts is found again, and nothing else is touched."""

import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace

import psutil
import pytest
from command import headroom
from simulated_service import ORDERS
from waiting import until

from models.errors import Misconfigured, NotReady, Unsafe
from pipelines.processes.owner import Owner, cleanup, holder, owner_id
from pipelines.processes.processes import OWNER, cpu_seconds, descendants, end, identify, marked

SLEEP = ("sleep", "600")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / ".headroom"
    yield path
    cleanup(path, grace_s=0.2, end_owner=True)
    assert not marked(owner_id(path))


@pytest.fixture
def bystander():
    """Somebody else's process."""
    with subprocess.Popen(SLEEP) as child:
        process = identify(child.pid)
        assert process is not None
        yield process
        child.kill()


def test_a_process_is_started_marked_recorded_and_logged(folder):
    with Owner(folder) as owner:
        process = owner.start("talker", ["sh", "-c", "echo hello; exec sleep 600"])
        assert owner.running("talker") == (process,)
        assert owner.running("listener") == ()
        # The kernel shows the environment of a new process a moment late.
        until(lambda: [one.role for one in marked(owner.id)] == ["talker"])
        until(lambda: owner.log("talker").read_text() == "hello\n")
        assert os.getsid(process.pid) == process.pid
    assert not process.alive
    assert not list((folder / "processes").iterdir())


def test_a_process_inherits_no_secret_of_ours(folder, monkeypatch):
    monkeypatch.setenv("CLOUD_TOKEN", "hidden")
    with Owner(folder) as owner:
        owner.start("printer", ["env"], environment={"GIVEN": "on purpose"})
        until(lambda: OWNER in owner.log("printer").read_text())
        text = owner.log("printer").read_text()
    assert "hidden" not in text
    assert "GIVEN=on purpose" in text
    assert f"{OWNER}={owner.id}" in text


UNUSABLE = "cannot be used (Not a directory|name another --folder"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("serve --no-pages --folder file/under", f"file/under: {UNUSABLE}"),
        ("demo --deployment simulated --folder file/under", f"file/under: {UNUSABLE}"),
        ("drill orders --rate-rps 5 --folder file/under", f"file/under: {UNUSABLE}"),
        ("serve --no-pages", "File exists|.headroom/server"),
    ],
)
def test_a_file_in_the_way_of_a_folder_is_one_sentence(command, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headroom.toml").write_text(ORDERS)
    (tmp_path / ".headroom").mkdir(mode=0o700)
    for file in ("file", ".headroom/server"):
        (tmp_path / file).write_text("in the way")
    said = headroom(*command.split())
    assert said.exit_code == 2
    assert all(word in said.stderr for word in words.split("|")), said.stderr


def test_what_cannot_be_recorded_does_not_run(folder):
    with Owner(folder) as owner:
        (folder / "processes").write_text("a file where the folder should be")
        with pytest.raises(NotReady, match="worker was not started"):
            owner.start("worker", SLEEP)
        assert marked(owner.id) == ()
        (folder / "processes").unlink()


def test_a_second_owner_is_told_who_the_first_one_is(folder):
    with Owner(folder, command="headroom serve"):
        with pytest.raises(Unsafe, match=rf"process {os.getpid()} \(headroom serve, since "):
            Owner(folder).acquire()
        with pytest.raises(Unsafe, match="stop that one first"):
            cleanup(folder)
    Owner(folder).acquire().release()


def test_only_the_owner_starts_what_has_a_name_and_exists(folder):
    with pytest.raises(Unsafe, match="only its owner"):
        Owner(folder).start("talker", SLEEP)
    with Owner(folder) as owner:
        for role in ("", "Kafka", "a/b", "../x", "driver.", "a b"):
            with pytest.raises(Misconfigured, match="role"):
                owner.start(role, SLEEP)
        with pytest.raises(Misconfigured, match="no-such-program"):
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
def owning(folder, *before):
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
def test_a_foreground_owner_leaves_nothing_behind(folder, number):
    with owning(folder) as child:
        child.send_signal(number)
        child.wait(timeout=30)
    assert marked(owner_id(folder)) == ()


def test_an_owner_that_was_told_to_ignore_the_hang_up_outlives_it(folder):
    with owning(folder, "nohup") as child:
        child.send_signal(signal.SIGHUP)
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 128 + signal.SIGTERM


def test_after_a_crash_of_ours_the_next_owner_adopts(folder):
    with owning(folder) as child:
        child.kill()
    assert holder(folder) is None
    owner = Owner(folder).acquire()
    (process,) = owner.running("worker")
    owner.stop(process)
    assert owner.everything() == ()
    owner.release()


def test_what_no_later_command_adopts_ends_when_the_folder_is_taken_over(folder):
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


def test_after_a_crash_of_ours_cleanup_ends_everything_and_says_what(folder):
    with owning(folder) as child:
        child.kill()
    ended = cleanup(folder)
    assert len(ended) == 3
    assert {one.process.role for one in ended} == {"worker"}
    assert {one.how for one in ended} == {"terminated"}
    assert marked(owner_id(folder)) == ()
    assert cleanup(folder) == ()


def test_cleanup_ends_the_owner_too_when_asked(folder):
    with owning(folder) as child:
        child.send_signal(signal.SIGSTOP)  # even when it hangs
        # On a busy machine it needs its time to end in order.
        ended = cleanup(folder, end_owner=True, grace_s=60)
        assert child.wait(timeout=60) == 128 + signal.SIGTERM
    assert ended[0].process.command == ("headroom demo",)
    assert marked(owner_id(folder)) == ()


def test_cleanup_finds_children_after_the_folder_was_deleted(tmp_path):
    folder = tmp_path / "gone"
    with owning(folder) as child:
        child.kill()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    assert len(cleanup(folder)) == 3
    assert not folder.exists()


def test_frozen_processes_are_woken_and_may_end_in_order(folder):
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


def test_a_process_that_will_not_stop_is_killed(folder):
    with Owner(folder) as owner:
        script = "trap '' TERM; echo ready; while :; do sleep 0.02; done"
        process = owner.start("stubborn", ["bash", "-c", script])
        until(lambda: "ready" in owner.log("stubborn").read_text())
        ended = owner.stop_all(grace_s=0.2)
    assert [one.how for one in ended if one.process == process] == ["killed"]


def test_unrecorded_children_are_found_without_their_parent(folder):
    owner = Owner(folder).acquire()
    process = owner.start("parent", ["sh", "-c", "sleep 600 & echo $!; wait"])
    until(lambda: owner.log("parent").read_text().endswith("\n"))
    child = int(owner.log("parent").read_text())
    owner.stop(process, kill=True)
    owner.release()
    assert owner.running() == ()
    (ended,) = cleanup(folder)
    assert (ended.process.pid, ended.process.role) == (child, "parent")


def test_children_that_cleared_their_environment_are_found_through_their_parent(folder):
    with Owner(folder) as owner:
        process = owner.start("parent", ["sh", "-c", "env -i sleep 600 & echo $!; wait"])
        # Empty while it starts.
        until(lambda: [one.command[:1] for one in descendants([process])] == [("sleep",)])
        until(lambda: owner.log("parent").read_text().endswith("\n"))
        child = int(owner.log("parent").read_text())
        assert {one.process.pid for one in owner.stop_all()} == {process.pid, child}


def test_processor_time_counts_what_ended_children_used(folder, bystander):
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    with Owner(folder) as owner:
        process = owner.start("burner", ["sh", "-c", f"{sys.executable} -c '{burn}'; exec sleep 600"])
        until(lambda: cpu_seconds([process])[process] >= 0.3)  # counted in hundredths, rounded down
        earlier = replace(process, started_ticks=1)  # the pid has another owner now
        assert set(cpu_seconds([process, bystander, earlier])) == {process, bystander}


def test_a_process_that_is_just_ending_has_not_used_no_processor_time(bystander, monkeypatch):
    def gone(process):
        raise psutil.NoSuchProcess(process.pid)

    assert set(cpu_seconds([bystander])) == {bystander}
    monkeypatch.setattr(psutil.Process, "cpu_times", gone)
    assert cpu_seconds([bystander]) == {}


def test_a_reused_pid_is_not_touched(folder, bystander):
    with Owner(folder) as owner:
        process = owner.start("worker", SLEEP)
        (note,) = (folder / "processes").iterdir()
        owner.stop(process)
        record = {**RECORD, "owner": owner.id, "pid": bystander.pid}
        note.write_text(json.dumps(record))  # its start time is another one
        assert owner.running() == ()
        note.write_text(json.dumps({**record, "started_ticks": bystander.started_ticks}))  # other boot
        assert owner.running() == ()
    assert cleanup(folder) == ()
    assert bystander.alive


RECORD = {"schema": 1, "boot": "another", "pid": 0, "started_ticks": 1, "role": "worker", "command": ["x"]}


def test_no_signal_reaches_a_later_process_with_the_same_pid(bystander):
    earlier = replace(bystander, started_ticks=bystander.started_ticks - 1)
    assert not earlier.alive
    assert not earlier.signal(signal.SIGKILL)
    assert earlier.wait(0.0)
    assert end([earlier], grace_s=0.1) == ()
    assert bystander.alive


def test_a_copied_folder_does_not_end_the_original_s_processes(folder, tmp_path):
    with Owner(folder) as owner:
        process = owner.start("worker", SLEEP)
        copy = tmp_path / "copy"
        (copy / "processes").mkdir(parents=True)
        for note in (folder / "processes").iterdir():
            (copy / "processes" / note.name).write_bytes(note.read_bytes())
        assert cleanup(copy) == ()
        assert process.alive


def test_torn_records_are_ignored_and_tidied_away(folder):
    (folder / "processes").mkdir(parents=True)
    for number, text in enumerate(("", "{", "[]", '{"owner": 3}', '{"pid": "x"}')):
        (folder / "processes" / f"worker-{number}.json").write_text(text)
        (folder / "processes" / f"worker-{number}.part").write_text(text)
    assert cleanup(folder) == ()
    assert list((folder / "processes").iterdir()) == []


@contextmanager
def no_file_handle_left():
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


def test_a_moment_without_file_handles_is_nobodys_death(folder):
    with Owner(folder) as owner:
        process = owner.start("driver.orders", SLEEP)
        with no_file_handle_left():
            questions = {
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


def test_a_process_is_waited_for_by_an_owner_with_many_open_files(bystander):
    """`select` takes no handle beyond 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"no more than {hard} files can be opened here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < 1100:
            held.append(os.open(os.devnull, os.O_RDONLY))
        assert not bystander.wait(0.05)
        bystander.signal(signal.SIGKILL)
        assert bystander.wait(10.0)
    finally:
        for handle in held:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_cannot_be_identified_after_its_start_does_not_run(folder, monkeypatch):
    def nothing_left(pid):
        raise NotReady("Too many open files")

    with Owner(folder) as owner:
        monkeypatch.setattr("pipelines.processes.owner.identify", nothing_left)
        with pytest.raises(NotReady, match="worker was not started"):
            owner.start("worker", SLEEP)
        assert marked(owner.id) == ()


def test_a_zombie_counts_as_ended(folder):
    with Owner(folder) as owner:
        process = owner.start("short", ["true"])
        until(lambda: not process.alive)
        assert owner.exit_code(process) == 0
        assert owner.running() == ()


def test_cleanup_spares_the_one_who_calls_it(folder):
    """A command that a marked process has started (a run of the orchestrator) may clean up."""
    calling = (
        "import sys, pathlib, pipelines.processes.owner as o; print(o.cleanup(pathlib.Path(sys.argv[1])))"
    )
    environment = {**os.environ, OWNER: owner_id(folder)}
    folder.mkdir()
    script = f"{sys.executable} -c '{calling}' {folder}; echo still here"
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["()", "still here"]


def test_a_long_log_is_put_aside_at_the_next_start(folder, monkeypatch):
    monkeypatch.setattr("pipelines.processes.logs.LOG_BYTES", 3)
    with Owner(folder) as owner:
        for word in ("first", "second"):
            owner.start("talker", ["echo", word])
            until(lambda word=word: word in owner.log("talker").read_text())
        assert owner.log("talker").read_text() == "second\n"
        assert owner.log("talker").with_suffix(".log.1").read_text() == "first\n"


def test_the_log_of_a_process_that_runs_is_bounded_and_its_newest_part_kept(folder, monkeypatch):
    monkeypatch.setattr("pipelines.processes.logs.LOG_BYTES", 20)
    with Owner(folder) as owner:
        # Its descriptor is its own: it knows nothing of what is done with the file.
        script = "echo one two three four five; read line < go; echo six; exec sleep 600"
        os.mkfifo(folder / "go")
        owner.start("talker", ["sh", "-c", script])
        log = owner.log("talker")
        until(lambda: log.read_text().endswith("five\n"))
        owner.rotate_logs()
        assert log.read_text() == ""
        assert log.with_name("talker.log.1").read_text() == "two three four five\n"
        (folder / "go").write_text("\n")
        until(lambda: log.read_text() == "six\n")
        owner.rotate_logs()
        assert log.read_text() == "six\n", "a short one is left alone"
        assert log.with_name("talker.log.1").stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_put_aside_is_cut_all_the_same(folder, monkeypatch):
    """As on a full disk."""
    monkeypatch.setattr("pipelines.processes.logs.LOG_BYTES", 3)
    monkeypatch.setattr("pipelines.processes.logs.shutil.copyfileobj", no_room)
    owner = Owner(folder)
    owner.log("talker").parent.mkdir(parents=True)
    owner.log("talker").write_text("too much\n")
    owner.rotate_logs()
    assert owner.log("talker").read_text() == ""


def no_room(*files):
    raise OSError(28, "No space left on device")


def test_logs_of_what_has_ended_are_forgotten_and_those_of_what_runs_are_not(folder):
    with Owner(folder) as owner:
        for role in ("driver.orders", "driver.orders-e2"):
            process = owner.start(role, SLEEP)
        owner.stop(process)
        owner.log("driver.logs.log").write_text("a job may be called like that")
        for log in (folder / "logs").iterdir():
            os.utime(log, (1000.0, 1000.0))
        recent = owner.log("replay.orders-e2")
        recent.touch()
        assert owner.forget_logs(before_s=1000.0) == 0
        assert owner.forget_logs(before_s=2000.0) == 2
        assert set((folder / "logs").iterdir()) == {owner.log("driver.orders"), recent}
        owner.start("driver.orders", ["true"])
        assert owner.log("driver.orders").stat().st_mtime > 2000.0, "in use, before it says a word"


def test_the_owner_of_before_a_restart_of_the_machine_is_not_the_process_that_has_its_pid_now(
    tmp_path,
):
    owner = Owner(tmp_path).acquire()
    try:
        assert holder(tmp_path) is not None
        note = json.loads((tmp_path / "owner.lock").read_text())
        (tmp_path / "owner.lock").write_text(json.dumps({**note, "boot": "another"}))
        assert holder(tmp_path) is None
        del note["boot"]  # of an earlier version, which may run still
        (tmp_path / "owner.lock").write_text(json.dumps(note))
        assert holder(tmp_path) is not None
    finally:
        owner.release()
