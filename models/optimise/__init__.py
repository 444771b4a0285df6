"""Decision on the smallest scale-out that keeps the promise: `decide(Question(…)) -> Decision`.

Read in this order: question (what goes in and comes out), choosing, judging.
"""

from .choosing import decide
from .judging import Prediction, predictions, recovery_at
from .question import (
    BatchEngine,
    ContinuousEngine,
    Decision,
    Engine,
    Excuse,
    Question,
    Verdict,
    aligned_scale_outs,
)

__all__ = [
    "decide",
    "predictions",
    "recovery_at",
    "Prediction",
    "Question",
    "Decision",
    "Verdict",
    "Excuse",
    "ContinuousEngine",
    "BatchEngine",
    "Engine",
    "aligned_scale_outs",
]
