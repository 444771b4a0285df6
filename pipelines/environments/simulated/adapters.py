"""Adapters from the simulated cluster to the ports.

The cluster knows neither the ports' dataclasses nor their errors: here its values become theirs, and each
`Refused` becomes the error of its kind. A simulated source sends exactly the rate that is commanded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from models.arguments import number
from models.errors import Misconfigured, NotReady, Unsafe
from models.ports import (
    Commit,
    ExecutorSample,
    Injection,
    Offsets,
    Plan,
    Query,
    Rescaled,
    Sample,
    Status,
)
from models.quantities import Unknown
from models.simulation import sampling
from models.simulation.cluster import Cluster
from models.simulation.topics import Refused
from profiling_jobs import plans

from .time import SharedCluster


@dataclass(frozen=True)
class Flowed:
    """What was to be sent in some time, and what was sent."""

    achieved_rps: float
    commanded_rps: float


class SimulatedSource:
    """A source for the `Source` port. `shares` divides the rate between several topics."""

    def __init__(self, cluster: Cluster, topics: Mapping[str, float], *, highest_rps: float = np.inf) -> None:
        self._cluster, self._highest_rps = cluster, highest_rps
        total = sum(topics.values())
        self._shares = {topic: share / total for topic, share in topics.items()}
        self._commands: list[tuple[float, float]] = []

    def set_rate(self, rate_rps: float) -> float:
        with self._alone():
            return self._set_rate(rate_rps)

    def _set_rate(self, rate_rps: float) -> float:
        now_s = self._cluster.now_s
        self._commands.append((now_s, rate_rps))
        for topic, share in self._shares.items():
            self._cluster.topics.flow(topic, share * min(rate_rps, self._highest_rps), at_s=now_s)
        return now_s

    def achieved(self, from_s: float, to_s: float) -> Flowed:
        with self._alone():
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
        with self._alone():
            for topic in self._shares:
                if topic in self._cluster.topics:
                    self._cluster.topics.flow(topic, 0.0, at_s=self._cluster.now_s)

    def _alone(self) -> AbstractContextManager[Any]:
        """One call at a time, where several threads share the cluster."""
        turn: AbstractContextManager[Any] = getattr(self._cluster, "turn", nullcontext())
        return turn


@contextmanager
def _refusals_told(cluster: Cluster) -> Iterator[None]:
    """One call at a time, where several threads share the cluster."""
    try:
        with getattr(cluster, "turn", nullcontext()):
            yield
    except Refused as refused:
        if refused.kind == "misconfigured":
            raise Misconfigured(refused.setting, refused.problem) from refused
        raise (NotReady if refused.kind == "not_ready" else Unsafe)(str(refused)) from refused


class SimulatedClock:
    """Time that passes when somebody sleeps."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def now_s(self) -> float:
        return self._cluster.now_s

    def sleep(self, seconds: float) -> None:
        if isinstance(self._cluster, SharedCluster):
            self._cluster.sleep(seconds)
        else:
            self._cluster.advance(seconds)


class SimulatedDeployments:
    """Jobs on a cluster that is only computed. `scale` and `stop` let time pass until they are done."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def launch(self, plan: Plan) -> None:
        plans.check(plan)
        with _refusals_told(self._cluster):
            for job in self._cluster.jobs.values():
                if job.plan.name != plan.name:
                    plans.apart(plan, job.plan)
                    plans.apart(job.plan, plan)
            self._cluster.launch(plan)

    def scale(
        self, name: str, scale_out: int, *, epoch: int, path: Literal["live", "restart"] = "live"
    ) -> Rescaled:
        with _refusals_told(self._cluster):
            return _as(Rescaled, self._cluster.scale(name, scale_out, epoch=epoch, path=path))

    def stop(self, name: str) -> None:
        with _refusals_told(self._cluster):
            self._cluster.stop(name)

    def status(self, name: str) -> Status:
        with _refusals_told(self._cluster):
            return _as(Status, self._cluster.status(name))

    def plan(self, name: str) -> Query:
        with _refusals_told(self._cluster):
            found: Query = self._cluster.job(name).plan
            return found

    def names(self) -> tuple[str, ...]:
        with _refusals_told(self._cluster):
            return self._cluster.names()


class SimulatedFailures:
    """Failures of that cluster; each object stands for a process of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._in_hand: set[str] = set()

    def kinds(self) -> frozenset[str]:
        return self._cluster.kinds()

    def inject(self, deployment: str, kind: str) -> Injection:
        with _refusals_told(self._cluster):
            injection: Injection = _as(Injection, self._cluster.inject(deployment, kind))
            self._in_hand.add(injection.id)
            return injection

    def clear(self, injection_id: str) -> None:
        with _refusals_told(self._cluster):
            self._in_hand.discard(injection_id)
            self._cluster.clear(injection_id)

    def active(self) -> tuple[Injection, ...]:
        with _refusals_told(self._cluster):
            return tuple(_as(Injection, injection) for injection in self._cluster.active())

    def left_over(self) -> tuple[Injection, ...]:
        with _refusals_told(self._cluster):
            return tuple(one for one in self.active() if one.id not in self._in_hand)


class SimulatedBroker:
    """The broker of that cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def topics(self) -> dict[str, int]:
        with _refusals_told(self._cluster):
            return self._cluster.topics.counts()

    def create(self, topic: str, *, partitions: int, kept_s: float | None = None) -> None:
        """Records need no room here, and are kept for ever."""
        if kept_s is not None:
            number("kept_s", kept_s, above=0.0)
        with _refusals_told(self._cluster):
            self._cluster.topics.create(topic, partitions=partitions, at_s=self._cluster.now_s)

    def delete(self, topic: str) -> None:
        with _refusals_told(self._cluster):
            self._cluster.topics.delete(topic)

    def starts(self, topics: Sequence[str]) -> Offsets:
        with _refusals_told(self._cluster):
            return self._cluster.topics.starts(topics)

    def ends(self, topics: Sequence[str]) -> Offsets:
        with _refusals_told(self._cluster):
            return self._cluster.topics.ends(topics, at_s=self._cluster.now_s)

    def offsets_at(self, topic: str, at_s: float) -> Offsets:
        with _refusals_told(self._cluster):
            return self._cluster.topics.offsets_at(topic, at_s, at_s=self._cluster.now_s)

    def committed(self, group: str, topics: Sequence[str]) -> Offsets:
        with _refusals_told(self._cluster):
            return self._cluster.topics.committed(group, topics)

    def commit(self, group: str, offsets: Offsets) -> None:
        with _refusals_told(self._cluster):
            self._cluster.topics.commit(group, offsets)


class SimulatedMetrics:
    """How the jobs of that cluster are doing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sampler = sampling.Sampler(cluster)

    def sample(self, name: str) -> Sample:
        with _refusals_told(self._cluster):
            found = self._sampler.sample(name)
        executors = found.executors
        if not isinstance(executors, Unknown):
            executors = tuple(_as(ExecutorSample, one) for one in executors)
        commits = tuple(_as(Commit, one) for one in found.commits)
        return Sample(**{**vars(found), "executors": executors, "commits": commits})


def _as(wanted: Any, value: Any) -> Any:
    """The same fields under the port's name."""
    return wanted(**vars(value))
