"""The files of one deployment: what its driver is to do, and what it leaves behind.

`driver.json` (the launch file), `token`, `control.json` (where the driver listens), `progress.jsonl` (its
events) and `ended.json` (how it ended, unless it was killed). A file is there whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from models import codec
from models.ports import Plan

from ..brokers import Brokers

TRACEBACK = "Traceback (most recent call last):"
NAMED = re.compile(r"[\w.]*(Error|Exception|Warning|Interrupt|Failure|Exit)\b")
LONGEST = 500  # judgement: what fits a table and a notification


def in_short(error: BaseException) -> str:
    """One line."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Java's frames, and its own wrapping of the same error, come after the traceback.
    named = [line for line in lines if NAMED.match(line)] if TRACEBACK in text else []
    kind = type(error).__name__
    if named:
        return named[-1][:LONGEST]
    return f"{kind}: {lines[0]}"[:LONGEST] if lines else kind


How = Literal["finished", "stopped", "threw", "refused", "not ready"]


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

    def write(self) -> Path:
        """Where it is then."""
        path = self.folder / "driver.json"
        write_json(path, codec.to_json(self))
        return path

    @classmethod
    def read(cls, path: Path) -> LaunchFile:
        """What `write` has written."""
        return codec.from_json(cls, json.loads(path.read_text()), folder=path.parent)


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
    """Where a driver can be asked."""

    schema: ClassVar[int] = 1
    incarnation: int
    port: int

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


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Durable when it returns; never half of it; for this user only."""
    partial = path.with_suffix(path.suffix + ".part")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path) -> dict[str, Any] | None:
    """None when there is nothing, or nothing readable."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None
