"""Importing the models costs numpy and nothing else; the heavy libraries come when they are used."""

from fresh_python import HEAVY, printed

PROGRAM = """
import json, pkgutil, sys
import models
names = [m.name for m in pkgutil.walk_packages(models.__path__, "models.")]
for name in names:
    __import__(name)
print(json.dumps([names, sorted({name.split(".")[0] for name in sys.modules})]))
"""


def test_no_heavy_library_is_loaded_by_importing_the_models():
    names, loaded = printed(PROGRAM)
    assert "models.workload.forecaster" in names
    assert "numpy" in loaded
    assert HEAVY & set(loaded) == set()


def test_a_fitted_forecaster_is_evaluated_with_numpy_alone():
    program = """
import json, sys
from models.workload import Forecaster, fit_forecast
fitted = fit_forecast([5.0, 6.0, 7.0] * 5, step_s=30, horizon_s=60)
assert "pmdarima" not in sys.modules, "a short history needs no library"
state = fitted.to_json()
arima = {"kind": "arima", "recursion": {"ar": [0.5], "ma": [0.2], "differenced": True, "intercept": 0.1,
    "deviation": 1.0}, "curve": {"periods": [4], "harmonics": [1], "coefficients": [1.0, 2.0]},
    "state": {"at": 3, "w": [0.2], "e": [0.1], "level": 9.0, "moved": 0.0}}
state["model"]["members"] = [arima for _ in state["model"]["members"]]
forecast = Forecaster.from_json(state).update([10.0, 11.0]).predict()
print(json.dumps([forecast.mid.tolist(), sorted({name.split(".")[0] for name in sys.modules})]))
"""
    mid, loaded = printed(program)
    assert len(mid) == 2
    assert HEAVY & set(loaded) == set()
