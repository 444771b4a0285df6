"""The events of a driver, and how far all queries of its script have come.

`progress.jsonl` has one JSON object per line: {"event", "at_s", "incarnation", ...} with event `session`,
`settled` (the first executors are there), `started`, `progress` (with Spark's own report), `idle` or `ended`.
`at_s` is when the event arrived, shortly after the batch was committed. A large file is put aside; one older
file is kept. A killed driver leaves no `ended` line, and may leave half a line.

A script may start several queries, and two that read the same topic are at different places in it: done is
what the slowest has done, partition by partition. Nothing is reported while a query that was started has not
reported yet. A query that ended has done its work; one that failed or was stopped for a restart stands where
it was.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE_BYTES = 20_000_000  # judgement: a few hours of batches of one second


class ProgressFile:
    """Where a driver writes its events."""

    def __init__(self, path: Path, *, incarnation: int, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._incarnation = incarnation
        self._clock = clock
        self._writing = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, event: str, **details: Any) -> None:
        """One event, readable by others when this returns."""
        line = {"event": event, "at_s": self._clock(), "incarnation": self._incarnation, **details}
        with self._writing:
            with suppress(FileNotFoundError):
                if self._path.stat().st_size > FILE_BYTES:
                    self._path.replace(older(self._path))
            # The line break comes first: half a line of a driver that was killed must not swallow ours.
            with self._path.open("a") as file:
                file.write("\n" + json.dumps(line))


def older(path: Path) -> Path:
    """Where the events go that no longer fit."""
    return path.with_suffix(path.suffix + ".1")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The events, oldest first; broken lines are left out."""
    for file in (older(path), path):
        with suppress(FileNotFoundError), file.open() as lines:
            for line in lines:
                with suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict) and "event" in event:
                        yield event


def end_offsets(progress: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """The offsets up to which a finished batch has read, over all Kafka sources of the query."""
    found: dict[tuple[str, int], int] = {}
    for source in progress.get("sources") or ():
        ends = source.get("endOffset")
        if isinstance(ends, str):
            with suppress(ValueError):
                ends = json.loads(ends)
        if not isinstance(ends, dict) or not str(source.get("description", "")).startswith("Kafka"):
            continue
        for topic, partitions in ends.items():
            for partition, offset in partitions.items():
                # A topic that is read twice is committed as far as its slower reader has come.
                key = (topic, int(partition))
                found[key] = min(int(offset), found.get(key, int(offset)))
    return found


def listener(file: ProgressFile, queries: QueryEnds, on_batch: Callable[[Mapping[str, Any]], None]) -> Any:
    """A StreamingQueryListener that writes every event, and hands on reports and how far queries are."""
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):
        """Called in the order of events, in a thread of Spark's.

        A full disk must not keep the consumer group from moving: the file is written last.
        """

        def onQueryStarted(self, event: Any) -> None:
            queries.started(str(event.id))
            file.write("started", id=str(event.id), run_id=str(event.runId), name=event.name)

        def onQueryProgress(self, event: Any) -> None:
            progress = json.loads(event.progress.json)
            queries.reported(str(event.progress.id), end_offsets(progress))
            on_batch(progress)
            file.write("progress", run_id=str(event.progress.runId), progress=progress)

        def onQueryIdle(self, event: Any) -> None:
            queries.reported(str(event.id), {})
            file.write("idle", run_id=str(event.runId))

        def onQueryTerminated(self, event: Any) -> None:
            queries.ended(str(event.id), failed=bool(event.exception))
            file.write("ended", run_id=str(event.runId), exception=event.exception)

    return Listener()


Ends = Mapping[tuple[str, int], int]


class QueryEnds:
    """The last report of each query; the least of them is given on whenever it changes."""

    def __init__(self, give: Callable[[Ends], None]) -> None:
        self._give = give
        self._reports: dict[str, Ends | None] = {}
        self._given: Ends = {}
        self._stopping = False

    def started(self, query: str) -> None:
        """A query has started; its position is not known yet."""
        self._reports[query] = None

    def reported(self, query: str, ends: Ends) -> None:
        """A query has finished a batch with these end offsets; none where it had nothing to do."""
        self._reports[query] = ends or self._reports.get(query) or {}
        self._report()

    def stopping(self) -> None:
        """From now on queries end because they are made to."""
        self._stopping = True

    def ended(self, query: str, *, failed: bool) -> None:
        """A query has ended in this driver."""
        if not (failed or self._stopping) and query in self._reports:
            del self._reports[query]
            self._report()

    def _report(self) -> None:
        slowest: dict[tuple[str, int], int] = {}
        for ends in self._reports.values():
            if ends is None:
                return
            for partition, end in ends.items():
                slowest[partition] = min(end, slowest.get(partition, end))
        if slowest and slowest != self._given:
            self._given = slowest
            self._give(slowest)
