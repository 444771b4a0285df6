"""Journal of the pieces that were measured, so that none is measured twice.

One line of JSON per piece, on the disk before the next one begins. `forget` is a line too: what was measured
before stays in the file, but does not count any more.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Journal:
    """The pieces of one folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces: dict[tuple[str, str], dict[str, Any]] = {}
        self.changes = 0
        """Lines that were read or written."""
        for line in self._lines():
            self._take(line)

    def has(self, part: str, piece: str) -> bool:
        return (part, piece) in self._pieces

    def get(self, part: str, piece: str) -> dict[str, Any]:
        return self._pieces[part, piece]

    def of(self, part: str) -> dict[str, dict[str, Any]]:
        """Piece -> what it has shown, in the order of their first measurement."""
        return {piece: data for (of, piece), data in self._pieces.items() if of == part}

    def add(self, part: str, piece: str, data: Mapping[str, Any]) -> None:
        """Durable when it returns."""
        self._write({"part": part, "piece": piece, "at_s": round(time.time(), 1), "data": dict(data)})

    def forget(self, part: str) -> None:
        """Everything of this part, and of what it has called `PART: …`, is to be measured again."""
        self._write({"part": part, "forget": True, "at_s": round(time.time(), 1)})

    def _write(self, line: dict[str, Any]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        torn = self._path.exists() and not self._path.read_bytes().endswith(b"\n")
        with self._path.open("a") as file:
            file.write("\n" * torn + json.dumps(line, default=float) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(json.loads(json.dumps(line, default=float)))

    def _take(self, line: dict[str, Any]) -> None:
        self.changes += 1
        if line.get("forget"):
            self._pieces = {
                key: data for key, data in self._pieces.items() if key[0].split(":")[0] != line["part"]
            }
        else:
            self._pieces[line["part"], line["piece"]] = line["data"] | {"at_s": line["at_s"]}

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return
        for text in self._path.read_text().splitlines():
            try:
                yield json.loads(text)
            except ValueError:  # of a command that was killed while it wrote
                continue
