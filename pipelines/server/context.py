"""The context of a server: everything that evaluations and order handlers use, of one folder."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from models import control
from models.ports import Metrics
from profiling_jobs.control_loop.context import Loop
from profiling_jobs.experiments.copies import ExperimentContext, wait_until_caught_up
from profiling_jobs.telemetry.sampler import Sampler

from ..environments import batch_tasks
from ..environments.base import World
from ..settings import job_plans, time_windows
from ..settings.job_plans import ChampionsInCharge, control_settings
from ..settings.loading import SettingsFile
from ..settings.schema import JobSettings, Settings
from .order_queue import Order, OrderClock

AT_REST = ("stopped", "failed")
CATCH_UP_TARGETS = 4.0  # judgement: a job that keeps its promise has caught up long before
LOOK_S = 1.0  # judgement: between two looks at what an order waits for
Found = Mapping[str, Any]


class Context:
    """The environment, the settings, the samples and the control loop of one server."""

    def __init__(
        self,
        environment: World,
        settings: Settings | SettingsFile,
        folder: Path,
        *,
        say: Callable[[str], None],
    ) -> None:
        """`say`: gets a line for samples that failed, and where the partitions of a topic have changed."""
        self.environment, self.folder = environment, folder
        self.file = SettingsFile(settings) if isinstance(settings, Settings) else settings
        self.champions = ChampionsInCharge(folder, lambda: self.settings.jobs)
        self.sampler = Sampler(environment.metrics, self._sampled, clock=environment.clock.now_s, say=say)
        self._tasks = batch_tasks.Counting(environment, self.settings.jobs, say=say)
        self._drilling: Counter[str] = Counter()
        self._drills: dict[str, control.Drill] = {}
        self._turn = threading.Lock()
        self.loop = Loop(
            store=environment.store,
            deployments=environment.deployments,
            readings=self.sampler,
            champions=self.champions,
            clock=environment.clock,
            failures=environment.failures,
            blackout=lambda job, now_s: time_windows.blackouts(self.settings, job, now_s),
            drill=self._drills.get,
        )

    @property
    def settings(self) -> Settings:
        """Those in force; an order that takes long sees them change."""
        return self.file.settings

    def job(self, order: Order) -> JobSettings:
        """The settings of the order's job."""
        return self.settings.jobs[order.job]

    def control_settings(self, job: str) -> control.Settings:
        """The settings of control for this job, without models."""
        tasks = self._tasks.of(job, now_s=self.environment.clock.now_s())
        return control_settings(
            job,
            self.settings.jobs[job],
            tasks=batch_tasks.if_known(tasks),
            scale_timeout_s=self.settings.spark.scale_timeout_s,
        )

    def clock(self, order: Order) -> OrderClock:
        """The environment's clock, on which a cancelled order wakes up."""
        return OrderClock(self.environment.clock, order)

    def around(self, order: Order) -> ExperimentContext:
        """What copies of the order's job need."""
        return replace(self.environment.around(order.job, self.job(order)), clock=self.clock(order))

    def wait_for_live_job(self, order: Order) -> None:
        """Let a live job that is behind catch up before copies of it take processors from it."""
        name, job, deployments = order.job, self.job(order), self.environment.deployments
        if job.attach or name not in deployments.names() or deployments.status(name).state in AT_REST:
            return
        wait_until_caught_up(
            name,
            self.sampler.reading,
            clock=self.clock(order),
            trigger_s=job.trigger_s,
            max_lag_s=job_plans.max_lag_s(job),
            patience_s=CATCH_UP_TARGETS * job.recovery_target_s,
            say=order.say,
        )

    def around_until_blackout(self, order: Order) -> ExperimentContext:
        """The same; `Interrupted` where a blackout window begins, unless the order was given within one."""
        job = self.job(order)

        def ends(now_s: float) -> str:
            window = time_windows.blackout(job, now_s)
            return "" if window is None else f"the blackout {window.why} has begun"

        if ends(self.environment.clock.now_s()):
            return self.around(order)
        return replace(self.around(order), clock=OrderClock(self.environment.clock, order, ends=ends))

    @contextmanager
    def drilling(self, name: str, kind: str) -> Iterator[Metrics]:
        """Metrics for a drill on a live job. A commit is read once, so the loop gets these samples."""
        clock = self.environment.clock
        drill = control.Drill(kind, clock.now_s())
        with self._turn:
            self._drilling[name] += 1
        self._drills[name] = drill
        try:
            yield self.sampler.fed_from(self.environment.metrics)
        finally:
            self._drills[name] = replace(drill, until_s=clock.now_s())
            with self._turn:
                self._drilling[name] -= 1

    def _sampled(self) -> Sequence[str]:
        with self._turn:
            drilled = {name for name, count in self._drilling.items() if count}
        attached = [name for name, job in self.settings.jobs.items() if job.attach]
        there = (*self.environment.deployments.names(), *attached)
        return [name for name in there if name in self.settings.jobs and name not in drilled]
