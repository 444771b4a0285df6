"""A rate becomes whole records, and slices of them leave when they are due, also after a pause."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiling_jobs.replay.replay_plan import MICROS, PATIENCE_US, SLICE_US, Pace, Schedule, micros

pytestmark = pytest.mark.fast

rates = st.floats(0, 1e6, allow_nan=False)
schedules = st.lists(st.tuples(st.floats(1e-6, 1e4), rates), min_size=1, max_size=20).map(Schedule.steps)


def test_a_constant_rate_is_that_many_records_every_second() -> None:
    schedule = Schedule.constant(333.333, duration_s=3600)
    assert schedule.due(3600 * MICROS) == 333_333 * 3600 // 1000
    assert [schedule.due(second * MICROS) for second in (0, 1, 2, 3)] == [0, 333, 666, 999]
    assert schedule.due(-5) == 0
    assert schedule.due(10**15) == schedule.due(schedule.end_us), "after the end nothing more is due"


def test_steps_add_up() -> None:
    assert Schedule.steps([(10, 100), (5, 0), (10, 200)]).due(20 * MICROS) == 2000
    steps = Schedule.steps([(1, 1), (1, 2), (1, 3)])
    assert [steps.due(second * MICROS) for second in range(5)] == [0, 1, 3, 6, 6]


@given(schedules, st.lists(st.integers(0, 10**11), max_size=30))
def test_however_it_is_cut_the_pieces_add_up_to_the_exact_integral(
    schedule: Schedule, cuts: list[int]
) -> None:
    moments = sorted({0, *(cut % (schedule.end_us + 1) for cut in cuts), schedule.end_us})
    pieces = [schedule.due(b) - schedule.due(a) for a, b in pairwise(moments)]
    assert all(piece >= 0 for piece in pieces)
    ends = [start for start, _ in schedule.stretches[1:]] + [schedule.end_us]
    exact = sum(
        Fraction(rate, 1000) * Fraction(end - start, MICROS)
        for (start, rate), end in zip(schedule.stretches, ends, strict=True)
    )
    assert sum(pieces) == math.floor(exact)


@given(schedules, st.floats(0, 1e6), st.integers(0, 10**11), st.integers(0, 10**11))
def test_a_change_leaves_the_past_alone(schedule: Schedule, rate: float, at: int, ask: int) -> None:
    at_us = at % schedule.end_us
    changed = schedule.changed(rate, at_us=at_us)
    before = ask % (at_us + 1)
    assert changed.due(before) == schedule.due(before)
    assert changed.stretches[-1][1] / 1000 == pytest.approx(rate, abs=5.01e-4)
    assert changed.end_us == schedule.end_us
    ended = schedule.ended(at_us=at_us)
    assert ended.due(10**15) == schedule.due(at_us)


def test_the_commanded_mean_is_what_a_probe_compares_with() -> None:
    schedule = Schedule.steps([(10, 100), (10, 300)])
    assert schedule.mean_rps(0, micros(20)) == 200
    assert schedule.mean_rps(micros(10), micros(12)) == 300


# When slices leave


def test_on_time_slices_leave_when_they_are_over_and_tasks_take_turns() -> None:
    first, second = Pace(task=0, tasks=2), Pace(task=1, tasks=2)
    assert [first.falls_due_us(number) for number in range(3)] == [20_000, 40_000, 60_000]
    assert [second.falls_due_us(number) for number in range(3)] == [30_000, 50_000, 70_000]
    assert first.leaves_us(1, last_us=20_000) == 40_000


@settings(max_examples=20)
@given(st.integers(0, 1_900_000))
def test_after_a_pause_nothing_is_lost_and_no_100_ms_are_20_percent_too_fast(pause_us: int) -> None:
    pace, left, last = Pace(), [], 0
    for number in range(1000):
        last = pace.leaves_us(number, last_us=last)
        if number == 100:
            last += pause_us
        assert pace.resumes(number, now_us=last) == number
        left.append(last)
    assert left[-1] == pace.falls_due_us(999), "caught up"
    for start in range(left[101], left[101] + 1_500_000, 50_000):
        assert sum(start <= at < start + 100_000 for at in left) <= 6, "five are due in 100 ms"


@given(st.integers(0, 10_000), st.integers(0, 10**9))
def test_what_is_too_late_is_given_up_and_the_present_goes_on(number: int, late_us: int) -> None:
    pace = Pace(tasks=3, task=1)
    now_us = pace.falls_due_us(number) + late_us
    goes_on = pace.resumes(number, now_us=now_us)
    assert goes_on >= number
    if late_us > max(PATIENCE_US, 10_000_000):
        assert now_us - pace.falls_due_us(goes_on) < SLICE_US
    if late_us <= PATIENCE_US:
        assert goes_on == number


def test_at_first_it_has_more_time() -> None:
    pace = Pace()
    assert pace.resumes(0, now_us=9_900_000) == 0
    assert pace.resumes(0, now_us=10_100_000) > 400
    assert pace.resumes(1000, now_us=pace.falls_due_us(1000) + 2_100_000) > 1000
