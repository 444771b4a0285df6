"""Which naive forecast does best on what was seen lately? In milliseconds, with numpy alone.

What stands in when the fitted model has failed: the last value, the recent median or the value one period
ago, whichever the back-test over the horizon in use prefers, with its own errors as the band.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..arguments import number, numbers, whole
from ..quantities import Unknown
from . import backtest, bands
from .backtest import Candidate
from .forecaster import LONGEST_MEDIAN, SHORTEST_MEDIAN, Forecaster
from .naive import LastValue, RecentMedian, SeasonalNaive


def naive_forecaster(
    history_rps: Any, *, step_s: float, steps: int, periods: Iterable[int] = (), seed: int = 0
) -> Forecaster | Unknown:
    """The best naive forecaster for the next `steps`, or why there is none.

    `history_rps`: oldest first, NaN where nothing was observed. `periods`: those known, in steps; one that
    was not seen twice is left out.
    """
    values = numbers("history_rps", history_rps, at_least=0.0, missing_allowed=True)
    steps, seed = whole("steps", steps), whole("seed", seed, at_least=0)
    step_s = number("step_s", step_s, above=0.0)
    seen = np.flatnonzero(~np.isnan(values))
    if not seen.size:
        return Unknown("no rate was observed, so there is nothing to forecast from")
    values = values[seen[0] :]
    known = sorted({p for p in periods if 1 < p <= values.size // 2})
    window = min(max(2 * steps, SHORTEST_MEDIAN), LONGEST_MEDIAN)

    def candidates() -> list[Candidate]:
        median = [RecentMedian(window=window)] if values.size > SHORTEST_MEDIAN else []
        return [LastValue(), *median, *(SeasonalNaive(period=p) for p in known)]

    where = backtest.plan(values.size, steps=steps, after=max(known, default=0))
    if where.origins and np.isnan(values[where.origins[0] :]).all():
        where = backtest.Plan((), steps)
    trials = [backtest.run(candidate, values, where) for candidate in candidates()]
    choice = backtest.choose(trials, where, naive=len(trials))
    winner = candidates()[choice.index]
    winner.see(values)
    return Forecaster(
        step_s=step_s,
        steps=steps,
        seed=seed,
        model=winner,
        spread=bands.spread(trials[choice.index], where, horizon=steps, history=values, seed=seed),
        why=choice.why if where.origins else "last value: there is nothing to test a forecast against",
        errors={trial.name: trial.error() for trial in trials if len(trial.losses)},
    )
