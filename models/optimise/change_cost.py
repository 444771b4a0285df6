"""Is a smaller size worth the move?

Moving costs the executors that do no work while the job is down, and the lag everybody waits through. It
rises to D seconds of input at the end of the downtime D and is gone after the recovery r: about D·r/2
lag-seconds. A lag as long as the whole target R, for one second, is priced like the whole job for a second:

    cost  = s · (D + D·r / (2R))        s = the larger of both sizes, in executor-seconds
    saved = (s_now − s_then) · (time until the next likely change)

No memory: how often sizes really changed, and the window of past recommendations, belong to `models.control`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..arguments import number, whole

STAY_S = 3600.0  # judgement: a daily load moves by an executor in about an hour; better the job's own record


@dataclass(frozen=True)
class ChangeCost:
    """What a move to fewer executors saves and costs, in executor-seconds."""

    saved: float
    idle: float
    """Executors paid while nothing is processed."""
    lag: float
    """The lag-seconds at their price."""

    @property
    def worth(self) -> bool:
        """Does it save more than it costs?"""
        return self.saved > self.idle + self.lag


def change_cost(
    *, current: int, to: int, downtime_s: float, recovery_s: float, target_s: float, stay_s: float = STAY_S
) -> ChangeCost:
    """What would the move from `current` to `to` executors save and cost? Never worth it to grow."""
    now, then = whole("current", current), whole("to", to)
    down = number("downtime_s", downtime_s, at_least=0.0)
    target = number("target_s", target_s, above=0.0)
    stay = number("stay_s", stay_s, at_least=0.0)
    size = max(now, then)
    never = recovery_s == math.inf
    back = recovery_s if never else number("recovery_s", recovery_s, at_least=0.0)
    lag_seconds = math.inf if never else down * back / 2.0
    return ChangeCost(saved=(now - then) * stay, idle=size * down, lag=size * lag_seconds / target)
