"""The 95th percentile of the time from arrival to commit, against records whose every instant is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import offsets as head

from models.ports import Commit, Offsets
from models.quantities import Unknown
from profiling_jobs.telemetry.latency import LatencyWindow

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

    def truth_ms(self, until_s: float, window_s: float = 120.0) -> float:
        seen = [latency for at, latency in self.latencies if until_s - window_s <= at <= until_s]
        return 1000.0 * float(np.percentile(seen, 95))


def watch(job: Job, *, until_s: float, every_s: float = 1.0, since_s: float = 0.0) -> float | Unknown:
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
    return window.p95_ms()


def close(found_ms: float | Unknown, job: Job, until_s: float, tolerance_ms: float) -> None:
    assert not isinstance(found_ms, Unknown), found_ms
    assert found_ms == pytest.approx(job.truth_ms(until_s), abs=tolerance_ms)


def test_a_steady_input_is_measured_to_a_few_milliseconds() -> None:
    steady = np.arange(0.0, 60.0, 0.01)
    job = Job(steady, steady[::2], steady[::5], work_s=lambda at: 2.3)
    close(watch(job, until_s=60.0), job, 60.0, 15.0)


def test_a_slow_batch_is_seen() -> None:
    steady = np.arange(0.0, 100.0, 0.01)
    job = Job(steady, work_s=lambda at: 20.0 if 50.0 < at < 52.0 else 1.0)
    found = watch(job, until_s=100.0)
    close(found, job, 100.0, 30.0)
    assert not isinstance(found, Unknown)
    assert found > 10_000.0


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
    assert isinstance(soon, Unknown)
    assert "had arrived before the broker's ends were first read, 12 s ago" in soon.reason
    later = watch(job, since_s=19.0, until_s=51.0)  # [20, 30) at 40 and [30, 40) at 50 were seen
    assert later == pytest.approx(19_500.0, abs=30.0)


def test_nothing_committed_is_unknown_and_not_zero() -> None:
    window = LatencyWindow()
    assert isinstance(window.p95_ms(), Unknown)
    job = Job(np.arange(0.0, 60.0, 0.01), work_s=lambda at: 2.0)
    dead = Job(np.arange(0.0, 10.0, 0.01), work_s=lambda at: 2.0)
    assert isinstance(watch(job, until_s=60.0), float)
    gone = watch(dead, until_s=200.0)
    assert isinstance(gone, Unknown)
    assert "no record was committed in the last 120 s" in gone.reason


def test_readings_that_are_far_apart_are_refused_with_the_fix() -> None:
    job = Job(np.arange(0.0, 300.0, 0.01), work_s=lambda at: 2.0)
    found = watch(job, until_s=300.0, every_s=60.0)
    assert isinstance(found, Unknown)
    assert "60 s apart" in found.reason
    assert "sample at least every 10 s" in found.reason


def see(
    window: LatencyWindow, at_s: float, ends: Offsets, done: Offsets, *commits: Commit, start: int = 0
) -> None:
    """One reading of a job: what has arrived, and what is committed."""
    window.update(at_s, head=ends, log_start=head(start), committed=done, commits=commits)


def commit(batch: int, at_s: float, *ends: int) -> Commit:
    return Commit(batch, at_s, head(*ends))


def test_a_batch_that_is_committed_again_after_a_rollback_counts_once() -> None:
    window = LatencyWindow()
    see(window, 0.0, head(0), head(0))
    see(window, 1.0, head(100), head(0))
    see(window, 3.0, head(100), head(100), commit(0, 2.0, 100))
    before = window.p95_ms()
    see(window, 20.0, head(100), head(100), commit(0, 19.0, 100))
    assert window.p95_ms() == before == pytest.approx(1950.0)


def test_a_new_partition_and_a_topic_that_was_made_again() -> None:
    window = LatencyWindow()
    see(window, 0.0, head(1000), head(1000))
    see(window, 1.0, head(1000, 50), head(1000))
    see(window, 3.0, head(1000, 50), head(1000, 50), commit(5, 3.0, 1000, 50))
    assert window.p95_ms() == pytest.approx(2950.0)
    see(window, 200.0, head(0, 50), head(0, 50))
    see(window, 201.0, head(10, 50), head(0, 50))
    see(window, 203.0, head(10, 50), head(10, 50), commit(0, 202.0, 10, 50))
    assert window.p95_ms() == pytest.approx(1950.0)


@pytest.mark.parametrize("expires_at_s", [1100.0, 1201.0])
def test_records_that_retention_deleted_unread_have_no_latency(expires_at_s: float) -> None:
    """Ten arrive each second, the job is down for 20 minutes, the first 1000 s expire and it goes on."""
    window = LatencyWindow()
    for at in range(1201):
        start = 10_000 if at >= expires_at_s else 0
        see(window, float(at), head(at * 10), head(0), start=start)
    see(window, 1201.0, head(12_010), head(12_000), commit(0, 1201.0, 12_000), start=10_000)
    assert window.p95_ms() == pytest.approx(191_000.0)


def test_a_batch_from_before_we_looked_counts_when_what_nobody_saw_has_expired() -> None:
    window = LatencyWindow()
    see(window, 0.0, head(100), head(0))
    see(window, 1.0, head(200), head(0), start=100)
    see(window, 2.0, head(200), head(200), commit(0, 2.0, 200), start=100)
    assert window.p95_ms() == pytest.approx(1950.0)


def test_a_record_is_not_committed_before_it_came() -> None:
    """The end is read at 0 and at 1, all of it came and was committed at 0.2."""
    window = LatencyWindow()
    see(window, 0.0, head(0), head(0))
    see(window, 1.0, head(100), head(100), commit(0, 0.2, 100))
    assert window.p95_ms() == pytest.approx(190.0)


def test_memory_stays_bounded_while_nothing_is_committed() -> None:
    window = LatencyWindow()
    for at in range(20_000):
        see(window, float(at), head(at), head(0))
    (arrivals,) = window._arrivals.values()
    assert len(arrivals.ends) < 2000
