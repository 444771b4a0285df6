"""Does the lag rise, and how much was really processed?

Least-squares slope of the lag samples and a one-sided t-test at 5 %, and at 0.1 % where nothing else speaks
for it. Lag under micro-batches is a saw, so its samples are not independent: n is reduced to
n (1 - r) / (1 + r), r the lag-1 correlation of the residuals. Processed records arrive a batch at a time;
counted between two commits, no batch is cut at the edges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arguments import numbers
from ..quantities import Misuse, Unknown

FEWEST_COMMITS = 4  # three whole batches: of fewer, one slow batch is the rate; judgement
SLOPE_ERROR = 0.05  # false alarms of the slope test; judgement
CERTAIN_ERROR = 0.001  # where nothing confirms the slope: a search is some dozens of probes; judgement
FEWEST_LAG_SAMPLES = 8  # a slope from fewer says nothing once its samples are correlated; judgement


@dataclass(frozen=True)
class Slope:
    """How fast the lag changes, and whether that is above zero by the test."""

    rps: float
    standard_error_rps: float
    above_zero: bool
    certain: bool
    """The same beyond doubt."""
    edge_rps: float
    """The largest batch over the stretch: by so much a rate is off that was not counted between commits."""


def processed_rps(commit_times_s: Sequence[float], committed_records: Sequence[float]) -> float | Unknown:
    """How fast are records processed? From the first to the last commit of the stretch, cumulated records."""
    times = numbers("commit_times_s", commit_times_s)
    committed = numbers("committed_records", committed_records, at_least=0.0)
    if times.shape != committed.shape or times.ndim != 1:
        raise Misuse(
            "committed_records", f"needs one value per time, got {committed.shape} for {times.shape}"
        )
    if times.size < FEWEST_COMMITS:
        return Unknown(f"only {times.size} commits in the stretch; {FEWEST_COMMITS} are needed for a rate")
    if bool((np.diff(times) < 0.0).any()) or bool((np.diff(committed) < 0.0).any()):
        return Unknown("commits or their times went backwards")
    if times[-1] <= times[0]:
        return Unknown("all commits carry the same time")
    return float((committed[-1] - committed[0]) / (times[-1] - times[0]))


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

    def above(error_share: float) -> bool:
        return slope > max(0.0, error * float(stdtrit(independent - 2.0, 1.0 - error_share)))

    edge = max(0.0, -float(np.diff(lag).min())) / float(times[-1] - times[0])
    return Slope(
        rps=slope,
        standard_error_rps=error,
        above_zero=above(SLOPE_ERROR),
        certain=above(CERTAIN_ERROR),
        edge_rps=edge,
    )
