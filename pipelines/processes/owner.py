"""Ownership of a `.headroom/` folder and of the processes that run in its name.

One owner per folder: the foreground command or `headroom serve`. It holds an flock on `owner.lock`, which the
kernel frees when the owner dies in whatever way. What it starts runs in a session of its own, carries
HEADROOM_OWNER (a digest of the folder's path) and HEADROOM_ROLE, writes to `logs/ROLE.log`, and is recorded
under `processes/` with pid and kernel start time.

Our own death does not take the processes along: no PR_SET_PDEATHSIG. It fires when the *thread* that started
the child ends, not the process; it reaches no grandchild (executors, Python workers); and it would end a job
whose orchestrator merely restarts. A foreground command ends what it started when it leaves, also on SIGTERM
and SIGHUP (`exit_on_signals`). After a SIGKILL everything is still marked and recorded: the next owner adopts
it (`running`), but for what would only run beside its own (`take_over`), or `cleanup` ends it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from models.errors import Misconfigured, NotReady, Unsafe

from . import logs, records
from .processes import OWNER, ROLE, Ended, Process, descendants, end, identify, lineage, marked

GRACE_S = 10.0  # judgement: a broker's clean stop took 1–2 s here
ROUNDS = 5  # judgement: a worker may start executors while it is being ended
ROLES = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)*")
# Every owner starts its own; those of an earlier one would go on evaluating and sending.
ORPHANS = re.compile(r"dagster-[a-z]+|mlflow|web|(replay|recording)\..+")
# What a JVM or Python needs to run at all. Everything else, tokens and cloud credentials above all, has to be
# named by the code that starts the process.
INHERITED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|LD_LIBRARY_PATH|JAVA_HOME|\w+_NUM_THREADS"
)


@dataclass(frozen=True)
class Holder:
    """The process that owns a folder, and since when."""

    process: Process
    since_s: float


def owner_id(folder: Path) -> str:
    """The mark of everything that belongs to this folder.

    From the path, not from anything inside: it survives deleting the folder, and a copy has another one.
    """
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]


class Owner:
    """The one owner of a folder. As a context it ends what runs in the folder's name when it is left."""

    def __init__(self, folder: Path, *, command: str = "headroom") -> None:
        self.folder = folder.resolve()
        self.id = owner_id(folder)
        self._command = command
        self._lock: int | None = None
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def acquire(self) -> Owner:
        """Take the folder; Unsafe, naming the owner, where it has one."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.folder / "owner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(self.folder, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise Unsafe(_held(self.folder)) from None
        except OSError as error:
            os.close(lock)
            raise Misconfigured(str(self.folder), f"cannot be locked ({error}); use a local disk") from error
        me = identify(os.getpid())
        note = {
            "boot": records.boot_id(),
            "pid": os.getpid(),
            "started_ticks": me.started_ticks if me else 0,
            "command": self._command,
            "since_s": time.time(),
        }
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps(note).encode(), 0)
        self._lock = lock
        return self

    def release(self) -> None:
        """Give the folder up. What runs goes on running, for the next owner to adopt."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        for child in self._children.values():
            if child.poll() is None:
                child.returncode = 0  # handed over: no longer ours to wait for, nor to be warned of
        self._children.clear()

    def take_over(self) -> Owner:
        """Take the folder, and end what an earlier owner has left and no later one adopts."""
        self.acquire()
        try:
            end([one for one in self.everything() if ORPHANS.fullmatch(one.role)], grace_s=GRACE_S)
        except BaseException:
            self.release()
            raise
        return self

    def __enter__(self) -> Owner:
        return self.take_over()

    def __exit__(self, *raised: object) -> None:
        try:
            self.stop_all()
        finally:
            self.release()

    def marks(self, role: str) -> dict[str, str]:
        """The environment by which a process is known as ours; `spark.executorEnv` takes the same two."""
        if not ROLES.fullmatch(role):
            raise Misconfigured("role", f"'{role}' is not of the form spark-worker or driver.my-job")
        return {OWNER: self.id, ROLE: role}

    def log(self, role: str) -> Path:
        """The log file of a role."""
        return self.folder / "logs" / f"{role}.log"

    def rotate_logs(self) -> None:
        """Bound the logs of what runs; to be called every few seconds."""
        logs.rotate_all(self.folder / "logs")

    def forget_logs(self, *, before_s: float) -> int:
        """Delete logs that were not written to since, of what does not run; how many files."""
        running = {process.role for process in self.running()}
        return logs.forget(self.folder / "logs", running=running, before_s=before_s)

    def log_size(self, role: str) -> int:
        """Before a start: from where on `written` has the words of that run."""
        logs.make_room(self.log(role))  # as the start will: the size of a log that is put aside says nothing
        with suppress(FileNotFoundError):
            return self.log(role).stat().st_size
        return 0

    def written(self, role: str, *, since: int = 0) -> str:
        """What was written to the log from this size on; all of it where the log was put aside meanwhile."""
        data = self.log(role).read_bytes()
        return data[since if since <= len(data) else 0 :].decode(errors="replace").strip()

    def start(
        self,
        role: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        keep_open: Sequence[int] = (),
        umask: int = -1,
    ) -> Process:
        """Start a process that is ours. Secrets belong into `environment`: command lines are public.

        `umask`: -1 is that of this process.
        """
        if self._lock is None:
            raise Unsafe(f"{self.folder} is not ours: only its owner starts processes in its name")
        inherited = {key: value for key, value in os.environ.items() if INHERITED.fullmatch(key)}
        words = [str(word) for word in command]
        marks = self.marks(role)
        with logs.opened(self.log(role)) as log:
            try:
                child = subprocess.Popen(
                    words,
                    env={**inherited, **(environment or {}), **marks},
                    cwd=directory or self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=tuple(keep_open),
                    umask=umask,
                )
            except OSError as error:
                raise Misconfigured(words[0], f"cannot be started: {error}") from error
        self._children[child.pid] = child
        try:
            started = identify(child.pid)
            # One that has ended already is still ours to name; its start time no longer matters.
            process = Process(child.pid, started.started_ticks if started else 0, role, tuple(words))
            records.write(self.folder, self.id, process, log=self.log(role))
        except (OSError, NotReady) as error:
            child.kill()
            child.wait()
            raise NotReady(f"{role} was not started, it could not be recorded: {error}") from error
        return process

    def exit_code(self, process: Process) -> int | None:
        """How it ended; None while it runs, and for processes that an earlier owner started."""
        child = self._children.get(process.pid)
        return child.poll() if child else None

    def stop(self, process: Process, *, grace_s: float = GRACE_S, kill: bool = False) -> None:
        """End one process: asked first, with its children; or with `kill` at once, as a crash would."""
        if kill:
            process.signal(signal.SIGKILL)
            process.wait(GRACE_S)
        else:
            family = (process, *descendants([process]))
            end([process], grace_s=grace_s)
            # Most children leave with their parent; the others would be left without one.
            end((member for member in family if member.pid not in lineage()), grace_s=1.0)
        self._forget(process)

    def running(self, role: str = "") -> tuple[Process, ...]:
        """The recorded processes that are alive, of one role or of all; also those of an earlier owner."""
        found = []
        for process in records.read(self.folder, self.id):
            self.exit_code(process)  # reaps ours
            if not process.alive:
                self._forget(process)
            elif role in ("", process.role):
                found.append(process)
        return tuple(found)

    def everything(self) -> tuple[Process, ...]:
        """Every living process in this folder's name: recorded, marked, and their children."""
        named = {process.pid: process for process in records.read(self.folder, self.id) if process.alive}
        for process in marked(self.id):
            named.setdefault(process.pid, process)
        for process in descendants(tuple(named.values())):
            named.setdefault(process.pid, process)
        spared = lineage()
        return tuple(process for process in named.values() if process.pid not in spared)

    def stop_all(self, *, grace_s: float = GRACE_S) -> tuple[Ended, ...]:
        """End everything that runs in this folder's name."""
        outcome: dict[Process, Ended] = {}
        for _ in range(ROUNDS):
            ended = end(self.everything(), grace_s=grace_s)
            outcome.update({one.process: one for one in ended})
            if all(one.how == "survived" for one in ended):  # or nothing is left
                break
        for process in records.read(self.folder, self.id):
            if not process.alive:
                records.forget(self.folder, process)
        for child in self._children.values():
            child.poll()
        self._children.clear()
        return tuple(outcome.values())

    def _forget(self, process: Process) -> None:
        if child := self._children.get(process.pid):
            child.poll()
        records.forget(self.folder, process)


