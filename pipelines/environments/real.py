"""What the local environment and a cluster have in common: real brokers, real drivers, one store, one folder.

`assembled` puts their adapters behind the ports. Questions about attached jobs, which another system runs,
are answered from what is seen of them; every other question goes to the adapters.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

from models.errors import Misconfigured, Unsafe
from models.ports import Broker, Clock, Deployments, Failures, Plan, Source
from models.quantities import Unknown
from profiling_jobs.brokers import Brokers
from profiling_jobs.driver import progress
from profiling_jobs.experiments.copies import BESIDE
from profiling_jobs.recording.recorded import Recorded
from profiling_jobs.recording.recorder import Request
from profiling_jobs.telemetry import spark_page

from ..processes.owner import Owner
from ..settings import job_plans
from ..settings.schema import BrokerSettings, JobSettings, Settings
from . import replay
from .base import Environment, RealClock, Say
from .metrics import Executors, JobMetrics
from .replay import Task

RECORDING_S = 120.0  # judgement: beside its duration, for a Spark session on a busy machine


class RealDeployments(Deployments, Protocol):
    """Deployments with files, which can be forgotten."""

    def forget(self, name: str) -> None: ...
    def folder(self, name: str) -> Path: ...


def assembled(
    settings: Settings,
    owner: Owner,
    stack: ExitStack,
    *,
    brokers: Brokers,
    broker: Broker,
    deployments: RealDeployments,
    executors: Executors,
    failures: Failures,
    task: Callable[[str], Task],
    stop_tasks: Callable[[str], None],
    own_topics: bool,
    removed_jobs: tuple[str, ...] = (),
) -> Environment:
    """The environment of these adapters. `task`: what runs under a role; `stop_tasks`: those of a copy."""
    from ..integrations.stores.opening import open_store
    from ..integrations.stores.sqlite import uptime_s
    from .attached import Attached, theirs

    # Nodes of a cluster were started at different times, and a volume may be that of several.
    boot = uptime_s if settings.deployment.kind == "local" else None
    attached = Attached(theirs(settings.jobs), now_s=time.time)
    stack.callback(executors.close)
    everything = attached.deployments(deployments)
    metrics = stack.enter_context(JobMetrics(broker, everything, executors))
    checkpoints = owner.folder / "checkpoints"

    def forget(name: str) -> None:
        with suppress(Misconfigured):  # it was never launched
            plan = deployments.plan(name)
            if plan.role == "live" and plan.name == plan.job:
                raise Unsafe(f"{name} is a job itself and no copy of one: its checkpoint is left alone")
        stop_tasks(name)
        with suppress(Misconfigured):  # it was never launched
            deployments.forget(name)
        metrics.forget(name)
        executors.forget(name)
        replays = owner.folder / "replays"
        files = checkpoints / f"{name}{BESIDE}"
        for left in (replays / name, *replays.glob(f"{name}.*"), checkpoints / name, files):
            shutil.rmtree(left, ignore_errors=True)

    def source(name: str, job: JobSettings, copy: str, inputs: Mapping[str, str]) -> Source:
        return replay.replay(task, brokers, folder=owner.folder, name=name, job=job, copy=copy, inputs=inputs)

    def record(name: str, request: Request, *, clock: Clock, say: Say) -> Recorded:
        timeout_s = request.duration_s + RECORDING_S
        return replay.record(task(f"recording.{name}"), request, brokers, timeout_s=timeout_s, clock=clock)

    def batch_began_s(name: str, batch: int) -> float | Unknown:
        if name in settings.jobs and settings.jobs[name].elsewhere:
            return Unknown(f"another system runs {name}: what its driver reports is not kept here")
        return _batch_began_s(deployments.folder(name), batch)

    return Environment(
        kind=settings.deployment.kind,
        brokers=brokers.bootstrap,
        deployments=everything,
        metrics=attached.metrics(metrics),
        broker=broker,
        failures=failures,
        store=stack.enter_context(open_store(settings.store, owner.folder, uptime_s=boot)),
        clock=RealClock(),
        open_source=source,
        forget=forget,
        checkpoint=lambda name: str(checkpoints / name),
        batch_began_s=batch_began_s,
        stages=lambda name: spark_page.read(*executors.page(name)),
        record=record,
        own_topics=own_topics,
        removed_jobs=removed_jobs,
        owner=owner,
    )


def check_attached(settings: Settings, deployments: Deployments) -> None:
    """Refuse to watch, as the job of another system, what runs here."""
    for name in sorted(set(deployments.names())):
        if name in settings.jobs and settings.jobs[name].elsewhere:
            key, value = ("attach", " = true") if settings.jobs[name].attach else ("spark_application", "")
            raise Unsafe(
                f"job.{name}.{key}{value} says that another system runs it, but it was launched here and "
                f"should still run: end it with `headroom cleanup`, or leave {key} out"
            )


def changed_settings(deployments: RealDeployments, settings: Settings, folder: Path) -> Iterator[str]:
    """Jobs that run on with what they were launched with: a checkpoint may not bear anything else."""
    for name in deployments.names():
        job = settings.jobs.get(name)
        if job is None or deployments.status(name).state == "failed":
            continue
        plan = deployments.plan(name)
        assert isinstance(plan, Plan)  # it was launched here
        if changed := job_plans.changed(plan, job_plans.live_plan(name, job, folder=folder)):
            yield (
                f"{name} runs with the settings it was launched with, which differ from today's in "
                f"{', '.join(changed)}: to take them over, end it with `headroom cleanup` and launch it again"
            )


def yours(settings: BrokerSettings) -> Brokers:
    """Brokers that another system runs."""
    return Brokers(**settings.model_dump())


def is_replay_of(role: str, copy: str) -> bool:
    """Whether a task sends the records of a copy; several do where it has several inputs."""
    return role == f"replay.{copy}" or role.startswith(f"replay.{copy}.")


def _batch_began_s(folder: Path, batch: int) -> float | Unknown:
    """Spark's own report of the batch: when its trigger fired."""
    for event in progress.read(folder / "progress.jsonl"):
        report = event.get("progress")
        if event["event"] == "progress" and report and report.get("batchId") == batch:
            return datetime.fromisoformat(report["timestamp"]).timestamp()
    return Unknown(f"batch {batch} is not in the driver's reports")
