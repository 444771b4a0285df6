"""The parts of the forecast, each against something that is known."""

import warnings

import numpy as np
import pytest

from models import codec
from models.series import recurrence, recurs
from models.workload.arima import Arima, Recursion, orders
from models.workload.backtest import Plan, Trial, choose, plan, run
from models.workload.fitting import fit_variants, refit
from models.workload.forecaster import peak_of, spread_of
from models.workload.fourier import NO_CURVE, Fourier, fit_curve
from models.workload.naive import LastValue, RecentMedian, SeasonalNaive

NAN = float("nan")


def wandering(seed, n, ar=(), ma=()):
    random = np.random.default_rng(seed)
    e = random.normal(size=n + 50)
    w = np.zeros(n + 50)
    for t in range(2, n + 50):
        w[t] = (
            e[t]
            + sum(c * w[t - k - 1] for k, c in enumerate(ar))
            + sum(c * e[t - k - 1] for k, c in enumerate(ma))
        )
    return w[50:]


# --- the recursion ---


@pytest.mark.parametrize(
    ("order", "intercept"), [((1, 0, 0), True), ((2, 0, 1), True), ((0, 1, 1), False), ((2, 1, 1), False)]
)
def test_the_recursion_forecasts_what_pmdarima_forecasts(order, intercept):
    import pmdarima

    series = 50 + wandering(1, 300, ar=(0.7,), ma=(0.3,))
    if order[1]:
        series = np.cumsum(series - 50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pmdarima.ARIMA(order=order, with_intercept=intercept).fit(series)
    ar = tuple(theirs.arparams()) if order[0] else ()
    ma = tuple(theirs.maparams()) if order[2] else ()
    constant = float(theirs.params()[0]) if intercept else 0.0
    recursion = Recursion(ar, ma, bool(order[1]), constant, 1e9)  # so wide that no level has ever moved
    ours = Arima(recursion)
    ours.see(series)
    np.testing.assert_allclose(ours.ahead(20), np.asarray(theirs.predict(20)), rtol=2e-3)


def test_an_average_over_many_steps_does_not_hang_on_the_first_value():
    """With θ near −1 the first value would count as much as all others together."""
    noise = np.random.default_rng(0).normal(size=300)
    noise[0] = 5.0
    variants = {str(v.recursion.order): v for v in fit_variants(100 + noise, NO_CURVE)}
    averaging = [v for v in variants.values() if v.recursion.differenced and v.recursion.averages]
    assert averaging
    for model in averaging:
        model.see(100 + noise)
        assert abs(model.ahead(10)[-1] - 100) < 0.5


@pytest.mark.fast
def test_a_missing_value_is_taken_as_it_was_expected():
    model = Arima(Recursion((0.5,), (), False, 0.0, 1.0))
    model.see(np.array([8.0, NAN, NAN]))
    np.testing.assert_allclose(model.ahead(2), [1.0, 0.5])
    walk = Arima(Recursion((), (), True, 2.0, 1.0))
    walk.see(np.array([10.0, NAN]))
    np.testing.assert_allclose(walk.ahead(2), [14.0, 16.0])


@pytest.mark.fast
@pytest.mark.parametrize(
    "recursion",
    [
        Recursion((), (), False, 100.0, 1.0),
        Recursion((0.5,), (-0.3,), False, 50.0, 1.0),
        Recursion((), (-0.95,), True, 0.0, 1.0),
        Recursion((0.3,), (-0.95,), True, 0.0, 1.0),
    ],
)
def test_a_moved_level_is_followed_and_a_spike_is_not(recursion):
    random = np.random.default_rng(0)
    model = Arima(recursion)
    model.see(100 + random.normal(size=300))
    assert abs(model.ahead(30)[-1] - 100) < 3
    model.see(100 + random.normal(size=20) + 40 * (np.arange(20) < 2))
    assert abs(model.ahead(30)[-1] - 100) < 7
    model.see(200 + random.normal(size=60))
    assert abs(model.ahead(30)[-1] - 200) < 7
    restored = Arima.from_json(codec.loads(codec.dumps("data", codec.to_json(model))))
    np.testing.assert_array_equal(restored.ahead(5), model.ahead(5))


AWAY = np.full(1_000, NAN)


@pytest.mark.fast
@pytest.mark.parametrize(
    "candidate",
    [
        LastValue(),
        RecentMedian(window=60),
        Arima(Recursion((), (), False, 1_000.0, 60.0)),
        Arima(Recursion((0.7,), (-0.3,), False, 300.0, 60.0)),
        Arima(Recursion((), (-0.94,), True, 0.0, 60.0)),
        Arima(Recursion((), (-0.94,), True, -2.0, 60.0)),
        Arima(Recursion((0.3,), (-0.95,), True, 0.0, 60.0)),
        Arima(Recursion((0.3,), (-0.4, -0.2), True, 0.0, 60.0)),
        Arima(Recursion((), (), True, 5.0, 60.0)),
    ],
)
def test_after_a_long_gap_what_is_seen_is_believed_at_once(candidate):
    random = np.random.default_rng(0)
    candidate.see(1_000 + 60 * random.normal(size=300))
    candidate.see(AWAY)
    before = candidate.ahead(9)
    assert np.abs(before - 1_000).max() < 300  # no drift through it
    for count in (1, 1, 2, 4, 8, 16):
        restored = codec.from_json(
            type(candidate), codec.loads(codec.dumps("data", codec.to_json(candidate)))
        )
        np.testing.assert_array_equal(restored.ahead(5), candidate.ahead(5))
        candidate.see(3_000 + 60 * random.normal(size=count))
        assert np.abs(candidate.ahead(9) - 3_000).max() < 250


@pytest.mark.fast
def test_after_a_long_gap_an_average_begins_with_the_mean_of_what_it_has_seen():
    model = Arima(Recursion((), (-0.95,), True, 0.0, 60.0))
    model.see(np.array([1_000.0] * 100))
    model.see(AWAY)
    for number in range(1, 20):
        model.see(np.array([2_900.0 if number % 2 else 3_100.0]))
        mean = 3_000.0 - (100.0 / number if number % 2 else 0.0)
        assert model.ahead(1)[0] == pytest.approx(mean)


@pytest.mark.fast
def test_after_a_long_gap_a_usual_value_does_not_move_the_level_it_returns_to():
    model = Arima(Recursion((0.7,), (), False, 300.0, 60.0))
    model.see(np.full(100, 1_000.0))
    model.see(AWAY)
    model.see(np.array([1_200.0]))  # 2.4 deviations of u
    assert model.ahead(60)[-1] == pytest.approx(1_000.0)


# --- fitting ---


@pytest.mark.fast
@pytest.mark.parametrize(
    ("ar", "ma", "expected"),
    [((), (), (0, 0)), ((0.7,), (), (1, 0)), ((0.5, 0.3), (), (2, 0)), ((), (0.7,), (0, 1))],
)
def test_orders_are_found(ar, ma, expected):
    found = [orders(wandering(seed, 600, ar, ma)) for seed in range(12)]
    assert found.count(expected) >= 8


def test_coefficients_are_found_in_units_of_the_rate():
    series = 5_000 + 100 * wandering(3, 800, ar=(0.7,))
    settled = fit_variants(series, NO_CURVE)[0]
    assert settled.recursion.order == (1, 0, 0)
    assert settled.recursion.ar[0] == pytest.approx(0.7, abs=0.1)
    assert settled.recursion.intercept / (1 - settled.recursion.ar[0]) == pytest.approx(5_000, rel=0.01)
    assert settled.recursion.deviation == pytest.approx(100, rel=0.1)
    again = refit(settled, series[:600])
    assert again.recursion.order == (1, 0, 0)


def test_nothing_is_fitted_to_a_constant_or_to_mostly_nothing():
    assert fit_variants(np.full(200, 7.0), NO_CURVE) == []
    assert fit_variants(np.where(np.arange(200) % 3, NAN, 5.0 + np.arange(200)), NO_CURVE) == []
    assert fit_variants(np.arange(20.0), NO_CURVE) == []


@pytest.mark.fast
def test_a_curve_is_found_beside_a_wandering_level():
    t = np.arange(960)
    curve = 10 * np.sin(2 * np.pi * t / 120) + 4 * np.cos(4 * np.pi * t / 120)
    for level in (
        np.random.default_rng(0).normal(size=960),
        np.cumsum(np.random.default_rng(0).normal(size=960)),
    ):
        values = 50 + curve + level
        values[100:130] = NAN
        found = fit_curve(values, (120,))
        assert np.abs(found.at(960, 120) - curve[:120]).max() < 2.5
        assert codec.from_json(Fourier, codec.loads(codec.dumps("data", codec.to_json(found)))) == found


# --- naive candidates ---


@pytest.mark.fast
def test_naive_candidates_bridge_gaps_with_what_they_expected():
    for candidate, expected in (
        (LastValue(), [3, 3, 3, 3]),
        (SeasonalNaive(period=3), [2, 3, 3, 2]),
        (SeasonalNaive(period=12), [3, 3, 3, 3]),
        (RecentMedian(window=3), [3, 3, 3, 3]),
    ):
        candidate.see(np.array([1.0, 4.0, 3.0, 2.0]))
        candidate.see(np.array([3.0, NAN, NAN, NAN, NAN]))
        np.testing.assert_array_equal(candidate.ahead(4), expected)


@pytest.mark.fast
def test_the_median_forgets_what_was_before_the_level_moved():
    candidate = RecentMedian(window=100)
    candidate.see(np.array([10.0, 11.0] * 50))
    candidate.see(np.full(10, 50.0))
    assert candidate.ahead(1) < 12
    candidate.see(np.full(2, 50.0))
    assert candidate.ahead(1) == 50


# --- recurrence ---


@pytest.mark.fast
def test_a_period_is_recognised_before_it_was_seen_twice():
    t = np.arange(400)
    random = np.random.default_rng(0)
    day = 100 + 50 * np.sin(2 * np.pi * t / 250) + 20 * np.sin(6 * np.pi * t / 250) + random.normal(size=400)
    assert recurrence(day) == pytest.approx(250, abs=4)
    assert recurs(day + 5 * random.normal(size=400), lag=250)
    assert not recurs(day, lag=300)


@pytest.mark.fast
def test_what_wanders_grows_or_stays_does_not_recur():
    random = np.random.default_rng(0)
    walks = [recurrence(np.cumsum(random.normal(size=300))) for _ in range(40)]
    assert sum(lag is not None for lag in walks) <= 1
    for values in (
        np.full(300, 5.0),
        np.arange(300.0),
        random.normal(size=300),
        np.full(300, NAN),
        np.zeros(0),
    ):
        assert recurrence(values) is None


# --- the back-test ---


@pytest.mark.fast
@pytest.mark.parametrize(
    ("points", "steps", "first", "last", "tested"),
    [
        (1_000, 36, 500, 964, 36),
        (200, 36, 56, 164, 36),
        (72, 36, 18, 36, 36),
        (30, 36, 7, 19, 11),
        (2, 36, 1, 1, 1),
    ],
)
def test_the_later_part_is_tested(points, steps, first, last, tested):
    where = plan(points, steps=steps)
    assert (where.origins[0], where.origins[-1], where.steps) == (first, last, tested)
    assert len(where.origins) <= 100


@pytest.mark.fast
def test_one_point_leaves_nothing_to_test():
    assert plan(1, steps=5).origins == ()
    assert plan(1, steps=5).independent == 0


@pytest.mark.fast
def test_a_candidate_sees_only_what_was_before_the_origin():
    trial = run(LastValue(), np.arange(10.0), Plan((3, 5), 2))
    np.testing.assert_array_equal(trial.forecasts, [[2, 2], [4, 4]])
    np.testing.assert_array_equal(trial.observed, [[3, 4], [5, 6]])
    np.testing.assert_array_equal(trial.losses, [1.5, 1.5])


def trial(name, losses):
    losses = np.array(losses, dtype=float)
    return Trial(name, np.zeros((losses.size, 2)), np.zeros((losses.size, 2)), losses)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("naive", "model", "winner"),
    [
        ([10, 10, 10, 10], [5, 5, 5, 5], "model"),
        ([10, 10, 10, 10], [9.9, 9.9, 9.9, 9.9], "naive"),  # not visibly
        ([10, 10, 10, 10], [0, 12, 12, 12], "naive"),  # by one lucky horizon
        ([10, 10, 10, 10], [11, 11, 11, 11], "naive"),
        ([10, 10], [8, 8], "model"),  # no standard error, but by more than a tenth
        ([10, 10], [9.5, 9.5], "naive"),
        ([0, 0, 0, 0], [0, 0, 0, 0], "naive"),
    ],
)
def test_a_model_must_beat_the_naive_forecast_by_more_than_chance(naive, model, winner):
    where = Plan(tuple(range(10, 10 + 2 * len(naive), 2)), 2)
    chosen = choose([trial("naive", naive), trial("model", model)], where, naive=1)
    assert ("naive", "model")[chosen.index] == winner
    assert chosen.why.startswith(winner)


# --- bands ---


@pytest.mark.fast
def test_the_peak_is_covered_as_often_as_stated():
    random = np.random.default_rng(0)
    where = plan(600, steps=20)
    inside = 0
    for _ in range(150):
        history = 100 + random.normal(size=600)
        errors = spread_of(
            run(RecentMedian(window=40), history, where), where, horizon=20, history=history, seed=0
        )
        mid = np.full(20, 100.0)
        held = peak_of(errors, errors.paths(mid), mid)
        inside += held.low <= (100 + random.normal(size=20)).max() <= held.high
    assert 0.82 <= inside / 150 <= 0.97
