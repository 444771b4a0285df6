"""Timeline of a job: samples of the last minutes, second by second, and reasons to doubt them.

`Timeline`: samples in, answers over spans of time out. Lag in records and in seconds of input, when batches
were committed, how fast records arrived and were processed, how busy each executor was. What could not be
read is a gap, NaN in arrays; it is never filled.

    lag in seconds at t = lag records(t) / arrival rate over the `rate_window_s` before t
    arrival over [a, b]  = records arrived between the readings at a and b / (b − a), interpolated at the ends

Throughput over a span is counted the same way; `processed_rps` counts from commit to commit instead, which is
what a probe needs: a span that cuts a batch in two is off by half a batch.

`Watch` samples one deployment of an experiment. Beside the samples every *doubt* is kept with its time: the
broker did not answer, the driver was away, the query began anew, an executor was missing or is another one
than before. A stretch with a doubt has no value. Nothing else may sample the deployment meanwhile: each
commit is reported once.

`Sampler` samples all jobs, round by round. A round that fails leaves a gap with its reason, and the next one
tries again. When the clock goes back a little, samples are left out until it has made up for it; when it goes
back far, the timeline is dropped and begun anew.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from models.arguments import Array
from models.errors import BrokerSilent, HeadroomError, NotReady
from models.ports import Commit, Deployments, ExecutorSample, Metrics, Offsets, Sample, Status
from models.probing import processed_rps
from models.quantities import Misuse, Unknown, executors

from . import lag as backlog

KEPT_S = 6 * 3600.0  # judgement: longer than any drill or probe
RATE_WINDOW_S = (
    60.0  # judgement: the evaluation interval; a shorter one makes lag in seconds jump with bursts
)
EDGE_S = 15.0  # judgement: how far beyond the readings a span may reach and still be answered


@dataclass(frozen=True)
class Point:
    """One sample, with arrivals and progress counted on from the first one."""

    sample: Sample
    arrived: int
    processed: int | Unknown
    """Unknown until the first commit is known."""

    @property
    def at_s(self) -> float:
        return self.sample.at_s


@dataclass(frozen=True)
class Gap:
    """A moment at which nothing could be read, or something spoilt what was read, and why."""

    at_s: float
    reason: str
    broker: bool = False
    """The brokers did not answer."""


@dataclass(frozen=True)
class Done:
    """One commit on the timeline: when, and how many records had been processed then."""

    at_s: float
    batch: int | Unknown
    records: int
    planned_at_s: float | Unknown


@dataclass(frozen=True)
class Load:
    """How busy each executor was over a span: arrays on one grid, NaN where nothing is known."""

    times_s: Array
    cpu: Mapping[str, Array]
    busy: Mapping[str, Array]
    records_rps: Mapping[str, Array]


class Timeline:
    """The samples of one job, in order."""

    def __init__(self, *, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._late_s = 0.1 * kept_s
        """What is too old goes this much later: many at once, not one by one."""
        self._points: list[Point] = []
        self._gaps: list[Gap] = []
        self._done: list[Done] = []
        self._position: tuple[Offsets, int] | None = None
        """What was committed last, and how many records had been processed then."""

    def __len__(self) -> int:
        return len(self._points)

    @property
    def last(self) -> Point | Unknown:
        return self._points[-1] if self._points else Unknown("nothing has been sampled yet")

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return tuple(self._gaps)

    def add(self, sample: Sample) -> None:
        before = self._points[-1] if self._points else None
        if before is not None and sample.at_s <= before.at_s:
            raise Misuse("sample.at_s", f"must grow, got {sample.at_s} after {before.at_s}")
        arrived = before.arrived + backlog.arrived(before.sample.head, sample.head) if before else 0
        log_start = before.sample.log_start if before else sample.log_start
        for commit in sample.commits:
            self._progress(commit.ends, log_start, commit)
        if not isinstance(sample.committed, Unknown):
            # Where no commit has led to it: a rollback, or an offset whose time is not known.
            self._progress(sample.committed, log_start, None)
        processed = self._position[1] if self._position else Unknown("nothing was committed yet")
        kept = _sharing(sample, before.sample) if before else sample
        self._points.append(Point(kept, arrived, processed))
        self._forget(sample.at_s - self._kept_s)

    def miss(self, at_s: float, reason: str, *, broker: bool = False) -> None:
        self._gaps.append(Gap(at_s, reason, broker))
        self._forget_gaps(at_s - self._kept_s)

    # ------------------------------------------------------------------------------------ over a span

    def points(self, start_s: float, end_s: float) -> tuple[Point, ...]:
        return tuple(self._points[self._first(start_s) : self._after(end_s)])

    def times_s(self, start_s: float, end_s: float) -> Array:
        """When the samples within were taken: the times of `lag_records` and `lag_s`."""
        return np.asarray([point.at_s for point in self.points(start_s, end_s)])

    def lag_records(self, start_s: float, end_s: float) -> Array:
        """Lag at each sample; NaN where it is unknown."""
        return np.asarray([_or_nan(point.sample.lag_records) for point in self.points(start_s, end_s)])

    def lag_s(self, start_s: float, end_s: float, *, arrival_rps: float | None = None) -> Array:
        """Lag at each sample in seconds of input; NaN where it is unknown, inf where lag has no input.

        `arrival_rps` fixes the rate, as a drill at a commanded rate does.
        """
        lag = self.lag_records(start_s, end_s)
        if arrival_rps is None:
            times = self.times_s(start_s, end_s)
            rates = np.asarray([_or_nan(self.arrival_rps(t - RATE_WINDOW_S, t, clip=True)) for t in times])
        else:
            rates = np.full(lag.shape, arrival_rps)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(lag == 0.0, 0.0, lag / rates)

    def spread_lag(self, start_s: float, end_s: float) -> tuple[list[float], list[float]]:
        """Times and lag in records, as if each batch were committed record by record: without the teeth.

        Teeth of 1.5 s that are sampled every second rise and fall slowly, and look like a trend. From the
        first commit within to the last; samples of unknown lag are left out.
        """
        done = self.commits(start_s, end_s)
        times_s: list[float] = []
        lag: list[float] = []
        for point in self.points(done[0].at_s, done[-1].at_s) if done else ():
            waiting = point.sample.lag_records
            if not isinstance(waiting, Unknown) and not isinstance(point.processed, Unknown):
                spread = np.interp(point.at_s, [one.at_s for one in done], [one.records for one in done])
                times_s.append(point.at_s)
                lag.append(waiting + point.processed - float(spread))
        return times_s, lag

    def batch_s(self, start_s: float, end_s: float) -> float:
        """Median time from commit to commit; 0 where fewer than two were committed within."""
        gaps = sorted(two.at_s - one.at_s for one, two in pairwise(self.commits(start_s, end_s)))
        return gaps[len(gaps) // 2] if gaps else 0.0

    def commits(self, start_s: float, end_s: float) -> tuple[Done, ...]:
        """The batches that were committed within, by time."""
        first = bisect_left(self._done, start_s, key=lambda done: done.at_s)
        return tuple(self._done[first : bisect_right(self._done, end_s, key=lambda done: done.at_s)])

    def first_commit_after(self, at_s: float) -> Done | Unknown:
        """The first batch that was committed after this moment: the end of a downtime."""
        after = bisect_right(self._done, at_s, key=lambda done: done.at_s)
        return self._done[after] if after < len(self._done) else Unknown("nothing was committed since")

    def arrival_rps(self, start_s: float, end_s: float, *, clip: bool = False) -> float | Unknown:
        """How fast records arrived; with `clip` over the part of the span that was sampled."""
        return self._rate("arrivals", start_s, end_s, clip)

    def throughput_rps(self, start_s: float, end_s: float, *, clip: bool = False) -> float | Unknown:
        """How fast records were processed, standstills included."""
        return self._rate("commits", start_s, end_s, clip)

    def processed_rps(self, start_s: float, end_s: float) -> float | Unknown:
        """How fast records were processed, from the first commit within to the last."""
        done = self.commits(start_s, end_s)
        return processed_rps([one.at_s for one in done], [float(one.records) for one in done])

    def restarted(self, start_s: float, end_s: float) -> bool:
        runs = [p.sample.run_id for p in self.points(start_s, end_s)]
        return len({run for run in runs if not isinstance(run, Unknown)}) > 1

    def load(self, start_s: float, end_s: float) -> Load:
        """How busy each executor was that ran within, warm-up and losses left out.

        Executors are read less often than offsets: a reading that is merely repeated appears once.
        """
        every = self.points(start_s, end_s)
        points = [
            point
            for before, point in zip((None, *every), every, strict=False)
            if before is None or point.sample.executors != before.sample.executors
        ]
        rows: list[dict[str, ExecutorSample]] = [
            {}
            if isinstance(point.sample.executors, Unknown)
            else {one.executor: one for one in point.sample.executors if one.state == "running"}
            for point in points
        ]
        names = sorted({name for row in rows for name in row})

        def columns(field: str) -> dict[str, Array]:
            return {
                name: np.asarray(
                    [_or_nan(getattr(row[name], field)) if name in row else np.nan for row in rows]
                )
                for name in names
            }

        times = np.asarray([point.at_s for point in points])
        return Load(times, columns("cpu"), columns("busy"), columns("records_rps"))

    # ------------------------------------------------------------------------------------------ inside

    def _progress(self, ends: Offsets, log_start: Offsets, commit: Commit | None) -> None:
        records = 0
        if self._position is not None:
            before, total = self._position
            records = total + backlog.processed(before, ends, log_start=log_start)
        self._position = (ends, records)
        if commit is not None and (not self._done or commit.at_s > self._done[-1].at_s):
            self._done.append(Done(commit.at_s, commit.batch, records, commit.planned_at_s))

    def _rate(
        self, what: Literal["arrivals", "commits"], start_s: float, end_s: float, clip: bool
    ) -> float | Unknown:
        if end_s <= start_s:
            raise Misuse("end_s", f"must be after {start_s}, got {end_s}")
        begin = 0 if what == "arrivals" else self._unknown_until()
        count = len(self._points) - begin
        if count < 2:
            return Unknown(f"{what} were read {count} times, a rate needs two readings: wait for the next")
        first, last = self._points[begin].at_s, self._points[-1].at_s
        if not clip and (start_s < first - EDGE_S or end_s > last + EDGE_S):
            return Unknown(
                f"{what} were read from {first:.0f} to {last:.0f}, the span is {start_s:.0f} to {end_s:.0f}"
            )
        start_s, end_s = max(start_s, first), min(end_s, last)
        if end_s <= start_s:
            return Unknown(f"{what} were not read within the span, but from {first:.0f} to {last:.0f}")
        # Of hours of readings only those around the span.
        near = self._points[max(begin, self._after(start_s) - 1) : self._first(end_s) + 1]
        counts = [_or_nan(point.arrived if what == "arrivals" else point.processed) for point in near]
        at = np.interp([start_s, end_s], [point.at_s for point in near], counts)
        return float((at[1] - at[0]) / (end_s - start_s))

    def _unknown_until(self) -> int:
        """The first sample by which something was committed; from then on progress is known."""
        return bisect_left(self._points, True, key=lambda point: not isinstance(point.processed, Unknown))

    def _first(self, at_s: float) -> int:
        return bisect_left(self._points, at_s, key=lambda point: point.at_s)

    def _after(self, at_s: float) -> int:
        return bisect_right(self._points, at_s, key=lambda point: point.at_s)

    def _forget(self, before_s: float) -> None:
        if self._points[0].at_s < before_s - self._late_s:
            del self._points[: self._first(before_s)]
            self._done = [done for done in self._done if done.at_s >= before_s]
        self._forget_gaps(before_s)

    def _forget_gaps(self, before_s: float) -> None:
        """Also where nothing can be read for days, as of a topic that is not there."""
        if self._gaps and self._gaps[0].at_s < before_s - self._late_s:
            self._gaps = [gap for gap in self._gaps if gap.at_s >= before_s]


def _sharing(sample: Sample, before: Sample) -> Sample:
    """The same sample, sharing what has not changed since the one before, which is most of it.

    Without it ten jobs of twelve partitions take 200 MB an hour.
    """
    committed = sample.committed
    if not isinstance(committed, Unknown) and not isinstance(before.committed, Unknown):
        committed = _alike(committed, before.committed)
    commits = sample.commits
    if not isinstance(committed, Unknown):
        commits = tuple(replace(one, ends=_alike(one.ends, committed)) for one in commits)
    return replace(
        sample,
        head=_alike(sample.head, before.head),
        log_start=_alike(sample.log_start, before.log_start),
        committed=committed,
        commits=commits,
    )


def _alike(offsets: Offsets, kept: Offsets) -> Offsets:
    """The kept ones if they are the same, else at least with their names of the partitions."""
    if offsets == kept:
        return kept
    return {part: offsets[part] for part in kept} if offsets.keys() == kept.keys() else offsets


def _or_nan(value: float | Unknown) -> float:
    return float("nan") if isinstance(value, Unknown) else float(value)


SILENT_S = 10.0  # judgement: a driver that plans a large batch on a busy machine answers late, not never
STARTING = Status("starting", 1, Unknown("it was not asked yet"), Unknown("it was not asked yet"))


class Watch:
    """One deployment from now on."""

    def __init__(self, name: str, *, scale_out: int, metrics: Metrics, deployments: Deployments) -> None:
        self.name = name
        self.scale_out = scale_out
        self.timeline = Timeline()
        self.status = STARTING
        self.doubts: list[Gap] = []
        self._metrics = metrics
        self._deployments = deployments
        self._run_id: str | None = None
        self._executors: frozenset[str] = frozenset()
        self._answered_s: float | None = None

    @property
    def last(self) -> Sample | Unknown:
        point = self.timeline.last
        return point if isinstance(point, Unknown) else point.sample

    @property
    def lag_records(self) -> float | Unknown:
        sample = self.last
        return sample if isinstance(sample, Unknown) else sample.lag_records

    def look(self, now_s: float) -> None:
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
        self.doubts.append(Gap(at_s, reason))


def is_far(newest_s: float, now_s: float) -> bool:
    """Whether the newest sample is too far in the future to wait for."""
    return newest_s - now_s > EDGE_S


def missed(newest_s: float, now_s: float) -> str:
    """Why there is no sample now."""
    return f"the clock went back by {newest_s - now_s:.1f} s: samples go on when it has made up for it"


SAMPLER_KEPT_S = 3600.0  # judgement: many evaluation intervals; six hours of ten jobs were over a gigabyte
EVERY_S = 1.0  # judgement: latency is known to a part of this, and a round costs some 30 ms


@runtime_checkable
class Rounds(Protocol):
    """Metrics that can sample several jobs at once, at a fraction of the cost."""

    def sample_all(self, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]: ...


def sampled(metrics: Metrics, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]:
    """Sample every job now; what could not be sampled carries its error."""
    if isinstance(metrics, Rounds):
        return metrics.sample_all(names)
    found: dict[str, Sample | HeadroomError] = {}
    for name in names:
        try:
            found[name] = metrics.sample(name)
        except HeadroomError as error:
            found[name] = error
    return found


class Sampler:
    """Samples of `names()`, one round at a time. Any thread may read the timelines, through `reading`."""

    def __init__(
        self,
        metrics: Metrics,
        names: Callable[[], Sequence[str]],
        *,
        clock: Callable[[], float] = time.time,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`say`: gets a line for a round that failed, once for each reason."""
        self._metrics = metrics
        self._names = names
        self._clock = clock
        self._timelines: dict[str, Timeline] = {}
        self._turn = threading.RLock()
        self._say = say
        self._said = ""

    @contextmanager
    def reading(self, name: str) -> Iterator[Timeline]:
        with self._turn:
            yield self._timelines.setdefault(name, Timeline(kept_s=SAMPLER_KEPT_S))

    def round(self) -> None:
        names = tuple(self._timelines)
        try:
            names = tuple(self._names())
            for name, found in sampled(self._metrics, names).items():
                self._take(name, found)
        except Exception as error:  # noqa: BLE001 - jobs are watched for days: one failed round must not end that
            failed = NotReady(f"a round of samples failed ({type(error).__name__}: {error})")
            for name in names:
                self._take(name, failed)
            if str(failed) != self._said:
                self._said = str(failed)
                self._say(f"{failed}; the next ones are tried")

    def fed_from(self, metrics: Metrics) -> Metrics:
        """The same metrics; what they are asked for is put on the timelines here, too."""
        return _Fed(metrics, self._take)

    def _take(self, name: str, found: Sample | HeadroomError) -> None:
        with self._turn:
            timeline = self._timelines.setdefault(name, Timeline(kept_s=SAMPLER_KEPT_S))
            if isinstance(found, HeadroomError):
                timeline.miss(self._clock(), str(found), broker=isinstance(found, BrokerSilent))
            else:
                self._timelines[name] = _with(timeline, found)


class _Fed:
    def __init__(self, metrics: Metrics, take: Callable[[str, Sample | HeadroomError], None]) -> None:
        self._metrics, self._take = metrics, take

    def sample(self, name: str) -> Sample:
        try:
            found = self._metrics.sample(name)
        except HeadroomError as error:
            self._take(name, error)
            raise
        self._take(name, found)
        return found


def _with(timeline: Timeline, sample: Sample) -> Timeline:
    """The timeline with this sample; another one where the clock went far back."""
    last = timeline.last
    if isinstance(last, Unknown) or sample.at_s > last.at_s:
        timeline.add(sample)
    elif not is_far(last.at_s, sample.at_s):
        timeline.miss(sample.at_s, missed(last.at_s, sample.at_s))
    else:
        back_s, timeline = last.at_s - sample.at_s, Timeline(kept_s=SAMPLER_KEPT_S)
        timeline.miss(
            sample.at_s, f"the clock went back by {back_s:,.0f} s: what was sampled before is dropped"
        )
        timeline.add(sample)
    return timeline
