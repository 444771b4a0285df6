"""How much processor time has a process used, with all its children?

One pass over /proc/*/stat. Of every living process: user and system time, and those of its children that it
has waited for. Summed over a family that counts everything once, also Python workers that have ended: their
time has moved to whoever started them. Linux only.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Times:
    """One process at one moment."""

    pid: int
    parent: int
    started_ticks: int
    cpu_s: float


class ProcessTable:
    """All processes of this machine at one moment."""

    def __init__(self, processes: dict[int, Times]) -> None:
        self._processes = processes
        self._children: dict[int, list[int]] = {}
        for one in processes.values():
            self._children.setdefault(one.parent, []).append(one.pid)

    @classmethod
    def read(cls, proc: Path = PROC) -> ProcessTable:
        """Now."""
        tick = os.sysconf("SC_CLK_TCK")
        found = {}
        for entry in os.listdir(proc):
            if entry.isdigit() and (one := _read(proc / entry / "stat", int(entry), tick)) is not None:
                found[one.pid] = one
        return cls(found)

    def family_cpu_s(self, pid: int, started_ticks: int) -> float | None:
        """The processor seconds of a process and its descendants; None when it has gone."""
        head = self._processes.get(pid)
        if head is None or head.started_ticks != started_ticks:
            return None
        total, todo = 0.0, [pid]
        while todo:
            one = self._processes[todo.pop()]
            total += one.cpu_s
            todo += self._children.get(one.pid, ())
        return total

    @staticmethod
    def started_at_s(started_ticks: int) -> float:
        """A start time in epoch seconds."""
        boot_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return boot_s + started_ticks / os.sysconf("SC_CLK_TCK")


def _read(path: Path, pid: int, tick: int) -> Times | None:
    try:
        text = path.read_bytes()
    except OSError:  # gone meanwhile
        return None
    # The command's name stands in brackets and may itself contain brackets and blanks.
    fields = text[text.rfind(b")") + 1 :].split()
    if len(fields) < 20:
        return None
    used = sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return Times(pid, int(fields[1]), int(fields[19]), used / tick)
