"""From a job's timeline to what the control loop sees, and a sampler that no broken job holds up."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import samples
from samples import offsets

from models.errors import HeadroomError, NotReady
from models.observation import ExecutorLoss
from models.ports import Commit, ExecutorSample, Offsets, Sample, Status
from models.quantities import Unknown
from profiling_jobs.control_loop.observe import limit, observation
from profiling_jobs.telemetry.observing import LOST_SHOWN_S, ExecutorMeter, ExecutorReading
from profiling_jobs.telemetry.timeline import Sampler, Timeline

pytestmark = pytest.mark.fast

RUNNING = Status("running", 3, 2, "run-7")
UNREAD = Unknown("the driver does not answer")


def sample(
    at_s: float, *, executors: tuple[ExecutorSample, ...] | Unknown = UNREAD, read: bool = True
) -> Sample:
    """100 records/s arrive, and a batch ends every other second."""
    now, done = int(at_s) * 100, (int(at_s) // 2) * 200
    committed: Offsets | Unknown = offsets(done) if read else UNREAD
    return samples.sample(
        at_s,
        offsets(now),
        committed=committed,
        lag_records=now - done if read else UNREAD,
        last_batch=int(at_s) // 2 if read else UNREAD,
        last_commit_at_s=at_s // 2 * 2.0 if read else UNREAD,
        run_id="run-7" if read else UNREAD,
        executors=executors,
        latency_p95_ms=1900.0,
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
    assert isinstance(seen.limited_by, Unknown) or seen.limited_by == ("waiting" if cpu == 0.1 else "cpu")
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


def test_what_nobody_foresaw_costs_the_rounds_that_it_spoils_and_is_said_once() -> None:
    jobs, said, names = AtOnce(), list[str](), ["light"]
    sampler = Sampler(jobs, lambda: [names[0]], clock=lambda: 7.0, say=said.append)
    sampler.round()
    jobs.broken = OSError(errno.EMFILE, "Too many open files")
    sampler.round()
    sampler.round()
    jobs.broken = None
    sampler.round()
    names.clear()  # where the jobs come from fails, too
    sampler.round()
    names.append("light")
    sampler.round()
    why = "a round of samples failed (OSError: [Errno 24] Too many open files)"
    bug = "a round of samples failed (IndexError: list index out of range)"
    with sampler.reading("light") as light:
        assert list(light.times_s(0.0, 9.0)) == [1.0, 2.0, 3.0]
        assert [gap.reason for gap in light.gaps] == [why, why, bug]
    assert said == [f"{why}; the next ones are tried", f"{bug}; the next ones are tried"]


# Shares and rates of executors


ONE = ExecutorReading("app-1/0", 0.0, 1, 100.0, 10.0, 100.0, 20.0, records=1000, first_task_at_s=3.0)


def later(at_s: float, one: ExecutorReading = ONE, **counters: Any) -> ExecutorReading:
    return replace(one, cpu_at_s=at_s, task_at_s=at_s, **counters)


def test_what_an_executor_did_between_two_readings() -> None:
    meter = ExecutorMeter()
    (first,) = meter.update(100.0, [ONE])
    assert isinstance(first.cpu, Unknown)
    then = later(105.0, cpu_s=11.0, task_s=24.5, records=4000)
    assert meter.update(105.0, [then]) == (ExecutorSample("app-1/0", "running", 0.2, 0.9, 600.0),)


def test_processors_that_another_has_measured_are_a_share_from_the_first_reading_on() -> None:
    measured = replace(ONE, slots=2, cpu_s=Unknown("not counted"), processors=0.5)
    assert ExecutorMeter().update(100.0, [measured])[0].cpu == 0.25
    (sample,) = ExecutorMeter().update(100.0, [replace(measured, processors=2.5)])
    assert sample.cpu == 1.0


def test_shares_count_per_slot_and_per_processor_that_a_slot_can_have() -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [replace(ONE, slots=4)])
    (sample,) = meter.update(105.0, [later(105.0, slots=4, cpu_s=15.0, task_s=30.0)], processors_per_slot=0.5)
    assert (sample.cpu, sample.busy) == (0.5, 0.5)


def test_a_share_is_never_more_than_all() -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [ONE])
    (sample,) = meter.update(105.0, [later(105.0, cpu_s=16.0, task_s=31.0)])
    assert (sample.cpu, sample.busy) == (1.0, 1.0)


@pytest.mark.parametrize(("field", "of"), [("cpu_s", "cpu"), ("task_s", "busy"), ("records", "records_rps")])
def test_a_counter_that_cannot_be_read_is_unknown_now_and_once_more(field: str, of: str) -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [ONE])
    (dark,) = meter.update(105.0, [later(105.0, **{field: UNREAD})])
    assert getattr(dark, of) == UNREAD
    (back,) = meter.update(110.0, [later(110.0)])
    assert "wait for the next" in getattr(back, of).reason
    (again,) = meter.update(115.0, [later(115.0)])
    assert getattr(again, of) == 0.0


def test_an_executor_starts_warms_up_runs_and_is_lost() -> None:
    meter = ExecutorMeter()
    new = replace(ONE, executor="app-1/1", first_task_at_s=Unknown("no task yet"))

    def states(at_s: float, *readings: ExecutorReading) -> dict[str, str]:
        return {one.executor: one.state for one in meter.update(at_s, readings)}

    assert states(100.0, ONE) == {"app-1/0": "running"}
    assert states(105.0, ONE, new) == {"app-1/0": "running", "app-1/1": "warming_up"}
    new = replace(new, first_task_at_s=108.0)
    assert states(110.0, ONE, new)["app-1/1"] == "warming_up"
    assert states(118.0, ONE, new)["app-1/1"] == "running"
    assert states(125.0, new) == {"app-1/1": "running", "app-1/0": "lost"}
    assert states(130.0, new)["app-1/0"] == "lost"
    assert states(126.0 + LOST_SHOWN_S, new) == {"app-1/1": "running"}


def test_a_lost_executor_has_no_load_and_one_that_is_back_is_not_lost() -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [ONE])
    (lost,) = meter.update(105.0, [])
    assert lost.state == "lost"
    assert isinstance(lost.cpu, Unknown)
    assert isinstance(lost.loss, Unknown)
    told = ExecutorLoss(101.5, 0.0)
    (lost,) = meter.update(107.0, [], losses={"app-1/0": told, "app-1/7": ExecutorLoss(90.0, 20.0)})
    assert lost.loss == told
    assert [one.state for one in meter.update(110.0, [ONE])] == ["running"]


def test_readings_too_close_together_say_what_was_said_before() -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [ONE])
    before = meter.update(105.0, [later(105.0, cpu_s=11.0)])
    assert meter.update(105.01, [later(105.01, cpu_s=11.1)]) == before
    (after,) = meter.update(110.0, [later(110.0, cpu_s=12.0)])
    assert after.cpu == pytest.approx(0.2)


def test_after_a_clock_that_was_set_back_what_was_said_before_is_not_said_again() -> None:
    meter = ExecutorMeter()
    meter.update(7300.0, [later(7300.0), later(7300.0, executor="app-1/1")])
    meter.update(7305.0, [later(7305.0, cpu_s=12.5)])
    (first,) = meter.update(105.0, [later(105.0, cpu_s=13.0)])
    assert isinstance(first.cpu, Unknown), "and the loss of two hours ahead is over"
    (then,) = meter.update(110.0, [later(110.0, cpu_s=14.0)])
    assert then.cpu == 0.2


@pytest.mark.parametrize(
    ("cpu", "busy", "expected"),
    [(0.9, 1.0, "cpu"), (0.35, 0.4, "cpu"), (0.1, 0.9, "waiting"), (0.5, 0.9, None), (0.05, 0.02, None)],
)
def test_which_limit_a_job_will_meet(cpu: float, busy: float, expected: str | None) -> None:
    found = limit(
        [ExecutorSample("a", "running", cpu, busy, 1.0), ExecutorSample("b", "lost", 1.0, 0.0, 1.0)]
    )
    assert isinstance(found, Unknown) if expected is None else found == expected


def test_no_limit_is_claimed_of_what_was_not_read() -> None:
    assert isinstance(limit([ExecutorSample("a", "running", UNREAD, 0.9, 1.0)]), Unknown)
    assert isinstance(limit([]), Unknown)


def test_processor_time_and_tasks_are_read_at_moments_of_their_own() -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [replace(ONE, cpu_at_s=99.0)])
    (sample,) = meter.update(106.0, [replace(ONE, cpu_at_s=104.0, cpu_s=11.0, task_at_s=106.0, task_s=23.0)])
    assert (sample.cpu, sample.busy) == (0.2, 0.5)
