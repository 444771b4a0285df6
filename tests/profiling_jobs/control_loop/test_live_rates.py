"""The rates of late on the forecast's grid: what nobody read is missing, and what is kept is bounded."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models import codec
from models.ports import Sample
from models.quantities import Misuse, Unknown
from profiling_jobs.control_loop.forecasting import MOST_CELLS, Rates
from profiling_jobs.telemetry.timeline import Timeline

pytestmark = pytest.mark.fast

UNREAD = Unknown("not read")


def sample(at_s: float, head: int) -> Sample:
    return Sample(
        at_s=at_s,
        head={("orders", 0): head},
        committed=UNREAD,
        committed_source="neither",
        log_start={("orders", 0): 0},
        lag_records=UNREAD,
        last_batch=UNREAD,
        last_commit_at_s=UNREAD,
        run_id=UNREAD,
        executors=UNREAD,
        latency_p50_ms=UNREAD,
        latency_p95_ms=UNREAD,
        latency_p99_ms=UNREAD,
    )


def timeline(from_s: float, to_s: float, *, rps: float = 10.0, every_s: float = 5.0) -> Timeline:
    found = Timeline()
    for at in np.arange(from_s, to_s + 1e-6, every_s).tolist():
        found.add(sample(at, int(rps * at)))
    return found


def test_a_cell_comes_when_it_is_over_and_stays_as_it_is() -> None:
    rates = Rates.begin(step_s=30.0, at_s=95.0)
    assert (rates.first, rates.end_s) == (3, 90.0)
    rates = rates.grown(timeline(60.0, 119.0), until_s=119.0)
    assert rates.values == ()
    rates = rates.grown(timeline(60.0, 180.0), until_s=180.0)
    assert rates.values == (10.0, 10.0, 10.0)
    again = rates.grown(timeline(60.0, 180.0, rps=99.0), until_s=180.0)
    assert again is rates


def test_what_nobody_read_is_missing() -> None:
    rates = Rates(30.0, 0, (10.0,)).grown(timeline(120.0, 180.0), until_s=180.0)
    assert [math.isnan(v) for v in rates.values] == [False, True, True, True, False, False]


def test_only_the_newest_day_is_kept() -> None:
    begin_s = 30.0 * 10_000
    rates = Rates(30.0, 0, (1.0,)).grown(timeline(begin_s - 60.0, begin_s), until_s=begin_s)
    assert len(rates.values) == MOST_CELLS
    assert rates.end_s == begin_s
    assert rates.values[-1] == 10.0


@pytest.mark.parametrize("ahead_s", [600.0, 8 * 3600.0, 400 * 86_400.0])
def test_a_clock_that_was_ahead_for_a_moment_stops_nothing_once_it_is_right(ahead_s: float) -> None:
    before = Rates(30.0, 0, (10.0,) * 6)
    astray = before.grown(timeline(180.0, 180.0 + ahead_s, every_s=ahead_s / 40.0), until_s=180.0 + ahead_s)
    assert astray.end_s == 180.0 + ahead_s
    right = astray.grown(timeline(180.0, 240.0), until_s=240.0)
    again = right.grown(timeline(180.0, 300.0), until_s=300.0)
    assert again.end_s == 300.0
    assert again.values[-2:] == (10.0, 10.0)


def test_a_clock_that_is_set_back_by_a_cell_takes_nothing_away() -> None:
    rates = Rates(30.0, 0, (10.0,) * 6)
    assert rates.grown(timeline(0.0, 125.0), until_s=125.0) is rates


def test_since_a_cell_that_is_not_kept_there_is_nothing_but_gaps() -> None:
    rates = Rates(30.0, 10, (1.0, 2.0, 3.0))
    assert rates.since(12).tolist() == [3.0]
    assert rates.since(13).size == 0
    assert rates.since(99).size == 0
    early = rates.since(8)
    assert np.isnan(early[:2]).all()
    assert early[2:].tolist() == [1.0, 2.0, 3.0]
    assert np.isnan(Rates(30.0, 10).since(8)).all()


def test_it_comes_back_from_json() -> None:
    rates = Rates(30.0, 10, (1.0, math.nan, 3.0))
    again = codec.from_json(Rates, codec.loads(codec.dumps("rates", codec.to_json(rates))))
    assert str(again) == str(rates)
    assert math.isnan(again.values[1])


def test_a_step_of_nothing_is_refused() -> None:
    with pytest.raises(Misuse, match="step_s"):
        Rates.begin(step_s=0.0, at_s=1.0)
