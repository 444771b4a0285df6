"""How is one slice copied, whatever happens meanwhile, and what does it hold?

Written aside, tried again, made durable, counted; whoever gets it enters it. A disk without room is told as
such, with how far the recording came.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ..errors import HeadroomError, Misconfigured, NotReady, Unsafe
from .recorded import Recorded, Slice, data_folder
from .request import Copy, Ends

ATTEMPTS = 5  # of one slice; with the pauses below longer than a broker's restart
PAUSE_S = 5.0
SPARE_BYTES = 2**20  # for the entries, which must still fit when the records do not
NO_ROOM = ("No space left on device", "Disk quota exceeded")


class Slicing:
    """Copies slices of one recording."""

    def __init__(
        self,
        folder: Path,
        topic: str,
        *,
        copy: Copy,
        sleep: Callable[[float], None],
        say: Callable[[str], None],
    ) -> None:
        self._folder, self._topic = folder, topic
        self._copy, self._sleep, self._say = copy, sleep, say

    def copied(self, recorded: Recorded, starts: Ends, ends: Ends, missing: int) -> Slice:
        """The slice with its files on the disk, not yet entered."""
        piece = len(recorded.slices)
        target = data_folder(self._folder, piece)
        wanted = {part: (starts[part], end) for part, end in ends.items() if end > starts[part]}
        self._check_room(recorded, sum(end - start for start, end in wanted.values()))
        for attempt in range(1, ATTEMPTS + 1):
            if target.exists():
                shutil.rmtree(target)
            try:
                self._copy(
                    {part: start for part, (start, _) in wanted.items()},
                    {part: end for part, (_, end) in wanted.items()},
                    target,
                )
                return described(target, piece, starts, ends, missing)
            except Exception as error:
                shutil.rmtree(target, ignore_errors=True)
                if is_full(error):
                    raise self.no_room(recorded) from error
                if attempt == ATTEMPTS or isinstance(error, (Misconfigured, Unsafe)):
                    raise NotReady(f"{in_words(error)}; {self.so_far(recorded)}") from error
                self._say(f"slice {piece} failed, attempt {attempt} of {ATTEMPTS}: {in_words(error)}")
                self._sleep(PAUSE_S)
        raise AssertionError

    def _check_room(self, recorded: Recorded, records: int) -> None:
        each = recorded.bytes / recorded.records if recorded.records else 0.0
        if shutil.disk_usage(self._folder).free < records * each + SPARE_BYTES:
            raise self.no_room(recorded)

    def no_room(self, recorded: Recorded | None) -> NotReady:
        """What to raise where the disk is full."""
        return NotReady(
            f"there is no room left in {self._folder}: {self.so_far(recorded)} "
            "Make room, or set a size limit below what is free"
        )

    def so_far(self, recorded: Recorded | None) -> str:
        """How much is safe, and how to go on."""
        if recorded is None or not recorded.slices:
            return "nothing was recorded yet; run it again to begin."
        last = max(recorded.arrivals, default=0)
        until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last))
        return (
            f"{recorded.records:,} records of {self._topic} until {until} "
            f"({recorded.bytes / 1e6:,.1f} MB) are kept; run it again to go on from there."
        )


def portion(spans: Mapping[int, tuple[int, int]], *, most: int) -> dict[int, int]:
    """How far to go in each partition to copy at most so many: all the same share of their way."""
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

    from ..replay.sources import as_times

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
