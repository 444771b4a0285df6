"""What a search has found, and how far it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..quantities import Interval, Measurement, Unknown, executors
from .curve import curve_of, informative, largest, likely
from .settings import adaptive_executor_seconds, grid_executor_seconds
from .state import Bracket, State, believed

WIDEST = 0.25  # half-width of a 90 % interval; beyond it an unsaturated scale-out stays unknown; judgement
FEWEST_FOR_A_CURVE = 2  # scale-outs with a value of their own before others are read off the curve


@dataclass(frozen=True)
class Estimate:
    """What is known of one scale-out."""

    scale_out: int
    capacity: Interval | Unknown
    """90 % interval for the noise-free capacity, records/s; its `mid` is the estimate."""
    bracket: Bracket
    probes: int
    invalid: int
    measured: bool
    """False: read off the curve through the other scale-outs."""
    flagged: str = ""
    """What is inconsistent in its results, if anything."""


@dataclass(frozen=True)
class Progress:
    """How far the search is, for a progress bar."""

    fraction: float
    spent_executor_seconds: float
    expected_executor_seconds: float | Unknown
    known: int
    """Scale-outs that have a value of their own."""
    wanted: int
    text: str


def estimates(state: State) -> dict[int, Estimate]:
    """The capacity of each scale-out, as far as the search has come."""
    curve = curve_of(state) if informative(state) else None
    covered = sum(state.has_value(s) for s in state.settings.scale_outs)
    found: dict[int, Estimate] = {}
    for size in state.settings.scale_outs:
        bracket, measured = state.bracket(size), state.has_value(size)
        capacity: Interval | Unknown
        if curve is not None and measured:
            capacity = curve.interval(size)
        elif refusal := _refusal(state, size, bracket):
            capacity = Unknown(refusal)
        elif curve is None or (covered < FEWEST_FOR_A_CURVE and not state.known):
            capacity = Unknown(_not_reached(state, size, bracket))
        else:
            capacity = curve.interval(size)
            if capacity.high > capacity.mid * (1.0 + WIDEST):
                capacity = Unknown(
                    f"{_not_reached(state, size, bracket)}; read off the others it is anything from "
                    f"{capacity.low:,.0f} to {capacity.high:,.0f} records/s"
                )
        found[size] = Estimate(
            scale_out=size,
            capacity=capacity,
            bracket=bracket,
            probes=len(state.valid(size)),
            invalid=len(state.at(size)) - len(state.valid(size)),
            measured=measured,
            flagged=bracket.flag,
        )
    return found


def _refusal(state: State, size: int, bracket: Bracket) -> str:
    if given_up := state.given_up(size):
        return given_up
    return f"its probes contradict each other: {bracket.contradiction}" if bracket.contradiction else ""


def _not_reached(state: State, size: int, bracket: Bracket) -> str:
    if bracket.sustained_rps > 0.0:
        return f"{executors(size)} sustained {bracket.sustained_rps:,.0f} records/s and were never saturated"
    why = f" ({state.done})" if state.done else " yet"
    return f"{executors(size, 'were')} not probed{why}"


def measurements(state: State) -> tuple[Measurement, ...]:
    """The probes of this session as measurements for the capacity model; an invalid one is not among them."""
    return tuple(
        result.measurement for size in state.settings.scale_outs for result in believed(state.valid(size))
    )


def progress(state: State) -> Progress:
    """How much of the search is done, and what is known so far."""
    sizes = state.settings.scale_outs
    covered = sum(state.has_value(s) for s in sizes)
    expected = _expected(state)
    if state.done and not state.pending:
        fraction = 1.0
    elif isinstance(expected, Unknown) or expected <= 0.0:
        fraction = 0.5 * covered / len(sizes)
    else:
        fraction = min(0.99, state.spent / expected)
    text = f"{covered} of {len(sizes)} scale-outs measured, {len(state.results)} probes, {state.spent:,.0f}"
    if not isinstance(expected, Unknown):
        text += f" of about {expected:,.0f}"
    return Progress(
        fraction=fraction,
        spent_executor_seconds=state.spent,
        expected_executor_seconds=expected,
        known=covered,
        wanted=len(sizes),
        text=text + " executor-seconds",
    )


def _expected(state: State) -> float | Unknown:
    """The whole search's cost, from the curve as known so far."""
    settings = state.settings
    budget = settings.budget_executor_seconds
    if settings.strategy == "adaptive" and budget is not None:
        return budget
    if not informative(state):
        return Unknown("no scale-out is saturated yet")
    curve = curve_of(state)
    capacities = likely(curve)
    if settings.strategy == "adaptive":
        missing = sum(s for s in settings.scale_outs if not state.has_value(s) and not state.given_up(s))
        return max(
            adaptive_executor_seconds(settings, capacities, largest_rps=largest(curve)),
            state.spent + missing * (settings.warm_up_s + settings.probe_s),
        )
    first, increment = settings.grid
    cost = grid_executor_seconds(
        {s: min(t, settings.cap_rps) for s, t in capacities.items()},
        increment_rps=increment,
        first_rate_rps=first,
        probe_s=settings.probe_s,
        warm_up_s=settings.warm_up_s,
    )
    return min(cost, math.inf if budget is None else budget)
