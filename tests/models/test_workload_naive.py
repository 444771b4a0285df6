"""The best naive forecast, in milliseconds: what stands in when a fitted one has failed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from models.quantities import Misuse, Unknown
from models.workload import Forecaster
from models.workload.forecaster import naive_forecaster

pytestmark = pytest.mark.fast

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


@pytest.mark.parametrize("history", [[5.0], [np.nan, 5.0, np.nan], [5.0, 6.0], [0.0] * 50])
def test_a_short_or_holey_history_still_forecasts(history: list[float]) -> None:
    found = naive_forecaster(history, step_s=30.0, steps=9)
    assert isinstance(found, Forecaster)
    assert found.predict().mid.shape == (9,)


@pytest.mark.parametrize("history", [[], [np.nan, np.nan]])
def test_nothing_observed_is_no_forecast(history: list[float]) -> None:
    assert isinstance(naive_forecaster(history, step_s=30.0, steps=9), Unknown)


@pytest.mark.parametrize(
    ("named", "wrong"), [("steps", {"steps": 0}), ("step_s", {"step_s": 0.0}), ("seed", {"seed": -1})]
)
def test_a_wrong_argument_is_named(named: str, wrong: dict[str, float]) -> None:
    given = {"step_s": 30.0, "steps": 9, **wrong}
    with pytest.raises(Misuse, match=named):
        naive_forecaster([1.0, 2.0], **given)  # type: ignore[arg-type]
