"""What is the smallest size that keeps the promise for the load that is coming, and why no other?

`decide(Question(…)) -> Decision`; the way through is choosing → judging → outlook.
"""

from .choosing import decide
from .engine import BatchEngine, ContinuousEngine, Engine
from .question import Question, aligned_scale_outs
from .verdict import Decision, Excuse, Verdict

__all__ = [
    "decide",
    "Question",
    "Decision",
    "Verdict",
    "Excuse",
    "ContinuousEngine",
    "BatchEngine",
    "Engine",
    "aligned_scale_outs",
]
