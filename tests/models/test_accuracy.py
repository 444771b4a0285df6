"""Earlier forecasts are held against what came."""

import numpy as np
import pytest

from models import codec
from models.accuracy import Issued, coverage, pinball, score, wape
from models.quantities import Interval, Misuse, Unknown
from models.series import Grid, regular

pytestmark = pytest.mark.fast
NAN = float("nan")


def grid(values, start_s=0.0, step_s=10.0):
    return Grid(start_s=start_s, step_s=step_s, values=np.array(values, dtype=float))


def issued(mid, *, at=0.0, width=10.0, peak=None, step_s=10.0):
    mid = np.array(mid, dtype=float)
    top = mid.max()
    band = tuple(mid - width), tuple(mid + width)
    return Issued(at, step_s, tuple(mid), *band, peak or Interval(top - width, top, top + width, 0.9), 0.9)


def test_the_share_inside_the_band():
    assert coverage([1, 2, 3, 4], low=2, high=[9, 9, 3, 3]) == 0.5
    assert coverage([NAN, 2], low=2, high=2) == 1.0


def test_the_true_quantile_is_the_cheapest():
    values = np.random.default_rng(0).exponential(size=20_000)
    for level in (0.05, 0.5, 0.95):
        guesses = np.quantile(values, [max(0.0, level - 0.04), level, min(1.0, level + 0.04)])
        costs = [pinball(values, quantile=g, level=level) for g in guesses]
        assert min(costs) == costs[1]
    assert pinball([10.0], quantile=[6.0], level=0.9) == pytest.approx(3.6)
    assert pinball([6.0], quantile=[10.0], level=0.9) == pytest.approx(0.4)


def test_the_weighted_error():
    assert wape([100, 0, 300], forecast=[90, 10, 320]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "unknown",
    [
        coverage([], low=[], high=[]),
        coverage([NAN], low=0, high=1),
        pinball([NAN], quantile=0, level=0.5),
        wape([], forecast=[]),
        wape([0.0, 0.0], forecast=[1.0, 2.0]),
    ],
)
def test_what_cannot_be_judged_is_unknown(unknown):
    assert isinstance(unknown, Unknown)


@pytest.mark.parametrize(
    ("question", "named"),
    [
        (lambda: coverage([1.0], low=[NAN], high=[2.0]), "low"),
        (lambda: coverage([1.0, 2.0], low=[1.0], high=2.0), "low"),
        (lambda: pinball([1.0], quantile=[1.0], level=1.0), "level"),
        (lambda: pinball([1.0], quantile=[1.0], level=0.0), "level"),
        (lambda: pinball([float("inf")], quantile=[1.0], level=0.5), "actual"),
        (lambda: wape([1.0], forecast=["x"]), "forecast"),
        (lambda: score(issued([1.0]), made_at_s=NAN, actual=grid([1.0])), "made_at_s"),
        (lambda: codec.from_json(Issued, {"schema": 0}), "data.schema"),
    ],
)
def test_a_wrong_question_is_refused_by_name(question, named):
    with pytest.raises(Misuse) as caught:
        question()
    assert caught.value.argument == named


def test_a_forecast_is_scored_against_what_came():
    result = score(issued([100, 110, 120], at=20), made_at_s=20, actual=grid([90, 95, 100, 115, 140, 999]))
    assert result.steps == 3
    assert result.mae_rps == pytest.approx(25 / 3)
    assert result.naive_mae_rps == pytest.approx((5 + 20 + 45) / 3)
    assert result.wape == pytest.approx(25 / 355)
    assert result.coverage == pytest.approx(2 / 3)
    assert result.pinball_high_rps == pytest.approx((0.05 * 10 + 0.05 * 5 + 0.95 * 10) / 3)
    assert result.highest_rps == 140
    assert result.missed
    assert result.misses == ("the highest rate 140 rps is above 110–130 rps",)


def test_a_forecast_far_worse_than_the_last_value_missed():
    result = score(
        issued([200, 180], at=20, peak=Interval(0, 200, 300, 0.9)), made_at_s=20, actual=grid([100] * 4)
    )
    assert result.misses == ("off by 90 rps where the last value was off by 0 rps",)
    good = score(
        issued([101, 99], at=20, width=5),
        made_at_s=20,
        actual=regular([0, 10, 20, 30], [98, 97, 101, 99], step_s=10),
    )
    assert not good.missed


def test_before_half_of_the_horizon_was_seen_there_is_no_score():
    early = score(issued([1, 2, 3, 4], at=20), made_at_s=20, actual=grid([1, 1, 1]))
    assert isinstance(early, Unknown)
    assert "scored from 60 on" in early.reason
    gaps = score(issued([1, 2, 3, 4], at=20), made_at_s=20, actual=grid([1, 1, NAN, 2, NAN, NAN]))
    assert isinstance(gaps, Unknown)
    assert score(issued([1, 2, 3, 4], at=20), made_at_s=20, actual=grid([1, 1, NAN, 2, NAN, 3])).steps == 2


def test_nothing_known_before_leaves_the_comparison_unknown():
    result = score(issued([5, 5]), made_at_s=0, actual=grid([5, 5]))
    assert isinstance(result.naive_mae_rps, Unknown)
    assert not result.missed


def test_another_step_of_the_observations_is_averaged_by_overlap():
    fine = grid([10, 20, 30, 40, NAN, NAN, NAN, 80], step_s=5)
    result = score(issued([15, 35, 0, 80], at=0), made_at_s=0, actual=fine)
    assert result.steps == 3  # the third cell was not observed, half of the fourth was
    assert result.mae_rps == pytest.approx(0.0)
    shifted = score(issued([25], at=5), made_at_s=5, actual=fine)
    assert shifted.mae_rps == pytest.approx(0.0)


def test_a_forecast_is_kept_as_json():
    kept = issued([100, 110], at=7.5)
    assert codec.from_json(Issued, codec.loads(codec.dumps("data", codec.to_json(kept)))) == kept
    assert kept.over_at_s == 27.5
    assert Issued.of(kept, made_at_s=7.5) == kept
