"""The `Metrics` of real jobs.

Offsets are read in every round, for all jobs together: what is committed first, then the ends, in one
question to the broker. Executors and the driver's status are read every few seconds, in threads: a driver
that is dead or frozen must not delay the lag of the others. Whatever cannot be read is Unknown with its
reason; only a topic that is not there, or a broker that is silent, is an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from models.errors import HeadroomError, NotReady
from models.observation import ExecutorLoss
from models.ports import (
    NOT_ASKED,
    Broker,
    Commit,
    Deployments,
    ExecutorSample,
    Offsets,
    Query,
    Sample,
    driver_seen,
)
from models.quantities import Unknown
from profiling_jobs.telemetry import lag
from profiling_jobs.telemetry.lag import Stand, Standing
from profiling_jobs.telemetry.latency import LatencyWindow
from profiling_jobs.telemetry.observing import ExecutorMeter, ExecutorReading
from profiling_jobs.telemetry.timeline import is_far, missed

SLOW_EVERY_S = 4.0  # at least every 5 s, as agreed
STALE_S = 15.0  # judgement: an older status says nothing about now; a busy machine may answer late
SLOW_WAIT_S = 2.0  # judgement: so long a round waits where nothing recent is known
THREADS = 4  # judgement: ten drivers are asked in a fraction of a second


class Executors(Protocol):
    """Where the counters of executors come from."""

    def read(self, name: str) -> tuple[ExecutorReading, ...]: ...
    def losses(self, name: str) -> Mapping[str, ExecutorLoss]:
        """Executors of its newest run that its driver has lost; as of the newest `read`."""

    def processors_per_slot(self) -> float: ...
    def page(self, name: str) -> tuple[str, str]:
        """Address of the page of its newest run's driver, and the run's name there."""

    def forget(self, name: str) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class _Slow:
    """What is read every few seconds."""

    at_s: float
    run_id: str | Unknown
    executors: tuple[ExecutorSample, ...] | Unknown
    driver: Literal["up", "silent", "gone"] | Unknown = NOT_ASKED


@dataclass
class _Job:
    """What is remembered of one job between two samples."""

    standing: Standing
    latency: LatencyWindow = field(default_factory=LatencyWindow)
    meter: ExecutorMeter = field(default_factory=ExecutorMeter)
    commits: tuple[Commit, ...] = ()
    """Seen, but not yet part of a sample: the broker did not answer."""
    slow: _Slow | None = None
    asked: Future[_Slow] | None = None


@dataclass(frozen=True)
class _Head:
    """The broker's side of one job."""

    at_s: float
    ends: Offsets
    starts: Offsets
    waited_s: float


class _Groups:
    """The consumer groups of the broker, and how long its answers have taken."""

    def __init__(self, broker: Broker, clock: Callable[[], float]) -> None:
        self._broker, self._clock = broker, clock
        self.waited_s = 0.0

    def committed(self, group: str, topics: Sequence[str]) -> Offsets:
        asked_s = self._clock()
        try:
            return self._broker.committed(group, topics)
        finally:
            self.waited_s += self._clock() - asked_s


