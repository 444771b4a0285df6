"""Control: from an observation to instructions, one pure step per tick.

`step(state, observation, now) -> (state, [Instruction])` is given the time and returns what to do; the state
is JSON. Read `step` first: it names the other modules in the order in which a tick uses them. What became of
an ordered change is reported to the state with `begun`, `refused` and `withdrawn`.
"""

from .changes import begun, refused, withdrawn
from .state import (
    Blackout,
    Decider,
    Decision,
    Directives,
    Drill,
    Injected,
    Models,
    Pause,
    Pin,
    Settings,
    Situation,
    State,
    predicted,
)
from .step import lost_our_size, start, step

__all__ = [
    "start",
    "step",
    "begun",
    "refused",
    "withdrawn",
    "lost_our_size",
    "predicted",
    "Settings",
    "State",
    "Models",
    "Directives",
    "Pause",
    "Pin",
    "Blackout",
    "Drill",
    "Injected",
    "Situation",
    "Decision",
    "Decider",
]
