"""When does the next slice leave, and what does a source do that is late?

Slice s holds what falls due in [s·Δ, (s+1)·Δ) and leaves when that is over, never before. Task i of n leaves
i·Δ/n later, so that the slices of the tasks interleave.

A late source neither bursts nor forgets at once: slices follow each other at Δ / 1.15, fifteen per cent above
the rate that is commanded, until it has caught up. What is more than two seconds late is given up, and
counted: a source that cannot reach its rate would otherwise be late for ever, and the next, lower rate with
it. In its first seconds it may be ten late, while classes are loaded and connections made.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.quantities import Misuse

CATCH_UP = 1.15  # judgement: within the 20 % that a slice may be off
PATIENCE_US = 2_000_000  # judgement: longer than a garbage collection, shorter than any probe
FIRST_US = 10_000_000  # judgement: the first records took 0.3 s, and 5 s on a machine that was busy
SLICE_US = 20_000  # measured: five to each 100 ms, 2 × 50 batches/s through Arrow cost a tenth of a core


@dataclass(frozen=True)
class Pace:
    """The rhythm of one task."""

    task: int = 0
    tasks: int = 1
    slice_us: int = SLICE_US
    catch_up: float = CATCH_UP
    patience_us: int = PATIENCE_US

    def __post_init__(self) -> None:
        if not 0 <= self.task < self.tasks:
            raise Misuse("task", f"must lie within 0 and {self.tasks - 1}, got {self.task}")
        if not 1000 <= self.slice_us <= 100_000:
            raise Misuse("slice_us", f"must lie within 1 and 100 ms, got {self.slice_us / 1000:g}")
        if self.catch_up <= 1.0:
            raise Misuse("catch_up", "must be above 1, or a late source never catches up")

    def falls_due_us(self, number: int) -> int:
        """When the slice leaves, if all goes well."""
        return (number + 1) * self.slice_us + self.task * self.slice_us // self.tasks

    def leaves_us(self, number: int, *, last_us: int) -> int:
        """When it leaves after the one before has left at `last_us`."""
        return max(self.falls_due_us(number), last_us + int(self.slice_us / self.catch_up))

    def resumes(self, number: int, *, now_us: int) -> int:
        """The slice to go on with: this one, or the newest that is due when it is too late for this one."""
        due_us = self.falls_due_us(number)
        patience_us = max(self.patience_us, FIRST_US - due_us)
        late_us = now_us - due_us
        return number if late_us <= patience_us else number + late_us // self.slice_us

    def late_us(self, number: int, *, now_us: int) -> int:
        """How late it is for this slice."""
        return max(0, now_us - self.falls_due_us(number))
