"""A gap is missing, a zero is a zero, and a period is only claimed where there is one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.quantities import Misuse
from models.series import SIGNIFICANCE, block_means, periods, profile, regular

NAN = float("nan")


def same(left, right):
    np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


@pytest.mark.fast
def test_a_gap_is_missing_and_a_zero_is_a_zero():
    grid = regular([0, 10, 20, 50], [5.0, 0.0, 7.0, 9.0], step_s=10)
    same(grid.values, [5.0, 0.0, 7.0, NAN, NAN, 9.0])
    assert (grid.start_s, grid.step_s, grid.missing) == (0.0, 10.0, 2)
    assert not grid.values.flags.writeable


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("mean", [3.0, NAN, 7.0]),
        ("sum", [6.0, NAN, 7.0]),
        ("max", [4.0, NAN, 7.0]),
        ("last", [2.0, NAN, 7.0]),
    ],
)
@pytest.mark.fast
def test_several_events_in_a_cell_are_combined_as_asked(aggregate, expected):
    same(regular([0, 4, 20], [4.0, 2.0, 7.0], step_s=10, aggregate=aggregate).values, expected)


@pytest.mark.fast
def test_the_grid_can_begin_before_and_end_after_the_events():
    same(regular([10, 30], [1.0, 3.0], step_s=10, start_s=0, end_s=50).values, [NAN, 1.0, NAN, 3.0, NAN])
    same(regular([10, 30], [1.0, 3.0], step_s=10, start_s=20, end_s=40).values, [NAN, 3.0])


@pytest.mark.fast
def test_a_missing_value_stays_missing():
    same(regular([0, 10], [NAN, 1.0], step_s=10).values, [NAN, 1.0])


@given(
    cells=st.lists(st.integers(0, 300), min_size=1, max_size=30, unique=True).map(sorted),
    step=st.sampled_from([0.1, 1 / 3, 0.7, 1.0, 30.0]),
    start=st.sampled_from([0.0, 0.3, 1.8e9]),
)
@pytest.mark.fast
def test_an_event_at_the_start_of_a_cell_belongs_to_it(cells, step, start):
    times = [start + k * step for k in cells]
    grid = regular(times, np.ones(len(cells)), step_s=step)
    same(np.flatnonzero(np.isfinite(grid.values)), np.array(cells) - cells[0])


@pytest.mark.parametrize(
    ("arguments", "named", "said"),
    [
        ({"times_s": [0, 0], "values": [1, 1]}, "times_s", "repeated"),
        ({"times_s": [0, 2, 1], "values": [1, 1, 1]}, "times_s", "earlier"),
        ({"times_s": [], "values": []}, "times_s", "non-empty"),
        ({"times_s": [NAN], "values": [1]}, "times_s", "NaN"),
        ({"times_s": [0, 1], "values": [1]}, "values", "as many"),
        ({"times_s": [0, 1], "values": [1, "x"]}, "values", "numbers"),
        ({"times_s": [0], "values": [1], "step_s": 0}, "step_s", "> 0"),
        ({"times_s": [0], "values": [1], "step_s": NAN}, "step_s", "finite"),
        ({"times_s": [0, 1e12], "values": [1, 1]}, "step_s", "seconds"),
        ({"times_s": [0], "values": [1], "aggregate": "median"}, "aggregate", "median"),
        ({"times_s": [0], "values": [1], "end_s": -5}, "end_s", "no cell"),
        ({"times_s": [0], "values": [1], "start_s": 9}, "start_s", "no cell"),
    ],
)
@pytest.mark.fast
def test_what_is_no_series_is_refused_by_name(arguments, named, said):
    with pytest.raises(Misuse, match=said) as caught:
        regular(**({"step_s": 1.0} | arguments))
    assert caught.value.argument == named


@pytest.mark.fast
def test_block_means_end_with_the_newest_value_and_keep_gaps():
    same(block_means([9.0, 1.0, 3.0, NAN, 5.0, NAN, NAN], size=2), [2.0, 5.0, NAN])
    same(block_means([1.0], size=2), [])


@pytest.mark.fast
def test_the_profile_is_the_mean_at_each_phase():
    same(profile(np.array([1.0, 5.0, 3.0, NAN, 5.0]), period=2), [3.0, 5.0])


def noise(seed, n):
    return np.random.default_rng(seed).normal(size=n)


def wandering(seed, n, memory):
    out, level = np.empty(n), 0.0
    for k, e in enumerate(noise(seed, n)):
        out[k] = level = memory * level + e
    return out


T = np.arange(1_000)
PERIODIC = {
    "a sine in noise of its own size": (lambda s: np.sin(2 * np.pi * T / 100) + 0.7 * noise(s, 1_000), [100]),
    "a clean sine": (lambda s: np.sin(2 * np.pi * T / 100), [100]),
    "a sawtooth": (lambda s: T % 60 / 60 + 0.1 * noise(s, 1_000), [60]),
    "a spike every minute": (lambda s: 5.0 * (T % 60 == 3) + 0.3 * noise(s, 1_000), [60]),
    "two spikes a period, not evenly": (
        lambda s: 5.0 * (T % 60 == 3) + 5.0 * (T % 60 == 20) + 0.3 * noise(s, 1_000),
        [60],
    ),
    "office hours": (lambda s: np.maximum(0.0, np.sin(2 * np.pi * T / 100)), [100]),
    "two periods": (
        lambda s: np.sin(2 * np.pi * T / 240) + 0.5 * np.sin(2 * np.pi * T / 50) + 0.3 * noise(s, 1_000),
        [50, 240],
    ),
    "days and a quiet weekend": (
        lambda s: np.sin(2 * np.pi * T / 24) * (1 + 0.7 * (T % 168 < 120)) + 0.2 * noise(s, 1_000),
        [24, 168],
    ),
    "on a growing level, a third missing": (
        lambda s: np.where(
            np.random.default_rng(s).random(1_000) < 0.3,
            NAN,
            5 * np.sin(2 * np.pi * T / 100) + 0.1 * T + noise(s, 1_000),
        ),
        [100],
    ),
    "only two and a half cycles": (lambda s: np.sin(2 * np.pi * T / 400) + 0.1 * noise(s, 1_000), [400]),
}


@pytest.mark.parametrize("shape", PERIODIC)
def test_periods_are_found(shape):
    make, expected = PERIODIC[shape]
    right = 0
    for seed in range(4):
        found = periods(make(seed))
        right += len(found) == len(expected) and np.allclose(found, expected, rtol=0.02)
    assert right >= 3


PERIODLESS = {
    "white noise": noise,
    "memory 0.5": lambda s, n: wandering(s, n, 0.5),
    "memory 0.9": lambda s, n: wandering(s, n, 0.9),
    "random walk": lambda s, n: wandering(s, n, 1.0),
    "growing": lambda s, n: 0.1 * np.arange(n) + noise(s, n),
    "rare spikes": lambda s, n: noise(s, n) + 50 * (np.random.default_rng(s).random(n) < 0.01),
}


@pytest.mark.parametrize("shape", PERIODLESS)
def test_no_period_is_claimed_more_often_than_stated(shape):
    series = 60
    claimed = sum(bool(periods(PERIODLESS[shape](1_000 + seed, 240))) for seed in range(series))
    # 9 or more of 60 at a true rate of 0.05: one chance in 500.
    assert SIGNIFICANCE == 0.05
    assert claimed <= 8


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [0.0] * 500, [7.3] * 500, [NAN] * 500, list(range(500)), [NAN] * 400 + [1.0, 2.0] * 5],
)
@pytest.mark.fast
def test_nothing_repeats_in_what_says_nothing(values):
    assert periods(values) == ()


def test_the_answer_is_the_same_every_time_and_at_every_scale():
    series = np.sin(2 * np.pi * T / 100) + noise(3, 1_000)
    assert periods(series) == periods(series) == periods(1e6 + 1e4 * series)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"values": [[1.0, 2.0]]}, "values"),
        ({"values": [float("inf")]}, "values"),
        ({"values": [1.0], "significance": 0.0}, "significance"),
        ({"values": [1.0], "most": -1}, "most"),
    ],
)
@pytest.mark.fast
def test_a_wrong_question_about_periods_is_refused_by_name(arguments, named):
    with pytest.raises(Misuse) as caught:
        periods(**arguments)
    assert caught.value.argument == named
