"""What will a search cost?

One probe costs s · (warm-up + watching) executor-seconds. A grid of rates r0, r0 + d, … asks every
scale-out s, with capacity T(s), for each rate it sustains and one more:

    grid = Σ_s s · (⌊(T(s) - r0) / d⌋ + 2) · (warm-up + watching)

which for r0 = d is Σ_s s · (⌊T(s)/d⌋ + 1). The adaptive search needs a fifth of a grid with d = max T / 11.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..arguments import number
from ..quantities import Unknown
from .settings import Settings

GRID_STEPS = 11  # Phoebe's own grid: 20 000 … 220 000 events/s
GRID_SHARE = 0.19  # of the grid's cost: its floors and the largest capacity are only known to a few percent


def grid_executor_seconds(
    capacities: Mapping[int, float],
    *,
    increment_rps: float,
    probe_s: float,
    warm_up_s: float = 0.0,
    first_rate_rps: float | None = None,
) -> float:
    """What does a grid cost that drives every scale-out past these capacities?"""
    first = increment_rps if first_rate_rps is None else first_rate_rps
    number("increment_rps", increment_rps, above=0.0)
    each = number("probe_s", probe_s, above=0.0) + number("warm_up_s", warm_up_s, at_least=0.0)
    return each * math.fsum(
        s * (max(0, math.floor((t - first) / increment_rps) + 1) + 1) for s, t in capacities.items()
    )


def adaptive_executor_seconds(
    settings: Settings, capacities: Mapping[int, float], *, largest_rps: float | None = None
) -> float:
    """What does the adaptive search allow itself without a budget, if these are the capacities?

    The mean of ⌊x⌋ + 1 is x + ½, which unlike the floor does not jump when an estimate moves a little. The
    grid's step is taken from `largest_rps`, the upper end of the largest capacity, so that the share is kept.
    """
    step = (largest_rps or max(capacities.values())) / GRID_STEPS
    each = settings.warm_up_s + settings.probe_s
    return GRID_SHARE * each * math.fsum(s * (t / step + 0.5) for s, t in capacities.items())


def expected_executor_seconds(
    settings: Settings, capacities: Mapping[int, float] | None = None
) -> float | Unknown:
    """What will this search cost, before it begins? From these capacities, or from its first guess."""
    known = dict(capacities) if capacities else dict(settings.guesses)
    budget = settings.budget_executor_seconds
    if settings.strategy == "adaptive" and budget is not None:
        return budget
    if not known:
        return Unknown("the cost depends on the capacities, and there is no first_guess of them")
    at = {s: _scaled(known, s) for s in settings.scale_outs}
    if settings.strategy == "adaptive":
        once = math.fsum(settings.scale_outs) * (settings.warm_up_s + settings.probe_s)
        return max(once, adaptive_executor_seconds(settings, at))
    first, increment = settings.grid
    cost = grid_executor_seconds(
        {s: min(t, settings.cap_rps) for s, t in at.items()},
        increment_rps=increment,
        first_rate_rps=first,
        probe_s=settings.probe_s,
        warm_up_s=settings.warm_up_s,
    )
    return cost if budget is None else min(cost, budget)


def _scaled(known: Mapping[int, float], size: int) -> float:
    """The nearest known capacity, in proportion."""
    nearest = min(known, key=lambda s: abs(math.log(s / size)))
    return known[nearest] * size / nearest