def holder(folder: Path) -> Holder | None:
    """The owner of the folder, if it still lives."""
    try:
        note = json.loads((folder / "owner.lock").read_text())
        here = records.boot_id()
        if note.get("boot", here) != here:  # its pid and start time may be another process's since
            return None
        process = Process(note["pid"], note["started_ticks"], "owner", (str(note["command"]),))
        return Holder(process, float(note["since_s"])) if process.alive else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def unwritable(folder: Path, error: OSError) -> Misconfigured:
    """The error for a folder that cannot be made or written to."""
    problem = f"cannot be used ({error.strerror}: {error.filename})"
    return Misconfigured(str(folder), f"{problem}; run as the user who owns it, or name another --folder")


def cleanup(folder: Path, *, grace_s: float = GRACE_S, end_owner: bool = False) -> tuple[Ended, ...]:
    """End everything that was started in this folder's name, and say what that was.

    A living owner is refused, or with `end_owner` ended first.
    """
    folder = folder.resolve()
    ended: tuple[Ended, ...] = ()
    living = holder(folder)
    if end_owner and living and living.process.pid not in lineage():
        ended = end([living.process], grace_s=grace_s)
    owner = Owner(folder, command="headroom cleanup")
    if not folder.exists():  # deleted meanwhile: what ran there may still run
        return ended + owner.stop_all(grace_s=grace_s)
    owner.acquire()
    try:
        ended += owner.stop_all(grace_s=grace_s)
        records.forget_all(folder)
        return ended
    finally:
        owner.release()


@contextmanager
def interruptible(say: Callable[[str], None]) -> Iterator[None]:
    """Leave with exit code 130 after Ctrl-C, once everything inside has been put away."""
    try:
        yield
    except KeyboardInterrupt:
        say("everything that was started has ended")
        sys.exit(128 + signal.SIGINT)


def exit_on_signals() -> None:
    """Let SIGTERM and SIGHUP leave through `finally`, as Ctrl-C does. For the main thread of a command.

    A hang-up that was ignored at the start (`nohup headroom serve &`) stays so: the terminal may be closed.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, leave)


def _held(folder: Path) -> str:
    living = holder(folder)
    if living is None:
        return (
            f"{folder} is locked by a process that has not said who it is: try again, or use another folder"
        )
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(living.since_s))
    return (
        f"{folder} is owned by process {living.process.pid} ({living.process.command[0]}, since {since}): "
        "stop that one first, or use another folder"
    )
