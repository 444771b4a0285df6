"""How far a query has committed, read from its checkpoint.

Structured Streaming writes `offsets/N` before batch N and `commits/N` after it, so the end offsets of the
newest whole file in `commits/` are what is done, also while the driver is dead; a batch that was planned but
not committed is run again and counts as not done. `offsets/N` is a line with the version, one with metadata,
and one per source: JSON {"topic": {"partition": offset}} for Kafka, "-" for a source that had nothing yet
(version 2 writes `source:` before it). Until the first commit a query stands where it began, `sources/S/0`.
A batch is committed when its file in `commits/` was written, and planned when that in `offsets/` was.

A script may start several queries, and give each a folder of its own in the job's. Then what is done is what
the slowest of them has done, partition by partition.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from models.ports import Commit, Offsets
from models.quantities import Unknown

BATCH = re.compile(r"\d+")  # Spark's own drafts are .N.uuid.tmp, Hadoop's checksums .N.crc
VERSIONS = ("v1", "v2")
KEPT = 100  # spark.sql.streaming.minBatchesToRetain: older batches leave the folder
LARGEST = 16_000_000  # judgement: 100,000 partitions take 2 MB
BROKEN = 3  # judgement: a crash or a full disk cuts off one file, more is another fault
NO_COMMIT = Unknown("no batch is committed yet: wait for the first one")
SEVERAL = Unknown("the script has several queries, and each numbers its own batches")


@dataclass(frozen=True)
class Position:
    """Position of a query."""

    query: str | Unknown
    """Its id in the checkpoint's `metadata`: another id is another query. Of several all ids."""
    batch: int | Unknown
    """The newest committed batch; Unknown before the first one, and where several queries have their own."""
    committed_at_s: float | Unknown
    """Unknown before the first commit, when `ends` is where the query began; of several the newest."""
    ends: Offsets


class Checkpoint:
    """The checkpoint of one query or of several, read again and again; a file is parsed once."""

    def __init__(self, location: str, topics: Iterable[str], *, job: str, is_part: bool = False) -> None:
        self.location = location
        self.topics = frozenset(topics)
        self._job = job
        self._is_part = is_part
        """Of several, each of which may read only some of the topics."""
        self._folder = on_disk(location)
        self._known: dict[tuple[int, int], Commit] = {}
        self._parts: dict[Path, Checkpoint] = {}

    def position(self) -> Position | Unknown:
        if self._folder is None:
            return Unknown(
                f"job.{self._job}.checkpoint: {self.location} cannot be read from here; only what the job "
                "commits to its consumer group shows how far it is"
            )
        try:
            return self._position(self._folder)
        except _Unreadable as error:
            return Unknown(f"job.{self._job}.checkpoint: {error}")
        except OSError as error:
            what = error.filename or self.location
            return Unknown(f"job.{self._job}.checkpoint: {what} cannot be read ({error.strerror})")

    def commits(self, *, after: int | Unknown, until: int) -> tuple[Commit, ...]:
        """The batches committed after the one, until the other; oldest first, as far as kept."""
        found: list[Commit] = []
        for batch in reversed(_numbers(self._folder / "commits") if self._folder else []):
            if batch > until:
                continue
            if (not isinstance(after, Unknown) and batch <= after) or len(found) == KEPT:
                break
            try:
                found.append(self._commit(batch))
            except (_Unreadable, OSError):
                continue
        return tuple(reversed(found))

    def _position(self, folder: Path) -> Position:
        if not folder.is_dir():
            raise _Unreadable(
                f"{self.location} is not there; the job has not started on it yet, or elsewhere"
            )
        if parts := _parts(folder):
            return self._slowest(parts)
        query = _query(folder)
        problem: Exception | None = None
        for batch in reversed(_numbers(folder / "commits")[-BROKEN:]):
            try:
                commit = self._commit(batch)
            except (_Unreadable, FileNotFoundError) as error:
                problem = problem or error
                continue
            return Position(query, commit.batch, commit.at_s, commit.ends)
        if problem is not None:
            raise problem
        begun = [_initial(folder, source) for source in _numbers(folder / "sources")]
        if not any(begun):
            raise _Unreadable(f"in {self.location} {NO_COMMIT.reason}")
        return Position(query, NO_COMMIT, NO_COMMIT, self._ours(begun, complete=True))

    def _slowest(self, folders: Iterable[Path]) -> Position:
        """Where several queries stand together; one that cannot be read may be the slowest."""
        stands = []
        for folder in folders:
            if folder not in self._parts:
                self._parts[folder] = Checkpoint(str(folder), self.topics, job=self._job, is_part=True)
            stands.append(self._parts[folder]._position(folder))
        unnamed = [one.query for one in stands if isinstance(one.query, Unknown)]
        names = " ".join(one.query for one in stands if not isinstance(one.query, Unknown))
        times = [one.committed_at_s for one in stands if not isinstance(one.committed_at_s, Unknown)]
        return Position(
            unnamed[0] if unnamed else names,
            SEVERAL,
            max(times) if times else NO_COMMIT,
            self._ours((one.ends for one in stands), complete=True),
        )

    def _commit(self, batch: int) -> Commit:
        """The batch with its end offsets; one that was run again has another time."""
        assert self._folder is not None
        path = self._folder / "commits" / str(batch)
        written = path.stat().st_mtime_ns
        if (batch, written) not in self._known:
            _lines(path)
            offsets = self._folder / "offsets" / str(batch)
            planned, planned_at_s = read_offsets(offsets), offsets.stat().st_mtime
            void = [source for source, ends in planned.items() if ends is None]
            sources = [
                *(ends for ends in planned.values() if ends),
                *(_initial(self._folder, s) for s in void),
            ]
            ends = self._ours(sources, complete=not void)
            for old in [key for key in self._known if key[0] == batch or key[0] < batch - KEPT]:
                del self._known[old]
            self._known[batch, written] = Commit(batch, written / 1e9, ends, planned_at_s)
        return self._known[batch, written]

    def _ours(self, sources: Iterable[Offsets], *, complete: bool) -> Offsets:
        """The job's topics out of all sources. What two read is done when the slower one has done it."""
        all_ends: dict[tuple[str, int], int] = {}
        for source in sources:
            for partition, offset in source.items():
                all_ends[partition] = min(offset, all_ends.get(partition, offset))
        topics = {topic for topic, _ in all_ends}
        if complete and not self._is_part and (missing := self.topics - topics):
            there = f"the offsets of {', '.join(sorted(topics))}" if topics else "no Kafka offsets"
            raise _Unreadable(
                f"{self.location} holds {there} and nothing of {', '.join(sorted(missing))}; it belongs to "
                f"another query, or job.{self._job}.inputs names another topic than the job reads"
            )
        return {partition: end for partition, end in all_ends.items() if partition[0] in self.topics}


