"""Simulated cluster: a queueing model of jobs on Spark, on a stepped clock.

Time moves only by `advance`. Between two events everything grows steadily, so time jumps from event to
event: an executor registers, a batch ends, a time-out is over. Its methods have the shape of `Deployments`
and `Failures` in models.ports and refuse with `Refused`; `topics` is the broker, `sampling` the metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..arguments import number, whole
from ..quantities import FAILURE_KINDS, Unknown, executors
from .batches import Behaviour, Checkpoint, Platform
from .job import Job
from .topics import Refused, Topics

TICK_S = 1e-6  # judgement: two moments that are closer are one; epoch seconds have no finer floats
CAUSED_HERE = ("executor_kill", "executor_freeze", "driver_kill", "driver_freeze", "broker_restart")
DEFAULT = Behaviour()


@dataclass(frozen=True)
class Status:
    """Status of a deployment."""

    state: str
    declared_scale_out: int
    executors_alive: int | Unknown
    run_id: str | Unknown
    reason: str = ""
    ours: bool = True


@dataclass(frozen=True)
class Rescaled:
    """Result of a change of the scale-out."""

    path: str
    before: int
    after: int
    took_s: float


@dataclass(frozen=True)
class Injection:
    """An injected failure."""

    id: str
    deployment: str
    kind: str
    victim: str
    at_s: float


@dataclass
class Cluster:
    """Slots, topics and jobs. `behaviours`: true behaviour by job name."""

    behaviours: Mapping[str, Behaviour] = field(default_factory=dict)
    platform: Platform = field(default_factory=Platform)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.topics = Topics()
        self.jobs: dict[str, Job] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._injections: dict[str, tuple[Injection, Callable[[], None]]] = {}
        self._injected = 0
        self._broker_back_s = math.inf

    # ------------------------------------------------------------------ time

    def advance(self, seconds: float) -> None:
        """Advance time, event by event."""
        until = self.now_s + number("seconds", seconds, at_least=0.0)
        self._act()
        while self.now_s < until:
            due = min((job.next_s(self.now_s) for job in self.jobs.values()), default=math.inf)
            moment = min(until, max(min(due, self._broker_back_s), self.now_s + TICK_S))
            for job in self.jobs.values():
                job.progress(self.now_s, moment)
            self.now_s = moment
            self._act()

    def _act(self) -> None:
        if self.now_s >= self._broker_back_s:
            self._broker_back_s = math.inf
            self.topics.come_back(at_s=self.now_s)
        for job in self.jobs.values():
            job.act(self.now_s)

    def _wait(self, condition: Callable[[], bool], *, timeout_s: float) -> bool:
        until = self.now_s + timeout_s
        while not condition() and self.now_s < until:
            due = min((job.next_s(self.now_s) for job in self.jobs.values()), default=math.inf)
            due = min(due, self._broker_back_s, until)
            self.advance(max(TICK_S, due - self.now_s))
        return condition()

    # ----------------------------------------------------------- deployments

    def launch(self, plan: Any) -> None:
        scale_out = plan.scale_out
        known = self.jobs.get(plan.name)
        if known is not None and known.state != "stopped":
            raise Refused("unsafe", f"{plan.name} was launched already: scale it, or stop it first")
        self._check_size(plan.job, plan.name, scale_out)
        for other in self.jobs.values():
            if other is not known and other.state != "stopped" and other.plan.checkpoint == plan.checkpoint:
                setting = f"job.{plan.job}.checkpoint"
                raise Refused("unsafe", f"{plan.checkpoint} is in use by {other.plan.name}", setting=setting)
        inputs = frozenset(plan.inputs.values())
        checkpoint = self._checkpoints.setdefault(plan.checkpoint, Checkpoint(plan.job, inputs))
        if (checkpoint.job, checkpoint.inputs) != (plan.job, inputs):
            raise Refused(
                "misconfigured",
                f"{plan.checkpoint} belongs to another query, of job '{checkpoint.job}' on "
                f"{', '.join(sorted(checkpoint.inputs))}: name a new folder",
                setting=f"job.{plan.job}.checkpoint",
            )
        job = Job(
            plan,
            behaviour=self.behaviours.get(plan.job, DEFAULT),
            platform=self.platform,
            topics=self.topics,
            checkpoint=checkpoint,
        )
        if known is not None:
            job.epoch, job.runs = known.epoch, known.runs
        self.jobs[plan.name] = job
        job.start(self.now_s)

    def scale(self, name: str, scale_out: int, *, epoch: int, path: str = "live") -> Rescaled:
        """Advance time until the executors are registered, or to the time-out."""
        job = self.job(name)
        if epoch < job.epoch:
            raise Refused("unsafe", f"{name}: epoch {epoch} is older than {job.epoch}, carried out already")
        self._check_size(job.plan.job, name, scale_out)
        if job.state in ("stopped", "failed"):
            raise Refused("not_ready", f"{name} does not run: launch it first")
        if path == "live" and (not job.driver_up or job.frozen_s is not None):
            raise Refused("not_ready", f"the driver of {name} does not answer: try again")
        before, begun, run = job.declared, self.now_s, job.runs
        if path == "restart" and (job.epoch, job.declared) != (epoch, scale_out):  # else it is a retry
            self.stop(name)
            job.start(self.now_s)
        job.epoch = epoch
        job.scale(scale_out, self.now_s)
        job.marked = scale_out
        if not self._wait(
            lambda: job.driver_up and len(job.registered(self.now_s)) == scale_out,
            timeout_s=self.platform.scale_timeout_s,
        ):
            alive = len(job.registered(self.now_s))
            raise Refused("not_ready", f"{alive} of {executors(scale_out)} of {name} registered in time")
        return Rescaled(path if job.runs == run else "restart", before, scale_out, self.now_s - begun)

    def stop(self, name: str) -> None:
        """Advance time until the current batch is over."""
        job = self.job(name)
        if job.state == "stopped":
            return
        if job.batch is not None and job.frozen_s is None:
            job.ask_to_stop()
            self._wait(lambda: job.state == "stopped", timeout_s=self.platform.stop_timeout_s)
        if job.state != "stopped":
            job.stop_now(self.now_s)

    def status(self, name: str) -> Status:
        job = self.job(name)
        if not job.driver_up:
            why = job.reason or f"the driver of {name} is still starting"
            return Status(job.state, job.declared, 0, Unknown(why), job.reason, job.ours)
        if job.frozen_s is not None:
            silent = Unknown(f"the driver of {name} does not answer")
            return Status(job.state, job.declared, silent, silent, silent.reason, job.ours)
        return Status(job.state, job.declared, len(job.registered(self.now_s)), job.run_id, ours=job.ours)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, job in self.jobs.items() if job.state != "stopped"))

    def job(self, name: str) -> Job:
        """Everything about one deployment."""
        if name not in self.jobs:
            known = ", ".join(sorted(self.jobs)) or "none"
            raise Refused(
                "misconfigured", f"there is no '{name}' here; there is {known}", setting="deployment"
            )
        return self.jobs[name]

    def _check_size(self, job: str, name: str, scale_out: int) -> None:
        if scale_out < 1:
            setting = f"job.{job}.scale_out"
            raise Refused("misconfigured", f"must be at least 1 executor, got {scale_out}", setting=setting)
        running = (other for other in self.jobs.values() if other.state not in ("stopped", "failed"))
        held = sum(other.declared for other in running if other.plan.name != name)
        free = self.platform.slots - held
        if whole("scale_out", scale_out) > free:
            raise Refused(
                "misconfigured",
                f"{executors(scale_out)} for {name} are more than the {free} free of {self.platform.slots}: "
                "raise spark.slots, or lower the scale-out",
                setting="spark.slots",
            )

    # --------------------------------------------------------------- failures

    def kinds(self) -> frozenset[str]:
        return frozenset(CAUSED_HERE)

    def inject(self, deployment: str, kind: str) -> Injection:
        job = self.job(deployment)
        if kind not in CAUSED_HERE:
            what = "cannot be caused here" if kind in FAILURE_KINDS else "is no kind of failure"
            problem = f"'{kind}' {what}; there is {', '.join(CAUSED_HERE)}"
            raise Refused("misconfigured", problem, setting="kind")
        if not job.driver_up or job.frozen_s is not None:
            raise Refused("not_ready", f"{deployment} does not run: {job.reason or job.state}")
        victim, undo = self._cause(job, kind)
        self._injected += 1
        injection = Injection(f"injection-{self._injected}", deployment, kind, victim, self.now_s)
        self._injections[injection.id] = (injection, undo)
        self._act()
        return injection

    def clear(self, injection_id: str) -> None:
        _, undo = self._injections.pop(injection_id, (None, _nothing))
        undo()
        self._act()

    def active(self) -> tuple[Injection, ...]:
        return tuple(injection for injection, _ in self._injections.values())

    def _cause(self, job: Job, kind: str) -> tuple[str, Callable[[], None]]:
        if kind == "broker_restart":
            self.topics.leave(at_s=self.now_s)
            self._broker_back_s = self.now_s + self.platform.broker_restart_s
            return "broker", self._return_broker
        if kind == "driver_kill":
            job.kill_driver(self.now_s)
            return "driver", _nothing
        if kind == "driver_freeze":
            job.freeze_driver(self.now_s)
            return "driver", job.wake_driver
        able = [executor for executor in job.executors if executor.seen and executor.frozen_s is None]
        if not able:
            raise Refused("not_ready", f"{job.plan.name} has no executor registered: try again")
        executor = able[0]
        if kind == "executor_kill":
            job.kill_executor(executor, self.now_s)
            return f"executor {executor.id}", _nothing
        executor.frozen_s = self.now_s

        def wake() -> None:
            executor.frozen_s = None

        return f"executor {executor.id}", wake

    def _return_broker(self) -> None:
        self._broker_back_s = min(self._broker_back_s, self.now_s)


def _nothing() -> None:
    """Nothing to undo: a dead process is replaced by others."""
