"""Control-loop dependencies: the ports it reads and acts through, and the models in charge.

The same dependencies serve an evaluation and an apply, in one process or in two: everything that must not be
forgotten is in the store. What is kept in `remembered` only saves time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from models.control import Blackout, Drill, Models
from models.ports import Clock, Deployments, Failures, Store
from models.quantities import Unknown
from models.workload import Forecaster

from ..telemetry.timeline import Timeline

NO_FORECASTER = Unknown("there is no workload model yet: fit it")
KEPT_S = 30 * 86_400.0  # judgement: a month of evaluations, some 100 MB a job


class Readings(Protocol):
    """What was measured of each job lately; `profiling_jobs.telemetry.timeline.Sampler` is one."""

    def reading(self, name: str) -> AbstractContextManager[Timeline]: ...


@dataclass(frozen=True)
class InCharge:
    """The champions of one job as a tick uses them."""

    models: Models
    forecaster: Forecaster | Unknown = NO_FORECASTER
    """It is not changed: a tick works on a copy."""
    forecaster_until_s: float | Unknown = field(default=NO_FORECASTER)
    """Up to when it has seen rates."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Kind -> version."""
    provisional: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Kind -> what to measure to make it firm, of the models whose checks had too little data."""
    seed: int = 0


def never(job: str, now_s: float) -> Blackout | None:
    """No blackout windows."""
    return None


@dataclass(frozen=True)
class Loop:
    """Everything an evaluation or an apply needs beside the job's settings."""

    store: Store
    deployments: Deployments
    readings: Readings
    champions: Callable[[str], InCharge | Unknown]
    """Job -> the models in charge; called at every tick, so it should not be slow."""
    clock: Clock
    failures: Failures | None = None
    """Where failures are injected; what follows is then learnt under its true name."""
    blackout: Callable[[str, float], Blackout | None] = never
    """Job and moment -> the blackout window it lies in."""
    drill: Callable[[str], Drill | None] = lambda job: None
    """The newest drill on this live job, also when it is over."""
    started: Callable[[str], float] = lambda job: -math.inf
    """Job -> when an order has started it last; -inf where none has."""
    kept_s: float = KEPT_S
    """How long evaluations and live measurements are kept."""
    remembered: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