def _parts(folder: Path) -> tuple[Path, ...]:
    """The folders of several queries in that of a job; none where it is that of one query itself."""
    if any((folder / name).is_dir() for name in ("offsets", "commits")):
        return ()
    return tuple(
        sorted(path.parent for path in folder.glob("*/commits") if (path.parent / "offsets").is_dir())
    )


def commit_folders(location: str) -> tuple[Path, ...]:
    """Where its queries note every batch that is done; none for an object store."""
    folder = on_disk(location)
    return () if folder is None else tuple(part / "commits" for part in _parts(folder) or (folder,))


def newest_topics(folder: Path) -> frozenset[str]:
    """The Kafka topics that a query reads, by the newest of its offsets that are whole."""
    for batch in reversed(_numbers(folder / "offsets")[-BROKEN:]):
        with suppress(_Unreadable, OSError):
            planned = read_offsets(folder / "offsets" / str(batch))
            return frozenset(topic for ends in planned.values() if ends for topic, _ in ends)
    return frozenset()


def read_offsets(path: Path) -> dict[int, Offsets | None]:
    """The end offsets of each source of a batch: None where it has none yet, empty where not on Kafka."""
    version, _, *lines = _lines(path, fewest=3)
    result: dict[int, Offsets | None] = {}
    for number, line in enumerate(lines):
        if version == "v2":
            name, colon, line = line.partition(":")
            if not (colon and BATCH.fullmatch(name)):
                raise _Unreadable(f"{path} has a source without a number, which this version cannot read")
            number = int(name)
        result[number] = None if line.strip() == "-" else _kafka(line, path)
    return result


class _Unreadable(Exception):
    """A file that is cut off, or that does not belong in its place."""


def _lines(path: Path, *, fewest: int = 2) -> list[str]:
    """The lines of one of the checkpoint's files, its version checked."""
    text = read_regular(path).lstrip(b"\0").decode(errors="replace")  # `sources/S/0` begins with a zero byte
    lines = text.rstrip("\n").split("\n")
    if len(lines) < fewest:
        raise _Unreadable(f"{path} is cut off; it is written again with the next batch")
    if lines[0].strip() not in VERSIONS:
        raise _Unreadable(f"{path} has format {lines[0][:20]!r}; only {' and '.join(VERSIONS)} are known")
    try:
        json.loads(lines[1] or "{}")
    except (ValueError, RecursionError):
        raise _Unreadable(f"{path} is cut off; it is written again with the next batch") from None
    return [lines[0].strip(), *lines[1:]]


def _kafka(line: str, path: Path) -> Offsets:
    """{"topic": {"0": 12}} of a Kafka source; empty for any other kind of source."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise _Unreadable(f"{path} is cut off; it is written again with the next batch") from None
    try:
        return {
            (topic, int(partition)): _whole(offset)
            for topic, partitions in data.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        return {}


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _initial(folder: Path, source: int) -> Offsets:
    """Where a source began, if it is a Kafka source and has written it down."""
    path = folder / "sources" / str(source) / "0"
    try:
        return _kafka(_lines(path)[1], path)
    except FileNotFoundError:
        return {}


def _query(folder: Path) -> str | Unknown:
    try:
        return query_id(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return Unknown(f"{folder / 'metadata'} does not name the query")


def query_id(folder: Path) -> str:
    """The query that a checkpoint belongs to; OSError, ValueError, KeyError or TypeError without."""
    try:
        return str(json.loads(read_regular(folder / "metadata"))["id"])
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def read_regular(path: Path) -> bytes:
    """A file's bytes. Others may write into a checkpoint: a pipe there would be waited for without end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        found = file.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST:,} bytes", str(path))
    return found


def _numbers(folder: Path) -> list[int]:
    """The batches (or sources) that have an entry here, in order."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(int(name) for name in names if BATCH.fullmatch(name))


def on_disk(location: str) -> Path | None:
    """The folder of a checkpoint on this machine's disk; None for an object store."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if re.match(r"[a-z][a-z0-9+.-]*:", location) else Path(location)
