"""What casts doubt on what this job shows?

One deployment, looked at every second. Its samples go on a timeline; beside them every *doubt* is kept with
its time: the broker did not answer, the driver was away, the query began anew, an executor was missing or is
another one than before. Whoever measures asks afterwards whether there was any in the time that counts: a
stretch with a doubt has no value.

The metrics are asked by nobody else meanwhile: commits are told once.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.errors import HeadroomError
from models.ports import Deployments, Metrics, Sample, Status
from models.quantities import Unknown, executors

from .timeline import Timeline

SILENT_S = 10.0  # judgement: a driver that plans a large batch on a busy machine answers late, not never
STARTING = Status("starting", 1, Unknown("it was not asked yet"), Unknown("it was not asked yet"))


@dataclass(frozen=True)
class Doubt:
    """Something that spoils a measurement, and when it was seen."""

    at_s: float
    reason: str


class Watch:
    """One deployment from now on."""

    def __init__(self, name: str, *, scale_out: int, metrics: Metrics, deployments: Deployments) -> None:
        self.name = name
        self.scale_out = scale_out
        self.timeline = Timeline()
        self.status = STARTING
        self.doubts: list[Doubt] = []
        self._metrics = metrics
        self._deployments = deployments
        self._run_id: str | None = None
        self._executors: frozenset[str] = frozenset()
        self._answered_s: float | None = None
        self._looked_s = 0.0

    @property
    def last(self) -> Sample | Unknown:
        """The newest sample."""
        point = self.timeline.last
        return point if isinstance(point, Unknown) else point.sample

    @property
    def lag_records(self) -> float | Unknown:
        """By the newest sample."""
        sample = self.last
        return sample if isinstance(sample, Unknown) else sample.lag_records

    def look(self, now_s: float) -> None:
        """Sample it once."""
        try:
            sample = self._metrics.sample(self.name)
            if isinstance(self.last, Unknown) or sample.at_s > self.last.at_s:
                self.timeline.add(sample)
                self._look_at_executors(sample)
        except HeadroomError as error:
            self.timeline.miss(now_s, str(error))
            self._doubt(now_s, f"it could not be sampled: {error}")
        try:
            self.status = self._deployments.status(self.name)
        except HeadroomError as error:
            self._doubt(now_s, f"its status could not be read: {error}")
            return
        self._look_at_status(self.status, now_s)

    @property
    def sees_more(self) -> bool:
        """Whether the newest reading, which may be some seconds old, shows executors that were given up."""
        return len(self._executors) > self.scale_out

    def doubt(self, since_s: float) -> str:
        """The first thing since then that spoils what was seen; empty when there is none."""
        return next((one.reason for one in self.doubts if one.at_s >= since_s), "")

    def _look_at_status(self, status: Status, now_s: float) -> None:
        if status.state != "running":
            if status.state != "starting":
                self._doubt(now_s, f"the job was {status.state}: {status.reason}")
            return
        if isinstance(status.run_id, Unknown):
            if self._answered_s is not None and now_s - self._answered_s > SILENT_S:
                self._doubt(now_s, f"its driver was silent: {status.run_id.reason}")
            return
        self._answered_s = now_s
        if self._run_id not in (None, status.run_id):
            self._doubt(now_s, "the query was started anew")
        self._run_id = status.run_id
        if not isinstance(status.executors_alive, Unknown) and status.executors_alive < self.scale_out:
            self._doubt(
                now_s,
                f"only {status.executors_alive} of {executors(self.scale_out, 'were')} there",
            )

    def _look_at_executors(self, sample: Sample) -> None:
        if isinstance(sample.executors, Unknown):
            return
        alive = frozenset(one.executor for one in sample.executors if one.state != "lost")
        if gone := self._executors - alive:
            self._doubt(sample.at_s, f"executor {', '.join(sorted(gone))} was lost")
        self._executors = alive

    def _doubt(self, at_s: float, reason: str) -> None:
        self.doubts.append(Doubt(at_s, reason))
