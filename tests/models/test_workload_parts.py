"""The parts of the forecast, each against something that is known."""

import json

import numpy as np
import pytest

from models import codec
from models.quantities import Unknown
from models.series import recurrence, recurs
from models.workload import Forecaster
from models.workload.arima import NO_CURVE, Arima, Fourier, Recursion
from models.workload.ensemble import Ensemble, LastValue, RecentMedian
from models.workload.fitting import fit_trends, naive_forecaster
from models.workload.regressions import fit_curve

pytestmark = pytest.mark.fast
NAN = float("nan")


# --- the recursion ---


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
    model = Ensemble([Arima(recursion), LastValue()], steps=30)
    model.see(100 + random.normal(size=300))
    assert abs(model.ahead(30)[-1] - 100) < 3
    model.see(100 + random.normal(size=20) + 40 * (np.arange(20) < 2))
    assert abs(model.ahead(30)[-1] - 100) < 3
    model.see(200 + random.normal(size=4))
    assert np.abs(model.ahead(30) - 200).max() < 3
    restored = Ensemble.from_json(codec.loads(codec.dumps("data", codec.to_json(model))))
    np.testing.assert_array_equal(restored.ahead(5), model.ahead(5))


AWAY = np.full(1_000, NAN)


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


# --- fitting ---


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


# --- recurrence ---


def test_a_period_is_recognised_before_it_was_seen_twice():
    t = np.arange(400)
    random = np.random.default_rng(0)
    day = 100 + 50 * np.sin(2 * np.pi * t / 250) + 20 * np.sin(6 * np.pi * t / 250) + random.normal(size=400)
    assert recurrence(day) == pytest.approx(250, abs=4)
    assert recurs(day + 5 * random.normal(size=400), lag=250)
    assert not recurs(day, lag=300)


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


# --- the weighted mean, and jumps ---


def ensemble(values, *members, steps=10):
    found = Ensemble(members or (LastValue(), RecentMedian(window=40)), steps=steps)
    found.see(np.asarray(values, dtype=float))
    return found


def test_the_candidate_that_was_right_of_late_has_the_weight():
    random = np.random.default_rng(0)
    walk, noise = 1_000 + np.cumsum(10 * random.normal(size=200)), 10 * random.normal(size=200)
    assert ensemble(walk).name == "last value"
    assert ensemble(1_000 + noise).name == "median of 40"
    changed = ensemble(np.concatenate((walk, walk[-1] + noise)))
    assert dict(changed.shares())["median of 40"] > 0.9
    errors = changed.errors()
    assert errors["median of 40"].origins == errors["last value"].origins == 399


@pytest.mark.parametrize("factor", [0.4, 2.5])
def test_a_first_jump_is_believed_at_once(factor):
    random = np.random.default_rng(1)
    found = ensemble(1_000 * (1 + 0.04 * random.normal(size=200)))
    for _ in range(4):
        found.see(1_000 * factor * (1 + 0.04 * random.normal(size=1)))
        assert np.abs(found.ahead(10) / (1_000 * factor) - 1).max() < 0.15


def test_where_the_load_came_back_twice_the_third_spike_is_waited_for():
    random = np.random.default_rng(2)
    spikes = 1_000 + 30 * random.normal(size=400)
    for begin in (60, 120, 180, 240):
        spikes[begin : begin + 4] += 1_500
    found = ensemble(spikes)
    found.see(2_500 + 30 * random.normal(size=2))
    assert np.abs(found.ahead(10)[:2] - 2_500).max() < 200  # as long as they lasted
    assert np.abs(found.ahead(10)[2:] - 1_000).max() < 100
    found.see(2_500 + 30 * random.normal(size=4))  # longer than any spike
    assert np.abs(found.ahead(10) - 2_500).max() < 200


def test_a_damped_trend_is_what_exponential_smoothing_says():
    y = 100 + np.cumsum(np.random.default_rng(0).normal(size=120))
    for trend in fit_trends(y, NO_CURVE, steps=8):
        ar, ma = trend.recursion.ar, trend.recursion.ma
        phi = ar[0] if ar else 0.0
        alpha = 1.0 - ma[1] / phi if ar else 1.0 + ma[0]
        beta = (ma[0] - alpha + 1.0 + phi) / phi if ar else 0.0
        level, slope = trend.level, sum(trend.w)
        for value in y:
            error = value - level - phi * slope
            level, slope = level + phi * slope + alpha * error, phi * slope + beta * error
        trend.see(y)
        expected = level + slope * np.cumsum(phi ** np.arange(1, 9))
        np.testing.assert_allclose(trend.ahead(8), expected, rtol=1e-3)


# --- bands ---


def live(values, *, steps=12):
    found = naive_forecaster(values, step_s=30.0, steps=steps)
    assert isinstance(found, Forecaster)
    return found


def test_bands_widen_within_steps_when_the_load_gets_noisier_and_narrow_again():
    random = np.random.default_rng(0)
    found = live(1_000 + 20 * random.normal(size=400))

    def width(noise, count):
        said = found.update(1_000 + noise * random.normal(size=count)).predict()
        return float((said.high - said.low).mean())

    calm = width(20, 1)
    assert width(80, 6) > 1.7 * calm
    assert width(80, 60) > 3.0 * calm
    assert width(20, 200) < 1.3 * calm


