"""Latency of records, from their arrival at the broker to the commit of their batch.

Over all records committed in the last two minutes: the 95th percentile of commit time − arrival time. The
ends of each partition, read every second or so, say when an offset arrived: a record between two readings
arrived between their times, and by the same share of the way. So, between two readings,

    latency of the records [a, b) of a partition  ~  uniform on [commit − t(b), commit − t(a)]

and the percentile is that of the mixture, each stretch weighted by its records. What arrived before the
first reading has waited for an unknown time: a batch with such a record is left out as a whole, or only its
quick records would count. Records that are committed once more after a rollback are not counted again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from models.arguments import Array
from models.ports import Commit, Offsets, Partition
from models.quantities import Unknown

WINDOW_S = 120.0  # agreed: two minutes
KEPT_S = 1800.0  # judgement: with half an hour of lag a percentile says nothing
WIDEST_STEP_S = 10.0  # judgement: beyond it, "steady within a step" is a guess
MOST_UNSURE = 0.05  # judgement: the share of records that may lie in wider steps


@dataclass
class _Arrivals:
    """When each offset of a partition was there. Of a standstill the first and the last reading."""

    times_s: list[float] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    done: int = -1
    """Up to here records are committed and counted."""

    def read(self, at_s: float, end: int) -> None:
        if self.ends and end < self.ends[-1]:  # the topic was deleted and made again
            self.times_s, self.ends, self.done = [], [], 0
        if len(self.ends) > 1 and self.ends[-1] == self.ends[-2] == end:
            self.times_s[-1] = at_s
        else:
            self.times_s.append(at_s)
            self.ends.append(end)

    def skip(self, start: int) -> None:
        if self.done >= 0:
            self.done = max(self.done, start)

    def forget(self, *, before_s: float) -> None:
        first = max(bisect_right(self.ends, self.done), bisect_right(self.times_s, before_s)) - 1
        if first > 0:
            del self.times_s[:first], self.ends[:first]

    def take(self, end: int) -> tuple[Array, int]:
        """The records done now, as rows (from time, to time, count, step), and how many were not seen."""
        first, self.done = self.done, max(self.done, end)
        if first < 0 or first >= end or not self.ends:  # what was done when we came is not ours to judge
            return np.empty((0, 4)), 0
        known = min(max(first, self.ends[0]), end)
        low, high = bisect_right(self.ends, known) - 1, bisect_left(self.ends, end)
        ends = np.asarray(self.ends[low : high + 1], dtype=np.float64)
        times = np.asarray(self.times_s[low : high + 1])
        step, came = np.diff(times), np.diff(ends)
        start, stop = np.clip(ends[:-1], known, end), np.clip(ends[1:], known, end)
        pace = step / np.maximum(came, 1.0)
        rows = np.column_stack(
            [
                times[:-1] + (start - ends[:-1]) * pace,
                times[:-1] + (stop - ends[:-1]) * pace,
                stop - start,
                step,
            ]
        )
        unseen = (known - first) + max(0, end - max(known, self.ends[-1]))
        return rows[rows[:, 2] > 0], unseen


class LatencyWindow:
    """The latency of one job, from the broker's ends and the job's commits as they are read."""

    def __init__(self, *, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._arrivals: dict[Partition, _Arrivals] = {}
        self._done: deque[tuple[float, Array]] = deque()
        """Per commit: its time, rows (least latency, greatest latency, count, step)."""
        self._left_out_s = -np.inf
        self._since_s: float | None = None
        self._read_s = 0.0

    def update(
        self,
        at_s: float,
        *,
        head: Offsets,
        log_start: Offsets,
        committed: Offsets | Unknown,
        commits: Iterable[Commit],
    ) -> None:
        """What was read at `at_s`; `commits` are those since the time before, oldest first."""
        for partition, end in head.items():
            if partition not in self._arrivals:
                new = self._arrivals[partition] = _Arrivals()
                if self._since_s is not None:  # it was not there a moment ago
                    new.read(self._read_s, 0)
                    new.done = 0
                elif not isinstance(committed, Unknown):
                    new.done = committed.get(partition, 0)
            self._arrivals[partition].read(at_s, end)
            self._arrivals[partition].skip(log_start.get(partition, 0))
        if self._since_s is None:
            self._since_s = at_s
        else:
            for commit in commits:
                self._take(commit)
        self._read_s = at_s
        for arrivals in self._arrivals.values():
            arrivals.forget(before_s=at_s - KEPT_S)
        while self._done and self._done[0][0] < at_s - self._window_s:
            self._done.popleft()

    def p95_ms(self) -> float | Unknown:
        """Over the records that were committed in the window that ends now."""
        rows = np.concatenate([np.empty((0, 4)), *(rows for _, rows in self._done)])
        records = int(rows[:, 2].sum())
        if not records and self._since_s is not None and self._left_out_s > self._read_s - self._window_s:
            return Unknown(
                "what was committed lately had arrived before the broker's ends were first read, "
                f"{self._read_s - self._since_s:.0f} s ago, at an unknown time: wait for newer records"
            )
        if not records:
            return Unknown(f"no record was committed in the last {self._window_s:.0f} s")
        unsure = float(rows[rows[:, 3] > WIDEST_STEP_S, 2].sum()) / records
        if unsure > MOST_UNSURE:
            widest = float(rows[:, 3].max())
            return Unknown(
                f"the broker's ends were read {widest:.0f} s apart, which does not show when a "
                f"record arrived: sample at least every {WIDEST_STEP_S:.0f} s"
            )
        return 1000.0 * _quantile(rows[:, 0], rows[:, 1], rows[:, 2], 0.95 * records)

    def _take(self, commit: Commit) -> None:
        found, unseen = [np.empty((0, 4))], 0
        for partition, end in commit.ends.items():
            if partition in self._arrivals:
                rows, missed = self._arrivals[partition].take(end)
                found.append(rows)
                unseen += missed
        if unseen:
            self._left_out_s = commit.at_s
            return
        rows = np.concatenate(found)
        # What is committed had arrived, also where the next reading of the end came later.
        from_s, to_s = np.minimum(rows[:, 0], commit.at_s), np.minimum(rows[:, 1], commit.at_s)
        rows = np.column_stack([commit.at_s - to_s, commit.at_s - from_s, rows[:, 2], rows[:, 3]])
        if len(rows):
            self._done.append((commit.at_s, rows))


def _quantile(low: Array, high: Array, weight: Array, wanted: float) -> float:
    """Where the mixture of uniforms [low, high] has gathered the wanted weight.

    Its cumulated weight is piecewise linear, Σ w·(x − low)/(high − low), with a kink at every edge and a step
    where low = high.
    """
    width = high - low
    spread = width > 1e-6  # below a microsecond it is a step
    edges = np.unique(np.concatenate([low, high]))
    density = np.zeros(edges.size)
    np.add.at(density, np.searchsorted(edges, low[spread]), weight[spread] / width[spread])
    np.add.at(density, np.searchsorted(edges, high[spread]), -weight[spread] / width[spread])
    steps = np.zeros(edges.size)
    np.add.at(steps, np.searchsorted(edges, low[~spread]), weight[~spread])
    grown = np.concatenate([[0.0], np.cumsum(density)[:-1] * np.diff(edges)])
    after = np.cumsum(grown + steps)
    before = after - steps
    x = np.repeat(edges, 2)
    y = np.maximum.accumulate(np.column_stack([before, after]).ravel())
    return float(np.interp(wanted, y, x))
