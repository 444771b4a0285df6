"""A request for a recording, and the ports that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from models.arguments import number, whole

Ends = Mapping[int, int]
Copy = Callable[[Ends, Ends, Path], None]


class Offsets(Protocol):
    """What the broker is asked for."""

    def starts(self) -> dict[int, int]: ...
    def ends(self) -> dict[int, int]: ...
    def at(self, at_s: float) -> dict[int, int]: ...


@dataclass(frozen=True)
class Request:
    """What is to be recorded."""

    topic: str
    folder: Path
    duration_s: float
    from_s: float | None = None
    """Epoch seconds; None: from the next whole second on."""
    max_bytes: int | None = None
    """Of the files on the disk."""
    heads: Ends | None = None
    """Partition -> where it ended when the recording was ordered; None: not known.

    Topics are recorded one after the other. What retention has deleted of a later one by its turn would else
    look like silence.
    """

    def __post_init__(self) -> None:
        number("duration_s", self.duration_s, at_least=1.0, at_most=31 * 86_400.0)
        if self.from_s is not None:
            number("from_s", self.from_s, at_least=0.0)
        if self.max_bytes is not None:
            whole("max_bytes", self.max_bytes)
