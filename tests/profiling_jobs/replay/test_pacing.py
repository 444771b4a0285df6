"""Slices leave when they are due; a late source catches up without a burst, and gives up what is too late."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.quantities import Misuse
from profiling_jobs.replay.replay_plan import Pace

pytestmark = pytest.mark.fast


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
    if late_us > max(pace.patience_us, 10_000_000):
        assert pace.late_us(goes_on, now_us=now_us) < pace.slice_us
    if late_us <= pace.patience_us:
        assert goes_on == number


def test_at_first_it_has_more_time() -> None:
    pace = Pace()
    assert pace.resumes(0, now_us=9_900_000) == 0
    assert pace.resumes(0, now_us=10_100_000) > 400
    assert pace.resumes(1000, now_us=pace.falls_due_us(1000) + 2_100_000) > 1000


@pytest.mark.parametrize(
    "given_", [{"task": 2, "tasks": 2}, {"slice_us": 100_001}, {"slice_us": 0}, {"catch_up": 1.0}]
)
def test_no_such_pace(given_: dict[str, int]) -> None:
    with pytest.raises(Misuse):
        Pace(**given_)  # type: ignore[arg-type]
