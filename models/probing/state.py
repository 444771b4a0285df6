"""A capacity search at one point: its settings, what was probed, and what the probes of each scale-out say.

A bracket is (highest rate sustained, lowest rate not sustained). Two results contradict each other when one
shows that the job could do more than the other allows, by more than the noise of a probe:

    sustained at y      against  saturated at z          y > 1.10 z
    saturated at y      against  not sustained at r      y > 1.10 r      (it fell short of what it can do)
    saturated at y      against  saturated at z          y > 1.25 z

Of two either may be wrong; with a third the odd one out is left aside.

**Cost.** One probe costs s · (warm-up + watching) executor-seconds. A grid of rates r0, r0 + d, … asks every
scale-out s, with capacity T(s), for each rate it sustains and one more:

    grid = Σ_s s · (⌊(T(s) - r0) / d⌋ + 2) · (warm-up + watching)

which for r0 = d is Σ_s s · (⌊T(s)/d⌋ + 1). The adaptive search needs a fifth of a grid with d = max T / 11.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, Protocol, TypeVar

from ..arguments import number, whole
from ..capacity import CapacityModel
from ..capacity.smooth import Expected
from ..quantities import Measurement, Misuse
from .probe import Probe, Result

Strategy = Literal["adaptive", "stepped"]
STRATEGIES: tuple[Strategy, ...] = ("adaptive", "stepped")

BRACKET = 0.01  # relative width at which a search has ended: StreamBed §4.2
RETRIES = 3  # with one probe in ten invalid, a scale-out is given up for nothing once in 10 000; judgement
MOST_PROBES = 12  # valid ones per scale-out: they leave under 1 % error from 3 % noise; judgement


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
    tasks: int | None = None
    """Partitions, where they bound what an executor can do: capacity is then a staircase in the scale-out."""
    parallel: int | None = None
    """Probes at once; by default one for `adaptive`, all that are in the step for `stepped`."""
    most_rps: float = math.inf
    """The highest rate worth asking."""
    executors_at_once: int | None = None
    """Executors the probes that run at once may hold together."""
    bracket: float = BRACKET
    retries: int = RETRIES
    most_probes: int = MOST_PROBES

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
        if self.most_rps != math.inf:
            number("most_rps", self.most_rps, above=0.0)
        for name in ("probe_s", "bracket"):
            number(name, getattr(self, name), above=0.0)
        for name in ("first_rate_rps", "increment_rps", "budget_executor_seconds"):
            if getattr(self, name) is not None:
                number(name, getattr(self, name), above=0.0)
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


def adaptive_executor_seconds(settings: Settings, sizes: Mapping[int, Expected]) -> float:
    """What the adaptive search may cost without a budget, if this is to be expected of each scale-out.

    The mean of ⌊x⌋ + 1 is x + ½, which unlike the floor does not jump when an estimate moves a little. The
    grid's step is taken from the upper end of the largest capacity, so that the share is kept.
    """
    step = max(one.interval.high for one in sizes.values()) / GRID_STEPS
    each = settings.warm_up_s + settings.probe_s
    return GRID_SHARE * each * math.fsum(s * (one.mid_rps / step + 0.5) for s, one in sizes.items())


CONTRADICTION = 0.10  # what CapacityModel merges with a wider interval; beyond it refuses
APART = 0.25  # two estimates: six deviations at 3 % noise, so that noise alone takes nothing away; judgement


class Shown(Protocol):
    """What a valid result has shown, also where only that is left of it."""

    @property
    def sustained(self) -> bool: ...
    @property
    def value_rps(self) -> float: ...
    @property
    def rate_rps(self) -> float: ...


Each = TypeVar("Each", bound=Shown)


@dataclass(frozen=True)
class Bracket:
    """Highest rate kept up with and lowest rate not kept up with at one scale-out; 0 and inf without one."""

    sustained_rps: float
    not_sustained_rps: float
    contradiction: str = ""
    """Which results cannot both be true, beyond noise; or empty."""

    @property
    def flag(self) -> str:
        if not self.contradiction and self.sustained_rps > self.not_sustained_rps:
            return (
                f"{self.sustained_rps:,.0f} records/s was sustained and {self.not_sustained_rps:,.0f} was "
                "not; within the noise of a probe"
            )
        return self.contradiction

    @property
    def width(self) -> float:
        """Relative width; inf while a side is open or results contradict, 0 where noise has crossed them."""
        if self.contradiction or self.sustained_rps <= 0.0:
            return math.inf
        return max(0.0, self.not_sustained_rps / self.sustained_rps - 1.0)


def bracket_of(results: Sequence[Result]) -> Bracket:
    """The bracket these valid results make."""
    found = _contradiction(results)
    return Bracket(
        sustained_rps=max((r.value_rps for r in results if r.sustained), default=0.0),
        not_sustained_rps=min((r.rate_rps for r in results if not r.sustained), default=math.inf),
        contradiction=_in_words(*found) if found else "",
    )


def believed(results: Sequence[Each]) -> tuple[Each, ...]:
    """The valid results of one scale-out without the odd ones; none where it is open which are odd."""
    kept = list(results)
    while found := _contradiction(kept):
        least = found[1].value_rps
        # A low rate that was sustained says nothing against a higher capacity.
        witnesses = [r for r in kept if not r.sustained or r.value_rps > least]
        if len(witnesses) < 3:
            return ()
        middle = sorted(r.value_rps for r in witnesses)[len(witnesses) // 2]
        kept.remove(max(found, key=lambda r: abs(math.log(r.value_rps / middle))))
    return tuple(kept)


def _contradiction(results: Sequence[Each]) -> tuple[Each, Each] | None:
    """The pair that contradicts itself most: what could be done, and what contradicts it."""
    worst: float = 1.0
    pair: tuple[Each, Each] | None = None
    for able in results:
        for short in results:
            if short.sustained or short is able:
                continue
            excess = able.value_rps / short.value_rps / (1.0 + (CONTRADICTION if able.sustained else APART))
            excess = max(excess, able.value_rps / short.rate_rps / (1.0 + CONTRADICTION))
            if excess > worst * (1.0 + 1e-12):
                worst, pair = excess, (able, short)
    return pair


def _in_words(able: Result, short: Result) -> str:
    did = "was sustained" if able.sustained else "was processed"
    return (
        f"{able.value_rps:,.0f} records/s {did}, yet another probe saturated at {short.value_rps:,.0f} "
        f"of {short.rate_rps:,.0f}"
    )


SAME_RATE = 1.10  # two shortfalls within 10 % are one limit; judgement
REACHABLE = 0.97  # of a source's own limit it holds steadily; judgement


@dataclass(frozen=True)
class Done:
    """The search is over, with the reason."""

    reason: str


@dataclass(frozen=True)
class State:
    """A search at one point. Immutable; `tell` gives the next one. JSON both ways at any point."""

    schema: ClassVar[int] = 1
    settings: Settings
    results: tuple[Result, ...] = ()
    pending: tuple[Probe, ...] = ()
    """Asked and without a result: asked again after a crash."""
    done: str = ""

    @cached_property
    def _by_size(self) -> dict[int, tuple[Result, ...]]:
        sizes: dict[int, list[Result]] = {s: [] for s in self.settings.scale_outs}
        for result in self.results:
            sizes[result.probe.scale_out].append(result)
        return {s: tuple(r) for s, r in sizes.items()}

    def at(self, scale_out: int) -> tuple[Result, ...]:
        """Every result at this scale-out, in the order of their arrival."""
        return self._by_size[scale_out]

    def valid(self, scale_out: int) -> tuple[Result, ...]:
        return tuple(r for r in self.at(scale_out) if r.valid)

    def bracket(self, scale_out: int) -> Bracket:
        return bracket_of(self.valid(scale_out))

    def invalid_in_a_row(self, scale_out: int) -> tuple[Result, ...]:
        results = self.at(scale_out)
        last = max((i for i, r in enumerate(results) if r.valid), default=-1)
        return results[last + 1 :]

    def given_up(self, scale_out: int) -> str:
        """Why this scale-out is not probed any more; empty while it is."""
        failed = self.invalid_in_a_row(scale_out)
        if len(failed) <= self.settings.retries:
            return ""
        return f"given up after {len(failed)} invalid probes in a row; the last one: {failed[-1].reason}"

    def has_value(self, scale_out: int) -> bool:
        """Whether the capacity here was measured directly, at least once, without an open contradiction.

        A rate that was only just missed counts once one half as high was sustained: alone it may be noise.
        """
        results = believed(self.valid(scale_out))
        sustained = max((r.value_rps for r in results if r.sustained), default=0.0)
        return any(r.clear or (not r.sustained and 2.0 * sustained >= r.value_rps) for r in results)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The probes as measurements for the capacity model; an invalid or odd one is not among them."""
        return tuple(r.measurement for s in self.settings.scale_outs for r in believed(self.valid(s)))

    @cached_property
    def capacity(self) -> CapacityModel:
        """The model that decisions would have, were the search over."""
        return CapacityModel.fit(self.measurements, tasks=self.settings.tasks)

    @cached_property
    def expected(self) -> dict[int, Expected]:
        """What each scale-out may do by all that is known, and what one more probe there would settle."""
        return self.capacity.expected(self.settings.scale_outs, guess=dict(self.settings.guesses))

    @cached_property
    def spent(self) -> float:
        return math.fsum(r.cost for r in self.results)

    @cached_property
    def committed(self) -> float:
        """Executor-seconds used, and those the pending probes will use."""
        return self.spent + math.fsum(p.executor_seconds for p in self.pending)

    @cached_property
    def source_limit_rps(self) -> float:
        """The highest rate worth asking, also learnt from a source that fell short twice alike."""
        limit = self.settings.most_rps
        reached = max((r.rate_rps for r in self.results if r.valid), default=0.0)
        for size in self.settings.scale_outs:
            short = [
                r.offered_rps
                for r in self.at(size)
                if not r.valid and r.offered_rps and r.offered_rps < 0.99 * r.probe.rate_rps
            ]
            for one, two in itertools.pairwise(short):
                # One shortfall may be a lost command; two that agree are the source's own limit.
                if max(one, two) <= SAME_RATE * min(one, two) and min(one, two) > reached:
                    limit = min(limit, REACHABLE * min(one, two))
        return limit
