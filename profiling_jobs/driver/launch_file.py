"""The files of one deployment: what its driver is to do, and what it leaves behind.

`driver.json` (the launch file), `token`, `control.json` (where the driver listens), `progress.jsonl` (its
events) and `ended.json` (how it ended, unless it was killed). A file is there whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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
class Orders:
    """What one driver process has to do."""

    plan: Plan
    brokers: Brokers
    folder: Path
    incarnation: int
    """Grows by one with every start of this deployment."""
    project: Path
    """Where scripts and modules are looked for."""
    conf: Mapping[str, str]
    slots: int | None = None
    """What the cluster offers in all, where a new application takes every free slot."""
    scale_timeout_s: float = 120.0

    def write(self) -> Path:
        """Where they are then."""
        path = self.folder / "driver.json"
        write_json(
            path,
            {
                "schema": 1,
                "plan": codec.to_json(self.plan),
                "brokers": codec.to_json(self.brokers),
                "incarnation": self.incarnation,
                "project": str(self.project),
                "conf": dict(self.conf),
                "slots": self.slots,
                "scale_timeout_s": self.scale_timeout_s,
            },
        )
        return path

    @classmethod
    def read(cls, path: Path) -> Orders:
        """What `write` has written."""
        data = json.loads(path.read_text())
        return cls(
            plan=codec.from_json(Plan, data["plan"]),
            brokers=codec.from_json(Brokers, data["brokers"]),
            folder=path.parent,
            incarnation=int(data["incarnation"]),
            project=Path(data["project"]),
            conf=data["conf"],
            slots=data["slots"],
            scale_timeout_s=float(data["scale_timeout_s"]),
        )


@dataclass(frozen=True)
class Ended:
    """How a driver came to its end, in its own words."""

    incarnation: int
    how: How
    reason: str = ""
    batches: int = 0
    """Finished in this incarnation."""

    def write(self, folder: Path) -> None:
        write_json(folder / "ended.json", {"schema": 1, **self.__dict__})

    @classmethod
    def read(cls, folder: Path, *, incarnation: int) -> Ended | None:
        """None when this incarnation wrote nothing: it runs, or it was killed."""
        data = read_json(folder / "ended.json")
        if data is None or data.get("incarnation") != incarnation:
            return None
        return cls(incarnation, data["how"], data["reason"], data["batches"])


@dataclass(frozen=True)
class Listening:
    """Where a driver can be asked."""

    incarnation: int
    port: int

    def write(self, folder: Path) -> None:
        write_json(folder / "control.json", {"schema": 1, **self.__dict__})

    @classmethod
    def read(cls, folder: Path, *, incarnation: int) -> Listening | None:
        """None when this incarnation does not listen yet."""
        data = read_json(folder / "control.json")
        if data is None or data.get("incarnation") != incarnation:
            return None
        return cls(incarnation, data["port"])


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
