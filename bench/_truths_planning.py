"""Jobs whose rate over slots and memory is one of the planner's own forms, with multiplicative noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.planning import FORMS, Explorer, SlotMeasurement, Stop


@dataclass(frozen=True)
class Job:
    form: str
    memory_weight: float
    slot_weight: float
    offset: float

    def rate_rps(self, task_slots: float, memory_mb: float) -> float:
        g = FORMS[self.form][0]
        return float(self.memory_weight * g(memory_mb) + self.slot_weight * g(task_slots) + self.offset)

    def slots(self, target_rps: float, memory_mb: float) -> float:
        g, inverse = FORMS[self.form]
        rest = target_rps - self.offset - self.memory_weight * g(memory_mb)
        return float(inverse(rest / self.slot_weight))


JOBS = {
    "linear": Job("linear", 4.0, 40_000.0, -20_000.0),
    "log1p": Job("log1p", 20_000.0, 500_000.0, -700_000.0),
    "sqrt": Job("sqrt", 500.0, 300_000.0, -300_000.0),
}
MEMORY_MB = (512.0, 1_024.0, 2_048.0, 4_096.0)
SLOTS = (4, 48)


def measured(job: Job, points: list[tuple[int, float]], *, noise: float, seed: int) -> list[SlotMeasurement]:
    rng = np.random.default_rng(seed)
    return [
        SlotMeasurement(s, m, max(0.0, job.rate_rps(s, m)) * float(np.exp(noise * rng.standard_normal())))
        for s, m in points
    ]


def explored(job: Job, *, target_rps: float, noise: float, seed: int) -> Explorer:
    """An exploration to its end."""
    rng = np.random.default_rng(seed)
    explorer = Explorer(SLOTS, MEMORY_MB, target_rps)
    while not isinstance(probe := explorer.ask(), Stop):
        rate = max(0.0, job.rate_rps(probe.task_slots, probe.memory_mb)) * float(
            np.exp(noise * rng.standard_normal())
        )
        explorer = explorer.tell(task_slots=probe.task_slots, memory_mb=probe.memory_mb, sustained_rps=rate)
    return explorer
