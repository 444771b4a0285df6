"""Processes of this machine that Headroom has started, through psutil.

A pid alone says little, the kernel hands it out again. A process is the pair (pid, kernel start time), the
latter in clock ticks since boot: a reused pid has another one, and is never touched. It is read here because
psutil adds the boot time to it, which moves when the clock is set.

Children that we never saw (executors of a worker, Python workers of an executor) inherit HEADROOM_OWNER, and
are found by their environment. Linux only.

Where the kernel cannot answer, as without a file handle or memory left, the error is NotReady, and a process
that is known counts as alive.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

import psutil

from models.errors import NotReady

OWNER = "HEADROOM_OWNER"
ROLE = "HEADROOM_ROLE"
KILL_WAIT_S = 5.0  # judgement: only a process in an uninterruptible system call outlives SIGKILL for longer
TICKS = os.sysconf("SC_CLK_TCK")
GONE = (FileNotFoundError, ProcessLookupError, PermissionError, psutil.Error)  # or another user's


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
            return bool(self._status())
        except NotReady:  # a second one would be started beside a living process that is taken for dead
            return True

    @property
    def frozen(self) -> bool:
        """Whether it was stopped by SIGSTOP (or sits in a debugger)."""
        return self._status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)

    @property
    def started_at_s(self) -> float:
        """When it was started, epoch seconds."""
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + self.started_ticks / TICKS

    def signal(self, number: int) -> bool:
        """Send a signal; False when the process is gone, whatever has its pid now."""
        with _opened(self.pid) as handle:
            if handle is None or not self.alive:
                return False
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                return True
            return False

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended within the time. psutil's own `wait` would take exit codes from Popen."""
        with _opened(self.pid) as handle:
            if handle is not None and self.alive:
                ending = select.poll()  # `select` takes no handle beyond 1023
                ending.register(handle, select.POLLIN)
                ending.poll(1000.0 * max(timeout_s, 0.0))
            return handle is None or not self.alive

    def _status(self) -> str:
        """As psutil calls it; empty when it has ended."""
        with _answered(f"process {self.pid}"), suppress(*GONE):
            if _stat(self.pid)[1] == self.started_ticks:
                found = psutil.Process(self.pid)
                status = found.status()
                # Of a zombie with threads only the first one has ended: files, locks and ports are still its.
                if status not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD) or found.num_threads() > 1:
                    return status
        return ""


@dataclass(frozen=True)
class Ended:
    """How a process came to its end."""

    process: Process
    how: Literal["terminated", "killed", "survived"]


def identify(pid: int) -> Process | None:
    """The process with this pid now; None when there is none."""
    with _answered(f"process {pid}"), suppress(*GONE):
        _, started = _stat(pid)
        command = tuple(psutil.Process(pid).cmdline())
        process = Process(pid, started, _environment(pid).get(ROLE, ""), command)
        return process if process.alive else None
    return None


def marked(owner: str) -> tuple[Process, ...]:
    """Every process that carries this owner's mark in its environment, recorded or not."""
    # The same path inside a container is another folder: its processes live in another pid namespace.
    here = _namespace("self")
    with _answered("the processes of this machine"):
        pids = psutil.pids()
    ours = (pid for pid in pids if _environment(pid).get(OWNER) == owner and _namespace(pid) == here)
    return tuple(process for pid in ours if (process := identify(pid)) is not None)


def descendants(roots: Iterable[Process]) -> tuple[Process, ...]:
    """The children of these processes, and theirs, also those that have cleared their environment."""
    pids = [root.pid for root in roots if root.alive]
    found = (identify(pid) for pid in _below(pids, _children()) if pid not in pids)
    return tuple(process for process in found if process is not None)


def cpu_seconds(processes: Iterable[Process]) -> dict[Process, float]:
    """Processor time of each living process and all its descendants, also of those that have ended."""
    children, result = _children(), {}
    for process in processes:
        own_s = _cpu_seconds(process.pid)
        if own_s is not None and process.alive:  # one that is just ending has used an unknown time, not none
            below = (_cpu_seconds(pid) for pid in _below([process.pid], children))
            result[process] = own_s + sum(seconds for seconds in below if seconds is not None)
    return result


def lineage() -> frozenset[int]:
    """This process and its ancestors: a cleanup must not end itself."""
    me = psutil.Process()
    return frozenset(process.pid for process in (me, *me.parents()))


def end(processes: Iterable[Process], *, grace_s: float) -> tuple[Ended, ...]:
    """Ask all to stop, wake them, wait `grace_s` together, then kill the rest."""
    targets = [process for process in processes if process.alive]
    for process in targets:
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)  # also where a stop is only pending: nothing else would end it
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


def _cpu_seconds(pid: int) -> float | None:
    """Of this process alone and its children that have ended; None when it is gone."""
    with _answered(f"process {pid}"), suppress(*GONE):
        return sum(psutil.Process(pid).cpu_times()[:4])
    return None


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    with _answered("the processes of this machine"):
        for pid in psutil.pids():
            with suppress(*GONE):
                found.setdefault(_stat(pid)[0], []).append(pid)
    return found


def _below(roots: list[int], children: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    todo = list(roots)
    while todo:
        new = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found += new
        todo += new
    return found


def _stat(pid: int) -> tuple[int, int]:
    """Parent and start time. For the parents of all processes psutil takes four times as long."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read()
    # The command's name stands in brackets and may itself contain brackets and blanks.
    fields = text[text.rfind(b")") + 2 :].split()
    return int(fields[1]), int(fields[19])


def _environment(pid: int) -> dict[str, str]:
    with _answered(f"process {pid}"), suppress(*GONE):
        return psutil.Process(pid).environ()
    return {}


def _namespace(pid: int | str) -> str:
    with _answered(f"process {pid}"), suppress(*GONE):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


@contextmanager
def _opened(pid: int) -> Iterator[int | None]:
    """A handle on the process that has this pid, which no other one can take meanwhile; None without one."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        yield None
        return
    except OSError as error:
        raise _not_now(f"process {pid}", error) from error
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _answered(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _not_now(what, error) from error


def _not_now(what: str, error: OSError) -> NotReady:
    return NotReady(f"{what} cannot be looked at just now ({error.strerror}): try again")
