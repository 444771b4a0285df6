"""A gap is missing, a zero is a zero, and a period is only claimed where there is one."""

import numpy as np
import pytest

from models.series import SIGNIFICANCE, block_means, periods, profile

NAN = float("nan")


def same(left, right):
    np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


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
