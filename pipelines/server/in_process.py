"""Who sits at the desk in the owner's own process?

`HereDesk` has the world: it samples every live job once a second, evaluates when it is asked to, and carries
out orders in threads. Nothing of it runs on after `close`.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from models import control
from models.errors import HeadroomError, Misconfigured, NotReady
from models.ports import Metrics
from profiling_jobs.control_loop import evaluation
from profiling_jobs.control_loop.context import Loop
from profiling_jobs.telemetry.sampler import EVERY_S, Sampler

from ..environments import batch_tasks
from ..environments.base import World
from ..settings import job_plans, time_windows
from ..settings.job_plans import ChampionsInCharge, control_settings
from ..settings.loading import SettingsFile
from ..settings.schema import Settings
from .context import Means, one_at_a_time
from .drills import finite
from .handlers import WORK, alone
from .order_queue import Orders
from .protocol import Json, Say, checked


class HereDesk:
    """The desk of the process that owns the jobs."""

    def __init__(
        self,
        world: World,
        settings: Settings | SettingsFile,
        folder: Path,
        *,
        say: Say = lambda line: None,
    ) -> None:
        """`say`: told of samples that could not be taken, and of partitions that have come."""
        metrics = one_at_a_time(world.metrics)
        self._world = world = replace(world, metrics=metrics)
        self.file = SettingsFile(settings) if isinstance(settings, Settings) else settings
        self._folder = folder
        self._began_s = time.time()
        self.evaluated_at_s = -math.inf
        """By time.monotonic: when an evaluation was last asked for, which shows that Dagster works."""
        self._tasks = batch_tasks.Counting(world, self._settings.jobs, say=say)
        self._unsampled: Counter[str] = Counter()
        self._drills: dict[str, control.Drill] = {}
        self._turn = threading.Lock()
        self._evaluating: dict[str, threading.Lock] = {name: threading.Lock() for name in self._settings.jobs}
        self._sampler = Sampler(metrics, self._sampled, clock=world.clock.now_s, say=say)
        self._sampling: threading.Thread | None = None
        self._closing = threading.Event()
        self.champions = ChampionsInCharge(folder, lambda: self._settings.jobs)
        self.loop = Loop(
            store=world.store,
            deployments=world.deployments,
            readings=self._sampler,
            champions=self.champions,
            clock=world.clock,
            failures=world.failures,
            blackout=lambda job, now_s: time_windows.blackouts(self._settings, job, now_s),
            drill=self._drills.get,
        )
        self._orders = Orders(taking_part=self._as_part)
        self._means = Means(
            world=world,
            file=self.file,
            folder=folder,
            loop=self.loop,
            champions=self.champions,
            control_settings=self.control_settings,
            drilled=self._drilled,
        )

    @property
    def _settings(self) -> Settings:
        return self.file.settings

    def start(self) -> HereDesk:
        """Watch the jobs from now on."""
        if self._sampling is None:
            self._sampling = threading.Thread(target=self._sample, name="headroom-desk-sampler", daemon=True)
            self._sampling.start()
        return self

    def close(self) -> tuple[str, ...]:
        """Cancel every order, put everything away, watch no more; which orders would not end."""
        left = self._orders.close()
        self._closing.set()
        if self._sampling is not None:
            self._sampling.join()
            self._sampling = None
        return left

    def __enter__(self) -> HereDesk:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------------ what it is asked

    def evaluate(self, job: str) -> Json:
        self.file.refresh()
        self._check(job)
        self.evaluated_at_s = time.monotonic()
        with self._evaluating[job], self._world.taking_part():
            found = evaluation.evaluate(
                job,
                settings=self.control_settings(job),
                loop=self.loop,
                now_s=self._world.clock.now_s(),
            )
        return found.to_json()

    def begin(self, what: str, job: str, /, **details: Any) -> str:
        details = checked(what, details)
        self.file.refresh()
        if not (what == "stop" and self._left_over(job)):
            self._check(job)
            job_plans.check_order(job, self._settings.jobs[job], what, live=bool(details.get("live")))
        if what == "profile" or details.get("live") or details.get("by_itself"):
            window = self.loop.blackout(job, self._world.clock.now_s())
            if window is not None:
                raise NotReady(f"{job} is in a blackout window, {window.why}: no {what} is begun in it")
        return self._orders.begin(
            what, job, details, lambda order: finite(WORK[what](self._means, order)), alone=alone(what, job)
        )

    def order(self, id: str, *, since: int = 0) -> Json:
        found: Json = finite(self._orders.get(id).to_json(since=since))
        return found

    def cancel(self, id: str) -> None:
        self._orders.get(id).cancel()

    def status(self) -> Json:
        return {
            "schema": 1,
            "kind": self._world.kind,
            "folder": str(self._folder.resolve()),
            "since_s": self._began_s,
            "now_s": self._world.clock.now_s(),
            "jobs": {name: self._status(name) for name in sorted(self._settings.jobs)},
            "orders": self.orders(),
        }

    # ------------------------------------------------------------------------------------------- its parts

    def orders(self) -> list[Json]:
        """Every order, as `status` says it, without asking a driver anything."""
        return [finite(order.to_json()) for order in self._orders.all()]

    def control_settings(self, job: str) -> control.Settings:
        """What control agrees to for this job, without models."""
        tasks = self._tasks.of(job, now_s=self._world.clock.now_s())
        return control_settings(
            job,
            self._settings.jobs[job],
            tasks=batch_tasks.if_known(tasks),
            scale_timeout_s=self._settings.spark.scale_timeout_s,
        )

    def _check(self, job: str) -> None:
        if job not in self._settings.jobs:
            known = ", ".join(sorted(self._settings.jobs)) or "none"
            raise Misconfigured(f"job.{job}", f"is not in the settings; there is {known}")

    def _left_over(self, job: str) -> bool:
        """Is it a job that was launched here, and that the settings do not name any more?"""
        if job in self._settings.jobs:
            return False
        try:
            self._world.deployments.status(job)
            return True
        except Misconfigured:
            return False

    def _status(self, name: str) -> dict[str, Any]:
        mode = self._settings.jobs[name].mode
        try:
            status = self._world.deployments.status(name)
        except HeadroomError as error:
            return {
                "state": "stopped",
                "declared_scale_out": self._settings.jobs[name].scale_out,
                "executors_alive": 0,
                "run_id": {"unknown": str(error)},
                "reason": str(error),
                "mode": mode,
            }
        found: dict[str, Any] = finite(dict(vars(status)))
        return {**found, "mode": mode}

    def _sampled(self) -> Sequence[str]:
        with self._turn:
            unsampled = {name for name, count in self._unsampled.items() if count}
        theirs = [name for name, job in self._settings.jobs.items() if job.attach]
        there = (*self._world.deployments.names(), *theirs)
        return [name for name in there if name in self._settings.jobs and name not in unsampled]

    @contextmanager
    def _drilled(self, name: str, kind: str) -> Iterator[Metrics]:
        """What a drill samples the control loop sees too: commits are reported once, to one reader."""
        clock, drill = self._world.clock, control.Drill(kind, self._world.clock.now_s())
        with self._turn:
            self._unsampled[name] += 1
        self._drills[name] = drill
        try:
            yield self._sampler.fed_from(self._world.metrics)
        finally:
            self._drills[name] = replace(drill, until_s=clock.now_s())
            with self._turn:
                self._unsampled[name] -= 1

    @contextmanager
    def _as_part(self) -> Iterator[None]:
        with self._world.hurried(), self._world.taking_part():
            yield

    def _sample(self) -> None:
        """As `Sampler` does by itself, but by the world's clock."""
        clock = self._world.clock
        with self._world.taking_part():
            while not self._closing.is_set():
                began_s = clock.now_s()
                self._sampler.round()
                took_s = max(0.0, clock.now_s() - began_s)  # a clock that went back is not waited for
                clock.sleep(max(0.05 * EVERY_S, EVERY_S - took_s))
