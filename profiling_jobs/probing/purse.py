"""How long may a probe still run, when several spend one budget at once?"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

STOP_S = 5.0  # judgement: a copy holds its executors until its batch is over


@dataclass
class Purse:
    """What may still be spent, in executor-seconds, while several probes spend at once."""

    budget: float
    spent: float
    running: dict[int, tuple[float, int, float]] = field(default_factory=dict)
    """Probe -> since when, executors, what it was planned to cost."""
    waiting: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Copy between two probes -> since when, executors."""

    def left_s(self, number: int, now_s: float) -> float:
        """How long may this probe still run, if the others cost what they are planned to, or what they do?"""
        if not math.isfinite(self.budget):
            return math.inf
        others = sum(
            max(planned, executors * (now_s - since_s))
            for other, (since_s, executors, planned) in self.running.items()
            if other != number
        )
        others += sum(executors * (now_s - since_s) for since_s, executors in self.waiting.values())
        since_s, executors, _ = self.running[number]
        return (self.budget - self.spent - others) / executors - (now_s - since_s) - STOP_S

    def waited(self, name: str, now_s: float) -> float:
        """What this copy has cost between two probes; it no longer waits."""
        since_s, executors = self.waiting.pop(name, (now_s, 0))
        return executors * (now_s - since_s)
