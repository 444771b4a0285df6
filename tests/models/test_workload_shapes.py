"""On twelve shapes the forecast loses little to the better naive one, and its bands hold.

The same generators and the same judgement as the benchmark `workload`, which runs 20 seeds.
"""

from statistics import mean, median

import pytest

from bench._truths_workload import SHAPES, judge

SEEDS = range(5)


@pytest.fixture(scope="module")
def judged():
    return {s: [judge(s, seed) for seed in SEEDS] for s in SHAPES}


def test_little_is_lost_to_the_better_naive_forecast(judged):
    """Allowed is a median loss of 5 % of its error or 0.5 % of the mean rate."""
    losses = {shape: median(j.loss for j in results) for shape, results in judged.items()}
    assert sum(loss > 1.0 for loss in losses.values()) <= 1, losses  # five seeds scatter, twenty do not
    assert all(loss < 6.0 for loss in losses.values()), losses


def test_much_is_gained_where_there_is_something_to_learn(judged):
    for shape in ("flat", "daily", "two periods", "gappy"):
        better = median(min(j.last, j.seasonal) for j in judged[shape])
        assert median(j.error for j in judged[shape]) < 0.85 * better, shape


def test_the_bands_and_the_peak_hold(judged):
    every = [j for results in judged.values() for j in results]
    assert 0.84 <= mean(j.band_covered for j in every) <= 0.97
    assert 0.80 <= mean(j.peaks_covered for j in every) <= 0.98
    assert mean(j.peaks_below_high for j in every) >= 0.87
