"""Records of the deployments of a folder, and whether another one may run beside them.

One file per deployment, `deployments/NAME/deployment.json`, written before what it says is done. Nothing is
kept in memory, so the next reader of the folder knows as much.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from models import codec
from models.errors import Misconfigured, NoRoom, Unsafe
from models.ports import Plan
from models.quantities import executors
from profiling_jobs import plans
from profiling_jobs.driver.launch_file import read_json, write_json


@dataclass(frozen=True)
class Record:
    """One deployment. What its driver does at this moment is not in here."""

    schema: ClassVar[int] = 1
    plan: Plan
    """`scale_out` is the declared one."""
    wanted: Literal["running", "stopped"] = "running"
    epoch: int = 0
    incarnation: int = 0
    """How often its driver was started."""
    fruitless: int = 0
    """Starts in a row that came to nothing, without a broker that was away or an end by us."""
    progressed: bool = False
    """Whether a batch was ever finished since it was launched."""
    failed: bool = False
    """It should run, and would only fail again."""
    reason: str = ""
    """Why it does not run, or why it was restarted last."""

    @property
    def name(self) -> str:
        """Unique in the folder."""
        return self.plan.name


class Records:
    """All deployments of one folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.changing = threading.RLock()
        """Held by a thread that reads records, decides, and writes them."""

    def folder(self, name: str) -> Path:
        """Folder of this deployment's files."""
        return self.root / name

    def known(self, name: str) -> Record:
        """Record of this name; Misconfigured where there is none."""
        record = self.find(name)
        if record is None:
            there = ", ".join(one.name for one in self.all()) or "none"
            raise Misconfigured("deployment", f"there is no '{name}' here; there is {there}")
        return record

    def find(self, name: str) -> Record | None:
        """Record of this name, where there is one."""
        path = self.folder(name) / "deployment.json"
        data = read_json(path) if plans.NAME.fullmatch(name) else None
        try:
            return codec.from_json(Record, data, name="deployment") if data else None
        except (KeyError, TypeError, ValueError) as other:
            raise Unsafe(
                f"{path} was written by another version of Headroom ({type(other).__name__}: {other}): use "
                "that one, or move the file aside once nothing of it runs"
            ) from other

    def all(self) -> list[Record]:
        """All records, by name."""
        names = sorted(path.parent.name for path in self.root.glob("*/deployment.json"))
        return [record for name in names if (record := self.find(name)) is not None]

    def save(self, record: Record) -> Record:
        """Write a record; durable when it returns."""
        folder = self.folder(record.name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(folder / "deployment.json", codec.to_json(record))
        return record

    def change(self, name: str, **changes: Any) -> Record:
        """Replace some of what is remembered; `scale_out` belongs to the plan."""
        with self.changing:
            record = self.known(name)
            if "scale_out" in changes:
                record = replace(record, plan=replace(record.plan, scale_out=changes.pop("scale_out")))
            return self.save(replace(record, **changes))

    def check_neighbours(self, plan: Plan) -> None:
        """Refuse a plan that would get in the way of another deployment."""
        plans.check_neighbours(plan, [(other.plan, other.wanted == "running") for other in self.all()])

    def check_slots(
        self,
        name: str,
        scale_out: int,
        *,
        slots: int,
        coming: Mapping[str, int],
        resting: Set[str] = frozenset(),
    ) -> None:
        """Refuse a scale-out that the cluster cannot give beside what the others have, or are being given.

        `resting`: those that do not run and are not started again now.
        """
        held = {
            other.name: max(other.plan.scale_out, coming.get(other.name, 0))
            for other in self.all()
            if other.wanted == "running" and not other.failed and other.name not in {name, *resting}
        }
        free = slots - sum(held.values())
        if scale_out > free:
            taken = ", ".join(f"{other} holds {count}" for other, count in held.items())
            raise NoRoom(
                "spark.slots",
                f"{executors(scale_out)} for {name} are more than the {free} free of {slots}"
                + (f" ({taken})" if taken else "")
                + ": raise spark.slots, or ask for fewer",
            )
