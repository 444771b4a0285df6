"""The server in its own process: samples the live jobs, evaluates them, and runs orders."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from models.codec import readable
from models.errors import HeadroomError, Misconfigured, NotReady
from profiling_jobs.control_loop import evaluation
from profiling_jobs.orders import Json, Say, parsed
from profiling_jobs.periodic import Periodic
from profiling_jobs.telemetry.timeline import EVERY_S

from ..environments.base import Environment, removed
from ..processes.room import LOOK_S, RoomWatch
from ..settings import job_plans
from ..settings.loading import SettingsFile
from ..settings.schema import Settings
from . import drills, live_jobs, profiling, recording
from .context import Context, Found
from .metrics import Exporter
from .order_queue import Order, OrderQueue

HANDLERS: Mapping[str, Callable[[Context, Order, Any], Found]] = {
    "launch": live_jobs.launch,
    "stop": live_jobs.stop,
    "apply": live_jobs.apply,
    "record": recording.record,
    "profile": profiling.profile,
    "probe": profiling.probe,
    "drill": drills.drill,
}
USES = {"record": "recording of", "profile": "copies of", "probe": "copies of", "drill": "copies of"}
"""What an order uses, if not the live job itself; two orders that use the same exclude each other."""


@dataclass(frozen=True)
class Evaluated:
    """When a job was evaluated last, and why it was not since."""

    at_s: float = -math.inf
    """By time.monotonic: when an evaluation had been made and written down."""
    problem: str = ""
    """Of the newest attempt; empty where it has succeeded."""


class InProcessServer:
    """The `Server` of the process that runs the jobs. Everything that it has started ends with `close`."""

    def __init__(
        self,
        environment: Environment,
        settings: Settings | SettingsFile,
        folder: Path,
        *,
        say: Say = lambda line: None,
    ) -> None:
        self.context = Context(environment, settings, folder, say=say)
        self.evaluated_at_s = -math.inf
        """By time.monotonic: when an evaluation was last asked for, which shows that Dagster works."""
        self.evaluated = dict.fromkeys(self.context.settings.jobs, Evaluated())
        self._since_s = time.time()
        self._evaluating = {name: threading.Lock() for name in self.context.settings.jobs}
        self._queue = OrderQueue(environment)
        self._exporter = Exporter(self.context)
        self._sampling = Periodic(
            self.context.sampler.round,
            every_s=EVERY_S,
            name="samples",
            clock=environment.clock,
            taking_part=environment.taking_part,
        )
        self._room = RoomWatch(folder, say)
        self._looking = Periodic(self._room.look, every_s=LOOK_S, name="room")

    def start(self) -> InProcessServer:
        """Sample the jobs from now on, and see whether there is room for what is decided."""
        self._sampling.start()
        self._looking.start()
        return self

    def close(self) -> tuple[str, ...]:
        """Cancel every order, wait for each to clean up, and stop sampling; the orders that did not end."""
        left = self._queue.close()
        self._sampling.close()
        self._looking.close()
        return left

    def __enter__(self) -> InProcessServer:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def busy(self) -> frozenset[str]:
        """Jobs for which an order runs."""
        return frozenset(order.job for order in self._queue.all() if order.state == "running")

    # --------------------------------------------------------------------------------------- the protocol

    def evaluate(self, job: str) -> Json:
        self.context.file.refresh()
        self._check(job)
        self.evaluated_at_s = time.monotonic()
        try:
            with self._evaluating[job], self.context.environment.taking_part():
                found = evaluation.evaluate(
                    job,
                    settings=self.context.control_settings(job),
                    loop=self.context.loop,
                    now_s=self.context.environment.clock.now_s(),
                )
        except Exception as error:
            self.evaluated[job] = replace(self.evaluated[job], problem=str(error) or type(error).__name__)
            raise
        self.evaluated[job] = Evaluated(time.monotonic())
        return found.to_json()

    def begin(self, what: str, job: str, /, **details: Any) -> str:
        given = parsed(what, details)
        self.context.file.refresh()
        live, by_itself = getattr(given, "live", False), getattr(given, "by_itself", False)
        if not (what == "stop" and self._was_launched(job)):
            self._check(job)
            job_plans.check_order(job, self.context.settings.jobs[job], what, live=live)
        if what == "profile" or live or by_itself:
            window = self.context.loop.blackout(job, self.context.environment.clock.now_s())
            if window is not None:
                raise NotReady(f"{job} is in a blackout window, {window.why}: no {what} is begun in it")
        return self._queue.begin(
            what,
            job,
            given,
            partial(HANDLERS[what], self.context),
            excludes=f"{USES.get(what, 'live')} {job}",
        )

    def order(self, id: str, *, since: int = 0) -> Json:
        found: Json = readable(self._queue.get(id).to_json(since=since))
        return found

    def cancel(self, id: str) -> None:
        self._queue.get(id).cancel()

    def status(self) -> Json:
        return {
            "schema": 1,
            "kind": self.context.environment.kind,
            "folder": str(self.context.folder.resolve()),
            "since_s": self._since_s,
            "now_s": self.context.environment.clock.now_s(),
            "jobs": {name: self._job_status(name) for name in sorted(self.context.settings.jobs)},
            "removed": self._removed(),
            "problem": self.problem,
            "orders": [readable(order.to_json()) for order in self._queue.all()],
        }

    def metrics(self) -> str:
        return self._exporter.text()

    # ----------------------------------------------------------------------------- for the same process

    @property
    def problem(self) -> str:
        """Why no job can be evaluated; empty where that is not known."""
        return self._room.problem

    def orders(self) -> tuple[Order, ...]:
        """All orders, the oldest first."""
        return self._queue.all()

    # ----------------------------------------------------------------------------------------------------

    def _check(self, job: str) -> None:
        if job not in self.context.settings.jobs:
            known = ", ".join(sorted(self.context.settings.jobs)) or "none"
            raise Misconfigured(f"job.{job}", f"is not in the settings; expected {known}")

    def _was_launched(self, job: str) -> bool:
        """Whether a job that the settings no longer name was launched here."""
        if job in self.context.settings.jobs:
            return False
        try:
            self.context.environment.deployments.status(job)
        except Misconfigured:
            return False
        return True

    def _removed(self) -> list[str]:
        """Live jobs that run, and that the settings do not name any more."""
        try:
            left = removed(self.context.environment.deployments, self.context.settings.jobs)
        except HeadroomError:  # the same is said of each job
            return []
        return sorted(one.name for one in left if one.role == "live")

    def _job_status(self, name: str) -> dict[str, Any]:
        job = self.context.settings.jobs[name]
        try:
            found: dict[str, Any] = readable(vars(self.context.environment.deployments.status(name)))
        except HeadroomError as error:
            found = {
                "state": "stopped",
                "declared_scale_out": job.scale_out,
                "executors_alive": 0,
                "run_id": {"unknown": str(error)},
                "reason": str(error),
            }
        return found | {"mode": job.mode}
