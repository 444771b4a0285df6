"""Is what is observed still what the model was made for?

One number per forecast or evaluation (an error, a residual, a pinball loss) is compared with all before it by
its sequential rank, which needs no distribution and no reference period: for independent numbers from one
source, the rank of each among its predecessors is uniform and independent of every other rank. With z the
normal score of the rank, two sums are kept (Page):

    U = max(0, U + z − ½)        L = max(0, L − z − ½)        drifted when either exceeds h

h follows from the chance of a false alarm in a thousand numbers by Siegmund's average run length of one sum,
(e^x − x − 1) / (2k²) with k = ½ and x = 2k(h + 1.166). By default that chance is 1 %: then h = 10.3.
Measured, after 100 steady numbers: a shift by one standard deviation is found within 60 numbers nine times in
ten (later it is taken for the new normal), one by two standard deviations within 20, always.

Numbers must not overlap: forecasts made more often than their horizon share errors, and are one observation.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

from .arguments import number, numbers
from .quantities import Misuse

FALSE_ALARMS_PER_1000 = 0.01  # judgement: at one number per quarter of an hour, one in three years
REFERENCE_SHIFT = 0.5  # k: best for a shift of one standard deviation (Page 1954)
MOST_REMEMBERED = 1_000  # judgement: ranks are then known to 3 %, and the state is 20 kB

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Drift:
    """What was seen so far, and whether it has drifted. Frozen: `update` returns the next state."""

    schema: ClassVar[int] = 1
    false_alarms_per_1000: float = FALSE_ALARMS_PER_1000
    remembered: tuple[float, ...] = ()
    """The first numbers seen, in rising order."""
    seen: int = 0
    up: float = 0.0
    down: float = 0.0
    drifted_at: int | None = None
    """The number at which the alarm was raised; it stays, until a new Drift is begun after a refit."""

    def __post_init__(self) -> None:
        number("false_alarms_per_1000", self.false_alarms_per_1000, above=0.0, at_most=0.9)

    @property
    def threshold(self) -> float:
        """The h that keeps the stated chance of a false alarm."""
        # Two sums, so each may run twice as long as both together.
        run_length = 2.0 * -1_000.0 / math.log(1.0 - self.false_alarms_per_1000)
        low, high = 0.0, 60.0
        for _ in range(60):
            x = (low + high) / 2
            if (math.exp(x) - x - 1.0) / (2.0 * REFERENCE_SHIFT**2) < run_length:
                low = x
            else:
                high = x
        return max(1.0, low / (2.0 * REFERENCE_SHIFT) - 1.166)

    @property
    def drifted(self) -> bool:
        """Is it time to refit?"""
        return self.drifted_at is not None

    @property
    def reason(self) -> str:
        """What an engineer reads."""
        chance = f"{self.false_alarms_per_1000:.2g} false alarms per 1000 steady numbers"
        if self.drifted_at is None:
            return f"no drift in {self.seen} numbers ({chance})"
        side = "larger" if self.up >= self.down else "smaller"
        return f"number {self.drifted_at} and those before it are {side} than what was seen before ({chance})"

    def update(self, values: Any) -> Drift:
        """The state after one more number, or several in a row."""
        new = numbers("values", values)
        if new.ndim > 1:
            raise Misuse("values", f"must be one number or a sequence of them, got shape {new.shape}")
        known, seen, up, down, at = list(self.remembered), self.seen, self.up, self.down, self.drifted_at
        threshold = self.threshold
        for value in new.reshape(-1).tolist():
            seen += 1
            if at is None:
                # The middle of the ranks it may have: equal numbers say nothing about either direction.
                rank = (bisect.bisect_left(known, value) + bisect.bisect_right(known, value) + 1) / 2
                z = _NORMAL.inv_cdf(rank / (len(known) + 1))
                up, down = max(0.0, up + z - REFERENCE_SHIFT), max(0.0, down - z - REFERENCE_SHIFT)
                if max(up, down) > threshold:
                    at = seen
                elif len(known) < MOST_REMEMBERED:
                    bisect.insort(known, value)
        return Drift(self.false_alarms_per_1000, tuple(known), seen, up, down, at)
