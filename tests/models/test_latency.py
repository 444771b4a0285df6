"""How late will records be, and is that normal?"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench._truths_latency import (
    SCENARIOS,
    SPARSE,
    KnownCapacity,
    Truth,
    profile,
    rates,
    rule_of_thumb,
    sparse_profile,
    wrong_on_new_points,
)
from models.capacity import CapacityModel
from models.latency import FEWEST_POINTS, LatencyModel
from models.quantities import Interval, Measurement, Unknown

TRUTH = Truth("linear")
CAPACITY = KnownCapacity(TRUTH)


class Straight:
    """A stand-in capacity: 1 000 records/s an executor, exactly known up to ten of them."""

    def predict(self, scale_out):
        if scale_out > 10:
            return Unknown("measured at 1…10 only: probe more executors")
        return Interval(950.0 * scale_out, 1_000.0 * scale_out, 1_050.0 * scale_out, 0.9)


def measured(scale_out, rate, latency_ms):
    return Measurement(scale_out, rate, rate, True, latency_ms=latency_ms)


@pytest.fixture(scope="module")
def model():
    return LatencyModel.fit(profile(TRUTH, noise=0.03, seed=1), CAPACITY)


class TestWhatItSays:
    def test_latency_is_predicted_between_and_beyond_the_measured_scale_outs(self, model):
        for scale_out in (3, 10, 22):
            for u in (0.2, 0.5, 0.8):
                rate = u * TRUTH.capacity_rps(scale_out)
                answer = model.predict(scale_out, rate)
                assert answer.mid == pytest.approx(TRUTH.latency_ms(scale_out, rate), rel=0.06)
                assert model.is_normal(scale_out, rate) is True

    def test_saturation_is_not_normal(self, model):
        for scale_out in (1, 5, 9, 24):
            rate = 1.03 * TRUTH.capacity_rps(scale_out)
            assert model.predict(scale_out, rate).mid > 2_000
            assert model.is_normal(scale_out, rate) is False

    def test_the_band_covers_nine_out_of_ten_new_measurements(self, model):
        rng = np.random.default_rng(5)
        inside = 0
        for _ in range(300):
            s, u = int(rng.integers(1, 25)), rng.uniform(0.05, 0.9)
            rate = u * TRUTH.capacity_rps(s)
            answer = model.predict(s, rate)
            inside += (
                answer.low
                <= TRUTH.latency_ms(s, rate) * math.exp(0.03 * rng.standard_normal())
                <= answer.high
            )
        assert inside >= 255

    def test_the_band_opens_where_the_capacity_may_be_exceeded(self, model):
        assert model.predict(8, 0.98 * TRUTH.capacity_rps(8)).high > 5_000

    def test_larger_jobs_wait_less_where_the_data_show_it(self):
        truth = Truth("linear", pooling=0.3)
        model = LatencyModel.fit(profile(truth, noise=0.03, seed=2), KnownCapacity(truth))
        assert model.slope == pytest.approx(-0.3, abs=0.05)
        assert model.predict(2, 18_000).mid > 1.5 * model.predict(20, 180_000).mid

    def test_without_such_an_effect_none_is_claimed(self, model):
        assert model.slope == 0.0


class TestWhatNobodyMeasured:
    @pytest.fixture
    def only_healthy(self):
        return LatencyModel.fit([measured(4, 400.0 * k, 1_000.0 + k) for k in range(1, 7)], Straight())

    def test_overload_is_never_normal(self, only_healthy):
        assert only_healthy.is_normal(4, 4_300) is False
        assert isinstance(only_healthy.predict(4, 4_300), Unknown)

    def test_between_the_highest_measured_utilisation_and_overload_the_rule_speaks(self, only_healthy):
        answer = only_healthy.predict(4, 3_600)
        assert isinstance(answer, Unknown)
        assert "90%" in answer.reason
        assert "60%" in answer.reason
        assert only_healthy.is_normal(4, 3_600) is True
        assert only_healthy.is_normal(4, 3_900) is False

    @pytest.mark.parametrize("points", SPARSE, ids=[points[0] for points in SPARSE])
    def test_a_profile_that_shows_little_is_judged_no_worse_than_by_the_rule(self, points):
        truth = points[1]
        model = LatencyModel.fit(sparse_profile(points, noise=0.1, seed=2), KnownCapacity(truth))
        ours, rule, never = wrong_on_new_points(model, truth, seed=2)
        assert ours <= rule
        assert never == 0

    def test_where_every_point_was_overloaded_no_latency_is_normal(self):
        points = [Measurement(2, r, 2_000.0, False, latency_ms=9.0 * r) for r in (2_100.0, 3e3, 5e3, 9e3)]
        model = LatencyModel.fit(points, Straight())
        assert not any(model.clusters.is_normal(m.latency_ms) for m in points)
        assert [model.is_normal(2, r) for r in (1_500.0, 1_950.0, 2_150.0)] == [True, False, False]
        assert model.leave_one_out() == {"tp": 4, "fp": 0, "fn": 0, "tn": 0}

    def test_what_was_measured_is_normal_when_nothing_stands_out(self, only_healthy):
        assert only_healthy.is_normal(4, 2_400) is True
        assert only_healthy.is_normal(4, 0) is True

    def test_a_hiccup_at_low_load_makes_no_load_abnormal(self):
        points = [measured(s, 100.0 * k * s, 1_000.0) for s in (2, 4, 8) for k in range(1, 10)]
        hiccup = measured(4, 800.0, 45_000.0)
        model = LatencyModel.fit([*points, hiccup], Straight())
        assert not model.clusters.is_normal(45_000.0)
        assert all(
            model.is_normal(m.scale_out, m.offered_rps) is True for m in points if m.offered_rps < 800.0
        )

    def test_an_unknown_capacity_makes_an_unknown_latency(self, only_healthy):
        for answer in (only_healthy.predict(11, 100), only_healthy.is_normal(11, 100)):
            assert isinstance(answer, Unknown)
            assert "probe more executors" in answer.reason

    @pytest.mark.parametrize("count", range(FEWEST_POINTS))
    def test_too_few_measurements_are_unknown(self, count):
        model = LatencyModel.fit([measured(2, 100.0 * k, 900.0) for k in range(count)], Straight())
        answer = model.predict(2, 100)
        assert isinstance(answer, Unknown)
        assert str(count) in answer.reason
        assert [model.is_normal(2, rate) for rate in (100, 1_950)] == [True, False], "by the rule"
        assert sum(model.leave_one_out().values()) == count

    def test_measurements_without_a_latency_or_a_capacity_are_left_out(self):
        good = [measured(4, 400.0 * k, 1_000.0) for k in range(1, 7)]
        others = [Measurement(4, 100.0, 100.0, True), measured(50, 10.0, 1e6)]
        without, among = (LatencyModel.fit(points, Straight()) for points in (good, [*good, *others]))
        assert among.measurements == tuple(good)
        assert among.knots == without.knots


RATES = st.floats(0, 12_000).map(lambda rate: round(rate, 3))  # below, ratios of rates are no numbers
profiles = st.lists(
    st.builds(
        measured,
        st.integers(1, 10),
        RATES,
        st.floats(1, 1e5) | st.sampled_from([1_000.0, 60_000.0]),
    ),
    min_size=FEWEST_POINTS,
    max_size=25,
)


class TestConstitution:
    @settings(max_examples=60, deadline=None)
    @given(profiles, st.integers(1, 9), RATES, st.floats(0, 3_000))
    def test_latency_rises_with_the_rate_and_falls_with_the_scale_out(self, points, s, rate, more):
        model = LatencyModel.fit(points, Straight())
        here, busier, larger = (
            model.predict(s, rate),
            model.predict(s, rate + more),
            model.predict(s + 1, rate),
        )
        for quiet, loaded in ((here, busier), (larger, here)):
            if isinstance(loaded, Unknown):
                continue
            assert not isinstance(quiet, Unknown)
            for part in ("low", "mid", "high"):
                assert getattr(quiet, part) <= getattr(loaded, part) * (1 + 1e-9)

    @settings(max_examples=60, deadline=None)
    @given(profiles, st.integers(1, 9), RATES, st.floats(0, 3_000))
    def test_what_is_abnormal_stays_so_with_more_load_or_fewer_executors(self, points, s, rate, more):
        model = LatencyModel.fit(points, Straight())
        for quiet, loaded in (((s, rate), (s, rate + more)), ((s + 1, rate), (s, rate))):
            if model.is_normal(*quiet) is False:
                assert model.is_normal(*loaded) is False
            if model.is_normal(*loaded) is True:
                assert model.is_normal(*quiet) is True

    @settings(max_examples=30, deadline=None)
    @given(profiles, st.randoms())
    def test_the_order_of_measurements_means_nothing(self, points, random):
        shuffled = list(points)
        random.shuffle(shuffled)
        one, other = LatencyModel.fit(points, Straight()), LatencyModel.fit(shuffled, Straight())
        assert np.allclose(one.knots, other.knots)


class TestLeaveOneOut:
    """Judged on the abnormal class: recall ≥ 0.85 and specificity ≥ 0.9. bench/latency.py has more."""

    @pytest.mark.parametrize("noise", [0.03, 0.1])
    @pytest.mark.parametrize(("name", "truth", "how"), SCENARIOS, ids=[s[0] for s in SCENARIOS])
    def test_abnormal_points_are_found_unseen(self, name, truth, how, noise):
        points = profile(truth, noise=noise, seed=0, **how)
        counts = LatencyModel.fit(points, KnownCapacity(truth)).leave_one_out()
        recall, specificity = rates(counts)
        assert recall >= 0.85, counts
        assert specificity >= 0.9, counts

    def test_the_capacity_is_fitted_again_too(self):
        _, truth, how = SCENARIOS[6]
        points = profile(truth, noise=0.03, seed=4, **how)
        model = LatencyModel.fit(points, CapacityModel.fit(points))
        recall, specificity = rates(model.leave_one_out())
        assert recall >= 0.85
        assert specificity >= 0.9

    @pytest.mark.parametrize(("factor", "specific"), [(0.85, 0.85), (1.15, 0.95)])
    def test_a_capacity_that_is_off_misleads_less_where_latency_was_measured(self, factor, specific):
        class Off(KnownCapacity):
            def predict(self, scale_out):
                mid = factor * self.truth.capacity_rps(scale_out)
                return Interval(0.97 * mid, mid, 1.03 * mid, 0.9)

        model = LatencyModel.fit(profile(TRUTH, noise=0.05, seed=9), Off(TRUTH))
        recall, specificity = rates(model.leave_one_out())
        assert recall >= 0.85
        assert specificity >= specific  # nothing is normal above the capacity's upper end
        assert min(rates(rule_of_thumb(model))) < min(recall, specificity)
