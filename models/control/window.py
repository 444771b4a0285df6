"""To which size may the job shrink? To the largest recommendation of the last `window_s` seconds.

Scale-in target at t = max{ v_i : t − window_s ≤ t_i ≤ t }, once the window is covered without a gap. Bursts
that come back inside the window then cost nothing, and a shrinking load is followed one window later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.quantities import Unknown


@dataclass(frozen=True)
class Window:
    """Recommendations that can still be the maximum, oldest first, and since when there is one per tick."""

    entries: tuple[tuple[float, int], ...] = ()
    since_s: float = math.inf
    newest_s: float = -math.inf

    def add(self, at_s: float, value: int, *, window_s: float, gap_s: float) -> Window:
        """The window with one more recommendation; a gap longer than `gap_s` begins the coverage anew."""
        if at_s <= self.newest_s:
            return self
        since_s = at_s if at_s - self.newest_s > gap_s else self.since_s
        # An older entry that is not larger can never be the maximum again, so the memory stays small.
        kept = tuple((t, v) for t, v in self.entries if v > value and t >= at_s - window_s)
        return Window(entries=(*kept, (at_s, value)), since_s=since_s, newest_s=at_s)

    def covers(self, now: float, window_s: float) -> bool:
        """Has there been a recommendation in every interval of the window?"""
        return now - self.since_s >= window_s

    def maximum(self, now: float, window_s: float) -> int | Unknown:
        """The largest recommendation of age ≤ `window_s`."""
        values = [v for t, v in self.entries if now - window_s <= t <= now]
        return max(values) if values else Unknown(f"nothing was recommended in the last {window_s:.0f} s")

    def age_of(self, value: int, now: float) -> float:
        """How long ago at least `value` was last recommended, in seconds; inf if not inside the window."""
        return min((now - t for t, v in self.entries if v >= value), default=math.inf)
