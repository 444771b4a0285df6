"""A simulated cluster: the queueing twin of a broker with jobs on Spark.

Its clock moves only by `advance`. Between two events everything grows steadily, so time jumps from event to
event: an executor registers, a batch ends, a time-out is over. A cluster is the port `Deployments`, `topics`
is the `Broker`; the other ports stand below and in `sampling`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Literal, TypeVar, cast

from ..arguments import number, whole
from ..errors import Misconfigured, NoRoom, NotReady, Unsafe
from ..ports import Injection, Plan, Query, Rescaled, Status
from ..quantities import FAILURE_KINDS, Unknown, executors
from .batches import Behaviour, Checkpoint, Platform
from .job import Job
from .topics import Topics

TICK_S = 1e-6  # judgement: two moments that are closer are one; epoch seconds have no finer floats
CAUSED_HERE = ("executor_kill", "executor_freeze", "driver_kill", "driver_freeze", "broker_restart")
DEFAULT = Behaviour()


F = TypeVar("F", bound=Callable[..., Any])


def one_at_a_time(method: F) -> F:
    """A method that holds its object's `turn`, where several threads share a cluster."""

    @wraps(method)
    def call(self: Any, *given: Any, **more: Any) -> Any:
        with self.turn:
            return method(self, *given, **more)

    return cast(F, call)


@dataclass
class Cluster:
    """Slots, topics and jobs. `behaviours`: true behaviour by job name."""

    behaviours: Mapping[str, Behaviour] = field(default_factory=dict)
    platform: Platform = field(default_factory=Platform)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.topics = Topics(lambda: self.now_s)
        self.turn: Any = nullcontext()
        """Held by every call, where several threads share the cluster."""
        self.jobs: dict[str, Job] = {}
        self._checkpoints: dict[str, Checkpoint] = {}
        self._injections: dict[str, tuple[Injection, Callable[[], None]]] = {}
        self._injected = 0
        self._broker_back_s = math.inf

    # ------------------------------------------------------------------ time

    def advance(self, seconds: float) -> None:
        until = self.now_s + number("seconds", seconds, at_least=0.0)
        self._act()
        while self.now_s < until:
            due = min((job.next_s(self.now_s) for job in self.jobs.values()), default=math.inf)
            moment = min(until, max(min(due, self._broker_back_s), self.now_s + TICK_S))
            for job in self.jobs.values():
                job.progress(self.now_s, moment)
            self.now_s = moment
            self._act()

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

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

    @one_at_a_time
    def launch(self, plan: Plan) -> None:
        scale_out = plan.scale_out
        known = self.jobs.get(plan.name)
        if known is not None and known.state != "stopped":
            raise Unsafe(f"{plan.name} was launched already: scale it, or stop it first")
        self._check_size(plan.job, plan.name, scale_out)
        for other in self.jobs.values():
            if other is not known and other.state != "stopped" and other.plan.checkpoint == plan.checkpoint:
                problem = f"{plan.checkpoint} is in use by {other.plan.name}"
                raise Unsafe(f"job.{plan.job}.checkpoint: {problem}")
        inputs = frozenset(plan.inputs.values())
        checkpoint = self._checkpoints.setdefault(plan.checkpoint, Checkpoint(plan.job, inputs))
        if (checkpoint.job, checkpoint.inputs) != (plan.job, inputs):
            raise Misconfigured(
                f"job.{plan.job}.checkpoint",
                f"{plan.checkpoint} belongs to another query, of job '{checkpoint.job}' on "
                f"{', '.join(sorted(checkpoint.inputs))}: name a new folder",
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

    @one_at_a_time
    def scale(
        self, name: str, scale_out: int, *, epoch: int, path: Literal["live", "restart"] = "live"
    ) -> Rescaled:
        """Time passes until the executors are registered, or the time-out is over."""
        job = self.job(name)
        if epoch < job.epoch:
            raise Unsafe(f"{name}: epoch {epoch} is older than {job.epoch}, carried out already")
        self._check_size(job.plan.job, name, scale_out)
        if job.state in ("stopped", "failed"):
            raise NotReady(f"{name} does not run: launch it first")
        if path == "live" and (not job.driver_up or job.frozen_s is not None):
            raise NotReady(f"the driver of {name} does not answer: try again")
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
            raise NotReady(f"{alive} of {executors(scale_out)} of {name} registered in time")
        return Rescaled(path if job.runs == run else "restart", before, scale_out, self.now_s - begun)

    @one_at_a_time
    def stop(self, name: str) -> None:
        """Advance time until the current batch is over."""
        job = self.job(name)
        if job.state == "stopped":
            return
        if job.batch is not None and job.frozen_s is None:
            job.ask_to_stop()
            if self._wait(lambda: job.state == "stopped", timeout_s=self.platform.stop_timeout_s):
                return
        job.stop_now(self.now_s)

    @one_at_a_time
    def status(self, name: str) -> Status:
        job = self.job(name)
        if not job.driver_up:
            why = job.reason or f"the driver of {name} is still starting"
            return Status(job.state, job.declared, 0, Unknown(why), job.reason, job.ours)
        if job.frozen_s is not None:
            silent = Unknown(f"the driver of {name} does not answer")
            return Status(job.state, job.declared, silent, silent, silent.reason, job.ours)
        return Status(job.state, job.declared, len(job.registered(self.now_s)), job.run_id, ours=job.ours)

    @one_at_a_time
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, job in self.jobs.items() if job.state != "stopped"))

    def plan(self, name: str) -> Query:
        return self.job(name).plan

    def job(self, name: str) -> Job:
        if name not in self.jobs:
            known = ", ".join(sorted(self.jobs)) or "none"
            raise Misconfigured("deployment", f"there is no '{name}' here; there is {known}")
        return self.jobs[name]

    def _check_size(self, job: str, name: str, scale_out: int) -> None:
        if scale_out < 1:
            raise Misconfigured(f"job.{job}.scale_out", f"must be at least 1 executor, got {scale_out}")
        running = (other for other in self.jobs.values() if other.state not in ("stopped", "failed"))
        held = sum(other.declared for other in running if other.plan.name != name)
        free = self.platform.slots - held
        if whole("scale_out", scale_out) > free:
            raise NoRoom(
                "spark.slots",
                f"{executors(scale_out)} for {name} are more than the {free} free of {self.platform.slots}: "
                "raise spark.slots, or lower the scale-out",
            )

    # --------------------------------------------------------------- failures

    @one_at_a_time
    def inject(self, deployment: str, kind: str) -> Injection:
        job = self.job(deployment)
        if kind not in CAUSED_HERE:
            what = "cannot be caused here" if kind in FAILURE_KINDS else "is no kind of failure"
            raise Misconfigured("kind", f"'{kind}' {what}; there is {', '.join(CAUSED_HERE)}")
        if not job.driver_up or job.frozen_s is not None:
            raise NotReady(f"{deployment} does not run: {job.reason or job.state}")
        victim, undo = self._cause(job, kind)
        self._injected += 1
        injection = Injection(f"injection-{self._injected}", deployment, kind, victim, self.now_s)
        self._injections[injection.id] = (injection, undo)
        self._act()
        return injection

    @one_at_a_time
    def clear(self, injection_id: str) -> None:
        _, undo = self._injections.pop(injection_id, (None, _nothing))
        undo()
        self._act()

    @one_at_a_time
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
            raise NotReady(f"{job.plan.name} has no executor registered: try again")
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
    """A dead process is replaced by others: nothing to put right."""


