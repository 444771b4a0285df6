"""Log files of the processes that an owner has started: `logs/ROLE.log`, and before it `ROLE.log.1`.

A process writes through a descriptor that it has inherited, and goes on writing to a file that is renamed. So
the newest part of its file is copied, and the file is cut to nothing. The descriptor appends: the next line
is written at the new end. A line that is written between the copy and the cut is lost.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import IO

LOG_BYTES = 10_000_000  # judgement: days of warnings; one older file of this size is kept beside it
LOOK_S = 10.0  # judgement: what writes 10 MB/s to its log fills 100 MB until it is looked at
ENDINGS = (".log", ".log.1")


def make_room(log: Path) -> None:
    """Put a log that is half full aside: what a process says while it starts is then never cut off."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > LOG_BYTES / 2:
            log.replace(older(log))


def opened(log: Path) -> IO[bytes]:
    """The log of a process that is about to start, opened for appending."""
    log.parent.mkdir(mode=0o700, exist_ok=True)
    make_room(log)
    file = os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")
    os.utime(file.fileno())  # it is in use from now on, also before the first line: see `forget`
    return file


def rotate_all(folder: Path) -> None:
    """Look at every log once."""
    for log in folder.glob("*.log"):
        rotate(log)


def rotate(log: Path) -> None:
    """Put the newest LOG_BYTES of a log that is longer aside and cut it, while a process writes it."""
    try:
        if log.stat().st_size <= LOG_BYTES:
            return
        with log.open("r+b") as file:
            file.seek(-LOG_BYTES, os.SEEK_END)
            with suppress(OSError):  # on a full disk as much as fits: a log must not be what fills it
                _keep(file, older(log))
            file.truncate(0)
    except FileNotFoundError:
        return


def older(log: Path) -> Path:
    """Where the part that was put aside is."""
    return log.with_name(f"{log.name}.1")


def forget(folder: Path, *, running: Collection[str], before_s: float) -> int:
    """Delete logs that nobody has written to since, of roles that do not run; how many files."""
    forgotten = 0
    for log in folder.glob("*.log*"):
        role = log.name.removesuffix(".1").removesuffix(".log")
        if log.name.endswith(ENDINGS) and role not in running:
            with suppress(FileNotFoundError):
                if log.stat().st_mtime < before_s:
                    log.unlink()
                    forgotten += 1
    return forgotten


def _keep(file: IO[bytes], target: Path) -> None:
    target.unlink(missing_ok=True)  # first: on a full disk there is room for one of them
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as kept:
        shutil.copyfileobj(file, kept)
