"""What should happen to this job now, given all that control has seen of it?

`step(state, observation, now) -> (state, [Instruction])` is pure: time comes in, instructions go out, and
the state is JSON. The way through: `step` (the page to read first) → `seeing` → `surroundings` (people's
orders) → `recovering` (failures) → `changing` (our changes, verified or rolled back) → `learning` →
`deciding`, `emergency` → `limits`. What became of a change is told with `begun`, `refused`, `withdrawn`.
"""

from .deciding import Decider, Decision, Models, Situation
from .directives import Blackout, Directives, Drill, Injected, Pause, Pin
from .ordered import begun, refused, withdrawn
from .settings import Settings
from .state import State
from .step import start, step
from .surroundings import lost_our_size

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
