"""How does a simulated job really behave, and how fast is the platform below it?

The truth that profiling has to find out: nothing outside the simulation may look at it. The defaults are
what was measured of the job `enrichment` (about 1 ms of waiting per record) on a local Spark: 800, 1 420,
2 480 and 3 000 records/s at 1, 2, 4 and 6 executors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..arguments import number, whole


def contended(executors: int, *, one_rps: float = 800.0, contention: float = 0.12) -> float:
    """T(s) = λ s / (1 + σ (s − 1)): 800, 1 429, 2 353, 3 000 at 1, 2, 4, 6 executors."""
    return one_rps * executors / (1.0 + contention * (executors - 1))


@dataclass(frozen=True)
class Behaviour:
    """One job. A batch of n records on s warm executors takes overhead_s + n / capacity_rps(s)."""

    capacity_rps: Callable[[int], float] = contended
    overhead_s: float = 0.3  # judgement: planning and commit of a stateless batch
    warm_up_s: float = 8.0  # measured: 6.7–9.7 s of the first batch with new Python workers
    state_load_s: float = 0.0
    """Added to the first batch of a restarted driver."""
    output_ratio: float = 1.0
    """Records written per record read."""
    cpu_share: float = 0.1  # judgement: a job that waits for look-ups
    """CPU time per busy second."""

    def __post_init__(self) -> None:
        for name in ("overhead_s", "warm_up_s", "state_load_s", "output_ratio"):
            number(f"Behaviour.{name}", getattr(self, name), at_least=0.0)
        number("Behaviour.cpu_share", self.cpu_share, at_least=0.0, at_most=1.0)

    def rate(self, executors: int) -> float:
        """Records/s of so many warm executors; none process nothing."""
        return max(0.0, self.capacity_rps(executors)) if executors > 0 else 0.0


@dataclass(frozen=True)
class Platform:
    """Where jobs run: slots, and how long things take there."""

    slots: int = 8
    driver_start_s: float = 7.0  # measured: a Spark session on an idle machine
    executor_start_s: float = 5.0  # measured: 3.4–9.5 s from the request until it is registered
    driver_notice_s: float = 0.2  # as the local deployments look after their drivers
    driver_timeout_s: float = 20.0  # a silent driver is given up after Spark's network time-out
    executor_timeout_s: float = 20.0  # heartbeats, as the local Spark is set
    scale_timeout_s: float = 60.0  # judgement
    stop_timeout_s: float = 60.0  # a batch that takes longer is cut short
    broker_restart_s: float = 8.0  # measured: 5–10 s

    def __post_init__(self) -> None:
        whole("Platform.slots", self.slots)
        for name, value in vars(self).items():
            number(f"Platform.{name}", value, at_least=0.0)
