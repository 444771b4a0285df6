"""Settings of a capacity search, and what a search costs.

One probe costs s · (warm-up + watching) executor-seconds. A grid of rates r0, r0 + d, … asks every
scale-out s, with capacity T(s), for each rate it sustains and one more:

    grid = Σ_s s · (⌊(T(s) - r0) / d⌋ + 2) · (warm-up + watching)

which for r0 = d is Σ_s s · (⌊T(s)/d⌋ + 1). The adaptive search needs a fifth of a grid with d = max T / 11.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..arguments import number, whole
from ..quantities import Misuse

Strategy = Literal["adaptive", "stepped"]
STRATEGIES: tuple[Strategy, ...] = ("adaptive", "stepped")

NOISE = (
    0.03  # relative deviation of one probe's saturated throughput; the 2–13 % of StreamBed's repeats at best
)
BRACKET = 0.01  # relative width at which a search has ended: StreamBed §4.2
RETRIES = 3  # with one probe in ten invalid, a scale-out is given up for nothing once in 10 000; judgement
MOST_PROBES = 12  # valid ones per scale-out: they leave under 1 % error from 3 % noise; judgement
DRIFT = 0.20  # by how much an earlier session's results may be off; less would not be probed again; judgement


def grid_scale_outs(smallest: int, largest: int, count: int) -> tuple[int, ...]:
    """The scale-outs of a profiling grid of `count` sizes: evenly spread, both ends included."""
    low, high, n = whole("smallest", smallest), whole("largest", largest), whole("count", count)
    if high < low:
        raise Misuse("largest", f"must be >= smallest ({low}), got {high}")
    if n == 1 and low != high:
        raise Misuse("count", f"both ends {low} and {high} are visited: at least 2 is needed")
    if n > high - low + 1:
        raise Misuse("count", f"there are only {high - low + 1} scale-outs from {low} to {high}, got {n}")
    return (
        (low,) if n == 1 else tuple(low + ((high - low) * i * 2 + n - 1) // (2 * (n - 1)) for i in range(n))
    )


@dataclass(frozen=True)
class Settings:
    """What a search is asked to do. A first rate or a guess saves probes that find the order of magnitude."""

    scale_outs: Sequence[int]
    warm_up_s: float
    probe_s: float
    strategy: Strategy = "adaptive"
    first_rate_rps: float | None = None
    """The first rate of the grid; for the adaptive search any rate, if nothing better is known."""
    increment_rps: float | None = None
    """The step of the grid; the adaptive search has none."""
    first_guess: Mapping[int, float] | float | None = None
    """Capacity by scale-out, or at one executor, as one single-slot run and `bounded_inverse_ds2` give it."""
    budget_executor_seconds: float | None = None
    """Without one the adaptive search ends at a fifth of what the grid would cost, once all are measured."""
    highest_rate_rps: float | None = None
    """What the source can emit at most; it is learnt when two probes in a row fall short at the same rate."""
    tasks: int | None = None
    """Partitions, where they bound what an executor can do: capacity is then a staircase in the scale-out."""
    parallel: int | None = None
    """Probes at once; by default one for `adaptive`, all that are in the step for `stepped`."""
    executors_at_once: int | None = None
    """Executors the probes that run at once may hold together."""
    noise: float = NOISE
    bracket: float = BRACKET
    retries: int = RETRIES
    most_probes: int = MOST_PROBES
    drift: float = DRIFT

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if isinstance(self.scale_outs, str | int | float) or not len(self.scale_outs):
            raise Misuse("scale_outs", f"needs at least one scale-out, got {self.scale_outs!r}")
        sizes = sorted(whole("scale_outs", s) for s in self.scale_outs)
        if len(set(sizes)) < len(sizes):
            raise Misuse("scale_outs", f"names a scale-out twice: {', '.join(map(str, sizes))}")
        put("scale_outs", tuple(sizes))
        if self.strategy not in STRATEGIES:
            raise Misuse("strategy", f"must be one of {', '.join(STRATEGIES)}, got {self.strategy!r}")
        number("warm_up_s", self.warm_up_s, at_least=0.0)
        for name in ("probe_s", "noise", "bracket"):
            number(name, getattr(self, name), above=0.0)
        for name in ("first_rate_rps", "increment_rps", "budget_executor_seconds", "highest_rate_rps"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), above=0.0)
        number("drift", self.drift, at_least=0.0)
        whole("retries", self.retries, at_least=0)
        for name in ("most_probes", "tasks", "parallel", "executors_at_once"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        if self.executors_at_once is not None and sizes[-1] > self.executors_at_once:
            raise Misuse(
                "executors_at_once",
                f"must hold the largest scale-out, {sizes[-1]}, got {self.executors_at_once}",
            )
        guess = self.first_guess
        if isinstance(guess, Mapping):
            pairs = sorted(
                (whole("first_guess", s), number("first_guess", r, above=0.0)) for s, r in guess.items()
            )
            put("first_guess", dict(pairs))
        elif guess is not None:
            number("first_guess", guess, above=0.0)
        if self.strategy == "stepped":
            _ = self.grid

    @property
    def guesses(self) -> tuple[tuple[int, float], ...]:
        """(Scale-out, first guess of its capacity), the smallest first."""
        guess = self.first_guess
        if isinstance(guess, Mapping):
            return tuple(guess.items())
        return () if guess is None else ((1, float(guess)),)

    @property
    def grid(self) -> tuple[float, float]:
        """First rate and increment of the stepped strategy."""
        if self.first_rate_rps is None or self.increment_rps is None:
            raise Misuse("first_rate_rps", "the stepped strategy needs first_rate_rps and increment_rps")
        return self.first_rate_rps, self.increment_rps

    @property
    def cap_rps(self) -> float:
        """The highest rate that may be asked of the source."""
        return float("inf") if self.highest_rate_rps is None else self.highest_rate_rps


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
    """The cost of a grid that drives every scale-out past these capacities."""
    first = increment_rps if first_rate_rps is None else first_rate_rps
    number("increment_rps", increment_rps, above=0.0)
    each = number("probe_s", probe_s, above=0.0) + number("warm_up_s", warm_up_s, at_least=0.0)
    return each * math.fsum(
        s * (max(0, math.floor((t - first) / increment_rps) + 1) + 1) for s, t in capacities.items()
    )


def adaptive_executor_seconds(
    settings: Settings, capacities: Mapping[int, float], *, largest_rps: float | None = None
) -> float:
    """What the adaptive search may cost without a budget, if these are the capacities.

    The mean of ⌊x⌋ + 1 is x + ½, which unlike the floor does not jump when an estimate moves a little. The
    grid's step is taken from `largest_rps`, the upper end of the largest capacity, so that the share is kept.
    """
    step = (largest_rps or max(capacities.values())) / GRID_STEPS
    each = settings.warm_up_s + settings.probe_s
    return GRID_SHARE * each * math.fsum(s * (t / step + 0.5) for s, t in capacities.items())
