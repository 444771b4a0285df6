"""With what does the owner carry out an order?

The world, the settings and the control loop of one owner, and the clock on which an order can be given up at
any moment; what was begun by then is put away by whoever began it.

How do several threads read metrics that are for one at a time? Each waits for its turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from models import control
from models.errors import HeadroomError
from models.ports import Metrics, Sample
from profiling_jobs.control_loop.context import Loop
from profiling_jobs.experiments.copies import ExperimentContext, wait_until_caught_up
from profiling_jobs.telemetry.sampler import Rounds

from ..environments.base import World
from ..settings import job_plans, time_windows
from ..settings.job_plans import ChampionsInCharge
from ..settings.loading import SettingsFile
from ..settings.schema import JobSettings, Settings
from .order_queue import Order, OrderClock


class _InTurn:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics, self._turn = metrics, threading.Lock()

    def sample(self, name: str) -> Sample:
        with self._turn:
            return self._metrics.sample(name)


class _RoundsInTurn(_InTurn):
    """The same, where several jobs can be sampled at once."""

    def __init__(self, metrics: Metrics, rounds: Rounds) -> None:
        super().__init__(metrics)
        self._rounds = rounds

    def sample_all(self, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]:
        with self._turn:
            return self._rounds.sample_all(names)


def one_at_a_time(metrics: Metrics) -> Metrics:
    """The same metrics for any number of threads."""
    return _RoundsInTurn(metrics, metrics) if isinstance(metrics, Rounds) else _InTurn(metrics)


CATCH_UP_TARGETS = 4.0  # judgement: a job that keeps its promise has caught up long before
_AT_REST = ("stopped", "failed")
LOOK_S = 1.0  # how often it is looked how something is going; judgement
Found = Mapping[str, Any]


@dataclass(frozen=True)
class Means:
    """Everything that an order may make use of."""

    world: World
    file: SettingsFile
    folder: Path
    loop: Loop
    champions: ChampionsInCharge
    control_settings: Callable[[str], control.Settings]
    drilled: Callable[[str, str], AbstractContextManager[Metrics]]
    """Live job, kind -> while it is drilled: its metrics, which the control loop then sees too."""

    @property
    def settings(self) -> Settings:
        """Those in force; an order that takes long sees them change."""
        return self.file.settings

    def job(self, order: Order) -> JobSettings:
        """The table of the order's job."""
        return self.settings.jobs[order.job]

    def clock(self, order: Order) -> OrderClock:
        """The world's, on which an order that is given up wakes."""
        return OrderClock(self.world.clock, order)

    def around(self, order: Order) -> ExperimentContext:
        """What copies of the order's job need."""
        return replace(self.world.around(order.job, self.job(order)), clock=self.clock(order))

    def wait_for_live_job(self, order: Order) -> None:
        """Let a live job that is behind catch up before copies of it take processors from it."""
        name, job, deployments = order.job, self.job(order), self.world.deployments
        if job.attach or name not in deployments.names() or deployments.status(name).state in _AT_REST:
            return
        wait_until_caught_up(
            name,
            self.loop.readings.reading,
            clock=self.clock(order),
            trigger_s=job.trigger_s,
            max_lag_s=job_plans.max_lag_s(job),
            patience_s=CATCH_UP_TARGETS * job.recovery_target_s,
            say=order.say,
        )

    def around_until_blackout(self, order: Order) -> ExperimentContext:
        """The same; what has not been begun within a blackout is `Interrupted` where one begins."""
        job = self.job(order)

        def ends(now_s: float) -> str:
            window = time_windows.blackout(job, now_s)
            return "" if window is None else f"the blackout {window.why} has begun"

        if ends(self.world.clock.now_s()):  # whoever orders a drill on a copy now knows what he does
            return self.around(order)
        return replace(self.around(order), clock=OrderClock(self.world.clock, order, ends=ends))
