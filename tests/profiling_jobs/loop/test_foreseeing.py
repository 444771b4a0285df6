"""What a tick expects to arrive: the champion with all that was seen since, from now on."""

from __future__ import annotations

import numpy as np
import pytest

from models.control import Models, Settings
from models.promise import Promise
from models.quantities import Unknown
from models.simulation.cluster import Cluster
from models.simulation.store import MemoryStore
from models.workload import Forecast, Forecaster
from models.workload.naive_forecast import naive_forecaster
from pipelines.resources.simulated import SimulatedClock, SimulatedDeployments
from profiling_jobs.loop.foreseeing import Foreseen, foresee
from profiling_jobs.loop.ground import InCharge, Loop
from profiling_jobs.loop.live_rates import Rates
from profiling_jobs.loop.scoring import Scoring

pytestmark = pytest.mark.fast

STEP_S = 60.0
SETTINGS = Settings(promise=Promise(180.0), max_scale_out=8)
WALK = 5_000.0 + np.cumsum(np.random.default_rng(5).normal(0.0, 60.0, 400))


@pytest.fixture
def loop() -> Loop:
    cluster = Cluster()
    return Loop(
        store=MemoryStore(),
        deployments=SimulatedDeployments(cluster),
        readings=None,  # type: ignore[arg-type]  # nothing is read here
        champions=lambda job: Unknown("not asked"),
        clock=SimulatedClock(cluster),
    )


def champion(history: np.ndarray = WALK) -> Forecaster:
    found = naive_forecaster(history, step_s=STEP_S, steps=6)
    assert isinstance(found, Forecaster)
    return found


def foreseen(loop: Loop, rates: Rates, *, now_s: float, forecaster: Forecaster | None = None) -> Foreseen:
    charge = InCharge(
        models=Models(), forecaster=forecaster or champion(), forecaster_until_s=0.0, versions={"workload": 1}
    )
    return foresee(
        "orders", loop=loop, charge=charge, scoring=Scoring(), rates=rates, settings=SETTINGS, now_s=now_s
    )


def forecast(found: Foreseen) -> Forecast:
    assert not isinstance(found.forecast, Unknown)
    return found.forecast


def test_what_a_clock_gone_ahead_has_shown_is_forgotten_with_it(loop: Loop) -> None:
    steady = Rates(STEP_S, 0, (1_000.0,) * 5)
    ahead = Rates(STEP_S, 0, (1_000.0,) * 5 + (9_000.0,) * 500)
    assert forecast(foreseen(loop, ahead, now_s=ahead.end_s)).mid[0] == 9_000.0
    right = foreseen(loop, steady, now_s=steady.end_s)
    assert forecast(right).mid[0] == 1_000.0
    later = Rates(STEP_S, 0, (1_000.0,) * 5 + (1_500.0,))
    assert forecast(foreseen(loop, later, now_s=later.end_s)).mid[0] == 1_500.0
