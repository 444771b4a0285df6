"""Which processes on this machine are ours, is this one still the one we started, and how is it ended?

A pid alone says little, the kernel hands it out again. A process is the pair (pid, kernel start time), the
latter from field 22 of /proc/PID/stat in clock ticks since boot: a reused pid has another one, and is never
touched. Every signal goes through a pidfd that is opened before the start time is compared, so that the pid
cannot be reused in between.

Children that we never saw (executors of a worker, Python workers of an executor) inherit HEADROOM_OWNER, and
are found by reading /proc/*/environ. Linux only.

Where the kernel cannot answer just now, as without a file handle or memory left, the question is NotReady,
and a process that is known counts as alive.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from models.errors import NotReady

OWNER = "HEADROOM_OWNER"
ROLE = "HEADROOM_ROLE"
PROC = Path("/proc")
KILL_WAIT_S = 5.0  # judgement: only a process in an uninterruptible system call outlives SIGKILL for longer
NOT_OURS_TO_JUDGE = (FileNotFoundError, ProcessLookupError, PermissionError)  # gone meanwhile, or another's


@dataclass(frozen=True)
class Process:
    """One process, told apart from any later one with the same pid."""

    pid: int
    started_ticks: int
    role: str = field(default="", compare=False)
    command: tuple[str, ...] = field(default=(), compare=False)

    @property
    def alive(self) -> bool:
        """Whether it still runs, as far as can be seen. A zombie does not: only its exit code is left."""
        try:
            return not _over(self._state())
        except NotReady:  # whoever takes a living one for dead runs a second one beside it
            return True

    @property
    def frozen(self) -> bool:
        """Whether it was stopped by SIGSTOP (or sits in a debugger)."""
        return self._state() in ("T", "t")

    def signal(self, number: int) -> bool:
        """Send a signal; False when the process is gone, whoever has its pid now."""
        with suppress(ProcessLookupError):
            handle = _opened(self.pid)
            try:
                if self.alive:
                    signal.pidfd_send_signal(handle, number)
                    return True
            finally:
                os.close(handle)
        return False

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within the time."""
        try:
            handle = _opened(self.pid)
        except ProcessLookupError:
            return True
        try:
            if self.alive:
                select.select([handle], [], [], max(timeout_s, 0.0))
            return not self.alive
        finally:
            os.close(handle)

    def _state(self) -> str:
        found = _stat(self.pid)
        return found[0] if found and found[2] == self.started_ticks else ""


@dataclass(frozen=True)
class Ended:
    """How a process came to its end."""

    process: Process
    how: Literal["terminated", "killed", "survived"]


def identify(pid: int) -> Process | None:
    """Who has this pid now? None when nobody has."""
    before = _stat(pid)
    if before is None or _over(before[0]):
        return None
    marks = _environ(pid)
    command = _read(pid, "cmdline").split(b"\0")
    after = _stat(pid)
    if after is None or after[2] != before[2]:
        return None
    role = marks.get(ROLE.encode(), b"").decode(errors="replace")
    return Process(pid, before[2], role, tuple(part.decode(errors="replace") for part in command if part))


def marked(owner: str) -> tuple[Process, ...]:
    """Every process that carries this owner's mark in its environment, also those nobody recorded."""
    found = []
    here = _namespace("self")
    for pid in _pids():
        # The same path inside a container is another folder: its processes live in another pid namespace.
        if _environ(pid).get(OWNER.encode()) == owner.encode() and _namespace(pid) == here:
            process = identify(pid)
            if process is not None:
                found.append(process)
    return tuple(found)


def descendants(roots: Iterable[Process]) -> tuple[Process, ...]:
    """The children of these processes, and theirs, also those that have cleared their environment."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        if (found := _stat(pid)) is not None:
            children.setdefault(found[1], []).append(pid)
    todo = [root.pid for root in roots if root.alive]
    seen = set(todo)
    result = []
    while todo:
        for pid in children.get(todo.pop(), ()):
            if pid not in seen and (process := identify(pid)) is not None:
                result.append(process)
                seen.add(pid)
                todo.append(pid)
    return tuple(result)


def lineage() -> frozenset[int]:
    """This process and its ancestors: whoever cleans up must not end itself."""
    pids = set()
    pid = os.getpid()
    while pid > 0 and (found := _stat(pid)) is not None:
        pids.add(pid)
        pid = found[1]
    return frozenset(pids)


def end(processes: Iterable[Process], *, grace_s: float) -> tuple[Ended, ...]:
    """Wake the frozen ones, ask all to stop, wait `grace_s` together, then kill the rest."""
    targets = [process for process in processes if process.alive]
    for process in targets:
        if process.frozen:
            process.signal(signal.SIGCONT)
        process.signal(signal.SIGTERM)
    stubborn = _outlive(targets, grace_s)
    for process in stubborn:
        process.signal(signal.SIGKILL)
    survivors = _outlive(stubborn, KILL_WAIT_S)

    def how(process: Process) -> Literal["terminated", "killed", "survived"]:
        return "survived" if process in survivors else "killed" if process in stubborn else "terminated"

    return tuple(Ended(process, how(process)) for process in targets)


def _outlive(processes: Iterable[Process], timeout_s: float) -> list[Process]:
    until = time.monotonic() + timeout_s
    return [process for process in processes if not process.wait(until - time.monotonic())]


def _pids() -> Iterator[int]:
    with _answered("the processes of this machine"):
        entries = os.listdir(PROC)
    for entry in entries:
        if entry.isdigit():
            yield int(entry)


def _read(pid: int, name: str) -> bytes:
    with _answered(f"process {pid}"), suppress(*NOT_OURS_TO_JUDGE):
        return (PROC / str(pid) / name).read_bytes()
    return b""


def _opened(pid: int) -> int:
    """A handle on whoever has this pid; ProcessLookupError when nobody has."""
    with _answered(f"process {pid}", expected=(ProcessLookupError,)):
        return os.pidfd_open(pid)


@contextmanager
def _answered(what: str, *, expected: tuple[type[OSError], ...] = ()) -> Iterator[None]:
    try:
        yield
    except expected:
        raise
    except OSError as error:
        raise NotReady(f"{what} cannot be looked at just now ({error.strerror}): try again") from error


def _over(state: str) -> bool:
    return state in ("", "Z", "X")


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State, parent and start time."""
    text = _read(pid, "stat")
    # The command's name stands in brackets and may itself contain brackets and blanks.
    fields = text[text.rfind(b")") + 1 :].split()
    if len(fields) < 20:
        return None
    state = fields[0].decode()
    if state == "Z" and int(fields[17]) > 1:
        # The first thread has gone and others have not: files, locks and ports are still theirs.
        state = "R"
    return state, int(fields[1]), int(fields[19])


def _environ(pid: int) -> dict[bytes, bytes]:
    pairs = (entry.partition(b"=") for entry in _read(pid, "environ").split(b"\0"))
    return {key: value for key, _, value in pairs}


def _namespace(pid: int | str) -> str:
    with _answered(f"process {pid}"), suppress(*NOT_OURS_TO_JUDGE):
        return os.readlink(PROC / str(pid) / "ns" / "pid")
    return ""
