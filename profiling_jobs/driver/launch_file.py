"""The files of one deployment: what its driver is to do, and what it leaves behind.

`driver.json` (the launch file), `token`, `control.json` (the driver listens) and `control.sock` (where),
`progress.jsonl` (its events) and `ended.json` (how it ended, unless it was killed). A file is there whole or
not at all.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from models import codec
from models.ports import Plan

from ..brokers import Brokers
from .channel import HOST, Address

SOCKET = "control.sock"
TRACEBACK = "Traceback (most recent call last):"
NAMED = re.compile(r"[\w.]*(Error|Exception|Warning|Interrupt|Failure|Exit)\b")
LONGEST = 500  # judgement: what fits a table and a notification


def in_short(error: BaseException) -> str:
    """The error in one line."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Java's frames, and its own wrapping of the same error, come after the traceback.
    named = [line for line in lines if NAMED.match(line)] if TRACEBACK in text else []
    kind = type(error).__name__
    if named:
        return named[-1][:LONGEST]
    return f"{kind}: {lines[0]}"[:LONGEST] if lines else kind


def say(text: str) -> None:
    """Write a line into the log of this process."""
    sys.stderr.write(f"headroom: {text}\n")
    sys.stderr.flush()


How = Literal["finished", "stopped", "threw", "query failed", "refused", "not ready"]


@dataclass(frozen=True)
class LaunchFile:
    """What one driver process has to do."""

    schema: ClassVar[int] = 1
    plan: Plan
    brokers: Brokers
    folder: Path = field(metadata=codec.GIVEN)
    incarnation: int
    """Grows by one with every start of this deployment."""
    project: Path
    """Where scripts and modules are looked for."""
    conf: Mapping[str, str]
    slots: int | None = None
    """What the cluster offers in all, where a new application takes every free slot."""
    scale_timeout_s: float = 120.0
    control_port: int | None = None
    """Set in a pod: the control channel listens there, on the pod's own address (POD_IP)."""

    def write(self) -> Path:
        path = self.folder / "driver.json"
        write_json(path, codec.to_json(self))
        return path

    @classmethod
    def read(cls, path: Path, *, folder: Path | None = None) -> LaunchFile:
        """What `write` has written. `folder`: where the driver writes; in a pod not beside the file."""
        return codec.from_json(cls, json.loads(path.read_text()), folder=folder or path.parent)


@dataclass(frozen=True)
class Ended:
    """How a driver came to its end, in its own words."""

    schema: ClassVar[int] = 1
    incarnation: int
    how: How
    reason: str = ""
    batches: int = 0
    """Finished in this incarnation."""

    def write(self, folder: Path) -> None:
        write_json(folder / "ended.json", codec.to_json(self))

    @classmethod
    def read(cls, folder: Path, *, incarnation: int) -> Ended | None:
        """None when this incarnation wrote nothing: it runs, or it was killed."""
        return _read(cls, folder / "ended.json", incarnation)


@dataclass(frozen=True)
class Listening:
    """Address of a driver's control channel."""

    schema: ClassVar[int] = 1
    incarnation: int
    port: int | None = None
    """On loopback, as earlier versions did; None: on the socket of its folder."""

    def address(self, folder: Path) -> Address:
        return folder / SOCKET if self.port is None else (HOST, self.port)

    def write(self, folder: Path) -> None:
        write_json(folder / "control.json", codec.to_json(self))

    @classmethod
    def read(cls, folder: Path, *, incarnation: int) -> Listening | None:
        """None when this incarnation does not listen yet."""
        return _read(cls, folder / "control.json", incarnation)


Written = TypeVar("Written", Ended, Listening)


def _read(kind: type[Written], path: Path, incarnation: int) -> Written | None:
    data = read_json(path)
    if data is None or data.get("incarnation") != incarnation:
        return None
    return codec.from_json(kind, data)


def write_json(path: Path, data: Mapping[str, Any], *, still: Callable[[], bool] = lambda: True) -> bool:
    """As `write_text`."""
    return write_text(path, json.dumps(data), still=still)


def write_text(path: Path, text: str, *, still: Callable[[], bool] = lambda: True) -> bool:
    """Durable when it returns; never half of it; for this user only, also when two write at once.

    `still`: asked once the disk has taken the text; where it is false, the file stays as it was.
    """
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if not still():
            os.unlink(partial)
            return False
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
    _sync(path.parent)
    return True


def write_once(path: Path, text: str) -> None:
    """The same where there is no such file; one that is there stays, also when two write at once."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    write_text(draft, text)
    try:
        with suppress(FileExistsError):  # another was quicker
            os.link(draft, path)
    finally:
        draft.unlink()
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON in a file; None where there is none, or it cannot be read."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