class SimulatedFailures:
    """The `Failures` of a cluster; each object stands for a process of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._in_hand: set[str] = set()

    def kinds(self) -> frozenset[str]:
        return frozenset(CAUSED_HERE)

    def inject(self, deployment: str, kind: str) -> Injection:
        injection = self._cluster.inject(deployment, kind)
        self._in_hand.add(injection.id)
        return injection

    def clear(self, injection_id: str) -> None:
        self._in_hand.discard(injection_id)
        self._cluster.clear(injection_id)

    def active(self) -> tuple[Injection, ...]:
        return self._cluster.active()

    def left_over(self) -> tuple[Injection, ...]:
        return tuple(one for one in self.active() if one.id not in self._in_hand)


@dataclass(frozen=True)
class Flowed:
    """What was to be sent in some time, and what was sent."""

    achieved_rps: float
    commanded_rps: float


class SimulatedSource:
    """The `Source` port: a flow into topics, exactly as commanded. `topics`: the share of each."""

    def __init__(
        self, cluster: Cluster, topics: Mapping[str, float], *, highest_rps: float = math.inf
    ) -> None:
        self._cluster, self._highest_rps = cluster, highest_rps
        total = sum(topics.values())
        self._shares = {topic: share / total for topic, share in topics.items()}
        self._commands: list[tuple[float, float]] = []

    def set_rate(self, rate_rps: float) -> float:
        with self._cluster.turn:
            now_s = self._cluster.now_s
            self._commands.append((now_s, rate_rps))
            for topic, share in self._shares.items():
                self._cluster.topics.flow(topic, share * min(rate_rps, self._highest_rps), at_s=now_s)
            return now_s

    def achieved(self, from_s: float, to_s: float) -> Flowed:
        with self._cluster.turn:
            sent = sum(
                float((self._cluster.topics[topic].end(to_s) - self._cluster.topics[topic].end(from_s)).sum())
                for topic in self._shares
            )
        edges = [at_s for at_s, _ in self._commands[1:]] + [to_s]
        owed = sum(
            rate * max(0.0, min(end_s, to_s) - max(at_s, from_s))
            for (at_s, rate), end_s in zip(self._commands, edges, strict=True)
        )
        return Flowed(sent / (to_s - from_s), owed / (to_s - from_s))

    def stop(self) -> None:
        with self._cluster.turn:
            for topic in self._shares:
                if topic in self._cluster.topics:
                    self._cluster.topics.flow(topic, 0.0, at_s=self._cluster.now_s)


class SimulatedClock:
    """Time that passes while a call sleeps."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def now_s(self) -> float:
        return self._cluster.now_s

    def sleep(self, seconds: float) -> None:
        self._cluster.sleep(seconds)
