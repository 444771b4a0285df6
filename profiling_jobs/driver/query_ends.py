"""How far have all queries of a script come together?

A script may start several queries. Each tells of its own batches, and two that read the same topic are at
different places in it: done is what the slowest has done, partition by partition. Nothing is told while a
query that was started has not said where it is, for it may be the slowest. One that came to its end has done
its work; one that failed or was stopped for a restart has not, and stands where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Ends = Mapping[tuple[str, int], int]


class QueryEnds:
    """What each query has told last; the least of it is given on whenever it changes."""

    def __init__(self, give: Callable[[Ends], None]) -> None:
        self._give = give
        self._told: dict[str, Ends | None] = {}
        self._given: Ends = {}
        self._stopping = False

    def started(self, query: str) -> None:
        """It has yet to say where it is."""
        self._told[query] = None

    def told(self, query: str, ends: Ends) -> None:
        """It has finished a batch with these ends; without any, it found nothing to do."""
        self._told[query] = ends or self._told.get(query) or {}
        self._tell()

    def stopping(self) -> None:
        """From now on queries end because they are made to."""
        self._stopping = True

    def ended(self, query: str, *, failed: bool) -> None:
        """It does no more in this driver."""
        if not (failed or self._stopping) and query in self._told:
            del self._told[query]
            self._tell()

    def _tell(self) -> None:
        slowest: dict[tuple[str, int], int] = {}
        for ends in self._told.values():
            if ends is None:
                return
            for partition, end in ends.items():
                slowest[partition] = min(end, slowest.get(partition, end))
        if slowest and slowest != self._given:
            self._given = slowest
            self._give(slowest)