def test_a_ramp_out_of_a_quiet_load_does_not_blow_the_band_up():
    random = np.random.default_rng(1)
    found = live(600 * (1 + 0.01 * random.normal(size=120)), steps=9)
    ramp = np.concatenate((np.linspace(600, 1_000, 14), np.full(20, 1_000.0)))
    for rate in ramp * (1 + 0.01 * random.normal(size=34)):
        assert found.update(rate).predict(paths=1).peak.high < 1.7 * rate


def test_errors_of_a_first_ramp_are_not_replayed_larger_than_they_were():
    """They were 50 errors of the quiet load, and became 50 errors of the time after: 1.4 times the load."""
    at_s = np.arange(6 * 180) * 5.0
    level = np.interp(at_s, [3_600.0, 3_900.0], [600.0, 1_000.0])
    load = (level * (1 + 0.08 * np.sin(2 * np.pi * at_s / 240.0))).reshape(180, 6).mean(axis=1)
    load += np.random.default_rng(0).uniform(-0.1, 0.1, load.size)  # whole records
    found = naive_forecaster(load[:108], step_s=30.0, steps=9, periods=(8,))
    assert isinstance(found, Forecaster)
    found.update(load[108:130])
    for rate in load[130:160]:  # the ramp begins at 120 and has ten steps
        said = found.update(rate).predict()
        assert np.quantile(said.paths.mean(axis=1), 0.9) < 1_250.0
        assert said.high[0] - said.mid[0] < 200.0  # the largest error one step ahead was 190


def test_errors_that_stay_widen_the_band_of_an_exact_load_within_a_horizon():
    """At most five times the error of late counted, and a load of whole records has next to none."""
    random = np.random.default_rng(6)
    found = live(1_000 + random.uniform(-0.1, 0.1, 300))
    said = found.update(1_000 + 30 * random.normal(size=12)).predict()
    assert 20.0 < (said.high - said.low).mean() < 150.0


@pytest.mark.parametrize("noise", [(20, 20), (20, 60)])
def test_bands_and_peaks_cover_as_stated_also_where_the_noise_changes(noise):
    random = np.random.default_rng(3)
    load = 1_000 + np.repeat(noise, 400) * random.normal(size=800)
    found, inside, peaks = live(load[:400]), [], []
    for origin in range(400, 788):
        said, actual = found.predict(paths=1), load[origin : origin + 12]
        inside.append(((said.low <= actual) & (actual <= said.high)).mean())
        peaks.append(said.peak.low <= actual.max() <= said.peak.high)
        found.update(load[origin])
    assert 0.86 <= np.mean(inside) <= 0.95
    assert 0.84 <= np.mean(peaks) <= 0.97


COUNTS = np.random.default_rng(4).poisson(12, 1_200)
HEAVY = 1_000 * np.exp(0.12 * np.random.default_rng(5).standard_t(4, size=1_200))
SMOOTH = 1_000 + 600 * np.cos(2 * np.pi * np.arange(1_200) / 1_700)  # falls, and rises again


@pytest.mark.parametrize("load", [COUNTS, HEAVY, SMOOTH], ids=["counts", "heavy tails", "smooth"])
def test_peaks_cover_as_stated_whatever_the_load_looks_like(load: np.ndarray) -> None:
    found, covered = live(load[:400], steps=18), []
    for origin in range(400, 1_182):
        peak, highest = found.predict(paths=1).peak, load[origin : origin + 18].max()
        covered.append(peak.low <= highest <= peak.high)
        found.update(load[origin])
    assert 0.85 <= np.mean(covered) <= 0.96


# --- the best naive forecast, which stands in when a fitted one has failed ---

RNG = np.random.default_rng(5)
LEVEL = 1_000.0 + RNG.normal(0.0, 50.0, 400)
WALK = 5_000.0 + np.cumsum(RNG.normal(0.0, 60.0, 400))
SEASON = 1_000.0 + 600.0 * np.sin(2.0 * np.pi * np.arange(400) / 48) + RNG.normal(0.0, 10.0, 400)


@pytest.mark.parametrize(
    ("history", "expected"), [(LEVEL, "median of 20"), (WALK, "last value"), (SEASON, "seasonal naive 48")]
)
def test_the_one_that_fits_the_series_forecasts(history: np.ndarray, expected: str) -> None:
    found = naive_forecaster(history, step_s=30.0, steps=9, periods=(48, 300))
    assert isinstance(found, Forecaster)
    assert found.model == expected
    forecast = found.predict(paths=50)
    assert forecast.paths.shape == (50, 9)
    assert forecast.horizon_s == 270.0
    again = Forecaster.from_json(json.loads(json.dumps(found.to_json())))
    assert np.array_equal(again.predict(paths=50).paths, forecast.paths)


@pytest.mark.parametrize(
    ("history", "known"),
    [([5.0], True), ([NAN, 5.0, NAN], True), ([0.0] * 50, True), ([], False), ([NAN, NAN], False)],
)
def test_one_observation_is_enough_for_a_forecast_and_none_is_not(history: list[float], known: bool) -> None:
    found = naive_forecaster(history, step_s=30.0, steps=9)
    assert isinstance(found, Forecaster if known else Unknown)
    assert not known or found.predict().mid.shape == (9,)
