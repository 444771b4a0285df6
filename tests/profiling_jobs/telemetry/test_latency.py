"""Percentiles of the time from arrival to commit, against records whose every instant is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.ports import Commit, Offsets
from models.quantities import Unknown
from profiling_jobs.telemetry.latency import LatencyWindow, Percentiles

pytestmark = pytest.mark.fast


class Job:
    """Records arrive at known instants; a batch of all that is there starts when the last one is done."""

    def __init__(self, *arrivals_s: Sequence[float], work_s: Callable[[float], float]) -> None:
        self.arrivals = [np.sort(np.asarray(a, dtype=float)) for a in arrivals_s]
        self.commits: list[Commit] = []
        self.latencies: list[tuple[float, float]] = []  # commit time, latency
        at, done, number = 0.0, [0] * len(self.arrivals), 0
        last = max((a[-1] for a in self.arrivals if a.size), default=0.0)
        while at < last + 30.0:
            ends = self.ends(at)
            at += work_s(at)
            if list(ends.values()) != done:
                self.commits.append(Commit(number, at, ends))
                for p, arrivals in enumerate(self.arrivals):
                    self.latencies += [(at, at - t) for t in arrivals[done[p] : ends["orders", p]]]
                done, number = list(ends.values()), number + 1

    def ends(self, at_s: float) -> Offsets:
        return {
            ("orders", p): int(np.searchsorted(a, at_s, side="right")) for p, a in enumerate(self.arrivals)
        }

    def truth_ms(self, until_s: float, percentile: float, window_s: float = 120.0) -> float:
        seen = [latency for at, latency in self.latencies if until_s - window_s <= at <= until_s]
        return 1000.0 * float(np.percentile(seen, percentile))


def watch(job: Job, *, until_s: float, every_s: float = 1.0, since_s: float = 0.0) -> Percentiles:
    window, seen = LatencyWindow(), since_s
    for at in np.arange(since_s, until_s + 1e-9, every_s):
        committed = [c for c in job.commits if c.at_s <= at]
        window.update(
            float(at),
            head=job.ends(float(at)),
            log_start={},
            committed=committed[-1].ends
            if committed
            else {("orders", p): 0 for p in range(len(job.arrivals))},
            commits=[c for c in committed if c.at_s > seen],
        )
        seen = float(at)
    return window.percentiles()


def close(found: Percentiles, job: Job, until_s: float, tolerance_ms: float) -> None:
    for value, percentile in ((found.p50_ms, 50), (found.p95_ms, 95), (found.p99_ms, 99)):
        assert not isinstance(value, Unknown), value
        assert value == pytest.approx(job.truth_ms(until_s, percentile), abs=tolerance_ms)


def test_a_steady_input_is_measured_to_a_few_milliseconds() -> None:
    steady = np.arange(0.0, 60.0, 0.01)
    job = Job(steady, steady[::2], steady[::5], work_s=lambda at: 2.3)
    close(watch(job, until_s=60.0), job, 60.0, 15.0)


def test_a_slow_batch_is_seen_in_the_upper_percentiles() -> None:
    steady = np.arange(0.0, 100.0, 0.01)
    job = Job(steady, work_s=lambda at: 20.0 if 50.0 < at < 52.0 else 1.0)
    found = watch(job, until_s=100.0)
    close(found, job, 100.0, 30.0)
    assert not isinstance(found.p50_ms, Unknown)
    assert not isinstance(found.p95_ms, Unknown)
    assert found.p95_ms > 5 * found.p50_ms


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.3, 5.0))
def test_whatever_arrives_the_error_is_below_a_sampling_step(seed: int, work_s: float) -> None:
    rng = np.random.default_rng(seed)
    bursts = [np.repeat(rng.uniform(0.0, 90.0, 30), rng.integers(1, 50, 30)) for _ in range(3)]
    job = Job(*bursts, work_s=lambda at: work_s)
    close(watch(job, until_s=90.0), job, 90.0, 1000.0)


def test_a_batch_with_records_from_before_we_looked_is_left_out() -> None:
    steady = np.arange(0.0, 60.0, 0.01)
    job = Job(steady, work_s=lambda at: 10.0)
    soon = watch(job, since_s=19.0, until_s=31.0)  # commits at 20 and at 30, of what came until 10 and 20
    assert isinstance(soon.p50_ms, Unknown)
    assert "had arrived before the broker's ends were first read, 12 s ago" in soon.p50_ms.reason
    later = watch(job, since_s=19.0, until_s=51.0)  # [20, 30) at 40 and [30, 40) at 50 were seen
    assert later.records == 2000
    assert later.p50_ms == pytest.approx(15_000.0, abs=30.0)
    assert later.p99_ms == pytest.approx(19_900.0, abs=30.0)


def test_nothing_committed_is_unknown_and_not_zero() -> None:
    window = LatencyWindow()
    assert isinstance(window.percentiles().p95_ms, Unknown)
    job = Job(np.arange(0.0, 60.0, 0.01), work_s=lambda at: 2.0)
    dead = Job(np.arange(0.0, 10.0, 0.01), work_s=lambda at: 2.0)
    assert isinstance(watch(job, until_s=60.0).p95_ms, float)
    gone = watch(dead, until_s=200.0)
    assert isinstance(gone.p95_ms, Unknown)
    assert "no record was committed in the last 120 s" in gone.p95_ms.reason


def test_readings_that_are_far_apart_are_refused_with_the_fix() -> None:
    job = Job(np.arange(0.0, 300.0, 0.01), work_s=lambda at: 2.0)
    found = watch(job, until_s=300.0, every_s=60.0)
    assert isinstance(found.p95_ms, Unknown)
    assert "60 s apart" in found.p95_ms.reason
    assert "sample at least every 10 s" in found.p95_ms.reason


def commit(batch: int, at_s: float, *ends: int) -> Commit:
    return Commit(batch, at_s, {("orders", p): end for p, end in enumerate(ends)})


def head(*ends: int) -> Offsets:
    return {("orders", p): end for p, end in enumerate(ends)}


def test_a_batch_that_is_committed_again_after_a_rollback_counts_once() -> None:
    window = LatencyWindow()
    window.update(0.0, head=head(0), log_start={}, committed=head(0), commits=())
    window.update(1.0, head=head(100), log_start={}, committed=head(0), commits=())
    window.update(3.0, head=head(100), log_start={}, committed=head(100), commits=[commit(0, 2.0, 100)])
    before = window.percentiles()
    window.update(20.0, head=head(100), log_start={}, committed=head(100), commits=[commit(0, 19.0, 100)])
    assert window.percentiles() == before
    assert before.records == 100
    assert before.p50_ms == pytest.approx(1500.0)
    assert before.p99_ms == pytest.approx(1990.0)


def test_a_new_partition_and_a_topic_that_was_made_again() -> None:
    window = LatencyWindow()
    window.update(0.0, head=head(1000), log_start={}, committed=head(1000), commits=())
    window.update(1.0, head=head(1000, 50), log_start={}, committed=head(1000), commits=())
    window.update(
        3.0, head=head(1000, 50), log_start={}, committed=head(1000, 50), commits=[commit(5, 3.0, 1000, 50)]
    )
    assert window.percentiles().p50_ms == pytest.approx(2500.0)
    window.update(200.0, head=head(0, 50), log_start={}, committed=head(0, 50), commits=())
    window.update(201.0, head=head(10, 50), log_start={}, committed=head(0, 50), commits=())
    window.update(
        203.0, head=head(10, 50), log_start={}, committed=head(10, 50), commits=[commit(0, 202.0, 10, 50)]
    )
    assert window.percentiles().p50_ms == pytest.approx(1500.0)


@pytest.mark.parametrize("expires_at_s", [1100.0, 1201.0])
def test_records_that_retention_deleted_unread_have_no_latency(expires_at_s: float) -> None:
    """Ten arrive each second, the job is down for 20 minutes, the first 1000 s expire and it goes on."""
    window = LatencyWindow()
    for at in range(1201):
        start = 10_000 if at >= expires_at_s else 0
        window.update(float(at), head=head(at * 10), log_start=head(start), committed=head(0), commits=())
    window.update(
        1201.0,
        head=head(12_010),
        log_start=head(10_000),
        committed=head(12_000),
        commits=[commit(0, 1201.0, 12_000)],
    )
    found = window.percentiles()
    assert found.records == 2000
    assert found.p50_ms == pytest.approx(101_000.0)
    assert found.p99_ms == pytest.approx(199_000.0)


def test_a_batch_from_before_we_looked_counts_when_what_nobody_saw_has_expired() -> None:
    window = LatencyWindow()
    window.update(0.0, head=head(100), log_start=head(0), committed=head(0), commits=())
    window.update(1.0, head=head(200), log_start=head(100), committed=head(0), commits=())
    window.update(
        2.0, head=head(200), log_start=head(100), committed=head(200), commits=[commit(0, 2.0, 200)]
    )
    assert window.percentiles().records == 100


def test_a_record_is_not_committed_before_it_came() -> None:
    """The end is read at 0 and at 1, all of it came and was committed at 0.2."""
    window = LatencyWindow()
    window.update(0.0, head=head(0), log_start={}, committed=head(0), commits=())
    window.update(1.0, head=head(100), log_start={}, committed=head(100), commits=[commit(0, 0.2, 100)])
    found = window.percentiles()
    assert found.p50_ms == pytest.approx(100.0)
    assert found.p99_ms == pytest.approx(198.0)


def test_memory_stays_bounded_while_nothing_is_committed() -> None:
    window = LatencyWindow()
    for at in range(20_000):
        window.update(float(at), head=head(at), log_start={}, committed=head(0), commits=())
    (arrivals,) = window._arrivals.values()
    assert len(arrivals.ends) < 2000
