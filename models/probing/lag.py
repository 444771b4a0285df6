"""Does the lag rise?

Least-squares slope of the lag samples and a one-sided t-test at 5 %. Lag under micro-batches is a saw, so its
samples are not independent: n is reduced to n (1 - r) / (1 + r), r the lag-1 correlation of the residuals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arguments import numbers
from ..quantities import Misuse, Unknown

SLOPE_ERROR = 0.05  # false alarms of the slope test; judgement
FEWEST_LAG_SAMPLES = 8  # a slope from fewer says nothing once its samples are correlated; judgement


@dataclass(frozen=True)
class Slope:
    """How fast the lag changes, and whether that is above zero by the test."""

    rps: float
    standard_error_rps: float
    above_zero: bool


def lag_slope(times_s: Sequence[float], lag_records: Sequence[float]) -> Slope | Unknown:
    """Does the lag rise? Least-squares slope, one-sided t-test on as many samples as are independent."""
    from scipy.special import stdtrit

    times, lag = (
        numbers("lag_times_s", times_s, missing_allowed=True),
        numbers("lag_records", lag_records, missing_allowed=True),
    )
    if times.shape != lag.shape or times.ndim != 1:
        raise Misuse("lag_records", f"needs one value per time, got {lag.shape} for {times.shape}")
    seen = np.isfinite(times) & np.isfinite(lag)
    times, lag = times[seen], lag[seen]
    n = times.size
    if n < FEWEST_LAG_SAMPLES:
        return Unknown(f"only {n} lag samples; {FEWEST_LAG_SAMPLES} are needed to tell whether lag rises")
    order = np.argsort(times, kind="stable")
    times, lag = times[order] - times.mean(), lag[order]
    spread = float(times @ times)
    if spread <= 0.0:
        return Unknown("all lag samples carry the same time")
    slope = float(times @ lag) / spread
    rest = lag - lag.mean() - slope * times
    power = float(rest @ rest)
    correlation = float(rest[1:] @ rest[:-1]) / power if power > 0.0 else 0.0
    correlation = min(max(correlation, 0.0), 0.99)
    independent = max(3.0, n * (1.0 - correlation) / (1.0 + correlation))
    error = math.sqrt(power / n * independent / (independent - 2.0) / (spread * independent / n))
    above = slope > error * float(stdtrit(independent - 2.0, 1.0 - SLOPE_ERROR)) and slope > 0.0
    return Slope(rps=slope, standard_error_rps=error, above_zero=above)
