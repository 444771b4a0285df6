"""The `Metrics` of a simulated cluster.

Offsets come from its broker and checkpoints, shares of time from its executors, and latencies from the exact
arrival times of the records:

    lag      = Σ_p max(0, head_p − max(committed_p, log start_p))
    latency  = commit time − arrival, over all records committed in the last two minutes

Percentiles come from SPREAD points per partition and batch (between two changes of the rate, arrivals lie
evenly). The cpu, busy share and rate of an executor are those between two samples.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..arguments import Array
from ..ports import NOT_TOLD, Commit, ExecutorSample, Offsets, Sample
from ..quantities import Unknown
from .batches import Commit as Done
from .batches import Executor
from .cluster import Cluster
from .job import Job
from .topics import Topics

WINDOW_S = 120.0  # agreed: two minutes
LOST_SHOWN_S = 60.0  # as the real metrics show it
SPREAD = 8  # judgement: p95 within a hundredth of a batch

Waits = tuple[Array, Array]


@dataclass(frozen=True)
class _Counters:
    at_s: float
    busy_s: float
    cpu_s: float
    records: float


class SimulatedMetrics:
    """The metrics of all jobs of one cluster; remembers what it showed last."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reported: dict[str, int] = {}
        """Job -> the newest batch that was reported."""
        self._counters: dict[str, dict[str, _Counters]] = {}
        self._lost: dict[str, dict[str, float]] = {}
        self._waits: dict[str, dict[int, Waits]] = {}
        """Job -> number of a batch -> how long its records waited: it does not change any more."""

    def sample(self, name: str) -> Sample:
        with self._cluster.turn:
            return self._sample(name)

    def _sample(self, name: str) -> Sample:
        job, topics, now = self._cluster.job(name), self._cluster.topics, self._cluster.now_s
        inputs = list(job.plan.inputs.values())
        head, log_start = topics.ends(inputs, at_s=now), topics.starts(inputs)
        kept = job.checkpoint
        begun, done = bool(kept.committed), kept.batch >= 0
        nothing = Unknown(f"{name} has not started on its checkpoint yet")
        no_batch = Unknown("no batch is committed yet: wait for the first one")
        committed = {(t, p): int(end) for t, ends in kept.committed.items() for p, end in enumerate(ends)}
        return Sample(
            at_s=now,
            head=head,
            committed=committed if begun else nothing,
            committed_source="checkpoint" if begun else "neither",
            log_start=log_start,
            lag_records=_lag(head, committed, log_start) if begun else nothing,
            last_batch=kept.batch if done else no_batch,
            last_commit_at_s=kept.committed_at_s if done else no_batch,
            run_id=job.run_id if job.driver_up else Unknown(job.reason or f"{name} does not run"),
            executors=self._executors(name, job, now),
            latency_p95_ms=_p95_ms(kept.commits, topics, now, self._waits.setdefault(name, {})),
            commits=self._commits(name, job),
            driver="gone" if not job.driver_up else "up" if job.frozen_s is None else "silent",
        )

    def _commits(self, name: str, job: Job) -> tuple[Commit, ...]:
        reported = self._reported.get(name)
        self._reported[name] = job.checkpoint.batch
        if reported is None:  # what was done before the first sample is of no interest
            return ()
        commits = job.checkpoint.commits
        return tuple(
            Commit(
                c.batch,
                c.at_s,
                {(t, p): int(end) for t, ends in c.after.items() for p, end in enumerate(ends)},
                c.planned_at_s,
            )
            for c in commits[bisect_right(commits, reported, key=lambda commit: commit.batch) :]
        )

    def _executors(self, name: str, job: Job, now: float) -> tuple[ExecutorSample, ...] | Unknown:
        before = self._counters.get(name, {})
        alive = job.registered(now)
        self._counters[name] = {e.id: _Counters(now, e.busy_s, e.cpu_s, e.records) for e in alive}
        lost = self._lost.setdefault(name, {})
        lost.update({executor: now for executor in before if executor not in self._counters[name]})
        for executor in [executor for executor, at_s in lost.items() if now - at_s > LOST_SHOWN_S]:
            del lost[executor]
        if not job.driver_up or job.frozen_s is not None:
            return Unknown(job.reason or f"the driver of {name} does not answer")
        gone = Unknown("the executor is lost")
        found = [_sample(executor, before.get(executor.id), now) for executor in alive]
        told = (job.losses.get(executor, NOT_TOLD) for executor in lost)
        return (
            *found,
            *(
                ExecutorSample(one, "lost", gone, gone, gone, loss=loss)
                for one, loss in zip(lost, told, strict=True)
            ),
        )


def _sample(executor: Executor, before: _Counters | None, now: float) -> ExecutorSample:
    state: Literal["warming_up", "running"]
    state = "running" if executor.warm and executor.holds_until_s <= now else "warming_up"
    if before is None or now <= before.at_s:
        once = Unknown("the executor was read once: wait for the next reading")
        return ExecutorSample(executor.id, state, once, once, once)
    elapsed = now - before.at_s
    return ExecutorSample(
        executor.id,
        state,
        cpu=min(1.0, (executor.cpu_s - before.cpu_s) / elapsed),
        busy=min(1.0, (executor.busy_s - before.busy_s) / elapsed),
        records_rps=(executor.records - before.records) / elapsed,
    )


def _lag(head: Offsets, committed: Offsets, log_start: Offsets) -> float:
    return float(
        sum(max(0, end - max(committed.get(part, 0), log_start[part])) for part, end in head.items())
    )


def _p95_ms(commits: list[Done], topics: Topics, now: float, known: dict[int, Waits]) -> float | Unknown:
    """Over the records that were committed lately. `known`: latencies of earlier batches."""
    first = bisect_right(commits, now - WINDOW_S, key=lambda commit: commit.at_s)
    for batch in [batch for batch in known if first == len(commits) or batch < commits[first].batch]:
        del known[batch]
    for commit in commits[first:]:
        if commit.batch not in known:
            known[commit.batch] = _waits(commit, topics)
    found = [waits for waits in known.values() if waits[0].size]
    if not found:
        return Unknown(f"no record was committed in the last {WINDOW_S:.0f} s")
    values, weight = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.argsort(values)
    grown = np.cumsum(weight[order])
    at = np.searchsorted(grown, 0.95 * grown[-1] * (1.0 - 1e-9))
    return 1000.0 * max(0.0, float(values[order[at]]))


def _waits(commit: Done, topics: Topics) -> Waits:
    """Seconds from arrival to commit, and how many records stand for each value."""
    waited, weights = [np.empty(0)], [np.empty(0)]
    for topic, ends in commit.after.items():
        begins = commit.before[topic]
        for part in np.flatnonzero(ends > begins[: ends.size]):
            low = topics[topic].arrived_s(int(part), int(begins[part]))
            high = topics[topic].arrived_s(int(part), int(ends[part]) - 1)
            waited.append(commit.at_s - np.linspace(low, high, SPREAD))
            weights.append(np.full(SPREAD, (ends[part] - begins[part]) / SPREAD))
    return np.concatenate(waited), np.concatenate(weights)
