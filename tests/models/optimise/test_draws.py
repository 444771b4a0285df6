"""The draws have the quantiles of their interval, and the same luck at every size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.optimise.judging import capacity_draws, normal_draws
from models.quantities import Interval, Misuse

pytestmark = pytest.mark.fast


@settings(max_examples=25, deadline=None)
@given(st.tuples(*[st.floats(1.0, 100.0)] * 3).map(sorted), st.sampled_from([0.5, 0.9, 0.99]))
def test_the_draws_have_the_quantiles_of_the_interval(ends, confidence) -> None:
    drawn = capacity_draws([Interval(*ends, confidence)], normal_draws(2001, seed=5))[0]
    levels = [(1 - confidence) / 2, 0.5, (1 + confidence) / 2]
    np.testing.assert_allclose(np.quantile(drawn, levels), ends, rtol=0.05)
    assert drawn.min() > 0


def test_every_size_is_off_in_the_same_direction() -> None:
    sizes = [Interval(s * 0.9, s, s * 1.2, 0.9) for s in (1.0, 2.0, 8.0)]
    drawn = capacity_draws(sizes, normal_draws(200, seed=1))
    np.testing.assert_allclose(drawn[1], 2 * drawn[0])
    assert (np.diff(drawn, axis=0) > 0).all()


@pytest.mark.parametrize(
    ("interval", "lowest", "highest"),
    [
        (Interval(5.0, 5.0, 5.0, 0.9), 5.0, 5.0),
        (Interval(0.0, 5.0, 5.0, 0.9), 0.0, 5.0),  # a low end of zero: the lower half may be nothing
        (Interval(0.0, 0.0, 0.0, 0.9), 0.0, 0.0),
        (Interval(4.0, 5.0, 5.0, 1.0), 4.0, 5.0),  # certain: hardly ever beyond its ends
    ],
)
def test_intervals_at_their_limits(interval, lowest, highest) -> None:
    drawn = capacity_draws([interval], normal_draws(100, seed=0))
    assert np.isfinite(drawn).all()
    assert drawn.min() >= lowest
    assert drawn.max() <= highest


def test_draws_are_fixed_by_the_seed_alone() -> None:
    np.testing.assert_array_equal(normal_draws(50, seed=3), normal_draws(50, seed=3))
    assert (normal_draws(50, seed=3) != normal_draws(50, seed=4)).any()
    np.testing.assert_array_equal(np.sort(normal_draws(50, seed=3)), np.sort(normal_draws(50, seed=4)))


@pytest.mark.parametrize(("count", "seed", "name"), [(0, 0, "count"), (1.5, 0, "count"), (5, -1, "seed")])
def test_a_wrong_question_names_its_argument(count, seed, name) -> None:
    with pytest.raises(Misuse, match=f"^{name}: "):
        normal_draws(count, seed=seed)
