"""How fast have records arrived of late, on the grid that forecasts use?

Cell k holds the mean rate over [k·step, (k + 1)·step), epoch seconds. A cell is added once it is over, and
never changed; what nobody has read is missing, not zero. The newest day is kept with the control state, so
that a forecast goes on after a restart as if nothing had happened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from models.arguments import Array
from models.quantities import Json, Misuse, Unknown
from models.series import Grid

from ..signals.timeline import Timeline

MOST_CELLS = 2880  # judgement: a day at 30 s; enough to see what the champion is told after a restart
AHEAD = 2  # cells; judgement: a clock that is kept in step is not set back by so much
DIGITS = 6  # of a rate; its noise is far larger
FIT_STEPS_S = (10.0, 20.0, 30.0, 60.0)
STEPS_A_HORIZON = 9  # judgement: the load is predicted in ninths of the horizon, 30 s of 270 s
FEWEST_RATES = 12  # of a fit; judgement: the level is then known to a third of one value's noise


def forecast_step_s(horizon_s: float) -> float:
    """The step of a forecast over this horizon."""
    return max((s for s in FIT_STEPS_S if s * STEPS_A_HORIZON <= horizon_s), default=FIT_STEPS_S[0])


@dataclass(frozen=True)
class Rates:
    """Consecutive cells, the oldest first; NaN where nothing was read."""

    step_s: float
    first: int
    """The number of the first cell."""
    values: tuple[float, ...] = ()

    @property
    def end(self) -> int:
        """The number of the next cell."""
        return self.first + len(self.values)

    @property
    def end_s(self) -> float:
        """Until when the rates are known."""
        return self.end * self.step_s

    @property
    def known_s(self) -> float:
        """How many seconds of the rates were seen."""
        return self.step_s * sum(not math.isnan(rate) for rate in self.values)

    @property
    def grid(self) -> Grid:
        """As `models.series` reads it."""
        return Grid(self.first * self.step_s, self.step_s, np.asarray(self.values))

    def since(self, cell: int) -> Array:
        """The rates from this cell on; missing where they are no longer, or not yet, kept."""
        if cell >= self.end:
            return np.empty(0)
        missing = max(0, self.first - cell)
        return np.concatenate((np.full(missing, np.nan), self.values[max(0, cell - self.first) :]))

    def grown(self, timeline: Timeline, *, until_s: float) -> Rates:
        """With every cell that was over by then, and none that only a clock gone ahead can have added."""
        end = math.floor(until_s / self.step_s)
        if self.end - end > AHEAD:
            return Rates(self.step_s, min(self.first, end), self.values[: max(0, end - self.first)])
        if end <= self.end:
            return self
        begin = max(self.end, end - MOST_CELLS)
        new = tuple(self._read(timeline, cell) for cell in range(begin, end))
        values = (*self.values, *new) if begin == self.end else new
        return Rates(self.step_s, end - min(len(values), MOST_CELLS), values[-MOST_CELLS:])

    def _read(self, timeline: Timeline, cell: int) -> float:
        rate = timeline.arrival_rps(cell * self.step_s, (cell + 1) * self.step_s)
        return math.nan if isinstance(rate, Unknown) else float(f"{rate:.{DIGITS}g}")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; null is missing."""
        values = [None if math.isnan(v) else v for v in self.values]
        return {"step_s": self.step_s, "first": self.first, "values": values}

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """What `to_json` wrote."""
        values = tuple(math.nan if v is None else float(v) for v in data["values"])
        return cls(float(data["step_s"]), int(data["first"]), values)

    @classmethod
    def begin(cls, *, step_s: float, at_s: float) -> Self:
        """No cell yet; the first is the one that this moment lies in."""
        if not step_s > 0.0:
            raise Misuse("step_s", f"must be > 0, got {step_s}")
        return cls(step_s, math.floor(at_s / step_s))
