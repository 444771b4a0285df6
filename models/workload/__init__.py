"""Forecast of the arrival rate, with its uncertainty.

ARIMA around a curve with the periods found in the history, tested by rolling origin over exactly the horizon
in use against the last value and the value one period ago; the winner forecasts, and its own errors in that
test are the band and the paths (`backtest`, `forecaster`).

    forecaster = fit_forecast(history_rps, step_s=30, horizon_s=1080)      # seconds, off the hot path
    forecast = forecaster.update(new_rps).predict()                        # milliseconds, in the tick
"""

from .backtest import BacktestError
from .forecaster import Forecast, Forecaster, fit_forecast, forecast

__all__ = ["fit_forecast", "forecast", "Forecaster", "Forecast", "BacktestError"]
