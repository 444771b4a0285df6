"""What should happen to this job now, given all that control has seen of it?

`step(state, observation, now) -> (state, [Instruction])` is pure: time comes in, instructions go out, and
the state is JSON. The way through: `step` (the page to read first) → `seeing` → `surroundings` (people's
orders) → `recovering` (failures) → `changing` (our changes, verified or rolled back) → `learning` →
`deciding`, `emergency` → `limits`. What became of a change is told with `begun`, `refused`, `withdrawn`.
"""

from .changes import begun, refused, withdrawn
from .deciding import Decider, Decision, Models, Situation
from .precedence import lost_our_size
from .settings import Settings
from .state import Blackout, Directives, Drill, Injected, Pause, Pin, State
from .step import start, step

__all__ = [
    "start",
    "step",
    "begun",
    "refused",
    "withdrawn",
    "lost_our_size",
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
