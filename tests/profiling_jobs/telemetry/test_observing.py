"""From a job's timeline to what the control loop sees, and a sampler that no broken job holds up."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from models.errors import HeadroomError, NotReady
from models.ports import Commit, ExecutorSample, Offsets, Sample, Status
from models.quantities import Unknown
from profiling_jobs.periodic import Periodic
from profiling_jobs.telemetry.observing import observation
from profiling_jobs.telemetry.sampler import Sampler
from profiling_jobs.telemetry.timeline import Gap, Timeline

pytestmark = pytest.mark.fast

RUNNING = Status("running", 3, 2, "run-7")
UNREAD = Unknown("the driver does not answer")


def offsets(end: int) -> Offsets:
    return {("orders", 0): end}


def sample(
    at_s: float, *, executors: tuple[ExecutorSample, ...] | Unknown = UNREAD, read: bool = True
) -> Sample:
    """100 records/s arrive, and a batch ends every other second."""
    now, done = int(at_s) * 100, (int(at_s) // 2) * 200
    committed: Offsets | Unknown = offsets(done) if read else UNREAD
    return Sample(
        at_s=at_s,
        head=offsets(now),
        committed=committed,
        committed_source="checkpoint" if read else "neither",
        log_start=offsets(0),
        lag_records=now - done if read else UNREAD,
        last_batch=int(at_s) // 2 if read else UNREAD,
        last_commit_at_s=at_s // 2 * 2.0 if read else UNREAD,
        run_id="run-7" if read else UNREAD,
        executors=executors,
        latency_p50_ms=900.0,
        latency_p95_ms=1900.0,
        latency_p99_ms=1990.0,
        commits=(Commit(int(at_s) // 2, at_s, offsets(done)),) if read and at_s % 2 == 0 else (),
    )


def timeline(seconds: int = 60, **more: object) -> Timeline:
    found = Timeline()
    for at in range(seconds + 1):
        found.add(sample(float(at), **more))  # type: ignore[arg-type]
    return found


def test_a_minute_of_a_job() -> None:
    seen = observation(timeline(), since_s=40.0, status=RUNNING)
    assert not isinstance(seen, Unknown)
    assert (seen.at_s, seen.scale_out, seen.executors_alive, seen.run_id) == (60.0, 3, 2, "run-7")
    assert (seen.arrival_rps, seen.throughput_rps, seen.lag_records, seen.latency_ms) == (
        100.0,
        100.0,
        0,
        1900.0,
    )
    assert seen.last_commit_at_s == 60.0
    assert seen.commits_at_s == tuple(float(at) for at in range(42, 61, 2))
    assert seen.cpu == Unknown("the driver does not answer")


def test_what_was_not_read_stays_unknown_with_its_reason() -> None:
    seen = observation(timeline(read=False), since_s=0.0)
    assert not isinstance(seen, Unknown)
    for value in (
        seen.lag_records,
        seen.commits_at_s,
        seen.last_commit_at_s,
        seen.run_id,
        seen.executors_alive,
    ):
        assert value == UNREAD
    assert isinstance(seen.throughput_rps, Unknown)
    assert isinstance(seen.scale_out, Unknown)
    assert seen.arrival_rps == 100.0


@pytest.mark.parametrize(
    ("cpu", "busy", "shown"),
    [
        pytest.param(0.1, 0.8, 0.8, id="it waits"),
        pytest.param(0.6, 0.8, 0.8, id="it computes, and waits for the broker"),
        pytest.param(0.95, 0.8, 0.95, id="more slots than processors"),
        pytest.param(UNREAD, 0.8, 0.8, id="no processor times"),
        pytest.param(0.5, UNREAD, 0.5, id="no task times"),
    ],
)
def test_the_worker_share_is_the_one_that_runs_out_first(
    cpu: float | Unknown, busy: float | Unknown, shown: float
) -> None:
    executors = (
        ExecutorSample("0", "running", cpu, busy, 99.0),
        ExecutorSample("1", "warming_up", 1.0, 1.0, 1.0),
        ExecutorSample("2", "lost", UNREAD, UNREAD, UNREAD),
    )
    seen = observation(timeline(executors=executors), since_s=0.0)
    assert not isinstance(seen, Unknown)
    assert seen.cpu == {"0": shown}
    assert seen.worker_rps == {"0": 99.0}
    assert seen.executors_alive == 2


READERS = tuple(ExecutorSample(name, "running", 0.5, 0.5, rps) for name, rps in (("a", 120.0), ("b", 80.0)))


def test_a_record_that_is_read_twice_is_one_record_of_throughput() -> None:
    seen = observation(timeline(executors=READERS), since_s=40.0)
    assert not isinstance(seen, Unknown)
    assert seen.worker_rps == pytest.approx({"a": 60.0, "b": 40.0})
    assert seen.throughput_rps == 100.0


def test_an_interval_that_cuts_a_batch_in_two_does_not_cut_the_rates() -> None:
    long = Timeline()
    for at in range(601):
        done = at // 40 * 4000
        ended = (Commit(at // 40, float(at), offsets(done)),) if at % 40 == 0 else ()
        long.add(replace(sample(float(at), executors=READERS), committed=offsets(done), commits=ended))
    seen = observation(long, since_s=550.0)
    assert not isinstance(seen, Unknown)
    assert seen.throughput_rps == pytest.approx(160.0)
    assert seen.worker_rps == pytest.approx({"a": 60.0, "b": 40.0})


def test_how_often_a_record_is_read_is_not_known_after_a_few_batches() -> None:
    seen = observation(timeline(12, executors=READERS), since_s=0.0)
    assert not isinstance(seen, Unknown)
    assert isinstance(seen.worker_rps, Unknown)
    assert "7 batches were seen from reading to commit" in seen.worker_rps.reason
    assert seen.cpu == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(("cpu", "busy", "limit"), [(0.5, 0.55, "cpu"), (0.1, 0.6, "waiting")])
def test_what_will_run_out_is_seen(cpu: float, busy: float, limit: str) -> None:
    workers = (ExecutorSample("a", "running", cpu, busy, 10.0),)
    seen = observation(timeline(executors=workers), since_s=40.0, status=RUNNING)
    assert not isinstance(seen, Unknown)
    assert seen.limited_by == limit


def test_nothing_new_is_no_observation() -> None:
    assert isinstance(observation(Timeline(), since_s=0.0), Unknown)
    old = observation(timeline(), since_s=60.0)
    assert isinstance(old, Unknown)
    assert "nothing was sampled since 60" in old.reason


class Jobs:
    """Two jobs, one of which cannot be read."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self.broken: Exception | None = None

    def sample(self, name: str) -> Sample:
        if self.broken is not None:
            raise self.broken
        if name == "dark":
            raise NotReady("the broker is away")
        self.at_s += 1.0
        return sample(self.at_s)


