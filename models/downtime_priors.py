"""How long is a job down, before anything of its own was measured?

One prior per kind of event, log-normal in D + 1 s: a typical value, how much events of one job differ, and
how many events each of the two is worth. Where Spark's own settings decide (nobody misses a frozen executor
before the heartbeat time-out), the prior is a function of them. Downtime is from the failure to the first new
commit.

"Measured" below: one machine, standalone and Kubernetes, 1 ms per record, batches of 1–2 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .arguments import number
from .quantities import EVENT_KINDS

SPARK_HEARTBEAT_TIMEOUT_S = 120.0
"""spark.network.timeout as Spark sets it."""

COLD_START_S = 37.0
"""Measured: executors 5–12 s after the driver, then a first batch of 14–46 s (middle 25 s)."""

RERUN_S = 4.0
"""Measured: time-out 20 s, noticed after 21.8 s, then the batch of 1–2 s once more."""

TYPICAL_WEIGHT = 1.0
SPREAD_WEIGHT = 4.0
"""Events the typical value and the spread are worth: judgement, then measured (bench/recovery.py). For jobs
whose typical downtime is off by a factor 1.6 and whose events spread by 0.2–0.8, the 90 % interval covers
92 % before any event and 89–90 % after 1 to 30. Among them a spread of 0.2 is nearly always covered,
and one of 0.7 in some 80 % after three events: that is what shrinking costs."""


@dataclass(frozen=True)
class DowntimePrior:
    """What is believed of one kind of event; `spread` is the standard deviation of log(D + 1 s)."""

    typical_s: float
    spread: float
    typical_weight: float = TYPICAL_WEIGHT
    spread_weight: float = SPREAD_WEIGHT

    def __post_init__(self) -> None:
        number("DowntimePrior.typical_s", self.typical_s, at_least=0.0)
        number("DowntimePrior.spread", self.spread, above=0.0)
        number("DowntimePrior.typical_weight", self.typical_weight, above=0.0)
        number("DowntimePrior.spread_weight", self.spread_weight, at_least=1.0)


def downtime_priors(
    *, heartbeat_timeout_s: float = SPARK_HEARTBEAT_TIMEOUT_S, cold_start_s: float = COLD_START_S
) -> Mapping[str, DowntimePrior]:
    """How long is a job down by kind of event, given when silence is noticed and what a cold start takes?"""
    silence = number("heartbeat_timeout_s", heartbeat_timeout_s, at_least=0.0)
    cold = number("cold_start_s", cold_start_s, at_least=0.0)
    typical_and_spread = {
        "executor_kill": (3.0, 0.4),  # measured: back after 7.8 s, tasks run again elsewhere at once
        "executor_freeze": (silence + RERUN_S, 0.2),  # measured
        "driver_kill": (cold, 0.4),  # measured
        "driver_freeze": (silence + cold, 0.4),  # judgement: first missed, then restarted
        "broker_restart": (12.0, 0.5),  # measured: accepts connections after 6 s; clients retry; judgement
        "node_loss": (silence + 12.0, 0.4),  # measured on Kubernetes: executors run after 12 s
        "straggler": (2.0, 0.6),  # judgement: batches get slower, none is lost
        "pod_failure": (15.0, 0.7),  # judgement
        "network_partition": (silence + RERUN_S, 0.4),  # judgement: like a freeze, with retries
        "network_delay": (3.0, 0.7),  # judgement
        "network_loss": (5.0, 0.8),  # judgement
        "cpu_stress": (2.0, 0.6),  # judgement
        "memory_stress": (5.0, 0.8),  # judgement: slow, or an executor is lost
        "live_out": (8.0, 0.25),  # measured: first batch after growing 6.7, 8.2, 10 s
        "live_in": (7.0, 0.35),  # measured: 5.4, 5.8, 9.7 s, the batch in flight is run again
        "restart_out": (cold, 0.35),  # measured, as driver_kill but nobody has to notice
        "restart_in": (cold, 0.35),
    }
    return MappingProxyType({kind: DowntimePrior(*typical_and_spread[kind]) for kind in EVENT_KINDS})
