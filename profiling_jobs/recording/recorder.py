"""Copies each offset of a live topic exactly once.

In slices with explicit first and last offsets. A slice's files are written aside, tried again, made durable,
and only then entered (recording.recorded); the next one begins at the offsets that were entered. After a
crash what was not entered is deleted and copied again from the same offsets. Nothing is committed at the
broker.

The recording covers whole seconds by broker timestamp, [from, until), which the broker translates into
offsets. Where producers set the timestamps, the first one after `from` or `until` may be wrong: so nothing
counts that had arrived before the recording was ordered, everything that arrives before `until`, and nothing
that arrives later than SETTLE_S after it. It stops before a size limit is passed; when the disk is full it
says how far it came, and can go on once there is room.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from models import codec
from models.arguments import number, whole
from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe

from ..driver.launch_file import write_json
from .recorded import LOCK, SETTLE_S, Recorded, Slice, as_times, data_folder, slice_file

ATTEMPTS = 5  # of one slice; with the pauses below longer than a broker's restart
PAUSE_S = 5.0
SPARE_BYTES = 2**20  # for the entries, which must still fit when the records do not
NO_ROOM = ("No space left on device", "Disk quota exceeded")


Ends = Mapping[int, int]
Copy = Callable[[Ends, Ends, Path], None]


class Offsets(Protocol):
    """Offsets that a recorder needs from the broker."""

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


def portion(spans: Mapping[int, tuple[int, int]], *, most: int) -> dict[int, int]:
    """End offsets of a slice of at most so many records: each partition goes the same share of its way."""
    total = sum(end - start for start, end in spans.values())
    if total <= most:
        return {part: end for part, (_, end) in spans.items()}
    ends = {part: start + (end - start) * most // total for part, (start, end) in spans.items()}
    if all(ends[part] == start for part, (start, _) in spans.items()):  # at least one step
        part = max(spans, key=lambda part: spans[part][1] - spans[part][0])
        ends[part] += 1
    return ends


def described(target: Path, piece: int, starts: Ends, ends: Ends, missing: int) -> Slice:
    """What the files of a slice hold, once they are durable."""
    import pyarrow.parquet as pq

    files = sorted(target.glob("*.parquet"))
    records = size = plain = 0
    arrivals: dict[int, int] = {}
    for path in (*files, target, target.parent):
        _sync(path)
    for file in files:
        size += file.stat().st_size
        with pq.ParquetFile(file) as opened:
            records += opened.metadata.num_rows
            groups = range(opened.metadata.num_row_groups)
            plain += sum(opened.metadata.row_group(group).total_byte_size for group in groups)
            times = as_times(opened.read(columns=["timestamp"])["timestamp"]).cast("int64")
            seconds, counts = np.unique(times.to_numpy() // 1_000_000, return_counts=True)
            for second, count in zip(seconds.tolist(), counts.tolist(), strict=True):
                arrivals[second] = arrivals.get(second, 0) + count
    expected = sum(end - starts[part] for part, end in ends.items())
    if records > expected:
        raise Unsafe(f"{target} has {records} records of {expected} offsets: the copy is wrong")
    return Slice(
        number=piece,
        starts=dict(starts),
        ends={**starts, **ends},
        records=records,
        bytes=size,
        plain_bytes=plain,
        arrivals=arrivals,
        names=tuple(file.name for file in files),
        missing=missing,
    )


def is_full(error: BaseException | None) -> bool:
    """Whether this came from a disk without room, however deep inside."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if any(words in str(error) for words in NO_ROOM):
            return True
        error = error.__cause__ or error.__context__
    return False


def in_words(error: BaseException) -> str:
    """One line of what may be pages of Java."""
    text = str(error) if isinstance(error, HeadroomError) else f"{type(error).__name__}: {error}"
    return text.strip().splitlines()[0][:300].rstrip(".;")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


SLICE_S = 5.0  # judgement: a slice costs about a second beside its records, and is what a crash loses
SLICE_RECORDS = 250_000  # judgement: with …
SLICE_BYTES = 32 * 2**20  # … this, what a replay can hold in memory
FIRST_RECORDS = 20_000  # until their size is known

Answer = TypeVar("Answer")


