"""How do the ports look where some of the jobs are somebody else's?

The ports of ours stand behind; what is asked of an attached job is answered out of what was seen of it. It is
never launched, stopped, rescaled or hurt, and no deployment of ours may write where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from profiling_jobs import plans
from profiling_jobs.errors import HeadroomError, Unsafe
from profiling_jobs.ports import (
    Deployments,
    Failures,
    Injection,
    Metrics,
    Plan,
    Query,
    Rescaled,
    Sample,
    Status,
)
from profiling_jobs.signals.sampler import sampled

from .attached import NO_EXECUTORS, NO_RUN, Attached


class AttachedDeployments:
    """Our deployments, and beside them the jobs of other people. An adapter of the port `Deployments`."""

    def __init__(self, ours: Deployments, attached: Attached) -> None:
        self._ours, self._attached = ours, attached

    def launch(self, plan: Plan) -> None:
        self._attached.refuse(plan.name, "started")
        for their in self._attached.jobs.values():
            plans.apart(plan, their)
            if plans.overlaps(plan.checkpoint, their.checkpoint):
                raise Unsafe(
                    f"job.{plan.job}.checkpoint: {plan.checkpoint} belongs to {their.name}, which somebody "
                    "else runs: two queries would destroy it; give each its own"
                )
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
        """Ours alone."""
        return tuple(name for name in self._ours.names() if name not in self._attached.jobs)

    def plan(self, name: str) -> Query:
        """Where a job reads and keeps its checkpoint, for the metrics."""
        if name in self._attached.jobs:
            return self._attached.jobs[name]
        return self._ours.plan(name)


class AttachedMetrics:
    """The same metrics for all, but of other people's jobs nothing that only a driver could tell."""

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
                found[name] = sample = replace(sample, run_id=NO_RUN, executors=NO_EXECUTORS)
            self._attached.saw(name, sample)
        return found


class GuardedFailures:
    """Failures that may be refused at the moment they are to be caused. An adapter of the port `Failures`."""

    def __init__(self, failures: Failures, refuse: Callable[[str, str], None]) -> None:
        """`refuse`: gets the deployment and the kind, and raises if it must not be."""
        self._failures, self._refuse = failures, refuse

    def kinds(self) -> frozenset[str]:
        return self._failures.kinds()

    def inject(self, deployment: str, kind: str) -> Injection:
        self._refuse(deployment, kind)
        return self._failures.inject(deployment, kind)

    def clear(self, injection_id: str) -> None:
        self._failures.clear(injection_id)

    def active(self) -> tuple[Injection, ...]:
        return self._failures.active()

    def left_over(self) -> tuple[Injection, ...]:
        return self._failures.left_over()


class AttachedFailures(GuardedFailures):
    """Failures are caused in what is ours."""

    def __init__(self, failures: Failures, attached: Attached) -> None:
        super().__init__(failures, lambda deployment, kind: attached.refuse(deployment, "hurt"))
