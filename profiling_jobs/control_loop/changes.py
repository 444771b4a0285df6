"""Which change of the size was ordered, and what became of it?

An `Order` stands in the control state of the tick that gave it. Its `Outcome` is a document of its own, which
whoever carries it out writes before and after: so that a change that was begun is known to have begun,
whatever dies in the middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from models.ports import Store
from models.quantities import Json

DOCUMENT = "applied"
SCHEMA = 1


@dataclass(frozen=True)
class Order:
    """Change the size of the job, once."""

    epoch: int
    """Of the tick that ordered it; the deployment refuses older ones."""
    before: int
    to: int
    origin: str
    """decision, emergency, pin, rollback or reassert."""
    reason: str
    at_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """The order that was written."""
        return cls(**data)


@dataclass(frozen=True)
class Outcome:
    """What became of the newest order that anybody began to carry out."""

    epoch: int
    before: int
    to: int
    state: Literal["begun", "done", "later", "refused"]
    """later: it may still succeed. refused: it never will."""
    begun_at_s: float
    at_s: float
    """Of the newest attempt's end, or of its beginning while it is at work."""
    tries: int = 1
    path: str = ""
    """live or restart, once it is done."""
    took_s: float = 0.0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"schema": SCHEMA, **asdict(self)}


def outcome(store: Store, job: str) -> Outcome | None:
    """Of the newest order that was begun; None before the first."""
    data: Mapping[str, Any] | None = store.document(job, DOCUMENT)
    if data is None or data.get("schema") != SCHEMA:
        return None
    return Outcome(**{name: value for name, value in data.items() if name != "schema"})


def tell(store: Store, job: str, what: Outcome) -> Outcome:
    """Write it down; durable when it returns."""
    store.save_document(job, DOCUMENT, what.to_json())
    return what
