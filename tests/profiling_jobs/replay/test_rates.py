"""A rate becomes whole records: none is lost to rounding, whoever asks how often."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import codec
from models.quantities import Misuse
from profiling_jobs.replay.replay_plan import MICROS, Schedule, micros

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


@given(schedules)
def test_it_survives_being_written_down(schedule: Schedule) -> None:
    assert codec.from_json(Schedule, codec.to_json(schedule)) == schedule


def test_the_commanded_mean_is_what_a_probe_compares_with() -> None:
    schedule = Schedule.steps([(10, 100), (10, 300)])
    assert schedule.mean_rps(0, micros(20)) == 200
    assert schedule.mean_rps(micros(10), micros(12)) == 300


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Schedule.constant(-1, duration_s=1), "rate"),
        (lambda: Schedule.constant(math.nan, duration_s=1), "rate"),
        (lambda: Schedule.constant(1e12, duration_s=1), "rate"),
        (lambda: Schedule.constant(1, duration_s=0), "duration"),
        (lambda: Schedule.constant(1, duration_s=math.inf), "duration"),
        (lambda: Schedule.constant(1, duration_s=1e9), "duration"),
        (lambda: Schedule.steps([]), "steps"),
        (lambda: Schedule(((0, 1), (0, 2)), 10), "stretches"),
        (lambda: Schedule(((5, 1),), 10), "stretches"),
        (lambda: Schedule.constant(1, duration_s=1).changed(-1, at_us=0), "rate_rps"),
        (lambda: Schedule.constant(1, duration_s=1).changed(1, at_us=MICROS), "at_us"),
        (lambda: Schedule.constant(1, duration_s=1).mean_rps(5, 5), "to_us"),
    ],
)
def test_what_no_source_can_follow_is_refused_by_name(make: object, names: str) -> None:
    with pytest.raises(Misuse, match=names):
        make()  # type: ignore[operator]
