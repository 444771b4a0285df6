"""Forecast of the arrival rate, with its uncertainty.

ARIMA around a curve with the periods found in the history, trends, the last value and the value one period
ago are tested by rolling origin over exactly the horizon in use (`fitting`). Their weighted mean forecasts
(`ensemble`), and its own errors in that test are the band and the paths (`forecaster`).

    forecaster = fit_forecast(history_rps, step_s=30, horizon_s=1080)      # seconds, off the hot path
    forecast = forecaster.update(new_rps).predict()                        # milliseconds, in the tick
"""

from .ensemble import BacktestError
from .fitting import fit_forecast, forecast
from .forecaster import Forecast, Forecaster

__all__ = ["fit_forecast", "forecast", "Forecaster", "Forecast", "BacktestError"]
