"""Decision on the smallest scale-out that keeps the promise: `decide(Question(…)) -> Decision`.

Read in this order: question (what goes in and comes out), choosing, judging, engine.
"""

from .choosing import decide
from .engine import BatchEngine, ContinuousEngine, Engine
from .question import Decision, Excuse, Question, Verdict, aligned_scale_outs

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