class Recorder:
    """One recording, from where it stands to its end."""

    def __init__(
        self,
        request: Request,
        *,
        offsets: Offsets,
        copy: Copy,
        now_s: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._request = request
        self._folder = request.folder
        self._offsets = offsets
        self._copy = copy
        self._now_s = now_s
        self._sleep = sleep
        self._say = say
        self._last_slice_s = -math.inf
        self._in_time: Ends = {}
        """What has arrived before `until`."""
        self._at_end: Ends | None = None
        """What had arrived when the time was over."""

    def run(self) -> Recorded:
        """Record until the time is over or the size is reached. Run again, it goes on where it stopped."""
        recorded: Recorded | None = None
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _alone(self._folder):
                recorded = self._begin()
                self._clear_rest(recorded)
                while not (recorded := self._step(recorded)).ended:
                    pass
                return recorded
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise self._no_room(recorded) from error

    def _begin(self) -> Recorded:
        if not Recorded.is_one(self._folder):
            heads, from_s = self._request.heads, self._request.from_s
            if heads is None and (from_s is None or self._now_s() <= from_s):
                heads = self._offsets.ends()
            if from_s is None:  # after the broker's answer, before which nothing counts
                from_s = float(math.ceil(self._now_s()))
            self._sleep(max(0.0, from_s + SETTLE_S - self._now_s()))
            for name in ("slices", "data"):
                (self._folder / name).mkdir(exist_ok=True)
            first, there = self._offsets.at(from_s), self._offsets.starts()
            self._write_head(from_s, _beginning(first, there, heads or {}))
        recorded = Recorded.read(self._folder)
        if recorded.topic != self._request.topic:
            raise Misconfigured(
                "recording", f"{self._folder} holds a recording of {recorded.topic}: choose another folder"
            )
        asked_s = recorded.until_s - recorded.from_s
        if not math.isclose(asked_s, self._request.duration_s, abs_tol=1e-3):
            raise Misconfigured(
                "duration_s",
                f"the recording in {self._folder} was begun for {asked_s:g} s: go on with that, or choose "
                "another folder",
            )
        if recorded.ended and recorded.ended != "complete":  # it goes on, perhaps with a larger limit
            (self._folder / "ended.json").unlink()
            return replace(recorded, ended="")
        return recorded

    def _write_head(self, from_s: float, first: Ends) -> None:
        write_json(
            self._folder / "recording.json",
            {
                "schema": 1,
                "topic": self._request.topic,
                "from_s": from_s,
                "until_s": from_s + self._request.duration_s,
                "first": {str(part): at for part, at in first.items()},
            },
        )

    def _clear_rest(self, recorded: Recorded) -> None:
        kept = {data_folder(self._folder, piece.number).name for piece in recorded.slices}
        for rest in (self._folder / "data").iterdir():
            if rest.name not in kept:
                shutil.rmtree(rest)

    def _step(self, recorded: Recorded) -> Recorded:
        if recorded.ended:
            return recorded
        now_s, position = self._now_s(), recorded.ends

        def offsets() -> tuple[Ends, Ends, Ends]:
            return self._offsets.at(recorded.until_s), self._offsets.ends(), self._offsets.starts()

        at, head, there = self._patiently(recorded, offsets, "asking the broker", NotReady)
        over = now_s >= recorded.until_s + SETTLE_S
        if self._now_s() < recorded.until_s:  # asked after the answer: all of it arrived before
            self._in_time = head
        elif over and self._at_end is None:
            self._at_end = head
        most_yet = self._at_end or head
        goal = {
            part: min(max(end, self._in_time.get(part, 0)), most_yet.get(part, 0)) for part, end in at.items()
        }
        # Partitions that came in the meantime are recorded from their beginning.
        position = {**dict.fromkeys(goal, 0), **position}
        self._check_same_topic(position, head)
        starts = {part: max(at, min(there.get(part, 0), goal.get(part, at))) for part, at in position.items()}
        backlog = sum(max(0, goal[part] - starts[part]) for part in goal)
        missing = sum(starts[part] - at for part, at in position.items())
        if backlog == 0 and over:
            if missing:  # all that was left: its time is not one in which nothing came
                gone = Slice(len(recorded.slices), starts, starts, 0, 0, 0, {}, (), missing)
                return self._entered(recorded, gone)
            return self._end(recorded, "complete")
        most = self._most(recorded)
        if backlog == 0 or (not over and backlog < most and now_s < self._last_slice_s + SLICE_S):
            self._sleep(0.2)
            return recorded
        allowed = min(most, self._within_limit(recorded))
        if allowed < 1:
            return self._end(recorded, "size limit")
        self._last_slice_s = now_s
        ends = portion({part: (starts[part], max(starts[part], goal[part])) for part in goal}, most=allowed)
        piece = self._copied(recorded, starts, ends, missing)
        limit = self._request.max_bytes
        if limit is not None and recorded.bytes + piece.bytes > limit:
            shutil.rmtree(data_folder(self._folder, piece.number))
            return self._end(recorded, "size limit")
        return self._entered(recorded, piece)

    def _entered(self, recorded: Recorded, piece: Slice) -> Recorded:
        write_json(slice_file(self._folder, piece.number), codec.to_json(piece))
        return replace(recorded, slices=(*recorded.slices, piece))

    def _copied(self, recorded: Recorded, starts: Ends, ends: Ends, missing: int) -> Slice:
        """The next slice with its files on the disk, not yet entered."""
        piece = len(recorded.slices)
        target = data_folder(self._folder, piece)
        wanted = {part: (starts[part], end) for part, end in ends.items() if end > starts[part]}
        each = recorded.bytes / recorded.records if recorded.records else 0.0
        needed = each * sum(end - start for start, end in wanted.values()) + SPARE_BYTES
        if shutil.disk_usage(self._folder).free < needed:
            raise self._no_room(recorded)

        def copy() -> Slice:
            if target.exists():
                shutil.rmtree(target)
            try:
                self._copy(
                    {part: start for part, (start, _) in wanted.items()},
                    {part: end for part, (_, end) in wanted.items()},
                    target,
                )
                return described(target, piece, starts, ends, missing)
            except Exception:
                shutil.rmtree(target, ignore_errors=True)
                raise

        return self._patiently(recorded, copy, f"slice {piece}", Exception)

    def _patiently(
        self, recorded: Recorded, work: Callable[[], Answer], what: str, caught: type[Exception]
    ) -> Answer:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return work()
            except caught as error:
                if is_full(error):
                    raise self._no_room(recorded) from error
                if attempt == ATTEMPTS or isinstance(error, (Misconfigured, Unsafe)):
                    raise NotReady(f"{in_words(error)}; {self._so_far(recorded)}") from error
                self._say(f"{what} failed, attempt {attempt} of {ATTEMPTS}: {in_words(error)}")
                self._sleep(PAUSE_S)
        raise AssertionError

    def _no_room(self, recorded: Recorded | None) -> NotReady:
        return NotReady(
            f"there is no room left in {self._folder}: {self._so_far(recorded)} "
            "Make room, or set a size limit below what is free"
        )

    def _so_far(self, recorded: Recorded | None) -> str:
        """How much is safe, and how to go on."""
        if recorded is None or not recorded.slices:
            return "nothing was recorded yet; run it again to begin."
        last = max(recorded.arrivals, default=0)
        until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last))
        return (
            f"{recorded.records:,} records of {self._request.topic} until {until} "
            f"({recorded.bytes / 1e6:,.1f} MB) are kept; run it again to go on from there."
        )

    def _most(self, recorded: Recorded) -> int:
        if not recorded.records:
            return FIRST_RECORDS
        plain = sum(piece.plain_bytes for piece in recorded.slices)
        return max(1, min(SLICE_RECORDS, SLICE_BYTES * recorded.records // max(plain, 1)))

    def _within_limit(self, recorded: Recorded) -> int:
        limit = self._request.max_bytes
        if limit is None or not recorded.records:
            return FIRST_RECORDS if not recorded.records else SLICE_RECORDS
        return (limit - recorded.bytes) * recorded.records // max(recorded.bytes, 1)

    def _check_same_topic(self, position: Ends, ends: Ends) -> None:
        for part, at in position.items():
            if at > ends.get(part, 0):
                raise Unsafe(
                    f"{self._request.topic}-{part} was recorded to offset {at}, but ends at "
                    f"{ends.get(part, 0)}: the topic was deleted and made again; record into another folder"
                )

    def _end(self, recorded: Recorded, how: str) -> Recorded:
        write_json(self._folder / "ended.json", {"schema": 1, "how": how})
        return replace(recorded, ended=how)


def _beginning(at: Ends, left: Ends, heads: Ends) -> dict[int, int]:
    """Where each partition begins: at the first offset of its time, and not before its head at the order.

    Earlier where retention has deleted some of that time: from the head on it is missing.
    """
    found = {}
    for part, first in at.items():
        head = heads.get(part, left[part])
        gone = first <= left[part] and head < left[part]
        found[part] = head if gone else max(first, head, left[part])
    return found


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unsafe(f"another process is recording into {folder}: choose another folder") from None
        yield
    finally:
        os.close(lock)