class JobMetrics:
    """Samples of jobs; threads take turns."""

    def __init__(
        self,
        broker: Broker,
        deployments: Deployments,
        executors: Executors,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._deployments = deployments
        self._executors = executors
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        self._newest_s = 0.0
        self._turn = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="headroom-metrics")

    def close(self) -> None:
        """Stop sampling."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> JobMetrics:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def forget(self, name: str) -> None:
        """Drop what is remembered of a job that is gone, once its executors are not read any more."""
        job = self._jobs.pop(name, None)
        if job is not None and job.asked is not None:
            wait([job.asked], timeout=SLOW_WAIT_S)

    def sample(self, name: str) -> Sample:
        """One job now. An unknown name or topic is Misconfigured, a silent broker NotReady."""
        found = self.sample_all([name])[name]
        if isinstance(found, HeadroomError):
            raise found
        return found

    def sample_all(self, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]:
        """Several jobs at the same moment; what could not be sampled carries its error."""
        with self._turn:
            return self._round(names)

    def _round(self, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]:
        now_s = self._clock()
        if is_far(self._newest_s, now_s):
            self._jobs.clear()
        elif now_s < self._newest_s:
            return {name: NotReady(missed(self._newest_s, now_s)) for name in names}
        self._newest_s = now_s
        result: dict[str, Sample | HeadroomError] = {}
        jobs: dict[str, _Job] = {}
        for name in names:
            try:
                jobs[name] = self._job(name)
            except HeadroomError as error:
                result[name] = error
        for name, job in jobs.items():
            self._ask(name, job)
        stands: dict[str, Stand] = {}
        groups = _Groups(self._broker, self._clock)
        for name in tuple(jobs):
            try:
                stands[name] = self._look(jobs[name], groups)
            except OSError as error:  # a network disk, say: the others have their checkpoints elsewhere
                result[name] = NotReady(f"its progress cannot be read just now ({error}): try again")
                del jobs[name]
        heads = self._heads({name: job.standing.topics for name, job in jobs.items()})
        self._hear(jobs.values())
        for name, job in jobs.items():
            head = heads[name]
            if isinstance(head, HeadroomError):
                result[name] = head
            else:
                waited_s = groups.waited_s + head.waited_s
                result[name] = _sample(job, stands[name], replace(head, waited_s=waited_s))
        return result

    def _job(self, name: str) -> _Job:
        plan = self._deployments.plan(name)
        job = self._jobs.get(name)
        if job is None or _source(job.standing.plan) != _source(plan):
            job = self._jobs[name] = _Job(Standing(plan))
        return job

    def _look(self, job: _Job, groups: _Groups) -> Stand:
        stand, commits = job.standing.look(groups, now_s=self._clock())
        job.commits += commits
        return stand

    def _heads(self, topics: Mapping[str, frozenset[str]]) -> Mapping[str, _Head | HeadroomError]:
        """One question for all jobs; one by one where one of their topics is not there."""
        everything = sorted(frozenset[str]().union(*topics.values()))
        asked_s = self._clock()
        try:
            starts = self._broker.starts(everything)
            before_s = self._clock()
            ends = self._broker.ends(everything)
            at_s = (before_s + self._clock()) / 2.0
        except HeadroomError as error:
            if len(topics) == 1 or isinstance(error, NotReady):
                return dict.fromkeys(topics, error)
            return {name: self._heads({name: own})[name] for name, own in topics.items()}
        return {
            name: _Head(
                at_s,
                {part: end for part, end in ends.items() if part[0] in own},
                {part: start for part, start in starts.items() if part[0] in own},
                at_s - asked_s,
            )
            for name, own in topics.items()
        }

    def _ask(self, name: str, job: _Job) -> None:
        _take(job)
        due = job.slow is None or self._clock() - job.slow.at_s >= SLOW_EVERY_S
        if due and job.asked is None:
            job.asked = self._threads.submit(self._slowly, name, job.meter)

    def _hear(self, jobs: Iterable[_Job]) -> None:
        """Take what has been answered; wait only for those of which nothing recent is known."""
        jobs, now = tuple(jobs), self._clock()
        old = [job for job in jobs if job.slow is None or now - job.slow.at_s > STALE_S]
        wait([job.asked for job in old if job.asked is not None], timeout=SLOW_WAIT_S)
        for job in jobs:
            _take(job)

    def _slowly(self, name: str, meter: ExecutorMeter) -> _Slow:
        run_id: str | Unknown
        executors: tuple[ExecutorSample, ...] | Unknown
        driver: Literal["up", "silent", "gone"] | Unknown = NOT_ASKED
        try:
            status = self._deployments.status(name)
            run_id, driver = status.run_id, driver_seen(status)
        except (HeadroomError, OSError) as error:
            run_id = Unknown(str(error))
        try:
            readings = self._executors.read(name)
            share = self._executors.processors_per_slot()
            executors = meter.update(
                self._clock(),
                readings,
                processors_per_slot=share,
                losses=self._executors.losses(name),
            )
        except (HeadroomError, OSError) as error:
            executors = Unknown(str(error))
        return _Slow(self._clock(), run_id, executors, driver)


def _take(job: _Job) -> None:
    """Take over what an earlier question has answered since."""
    if job.asked is not None and job.asked.done():
        asked, job.asked = job.asked, None
        job.slow = asked.result()


def _source(plan: Query) -> tuple[object, ...]:
    """What identifies the source of a job's samples: with another source its past samples do not count."""
    return plan.checkpoint, tuple(sorted(plan.inputs.values())), plan.job, plan.role


def _sample(job: _Job, stand: Stand, head: _Head) -> Sample:
    commits, job.commits = job.commits, ()
    job.latency.update(
        head.at_s, head=head.ends, log_start=head.starts, committed=stand.ends, commits=commits
    )
    slow = job.slow
    if slow is None or head.at_s - slow.at_s > STALE_S:
        late = Unknown("the driver and its executors did not answer in time: try again")
        slow = _Slow(head.at_s, late, late)
    position = stand.position
    return Sample(
        at_s=head.at_s,
        head=head.ends,
        committed=stand.ends,
        committed_source=stand.source,
        log_start=head.starts,
        lag_records=lag.lag(head.ends, stand.ends, head.starts),
        last_batch=position if isinstance(position, Unknown) else position.batch,
        last_commit_at_s=stand.last_commit_at_s,
        run_id=slow.run_id,
        executors=slow.executors,
        latency_p95_ms=job.latency.p95_ms(),
        commits=commits,
        driver=slow.driver,
        broker_waited_s=head.waited_s,
    )
