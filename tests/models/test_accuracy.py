"""Score of a forecast against the observed rates."""

import numpy as np
import pytest

from models import codec
from models.quantities import Interval, Unknown
from models.series import Grid
from models.workload.forecaster import Issued, score

pytestmark = pytest.mark.fast
NAN = float("nan")


def grid(values, start_s=0.0, step_s=10.0):
    return Grid(start_s=start_s, step_s=step_s, values=np.array(values, dtype=float))


def issued(mid, *, at=0.0, width=10.0, peak=None, step_s=10.0):
    mid = np.array(mid, dtype=float)
    top = mid.max()
    band = tuple(mid - width), tuple(mid + width)
    return Issued(at, step_s, tuple(mid), *band, peak or Interval(top - width, top, top + width, 0.9), 0.9)


def test_a_forecast_is_scored_against_what_came():
    result = score(issued([100, 110, 120], at=20), made_at_s=20, actual=grid([90, 95, 100, 115, 140, 999]))
    assert result.steps == 3
    assert result.mae_rps == pytest.approx(25 / 3)
    assert result.naive_mae_rps == pytest.approx((5 + 20 + 45) / 3)
    assert result.coverage == pytest.approx(2 / 3)
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
        actual=grid([98, 97, 101, 99]),
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
