"""Does the search find generated capacities at a fifth of the grid's cost? Long form: bench/probing.py."""

from __future__ import annotations

import numpy as np
import pytest

from bench._truths_probing import FAMILIES, capacities, search

SEEDS = 10


def over_seeds(family, **how):
    return [search(family, seed, **how) for seed in range(1000, 1000 + SEEDS)]


def mean_error(outcomes):
    return float(np.mean([np.mean(list(o.errors.values())) for o in outcomes]))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_within_three_percent_at_a_fifth_of_the_grid(family):
    outcomes = over_seeds(family)
    assert mean_error(outcomes) <= 0.03
    assert all(o.unknown == 0 for o in outcomes)
    assert np.mean([o.cost_share for o in outcomes]) <= 0.2


def test_a_staircase_is_found_better_when_its_partitions_are_known():
    assert mean_error(over_seeds("staircase", tell_tasks=True)) <= mean_error(over_seeds("staircase"))


def test_more_noise_means_more_error_and_wider_intervals_not_nonsense():
    quiet, loud = over_seeds("usl", noise=0.01), over_seeds("usl", noise=0.06)
    assert mean_error(quiet) < 0.015 < mean_error(loud) < 0.06


def test_one_probe_in_ten_lies_and_none_of_its_values_is_used():
    outcomes = over_seeds("power", lying=0.1)
    assert any(not r.valid for o in outcomes for r in o.state.results)
    assert mean_error(outcomes) <= 0.03
    for outcome in outcomes:
        for result in outcome.state.results:
            if result.valid:
                truth = outcome.job.truth[result.probe.scale_out]
                assert result.sustained or result.value_rps == pytest.approx(truth, rel=0.15)


def test_too_small_a_budget_leaves_wide_or_unknown_never_wrong():
    outcomes = over_seeds("power", budget_share=0.05)
    assert all(o.cost_share <= 0.05 for o in outcomes)
    known = sum(len(o.errors) for o in outcomes)
    assert sum(o.covered for o in outcomes) >= 0.8 * known
    assert any(o.unknown for o in outcomes) or known == 8 * SEEDS


def test_intervals_hold_the_truth():
    outcomes = [o for family in ("log", "usl", "staircase") for o in over_seeds(family)]
    share = sum(o.covered for o in outcomes) / sum(len(o.errors) for o in outcomes)
    # 240 intervals of 90 %, those of one search correlated.
    assert 0.82 <= share <= 0.99


def test_the_generated_truth_is_what_it_says():
    assert all(min(capacities(f, 3).values()) > 0 for f in FAMILIES)
    assert capacities("usl", 3) != capacities("usl", 4)
