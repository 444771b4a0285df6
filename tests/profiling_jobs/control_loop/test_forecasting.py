"""Rates of late on the grid of a forecast, and when a champion that missed is no longer believed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from samples import offsets, sample

from models import codec
from models.quantities import Interval
from models.workload import Forecast
from models.workload.fitting import naive_forecaster
from profiling_jobs.control_loop.forecasting import (
    ASK_AGAIN_S,
    MISSES,
    MOST_CELLS,
    Rates,
    Scoring,
    periods_of,
    stand_in,
)
from profiling_jobs.telemetry.timeline import Timeline

pytestmark = pytest.mark.fast


def timeline(from_s: float, to_s: float, *, rps: float = 10.0, every_s: float = 5.0) -> Timeline:
    found = Timeline()
    for at in np.arange(from_s, to_s + 1e-6, every_s).tolist():
        found.add(sample(at, offsets(int(rps * at))))
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


# Scores of forecasts


STEP_S = 60.0


STEPS = 5


def forecast(rate: float, *, width: float = 0.05) -> Forecast:
    mid = np.full(STEPS, rate)
    low, high = mid * (1.0 - width), mid * (1.0 + width)
    peak = Interval(rate * (1.0 - width), rate, rate * (1.0 + width), 0.9)
    return Forecast(
        step_s=STEP_S,
        mid=mid,
        low=low,
        high=high,
        paths=mid[None],
        peak=peak,
        confidence=0.9,
        model="test",
        why="",
        backtest={},
    )


def ticks(
    count: int, *, forecasts: float, comes: float, by: str = "champion", begin: Scoring | None = None
) -> list[Scoring]:
    """One forecast per minute, and what came instead."""
    scoring, found = begin or Scoring(version=1), []
    for k in range(1, count + 1):
        rates = Rates(STEP_S, 0, (comes,) * k)
        scoring, _ = scoring.settled(rates)
        scoring = scoring.judged(k * STEP_S).made(forecast(forecasts), by=by, from_s=rates.end_s)
        found.append(scoring)
    return found


def test_a_good_forecast_is_never_relieved() -> None:
    last = ticks(100, forecasts=1_000.0, comes=1_010.0)[-1]
    assert (last.misses, last.instead) == (0, "")


def test_misses_count_once_per_horizon() -> None:
    states = ticks(40, forecasts=1_000.0, comes=2_000.0)
    relieved = next(k for k, s in enumerate(states, 1) if s.instead)
    # The first is over after six minutes; each further one counts five minutes later.
    assert relieved == 1 + STEPS * MISSES
    assert states[-1].instead == f"the champion missed {MISSES} horizons in a row"


def test_one_hit_ends_a_row_of_misses() -> None:
    nearly = Scoring(version=1, misses=MISSES - 1)
    assert ticks(12, forecasts=1_000.0, comes=1_010.0, begin=nearly)[-1].misses == 0
    assert ticks(12, forecasts=1_000.0, comes=2_000.0, begin=nearly)[-1].instead


def test_what_lies_off_by_less_than_anybody_would_notice_is_no_miss() -> None:
    states = ticks(40, forecasts=1_000.0, comes=1_000.0)
    tight = Scoring(version=1).made(forecast(1_000.0, width=0.0001), by="champion", from_s=0.0)
    _, (scored,) = tight.settled(Rates(STEP_S, -3, (1_010.0,) * 8))
    assert scored.score.missed
    assert not scored.missed
    assert states[-1].misses == 0


def test_the_stand_in_is_not_counted_against_the_champion() -> None:
    assert ticks(40, forecasts=1_000.0, comes=2_000.0, by="naive")[-1].misses == 0


def test_a_new_champion_begins_anew_and_a_refused_refit_is_asked_for_again() -> None:
    relieved = ticks(40, forecasts=1_000.0, comes=2_000.0)[-1]
    since_s = relieved.since_s
    assert relieved.judged(since_s + ASK_AGAIN_S - 1.0).since_s == since_s
    assert relieved.judged(since_s + ASK_AGAIN_S).since_s == since_s + ASK_AGAIN_S
    assert relieved.under(1) is relieved
    assert relieved.under(2) == Scoring(version=2)


def test_a_routine_refit_ends_no_row_of_misses() -> None:
    states = ticks(2 + STEPS * (MISSES - 1), forecasts=1_000.0, comes=2_000.0)
    refitted = states[-1].under(2)
    assert (refitted.version, refitted.misses, refitted.issued) == (2, MISSES - 1, states[-1].issued)
    rates = Rates(STEP_S, 0, (2_000.0,) * (1 + STEPS * MISSES))
    relieved = refitted.settled(rates)[0].judged(rates.end_s)
    assert relieved.instead  # by a forecast that was made before the refit
    hit = Rates(STEP_S, 0, (1_000.0,) * (1 + STEPS * MISSES))
    assert refitted.settled(hit)[0].misses == 0


def test_what_nobody_observed_is_not_scored() -> None:
    scoring = Scoring(version=1).made(forecast(1_000.0), by="champion", from_s=0.0)
    after, scored = scoring.settled(Rates(STEP_S, 0, (math.nan,) * STEPS))
    assert scored == ()
    assert (after.issued, after.misses) == ((), 0)


def test_forecasts_of_a_clock_that_was_ahead_keep_no_others_from_being_scored() -> None:
    year_s = 365 * 86_400.0
    astray = ticks(12, forecasts=1_000.0, comes=2_000.0)[-1]
    astray = astray.made(forecast(1_000.0), by="champion", from_s=year_s)
    astray, _ = replace(astray, counted_until_s=year_s, since_s=year_s).settled(Rates(STEP_S, 13, ()))
    after = ticks(40, forecasts=1_000.0, comes=2_000.0, begin=astray)[-1]
    assert after.instead
    waiting = replace(after, since_s=year_s)
    assert waiting.judged(60.0).since_s == 60.0


def test_it_is_bounded_and_comes_back_from_json() -> None:
    last = ticks(60, forecasts=1_000.0, comes=1_000.0)[-1]
    assert len(last.issued) <= STEPS + 1
    assert codec.from_json(Scoring, codec.loads(codec.dumps("scoring", codec.to_json(last)))) == last


def test_the_stand_in_knows_the_periods_of_the_champion() -> None:
    wave = 1_000.0 + 500.0 * np.sin(2.0 * np.pi * np.arange(300) / 24)
    champion = naive_forecaster(wave, step_s=STEP_S, steps=STEPS, periods=(24,))
    assert periods_of(champion) == (24,)
    found = stand_in(champion, Rates(STEP_S, 0, tuple(wave.tolist())))
    assert found.model == "seasonal naive 24"
    assert (found.step_s, found.steps) == (STEP_S, STEPS)
