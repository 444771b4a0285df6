"""A recording as it lies on the disk, and the rate at which its records arrived.

    recording.json        what was asked for, and where each partition begins
    slices/000000.json    one per slice, written when its files are complete: offsets, records, arrivals
    data/000000/          its Parquet files: key, value, headers, timestamp, partition, offset
    ended.json            how it came to its end

A slice begins exactly where the one before ended, partition by partition, and counts only once its file under
slices/ is there, which appears whole or not at all. So each offset is in exactly one slice; anything else
under data/ is left of an attempt that was cut short.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from models import codec
from models.errors import Misconfigured, Unsafe
from models.quantities import Unknown

from ..driver.launch_file import read_json

if TYPE_CHECKING:
    import pyarrow as pa

LOCK = "recording.lock"
"""Held by the process that records into the folder."""
SETTLE_S = 1.0  # judgement: records that were sent in time arrive, and clocks differ
CLOCKS_S = 60.0  # judgement: clocks that are synchronised differ by less
STRAYS = 0.01  # judgement: of all records; where more are wrong, the others need not be right either


@dataclass(frozen=True)
class Slice:
    """One piece of the recording."""

    schema: ClassVar[int] = 1
    number: int
    starts: Mapping[int, int]
    """Partition -> first offset."""
    ends: Mapping[int, int]
    """Partition -> first offset of the next slice."""
    records: int
    bytes: int
    """On the disk."""
    plain_bytes: int
    """Before compression."""
    arrivals: Mapping[int, int]
    """Second since the epoch -> records with a timestamp in it, right or wrong."""
    names: tuple[str, ...]
    missing: int = 0
    """Offsets that retention had deleted before they were read."""

    def files(self, folder: Path) -> tuple[Path, ...]:
        return tuple(data_folder(folder, self.number) / name for name in self.names)


@dataclass(frozen=True)
class Recorded:
    """A recording as it lies on the disk, complete or not."""

    folder: Path
    topic: str
    from_s: float
    until_s: float
    """What was asked for."""
    first: Mapping[int, int]
    """Partition -> where it begins."""
    slices: tuple[Slice, ...]
    ended: str
    """"complete", "size limit", or empty while it is going on or was cut short."""

    @staticmethod
    def is_one(folder: Path) -> bool:
        return (folder / "recording.json").is_file()

    @classmethod
    def read(cls, folder: Path) -> Recorded:
        head = read_json(folder / "recording.json")
        if head is None:
            raise Misconfigured(
                "recording", f"{folder} is not a recording: it has no readable recording.json"
            )
        slices: list[Slice] = []
        # In order, and no further than the first gap.
        while (data := read_json(slice_file(folder, len(slices)))) is not None:
            slices.append(codec.from_json(Slice, data))
        if slice_file(folder, len(slices)).exists():
            raise Unsafe(f"{slice_file(folder, len(slices))} cannot be read: record into another folder")
        return cls(
            folder=folder,
            topic=head["topic"],
            from_s=float(head["from_s"]),
            until_s=float(head["until_s"]),
            first=_whole(head["first"]),
            slices=tuple(slices),
            ended=(read_json(folder / "ended.json") or {"how": ""})["how"],
        )

    @property
    def is_written(self) -> bool:
        """Whether a process is recording into this folder now."""
        try:
            lock = os.open(self.folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            return False
        finally:
            os.close(lock)

    @property
    def ends(self) -> dict[int, int]:
        """Where the next slice begins in each partition."""
        last = self.slices[-1].ends if self.slices else {}
        return {**last, **{part: max(at, last.get(part, at)) for part, at in self.first.items()}}

    @property
    def records(self) -> int:
        return sum(piece.records for piece in self.slices)

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.slices)

    @property
    def missing(self) -> int:
        """How many offsets retention had deleted before they were read."""
        return sum(piece.missing for piece in self.slices)

    @property
    def partitions(self) -> int:
        return len(self.ends)

    @property
    def arrivals(self) -> dict[int, int]:
        """Second since the epoch -> records that are stamped in it; those that are far off are left out."""
        return self._stamped(0.0)

    def _stamped(self, around_s: float) -> dict[int, int]:
        low, high = math.floor(self.from_s - around_s), self.until_s + around_s
        total: dict[int, int] = {}
        for piece in self.slices:
            for second, count in piece.arrivals.items():
                if low <= second < high:
                    total[second] = total.get(second, 0) + count
        return total

    @property
    def covered_s(self) -> float:
        """How much time the records took: what was asked for, or to the last second when cut short."""
        if self.ended == "complete":
            return self.until_s - self.from_s
        seconds = self.arrivals
        return max(seconds) + 1 - min(seconds) if seconds else 0.0

    def rate_rps(self) -> tuple[int, NDArray[np.float64]] | Unknown:
        """The arrival rate on a grid of one second by broker timestamp, and the second it begins with.

        A second without records is a rate of zero. At either end seconds without any are left out, with the
        one beside them: the recording was cut short there, or the clocks of producers differ from ours. A
        silence longer than CLOCKS_S has neither reason. Unknown where retention has left gaps, or where more
        than STRAYS of the timestamps are far off.
        """
        if self.missing:
            return Unknown(
                f"retention deleted {self.missing:,} records of {self.topic} before they were recorded: "
                "record again, or keep the topic's records for longer"
            )
        seconds = self.arrivals
        if not seconds:
            return Unknown(f"nothing of {self.topic} has been recorded yet")
        far = self.records - sum(self._stamped(CLOCKS_S).values())
        if far > max(1.0, STRAYS * self.records):
            return Unknown(
                f"{100.0 * far / self.records:.1f} % of the records of {self.topic} are stamped more than "
                f"{CLOCKS_S:.0f} s outside of the time in which they were recorded: their producers "
                "set the timestamps (CreateTime); to know when records arrive, set "
                "message.timestamp.type=LogAppendTime on the topic and record again"
            )
        first, last = min(seconds), max(seconds)
        low, high = math.ceil(self.from_s), math.floor(self.until_s) - 1
        complete = self.ended == "complete"
        if first > low:
            first = low if complete and first - low > CLOCKS_S else first + 1
        if last < high or not complete:
            last = high if complete and high - last > CLOCKS_S else last - 1
        if last < first:
            return Unknown(f"{self.topic} was recorded for less than two seconds")
        rate = np.zeros(last - first + 1)
        for second in range(first, last + 1):
            rate[second - first] = seconds.get(second, 0)
        return first, rate


def slice_file(folder: Path, number: int) -> Path:
    """Where a slice is entered."""
    return folder / "slices" / f"{number:06d}.json"


def data_folder(folder: Path, number: int) -> Path:
    """Where its records are."""
    return folder / "data" / f"{number:06d}"


def _whole(data: Mapping[str, Any]) -> dict[int, int]:
    return {int(key): int(value) for key, value in data.items()}


def as_times(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Timestamps in microseconds; whole numbers are epoch milliseconds, as Kafka has them."""
    import pyarrow as pa

    zoned = pa.timestamp("us", tz="UTC")
    if pa.types.is_integer(column.type):
        return column.cast(pa.timestamp("ms", tz="UTC")).cast(zoned)
    if not pa.types.is_timestamp(column.type):
        raise Misconfigured("source", f"its column `timestamp` is {column.type}, not a time")
    return column.cast(zoned, safe=False)