class AtOnce(Jobs):
    def sample_all(self, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]:
        if self.broken is not None:
            raise self.broken
        self.at_s += 1.0
        return {n: NotReady("the broker is away") if n == "dark" else sample(self.at_s) for n in names}


@pytest.mark.parametrize("jobs", [Jobs(), AtOnce()])
def test_one_round_reads_all_jobs_and_leaves_a_gap_where_it_cannot(jobs: Jobs) -> None:
    sampler = Sampler(jobs, lambda: ["light", "dark"], clock=lambda: 7.0)
    sampler.round()
    sampler.round()
    with sampler.reading("light") as light, sampler.reading("dark") as dark:
        assert len(light) == 2
        assert len(dark) == 0
        assert [(gap.at_s, gap.reason) for gap in dark.gaps] == [(7.0, "the broker is away")] * 2
    sampler.forget("light")
    with sampler.reading("light") as light:
        assert len(light) == 0


class Stepped:
    """Metrics by a clock that somebody sets."""

    def __init__(self, *times_s: float) -> None:
        self.times_s = list(times_s)

    def sample(self, name: str) -> Sample:
        return sample(self.times_s.pop(0))


def test_a_clock_that_goes_back_a_little_costs_the_samples_until_it_has_made_up_for_it() -> None:
    sampler = Sampler(Stepped(100.0, 101.0, 99.5, 100.5, 101.5), lambda: ["light"])
    for _ in range(5):
        sampler.round()
    with sampler.reading("light") as light:
        assert list(light.times_s(0.0, 200.0)) == [100.0, 101.0, 101.5]
        assert [gap.at_s for gap in light.gaps] == [99.5, 100.5]
        assert "the clock went back by 1.5 s: samples go on when it has made up" in light.gaps[0].reason


def test_a_clock_that_goes_far_back_begins_the_timeline_anew() -> None:
    sampler = Sampler(Stepped(9000.0, 9001.0, 1801.0, 1802.0), lambda: ["light"])
    for _ in range(4):
        sampler.round()
    with sampler.reading("light") as light:
        assert list(light.times_s(0.0, 1e9)) == [1801.0, 1802.0]
        assert light.arrival_rps(1801.0, 1802.0) == 100.0
        (gap,) = light.gaps
        assert gap.reason.startswith("the clock went back by 7,200 s: what was sampled before")


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_what_nobody_foresaw_costs_the_rounds_that_it_spoils_and_is_said_once() -> None:
    jobs, said = AtOnce(), list[str]()
    sampler = Sampler(jobs, lambda: ["light"], clock=lambda: 7.0, say=said.append)
    sampler.round()
    jobs.broken = OSError(errno.EMFILE, "Too many open files")
    sampler.round()
    sampler.round()
    jobs.broken = None
    sampler.round()
    why = "a round of samples failed (OSError: [Errno 24] Too many open files)"
    with sampler.reading("light") as light:
        assert list(light.times_s(0.0, 9.0)) == [1.0, 2.0]
        assert [gap.reason for gap in light.gaps] == [why, why]
    assert said == [f"{why}; the next ones are tried"]


def test_nor_does_it_matter_where_the_jobs_come_from() -> None:
    jobs, broken = Jobs(), [False]

    def names() -> list[str]:
        if broken[0]:
            raise RuntimeError("a bug")
        return ["light"]

    sampler = Sampler(jobs, names)
    with Periodic(sampler.round, every_s=0.01, name="test"):
        until(lambda: jobs.at_s > 1.0)
        broken[0] = True
        until(lambda: bool(gaps_of(sampler)))
        broken[0], before = False, jobs.at_s
        until(lambda: jobs.at_s > before + 1.0)
    assert gaps_of(sampler)[0].reason == "a round of samples failed (RuntimeError: a bug)"


def gaps_of(sampler: Sampler) -> tuple[Gap, ...]:
    with sampler.reading("light") as light:
        return light.gaps
