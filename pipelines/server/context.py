"""The context of a server: everything that evaluations and order handlers use, of one folder."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from models import control
from models.ports import Metrics
from models.quantities import Unknown
from profiling_jobs.control_loop.context import InCharge, Loop
from profiling_jobs.experiments.copies import ExperimentContext, wait_until_caught_up
from profiling_jobs.experiments.probe import Rules
from profiling_jobs.telemetry.timeline import Sampler
from profiling_jobs.training import workload_history
from profiling_jobs.training.champions import KINDS, Champions, path_of

from ..environments import batch_tasks
from ..environments.base import Environment
from ..settings import job_plans, time_windows
from ..settings.loading import SettingsFile
from ..settings.schema import JobSettings, Settings
from .order_queue import Order, OrderClock

AT_REST = ("stopped", "failed")
CATCH_UP_TARGETS = 4.0  # judgement: a job that keeps its promise has caught up long before
WORTH = 50.0  # times the highest load: there a catch-up takes 2 % of the downtime, whatever the capacity
LEAST_RPS = 10_000.0  # judgement: any source offers as much, and loads grow
DAY_S = 86_400.0
LOOK_S = 1.0  # judgement: between two looks at what an order waits for
Found = Mapping[str, Any]


Model = TypeVar("Model")


class ChampionsInCharge:
    """The champions of the jobs, read again only when one of their files has changed."""

    def __init__(self, folder: Path, jobs: Callable[[], Mapping[str, JobSettings]]) -> None:
        self._folder, self._jobs = folder, jobs
        self._known: dict[str, tuple[object, Champions]] = {}

    def __call__(self, job: str) -> InCharge:
        """What a tick of this job uses."""
        settings, champions = self._jobs()[job], self.champions(job)
        models = champions.models(limit_records=settings.limit_records, trigger_s=settings.trigger_s)
        if not settings.copyable:
            models = replace(
                models,
                capacity=_with_its_program(job, models.capacity),
                engine=_with_its_program(job, models.engine),
            )
        return InCharge(
            models=models,
            forecaster=champions.forecaster,
            forecaster_until_s=champions.forecaster_until_s,
            versions=champions.versions,
            provisional=champions.provisional,
            seed=champions.seed,
        )

    def champions(self, job: str) -> Champions:
        """The champions on disk."""
        stamp = tuple(_stamp(path_of(self._folder, job, kind)) for kind in KINDS)
        before = self._known.get(job)
        if before is None or before[0] != stamp:
            before = self._known[job] = (stamp, Champions.load(self._folder, job))
        return before[1]


def _with_its_program(job: str, found: Model) -> Model | Unknown:
    """For a job that another system runs, say what profiling needs."""
    if not isinstance(found, Unknown):
        return found
    return Unknown(f"{found.reason}, which needs its program: give job.{job}.script or build, too")


def _stamp(path: Path) -> tuple[int, int, int] | Unknown:
    try:
        found = path.stat()
    except OSError:
        return Unknown("it is not there")
    return found.st_mtime_ns, found.st_size, found.st_ino


class Context:
    """The environment, the settings, the samples and the control loop of one server."""

    def __init__(
        self,
        environment: Environment,
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
        self.started_at_s: dict[str, float] = {}
        """Job -> when an order has started it last: that its run ended before was no failure."""
        self._turn = threading.Lock()
        self.loop = Loop(
            store=environment.store,
            deployments=environment.deployments,
            readings=self.sampler,
            champions=self.champions,
            clock=environment.clock,
            failures=environment.failures,
            blackout=lambda job, now_s: time_windows.blackout(self.settings.jobs[job], now_s),
            drill=self._drills.get,
            started=lambda job: self.started_at_s.get(job, -math.inf),
            kept_s=self.settings.retention.days * DAY_S,
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
        return job_plans.control_settings(
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

    def rules(self, name: str, *, at_least_rps: float = 0.0) -> Rules:
        """The rules of a probe of this job. `at_least_rps`: a rate that is asked for whatever its load.

        Copies are offered a multiple of the highest load at most, to a power of two of the least rate: a
        search that was interrupted goes on only with the same settings, and a load is never twice the same.
        """
        job = self.settings.jobs[name]
        rules, peak_rps = job_plans.rules(job), workload_history.peak_rps(self.environment.store, name)
        if job.strategy == "stepped" or isinstance(peak_rps, Unknown):
            return rules
        worth_rps = LEAST_RPS * 2.0 ** round(math.log2(max(1.0, WORTH * peak_rps / LEAST_RPS)))
        return replace(rules, most_rps=max(worth_rps, at_least_rps, 2.0 * (job.profile_guess_rps or 0.0)))

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
