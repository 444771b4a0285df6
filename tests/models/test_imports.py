"""Importing the models costs numpy and nothing else; the heavy libraries come when they are used."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[2]
HEAVY = ("sklearn", "pmdarima", "statsmodels", "scipy", "pandas", "mlflow", "dagster", "pyspark")
PROGRAM = """
import json, pkgutil, sys
import models
names = [m.name for m in pkgutil.walk_packages(models.__path__, "models.")]
for name in names:
    __import__(name)
print(json.dumps([names, sorted({name.split(".")[0] for name in sys.modules})]))
"""


def test_no_heavy_library_is_loaded_by_importing_the_models():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=HERE, capture_output=True, text=True, check=True
    )
    names, loaded = json.loads(done.stdout)
    assert "models.workload.forecaster" in names
    assert "numpy" in loaded
    assert set(HEAVY) & set(loaded) == set()


def test_a_fitted_forecaster_is_evaluated_with_numpy_alone():
    program = """
import json, sys
from models.workload import Forecaster, fit_forecast
fitted = fit_forecast([5.0, 6.0, 7.0] * 5, step_s=30, horizon_s=60)
assert "pmdarima" not in sys.modules, "a short history needs no library"
state = {"schema": 1, "step_s": 30.0, "steps": 3, "seed": 0, "why": "-", "backtest": {},
    "model": {"kind": "arima", "recursion": {"ar": [0.5], "ma": [0.2], "differenced": True, "intercept": 0.1,
        "deviation": 1.0}, "curve": {"periods": [4], "harmonics": [1], "coefficients": [1.0, 2.0]},
        "state": {"at": 3, "w": [0.2], "e": [0.1], "level": 9.0, "moved": 0.0, "sums": [0.0, 0.0],
        "since": [0, 0], "errors": [0.0, 0.0]}},
    "spread": {"trajectories": [[0.0, 1.0, 2.0]], "peaks": [], "proportional": False, "floor_rps": 1.0}}
forecast = Forecaster.from_json(state).update([10.0, 11.0]).predict()
print(json.dumps([forecast.mid.tolist(), sorted({name.split(".")[0] for name in sys.modules})]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    mid, loaded = json.loads(done.stdout)
    assert len(mid) == 3
    assert set(HEAVY) & set(loaded) == set()
