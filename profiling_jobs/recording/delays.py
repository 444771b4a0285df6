"""How far are the timestamps of a topic behind our clock?

What Flink or Kafka Streams have written is stamped with the time of their input, and a broker's clock may be
late: by seconds, which no clock that is set an hour wrong makes. Records that came while we watched tell by
how much. Those that were there before do not: they may have waited for us.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .recorded import SETTLE_S
from .request import Ends
from .stamps import CLOCKS_S, Whole

LISTEN_S = 10.0  # judgement: two slices, the second of what comes while we listen
NEWEST = 9  # judgement: of a partition in a slice; one that is stamped wrongly must not be the middle one


class Delays:
    """What each partition has shown: the least of its slices, whose records may have waited to be copied."""

    def __init__(self) -> None:
        self._there: Ends | None = None
        self._began_s = 0.0
        self._least_s: dict[int, float] = {}

    def begin(self, ends: Ends, now_s: float) -> None:
        """What comes from here on comes while we watch. Called again, it says nothing new."""
        if self._there is None:
            self._there, self._began_s = dict(ends), now_s

    def saw(self, read: Mapping[int, tuple[Whole, Whole]], *, seen_s: float) -> None:
        """Offsets and timestamps in microseconds of a slice; all of it was there at this moment."""
        for part, (offsets, stamps_us) in read.items():
            new = stamps_us[offsets >= (self._there or {}).get(part, 0)]
            if new.size:
                delay_s = seen_s - float(np.median(new[-NEWEST:])) / 1e6
                self._least_s[part] = min(delay_s, self._least_s.get(part, delay_s))

    def is_long(self, part: int) -> bool:
        """Whether a partition is known to be further behind than a clock that somebody looks after."""
        return self._least_s.get(part, 0.0) > CLOCKS_S

    def all_there_s(self, until_s: float) -> float:
        """By when there is all that is stamped before `until_s`, by our clock.

        A partition that is far behind is not waited for. Who begins late listens for a while: what is there
        may be all, or only as far as the timestamps have come.
        """
        short = (self._least_s[part] for part in self._least_s if not self.is_long(part))
        listened_s = self._began_s + LISTEN_S if self._began_s < until_s + CLOCKS_S else 0.0
        return max(until_s + max([SETTLE_S, *short]), listened_s)
