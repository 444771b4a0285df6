"""What a tick expects to arrive: the champion with all that was seen since, from now on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.control import Models, Settings
from models.promise import Promise
from models.quantities import Unknown
from models.workload import Forecast, Forecaster
from models.workload.arima import Arima, Recursion
from models.workload.ensemble import Ensemble
from models.workload.fitting import naive_forecaster
from models.workload.forecaster import Band
from profiling_jobs.control_loop.context import InCharge
from profiling_jobs.control_loop.forecasting import Foreseen, Rates, Scoring, foresee

pytestmark = pytest.mark.fast

Cache = dict[str, Any]
STEP_S = 60.0
SETTINGS = Settings(promise=Promise(180.0), max_scale_out=8)
WALK = 5_000.0 + np.cumsum(np.random.default_rng(5).normal(0.0, 60.0, 400))


@pytest.fixture
def cache() -> Cache:
    """What a process remembers from tick to tick."""
    return {}


def champion(history: np.ndarray = WALK) -> Forecaster:
    found = naive_forecaster(history, step_s=STEP_S, steps=6)
    assert isinstance(found, Forecaster)
    return found


def foreseen(cache: Cache, rates: Rates, *, now_s: float, forecaster: Forecaster | None = None) -> Foreseen:
    charge = InCharge(
        models=Models(), forecaster=forecaster or champion(), forecaster_until_s=0.0, versions={"workload": 1}
    )
    return foresee(
        "orders",
        charge,
        rates=rates,
        scoring=Scoring(),
        horizon_s=SETTINGS.horizon_s,
        cache=cache,
        now_s=now_s,
    )


def forecast(found: Foreseen) -> Forecast:
    assert not isinstance(found.forecast, Unknown)
    return found.forecast


def straight(slope_rps: float, *, begin_rps: float = 0.0) -> tuple[Forecaster, Rates]:
    """A load that changes by so much from step to step, ten of which were seen, and who knows it."""
    drifting = Arima(Recursion((), (), True, slope_rps, 1.0))
    known = Forecaster(
        step_s=STEP_S,
        steps=6,
        seed=0,
        model=Ensemble([drifting], steps=6),
        band=Band.begin(leads=6, history=np.zeros(1)),
        why="it is so",
        errors={},
    )
    return known, Rates(STEP_S, 0, tuple(begin_rps + slope_rps * k for k in range(10)))


@pytest.mark.parametrize("late_s", [0.0, 1.0, 30.0, 59.0, 60.0, 150.0])
def test_a_forecast_begins_now_and_not_where_the_last_whole_step_ended(cache: Cache, late_s: float) -> None:
    known, rates = straight(600.0)
    now_s = rates.end_s + late_s
    found = foreseen(cache, rates, now_s=now_s, forecaster=known)
    said = forecast(found)
    np.testing.assert_allclose(said.mid, 10.0 * (now_s + STEP_S * np.arange(6)))
    np.testing.assert_allclose(said.paths[0], said.mid)
    assert said.peak.mid == pytest.approx(said.mid[-1])
    assert (found.summary["from_s"], found.summary["horizon_s"]) == (now_s, 360.0)
    ((_, issued),) = found.scoring.issued  # what is held against the rates begins with a step of theirs
    assert (issued.made_at_s, issued.mid[0]) == (rates.end_s, 6_000.0)


def test_a_load_that_falls_is_never_foreseen_lower_than_it_is(cache: Cache) -> None:
    known, rates = straight(-600.0, begin_rps=12_000.0)
    for late_s in (0.0, 1.0, 30.0, 59.0, 61.0):
        now_s = rates.end_s + late_s
        said = forecast(foreseen(cache, rates, now_s=now_s, forecaster=known))
        comes = 12_000.0 - 10.0 * (now_s + STEP_S * np.arange(6))
        assert (said.mid >= comes - 1e-6).all()
        assert (said.mid <= comes + 600.0).all()


def test_a_year_without_rates_is_not_stepped_through(cache: Cache) -> None:
    known, rates = straight(600.0)
    assert forecast(foreseen(cache, rates, now_s=3e7, forecaster=known)).mid[0] == 9_600.0


def test_what_a_clock_gone_ahead_has_shown_is_forgotten_with_it(cache: Cache) -> None:
    steady = Rates(STEP_S, 0, (1_000.0,) * 5)
    ahead = Rates(STEP_S, 0, (1_000.0,) * 5 + (9_000.0,) * 500)
    assert forecast(foreseen(cache, ahead, now_s=ahead.end_s)).mid[0] == 9_000.0
    right = foreseen(cache, steady, now_s=steady.end_s)
    assert forecast(right).mid[0] == 1_000.0
    later = Rates(STEP_S, 0, (1_000.0,) * 5 + (1_500.0,))
    assert forecast(foreseen(cache, later, now_s=later.end_s)).mid[0] == 1_500.0
