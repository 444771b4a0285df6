"""Rates, lag and commits over spans of a job whose every sample is made up here."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import samples
from samples import UNREAD, offsets

from models.ports import Commit, ExecutorSample, Offsets, Sample
from models.quantities import Misuse, Unknown
from profiling_jobs.telemetry.lag import lag
from profiling_jobs.telemetry.timeline import Timeline

pytestmark = pytest.mark.fast


def sample(
    at_s: float,
    head: Offsets,
    committed: Offsets | Unknown = UNREAD,
    *,
    log_start: Offsets | None = None,
    **read: Any,
) -> Sample:
    log_start = log_start if log_start is not None else dict.fromkeys(head, 0)
    behind = lag(head, committed, log_start)
    return samples.sample(
        at_s, head, committed=committed, log_start=log_start, lag_records=behind, **{"run_id": "run-1"} | read
    )


def steady(
    *, seconds: int = 120, arrival: int = 100, batch_s: int = 5, dead: range = range(0), behind: int = 200
) -> Timeline:
    """One partition, a batch every `batch_s` seconds of all but the last `behind` records."""
    timeline, done = Timeline(), offsets(0)
    for at in range(seconds + 1):
        commits: tuple[Commit, ...] = ()
        if at and at % batch_s == 0 and at not in dead:
            done = offsets(max(0, at * arrival - behind))
            commits = (Commit(at // batch_s, 999.75 + at, done),)
        timeline.add(sample(1000.0 + at, offsets(at * arrival), done, commits=commits))
    return timeline


def test_arrival_and_throughput_of_a_steady_job() -> None:
    timeline = steady()
    assert timeline.arrival_rps(1000.0, 1120.0) == 100.0
    assert timeline.arrival_rps(1030.5, 1090.5) == 100.0
    assert timeline.throughput_rps(1030.0, 1090.0) == 100.0
    assert timeline.processed_rps(1030.0, 1090.0) == 100.0


def test_between_two_commits_a_cut_batch_does_no_harm() -> None:
    timeline = steady(batch_s=20)
    cut = timeline.throughput_rps(1041.0, 1099.0)
    assert not isinstance(cut, Unknown)
    assert cut == pytest.approx(4000.0 / 58.0, rel=0.02)
    assert timeline.processed_rps(1005.0, 1119.9) == 100.0


def test_lag_in_records_and_in_seconds_of_input() -> None:
    timeline = steady(behind=200)
    lags = timeline.lag_records(1060.0, 1065.0)
    assert list(lags) == [200.0, 300.0, 400.0, 500.0, 600.0, 200.0]
    assert list(timeline.lag_s(1060.0, 1065.0)) == [2.0, 3.0, 4.0, 5.0, 6.0, 2.0]
    assert list(timeline.lag_s(1060.0, 1060.0, arrival_rps=50.0)) == [4.0]
    assert list(timeline.times_s(1060.0, 1062.0)) == [1060.0, 1061.0, 1062.0]


def test_while_the_driver_is_dead_lag_grows_and_the_first_commit_ends_it() -> None:
    timeline = steady(dead=range(50, 80))
    assert float(timeline.lag_records(1079.0, 1079.0)[0]) == 7900 - 4300
    assert timeline.throughput_rps(1050.0, 1079.0) == 0.0
    back = timeline.first_commit_after(1050.0)
    assert not isinstance(back, Unknown)
    assert (back.at_s, back.batch) == (1079.75, 16)
    assert isinstance(timeline.first_commit_after(1119.75), Unknown)


def test_a_commit_that_is_known_by_its_time_is_placed_there() -> None:
    commits = steady().commits(1009.75, 1019.75)
    assert [(c.at_s, c.batch) for c in commits] == [(1009.75, 2), (1014.75, 3), (1019.75, 4)]
    assert [b.records - a.records for a, b in pairwise(commits)] == [500, 500]


def test_a_rollback_takes_nothing_away_and_its_work_counts_again() -> None:
    timeline = Timeline()
    timeline.add(sample(0.0, offsets(0), offsets(0)))
    timeline.add(sample(10.0, offsets(500), offsets(400), commits=(Commit(1, 9.0, offsets(400)),)))
    timeline.add(sample(20.0, offsets(900), offsets(100)))
    timeline.add(sample(30.0, offsets(900), offsets(900), commits=(Commit(1, 29.0, offsets(900)),)))
    assert timeline.throughput_rps(0.0, 30.0) == pytest.approx((400 + 800) / 30.0)
    assert list(timeline.lag_records(0.0, 30.0)) == [0.0, 100.0, 800.0, 0.0]


def test_new_partitions_retention_and_a_topic_that_was_made_again() -> None:
    timeline = Timeline()
    timeline.add(sample(0.0, offsets(100), offsets(100)))
    timeline.add(sample(10.0, offsets(150, 50), offsets(100)))
    assert timeline.arrival_rps(0.0, 10.0) == 10.0
    assert list(timeline.lag_records(10.0, 10.0)) == [100.0]
    timeline.add(
        sample(20.0, offsets(150, 50), offsets(150, 50), commits=(Commit(1, 19.0, offsets(150, 50)),))
    )
    assert timeline.throughput_rps(10.0, 20.0) == 10.0
    timeline.add(sample(30.0, offsets(30, 50), offsets(150, 50)))
    assert math.isnan(timeline.lag_records(30.0, 30.0)[0])
    assert timeline.arrival_rps(20.0, 30.0) == 3.0
    timeline.add(sample(40.0, offsets(990, 50), offsets(30, 50), log_start=offsets(930, 0)))
    timeline.add(
        sample(
            50.0, offsets(990, 50), offsets(990, 50), log_start=offsets(930, 0),
            commits=(Commit(2, 49.0, offsets(990, 50)),),
        )
    )  # fmt: skip
    assert timeline.throughput_rps(40.0, 50.0) == 6.0


@pytest.mark.parametrize(
    ("start_s", "end_s", "clip", "expected"),
    [
        (900.0, 1060.0, False, "the span is 900 to 1060"),
        (1060.0, 1300.0, False, "the span is 1060 to 1300"),
        (900.0, 1060.0, True, 100.0),
        (990.0, 1060.0, False, 100.0),
        (100.0, 200.0, True, "were not read within the span"),
    ],
)
def test_a_span_that_was_not_sampled_has_no_rate(
    start_s: float, end_s: float, clip: bool, expected: Any
) -> None:
    found = steady().arrival_rps(start_s, end_s, clip=clip)
    if isinstance(expected, str):
        assert isinstance(found, Unknown)
        assert expected in found.reason
    else:
        assert found == expected


def test_one_reading_is_no_rate_and_none_is_no_sample() -> None:
    timeline = Timeline()
    assert isinstance(timeline.last, Unknown)
    assert timeline.lag_records(0.0, 1.0).size == 0
    timeline.add(sample(0.0, offsets(5)))
    rate = timeline.arrival_rps(0.0, 1.0)
    assert isinstance(rate, Unknown)
    assert "needs two readings" in rate.reason
    timeline.add(sample(1.0, offsets(6)))
    assert isinstance(timeline.throughput_rps(0.0, 1.0), Unknown)
    assert np.isnan(timeline.lag_s(0.0, 1.0)).all()


def test_lag_without_input_is_endless_and_no_lag_is_none() -> None:
    timeline = Timeline()
    for at in range(3):
        timeline.add(sample(float(at), offsets(50), offsets(50 if at == 2 else 20)))
    assert list(timeline.lag_s(1.0, 2.0)) == [math.inf, 0.0]


def test_time_does_not_go_back_and_gaps_keep_their_reason() -> None:
    timeline = steady(seconds=5)
    with pytest.raises(Misuse, match="must grow"):
        timeline.add(sample(1005.0, offsets(5)))
    timeline.miss(1006.0, "the broker is away")
    assert [(gap.at_s, gap.reason) for gap in timeline.gaps] == [(1006.0, "the broker is away")]


def test_a_restart_shows_in_its_span_only() -> None:
    timeline = Timeline()
    for at, run in ((0, "a"), (1, UNREAD), (2, "a"), (3, UNREAD), (4, "b"), (5, "b")):
        timeline.add(sample(float(at), offsets(0), run_id=run))
    assert not timeline.restarted(0.0, 3.0)
    assert timeline.restarted(2.0, 4.0)
    assert not timeline.restarted(4.0, 5.0)


def test_the_load_of_executors_leaves_out_warm_up_and_losses() -> None:
    timeline = Timeline()
    gone = Unknown("lost")
    rows: list[tuple[ExecutorSample, ...] | Unknown] = [
        (ExecutorSample("0", "running", 0.1, 0.9, 800.0), ExecutorSample("1", "warming_up", 0.9, 0.9, 1.0)),
        UNREAD,
        (ExecutorSample("0", "lost", gone, gone, gone), ExecutorSample("1", "running", 0.2, gone, 700.0)),
    ]
    for at, executors in enumerate(rows):
        timeline.add(sample(float(at), offsets(0), executors=executors))
        timeline.add(sample(at + 0.5, offsets(0), executors=executors))  # not read again in between
    load = timeline.load(0.0, 3.0)
    np.testing.assert_array_equal(load.times_s, [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(load.cpu["0"], [0.1, np.nan, np.nan])
    np.testing.assert_array_equal(load.cpu["1"], [np.nan, np.nan, 0.2])
    np.testing.assert_array_equal(load.busy["1"], [np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(load.records_rps["1"], [np.nan, np.nan, 700.0])


def test_samples_are_kept_as_they_came_and_what_they_share_only_once() -> None:
    timeline, came, done = Timeline(), [], (0, 0)
    for at in range(100):
        if at % 5 == 0:
            done = (10 * at, 7 * at)
        ends = (10 * at, 10 * at, 5) if at >= 50 else (10 * at, 10 * at)
        start = dict.fromkeys(offsets(*ends), 0 if at < 70 else 300)
        commits = (Commit(at, at - 0.5, offsets(*done)),) if at % 5 == 0 else ()
        known = UNREAD if 20 <= at < 25 else offsets(*done)
        came.append(sample(float(at), offsets(*ends), known, log_start=start, commits=commits))
        timeline.add(came[-1])
    kept = [point.sample for point in timeline.points(0.0, 100.0)]
    assert kept == came
    assert len({id(one.log_start) for one in kept}) == 3
    assert len({id(one.committed) for one in kept}) == 20
    assert len({id(part) for one in kept for part in one.head}) == 2 + 3
    assert len({id(part) for one in kept[25:] for commit in one.commits for part in commit.ends}) == 2


def test_old_samples_are_forgotten() -> None:
    timeline = Timeline(kept_s=60.0)
    for at in range(1000):
        timeline.add(
            sample(float(at), offsets(at), offsets(at), commits=(Commit(at, at - 0.5, offsets(at)),))
        )
    assert len(timeline) <= 70
    assert len(timeline.commits(0.0, 1000.0)) <= 70
    assert timeline.throughput_rps(950.0, 999.0) == 1.0


def test_so_are_the_gaps_of_a_job_that_can_never_be_read() -> None:
    timeline = Timeline(kept_s=60.0)
    for at in range(1000):
        timeline.miss(float(at), "the topic is not there")
    assert 60 <= len(timeline.gaps) <= 70
    assert timeline.gaps[-1].at_s == 999.0
