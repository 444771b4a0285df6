"""Records of the processes that were started, one small file each under `processes/`.

A record has the pid, kernel start time, boot and owner. It is written beside its name and moved there, so
that a crash leaves a whole record or none. Records of another owner (the folder is a copy) are not acted on.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from models.errors import NotReady

from .processes import Process


def write(folder: Path, owner: str, process: Process, *, log: Path) -> None:
    """Record a process."""
    note = {
        "schema": 1,
        "owner": owner,
        "boot": boot_id(),
        "pid": process.pid,
        "started_ticks": process.started_ticks,
        "role": process.role,
        "command": list(process.command),
        "log": str(log),
        "at_s": time.time(),
    }
    path = _path(folder, process)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(note))
    partial.replace(path)


def read(folder: Path, owner: str) -> tuple[Process, ...]:
    """All recorded processes of this owner, dead ones too."""
    try:
        boot = boot_id()
        notes = sorted((folder / "processes").glob("*.json"))
        found = [_process(note, owner, boot=boot) for note in notes]
    except OSError as error:  # no file handle left, perhaps: a note that is left out would be a dead process
        raise NotReady(f"what runs in {folder} cannot be read just now ({error}): try again") from error
    return tuple(process for process in found if process is not None)


def forget(folder: Path, process: Process) -> None:
    """Delete the record of a process."""
    _path(folder, process).unlink(missing_ok=True)


def forget_all(folder: Path) -> None:
    """Delete all records, also torn ones and those of another owner."""
    for note in (folder / "processes").glob("*"):
        note.unlink(missing_ok=True)


def _path(folder: Path, process: Process) -> Path:
    return folder / "processes" / f"{process.role}-{process.pid}.json"


def _process(note: Path, owner: str, *, boot: str) -> Process | None:
    try:
        data: dict[str, Any] = json.loads(note.read_text())
        if data["owner"] != owner:
            return None
        process = Process(int(data["pid"]), int(data["started_ticks"]), data["role"], tuple(data["command"]))
    except (FileNotFoundError, PermissionError, ValueError, KeyError, TypeError):
        return None
    # Start times count from the boot: after a reboot the pair may belong to another process.
    return process if data.get("boot") == boot else replace(process, started_ticks=-1)


def boot_id() -> str:
    """Of this boot of the machine, from which start times are counted; empty where it is not told."""
    with suppress(FileNotFoundError, PermissionError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
