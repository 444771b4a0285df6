"""When did a record arrive, where some timestamps are wrong?

Unless a topic says otherwise (message.timestamp.type=CreateTime) its timestamps are what producers say. Most
are right within a moment. A wrong clock, a record that was kept back, or none set at all puts others hours or
decades off, and nothing may hang on a single one of them. What has really happened is the order of the log:
a record arrived when its neighbours did.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLOCKS_S = 60.0  # judgement: clocks that somebody looks after differ by less
STRAYS = 0.01  # judgement: of all records; where more are wrong, the others need not be right either

Whole = NDArray[np.int64]


def turn(stamps_us: Whole, at_us: int) -> int:
    """How many records of a log come before this moment: so many that the fewest timestamps contradict it.

    The i for which #(stamps[:i] < at) + #(stamps[i:] ≥ at) is largest, the first of equals.
    """
    return int(np.argmax(np.concatenate([[0], np.cumsum(np.where(stamps_us < at_us, 1, -1))])))


def placed(pieces: Iterable[Mapping[int, int]], *, first: int, end: int) -> dict[int, int]:
    """Second -> records, of arrivals piece by piece: all are from `first` on and before `end`.

    What is stamped otherwise counts amid the rest of its piece.
    """
    total: dict[int, int] = {}
    amid = first
    for arrivals in pieces:
        inside = {second: count for second, count in arrivals.items() if first <= second < end}
        amid = _middle(inside) if inside else amid
        if strays := sum(arrivals.values()) - sum(inside.values()):
            inside[amid] = inside.get(amid, 0) + strays
        for second, count in inside.items():
            total[second] = total.get(second, 0) + count
    return total


def far(arrivals: Mapping[int, int], *, first: int, end: int) -> int:
    """How many records are stamped so far outside of [first, end) that no clock is only a little off."""
    near = first - CLOCKS_S, end + CLOCKS_S
    return sum(count for second, count in arrivals.items() if not near[0] <= second < near[1])


def believable(arrivals: Mapping[int, int]) -> tuple[int, int]:
    """The seconds that may be believed where nobody knows when it was: from the first, before the second.

    All but a hundredth of the records at either end span some time; what is further from them than that is a
    stray. A quiet beginning is none.
    """
    seconds = sorted(arrivals)
    passed = np.cumsum([arrivals[second] for second in seconds])
    total = int(passed[-1])
    aside = min(math.ceil(STRAYS * total), (total - 1) // 2)
    low = seconds[int(np.searchsorted(passed, aside, side="right"))]
    high = seconds[int(np.searchsorted(passed, total - aside))] + 1
    return low - (high - low), high + (high - low)


def near(arrivals: Mapping[int, int], *, span_s: float) -> tuple[float, float]:
    """The seconds that may be believed where it is known how much time the records took.

    As long as fewer than half are wrong, the middle one is right, and no other right one is further from it.
    """
    middle = _middle(arrivals)
    return middle - span_s - CLOCKS_S, middle + span_s + CLOCKS_S


def as_neighbours(at_ms: Whole, *, believed_s: tuple[float, float]) -> Whole:
    """When records that follow each other were there: of a stray one as its neighbours say.

    A stray one is stamped outside of the seconds that are believed, or long before nearly all others here.
    Not long after them: those may be the first after a silence. −1 where nobody knows.
    """
    low_s, high_s = believed_s
    right = (at_ms >= low_s * 1000) & (at_ms < high_s * 1000)
    if not right.any():
        return np.full_like(at_ms, -1)
    if np.ptp(at_ms[right]) > CLOCKS_S * 1000:
        seconds, counts = np.unique(at_ms[right] // 1000, return_counts=True)
        first, _ = believable(dict(zip(seconds.tolist(), counts.tolist(), strict=True)))
        right &= at_ms >= (first - CLOCKS_S) * 1000
    if right.all():
        return at_ms
    rows = np.arange(at_ms.size)
    return np.where(right, at_ms, np.interp(rows, rows[right], at_ms[right]).astype(np.int64))


def in_log_order(files: Iterable[Path]) -> dict[int, tuple[Whole, Whole]]:
    """Partition -> offsets and timestamps in microseconds of what these files of a recording hold."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ..replay.sources import as_times

    wanted = ["partition", "offset", "timestamp"]
    tables = [pq.ParquetFile(file).read(columns=wanted) for file in files]
    if not tables:  # offsets without records, as transactions leave them
        return {}
    table = pa.concat_tables(tables)
    partition, offset = (table[name].to_numpy() for name in wanted[:2])
    times = as_times(table["timestamp"]).cast("int64").to_numpy()
    found = {}
    for part in np.unique(partition).tolist():
        rows = np.flatnonzero(partition == part)
        rows = rows[np.argsort(offset[rows], kind="stable")]
        found[part] = offset[rows], times[rows]
    return found


def _middle(arrivals: Mapping[int, int]) -> int:
    """The second in which half of them have arrived."""
    seconds = sorted(arrivals)
    passed = np.cumsum([arrivals[second] for second in seconds])
    return seconds[int(np.searchsorted(passed, passed[-1] / 2.0))]
