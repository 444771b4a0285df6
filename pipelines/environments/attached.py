"""Attached jobs: run by others, watched through their offsets, never touched.

Only the brokers' offsets and the job's checkpoint or consumer group are read. The state of the job follows:

    running   its newest commit is recent
    stalled   records have waited since that commit, and the next one is overdue
    unknown   nothing could be read, or nothing waits that could be committed

The number of its executors is `executors` in headroom.toml.

Where there are such jobs, `Attached.deployments` and `Attached.metrics` stand before those of the
environment: questions about them are answered from what was seen of them. None is ever launched, stopped or
rescaled, and no deployment of ours may write to its checkpoint or topics. That none is drilled, the checks of
an order see to (pipelines/settings/job_plans.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from models.errors import HeadroomError, Unsafe
from models.ports import Deployments, Metrics, Plan, Query, Rescaled, Sample, Status
from models.quantities import Unknown
from profiling_jobs import plans
from profiling_jobs.telemetry.timeline import sampled

from ..settings.schema import JobSettings

PATIENCE_S = 60.0  # as control's: the longest healthy time between two commits, or six triggers
LOOKED_S = 120.0  # judgement: as control's, an older look says nothing about now
NOT_LOOKED = Unknown("nothing was read of it yet: wait for the next second")
NO_RUN = Unknown("a checkpoint does not name the runs of its query")
NO_EXECUTORS = Unknown("another system runs it: its executors are not seen")

State = Literal["running", "stalled", "unknown"]


@dataclass(frozen=True)
class Theirs:
    """A job that another system runs: where it reads, writes and keeps its checkpoint. A `Query`."""

    name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    checkpoint: str
    executors: int | Unknown
    """What its owner has given it."""
    trigger_s: float = 0.0
    consumer_group: str | None = None
    """To which it commits by itself, if it does."""

    @property
    def job(self) -> str:
        return self.name

    @property
    def role(self) -> Literal["live"]:
        return "live"

    @property
    def group(self) -> str:
        """The consumer group of the job, which only the job commits to; it may not exist."""
        return self.consumer_group or f"headroom.{self.name}"

    @property
    def patience_s(self) -> float:
        """Longest healthy time between two commits while there is something to do."""
        return max(PATIENCE_S, 6.0 * self.trigger_s)


def theirs(jobs: Mapping[str, JobSettings]) -> dict[str, Theirs]:
    """The attached jobs of the settings."""
    return {
        name: their(name, job, executors=job.executors or not_said(name))
        for name, job in jobs.items()
        if job.attach
    }


def their(name: str, job: JobSettings, *, executors: int | Unknown) -> Theirs:
    """A job that another system runs, as its settings describe it."""
    return Theirs(
        name=name,
        inputs=dict(job.inputs),
        outputs=dict(job.outputs),
        checkpoint=str(job.checkpoint),
        executors=executors,
        trigger_s=job.trigger_s,
        consumer_group=job.consumer_group,
    )


def check_beside(plan: Plan, others: Iterable[Theirs]) -> None:
    """Refuse a plan of ours that could get in the way of a job that another system runs."""
    for one in others:
        plans.apart(plan, one)
        if plans.overlaps(plan.checkpoint, one.checkpoint):
            raise Unsafe(
                f"job.{plan.job}.checkpoint: {plan.checkpoint} belongs to {one.name}, which runs "
                "elsewhere: two queries would destroy it; give each its own"
            )


def not_said(name: str) -> Unknown:
    """The number of executors while the settings do not name it."""
    return Unknown(f"job.{name}.executors is not set: say there how many its owner has given it")


@dataclass(frozen=True)
class _Look:
    """What was read last, and since when records wait for another commit."""

    found: Sample | HeadroomError
    commit_at_s: float | Unknown
    waits_since_s: float | Unknown
    """When records were first seen to wait after it."""


class Attached:
    """Attached jobs: what was read of them, and the state that follows from it."""

    def __init__(self, jobs: Mapping[str, Theirs], *, now_s: Callable[[], float]) -> None:
        self.jobs = dict(jobs)
        self._now_s = now_s
        self._looks: dict[str, _Look] = {}

    def deployments(self, ours: Deployments) -> Deployments:
        """Our deployments, and beside them these jobs, if there are any."""
        return AttachedDeployments(ours, self) if self.jobs else ours

    def metrics(self, everything: Metrics) -> Metrics:
        """Metrics that also say how these jobs are doing, if there are any."""
        return AttachedMetrics(everything, self) if self.jobs else everything

    def saw(self, name: str, found: Sample | HeadroomError) -> None:
        """Note what was just read of a job."""
        before = self._looks.get(name)
        if isinstance(found, HeadroomError):
            self._looks[name] = replace(before or _Look(found, NOT_LOOKED, NOT_LOOKED), found=found)
            return
        commit_at_s, lag = found.last_commit_at_s, found.lag_records
        since_s: float | Unknown = Unknown("nothing has arrived since its newest commit")
        if before is not None and before.commit_at_s == commit_at_s:
            since_s = before.waits_since_s
        if isinstance(since_s, Unknown) and not isinstance(lag, Unknown) and lag > 0:
            since_s = found.at_s
        self._looks[name] = _Look(found, commit_at_s, since_s)

    def status(self, name: str) -> Status:
        """State of a job, as it follows from what was read last."""
        their = self.jobs[name]
        state, reason = self._state(their)
        return Status(state, their.executors, NO_EXECUTORS, NO_RUN, reason, ours=False, elsewhere=True)

    def refuse(self, name: str, what: str) -> None:
        """Refuse to act on a job that another system runs."""
        if name in self.jobs:
            raise Unsafe(f"job.{name}.attach = true: it is run elsewhere, so it is not {what} here")

    def _state(self, their: Theirs) -> tuple[State, str]:
        look, now_s = self._looks.get(their.name), self._now_s()
        if look is None:
            return "unknown", NOT_LOOKED.reason
        found, commit_at_s = look.found, look.commit_at_s
        if isinstance(found, HeadroomError):
            return "unknown", str(found)
        if now_s - found.at_s > LOOKED_S:
            return "unknown", f"it was read last {now_s - found.at_s:.0f} s ago"
        for read in (found.committed, found.lag_records):
            if isinstance(read, Unknown):
                return "unknown", read.reason
        silent_s = found.at_s - commit_at_s if not isinstance(commit_at_s, Unknown) else None
        if silent_s is not None and silent_s <= their.patience_s:
            return "running", ""
        since_s = look.waits_since_s
        if isinstance(since_s, Unknown):
            ago = f", {silent_s:.0f} s ago" if silent_s is not None else ""
            return "unknown", f"{since_s.reason}{ago}: the next records show it"
        waited_s = found.at_s - since_s
        if waited_s <= their.patience_s:
            return "unknown", f"records wait for {waited_s:.0f} s, its next commit is not overdue yet"
        nothing = "no commit was seen" if silent_s is None else f"no commit for {silent_s:.0f} s"
        return "stalled", f"{nothing} while records wait: it is down, or at one very long batch"


class AttachedDeployments:
    """Our deployments, and beside them the jobs of other people. An adapter of the port `Deployments`."""

    def __init__(self, ours: Deployments, attached: Attached) -> None:
        self._ours, self._attached = ours, attached

    def launch(self, plan: Plan) -> None:
        self._attached.refuse(plan.name, "started")
        check_beside(plan, self._attached.jobs.values())
        self._ours.launch(plan)

    def scale(
        self, name: str, scale_out: int, *, epoch: int, path: Literal["live", "restart"] = "live"
    ) -> Rescaled:
        self._attached.refuse(name, "rescaled")
        return self._ours.scale(name, scale_out, epoch=epoch, path=path)

    def stop(self, name: str) -> None:
        self._attached.refuse(name, "stopped")
        self._ours.stop(name)

    def status(self, name: str) -> Status:
        if name in self._attached.jobs:
            return self._attached.status(name)
        return self._ours.status(name)

    def names(self) -> tuple[str, ...]:
        """Names of our own deployments."""
        return tuple(name for name in self._ours.names() if name not in self._attached.jobs)

    def plan(self, name: str) -> Query:
        """Where a job reads and keeps its checkpoint, for the metrics."""
        if name in self._attached.jobs:
            return self._attached.jobs[name]
        return self._ours.plan(name)


class AttachedMetrics:
    """The same metrics; of attached jobs nothing that only a driver knows."""

    def __init__(self, metrics: Metrics, attached: Attached) -> None:
        self._metrics, self._attached = metrics, attached

    def sample(self, name: str) -> Sample:
        found = self.sample_all([name])[name]
        if isinstance(found, HeadroomError):
            raise found
        return found

    def sample_all(self, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]:
        """Several jobs at the same moment; what could not be sampled carries its error."""
        found = dict(sampled(self._metrics, names))
        for name in found.keys() & self._attached.jobs.keys():
            sample = found[name]
            if not isinstance(sample, HeadroomError):
                found[name] = sample = replace(sample, run_id=NO_RUN, executors=NO_EXECUTORS, driver=NO_RUN)
            self._attached.saw(name, sample)
        return found
