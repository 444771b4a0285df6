"""What does a copy show while it is being probed: its speed, its batches, its lag, and is it steady?

*Steady*: the last batches, cut in two parts of at least two batches and STEADY_S each, show rates (records
over processing time) that differ by no more than STEADY_SHARE.
"""

from __future__ import annotations

import math
from itertools import pairwise

from models.quantities import Unknown

from ..signals.latency import LatencyWindow
from ..signals.timeline import Done
from ..signals.watching import Watch

STEADY_S = 8.0  # judgement: with two batches at least, the least that a trend shows in
STEADY_SHARE = 0.10  # judgement: three times the noise of such a part
SPEED_S = 10.0  # judgement: so long a span, or three batches, for the speed of this moment


class Readings:
    """One copy since `began_s`."""

    def __init__(self, watch: Watch, *, began_s: float, sample_s: float, trigger_s: float) -> None:
        self._watch, self._began_s, self._sample_s, self._trigger_s = watch, began_s, sample_s, trigger_s

    def steady_rps(self, now_s: float) -> float | Unknown:
        """What it processes, once that does not change any more."""
        done = list(self._watch.timeline.commits(self._began_s, now_s))
        late = _last_part(done)
        early = _last_part(done[: len(done) - len(late) + 1]) if late else []
        if not early:
            return Unknown("too few batches yet")
        first, second = (self._busy_rps(part) for part in (early, late))
        if second <= 0.0 or abs(second - first) > STEADY_SHARE * max(first, second):
            return Unknown(f"{first:,.0f} records/s became {second:,.0f}")
        return second

    def _busy_rps(self, done: list[Done]) -> float:
        """Records over processing time; over all time where the trigger of a batch is unknown."""
        busy_s = sum(seconds for _, seconds in self.batches(done[0].at_s, done[-1].at_s))
        return (done[-1].records - done[0].records) / (busy_s or done[-1].at_s - done[0].at_s)

    def speed_rps(self, now_s: float) -> float:
        """What it processes at the moment; 0 before anything is known."""
        span_s = max(SPEED_S, 3.0 * self.batch_s())
        start_s = max(self._began_s, now_s - span_s) - 1.0
        seen = self._watch.timeline.throughput_rps(start_s, now_s, clip=True)
        return 0.0 if isinstance(seen, Unknown) else seen

    def lag(self) -> float:
        """Records that wait; before the first commit all that has arrived."""
        lag = self._watch.lag_records
        if not isinstance(lag, Unknown):
            return lag
        point = self._watch.timeline.last
        return 0.0 if isinstance(point, Unknown) else float(point.arrived)

    def batch_s(self) -> float:
        """How long the last batches took; 0 before there are two."""
        recent = self._watch.timeline.commits(-math.inf, math.inf)[-4:]
        gaps = sorted(two.at_s - one.at_s for one, two in pairwise(recent))
        return gaps[len(gaps) // 2] if gaps else 0.0

    def troughs(self, from_s: float, to_s: float) -> list[float]:
        """Lag right after each commit."""
        timeline = self._watch.timeline
        found = []
        for done in timeline.commits(from_s, to_s):
            after = timeline.lag_records(done.at_s, done.at_s + 2.0 * self._sample_s)
            if after.size and not math.isnan(float(after[0])):
                found.append(float(after[0]))
        return found

    def batches(self, from_s: float, to_s: float) -> tuple[tuple[int, float], ...]:
        """Records and processing seconds of each batch, from its trigger to its commit.

        A late batch starts at the commit of the one before. One in time starts at the boundary of the trigger
        interval before it was planned, as Spark aligns them to the epoch; where that time is unknown, the
        batch is left out.
        """
        found = []
        for before, batch in pairwise(self._watch.timeline.commits(from_s, to_s)):
            start_s = before.at_s
            if self._trigger_s > 0.0:
                if isinstance(batch.planned_at_s, Unknown):
                    continue
                boundaries = math.floor(batch.planned_at_s / self._trigger_s + 1e-9)
                start_s = max(start_s, boundaries * self._trigger_s)
            found.append((batch.records - before.records, batch.at_s - start_s))
        return tuple(found)

    def latency_ms(self, start_s: float, end_s: float) -> float | None:
        """95th percentile over the records of the second half of a stretch.

        In its first half some of the backlog it began with may still have been worked off.
        """
        window = LatencyWindow(window_s=0.5 * (end_s - start_s))
        for point in self._watch.timeline.points(self._began_s, end_s):
            sample = point.sample
            window.update(
                sample.at_s,
                head=sample.head,
                log_start=sample.log_start,
                committed=sample.committed,
                commits=sample.commits,
            )
        found = window.percentiles().p95_ms
        return None if isinstance(found, Unknown) else found


def _last_part(done: list[Done]) -> list[Done]:
    """The last batches, two at least and STEADY_S long; empty where there are not so many."""
    for start in range(len(done) - 3, -1, -1):
        if done[-1].at_s - done[start].at_s >= STEADY_S:
            return done[start:]
    return []
