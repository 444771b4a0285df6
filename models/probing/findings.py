"""What a search has found: the capacity of each scale-out, and how far the search is.

A capacity is what `CapacityModel` says, fitted on the probes so far: the model that decisions will have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..capacity.curves import effective_slots
from ..quantities import Interval, Unknown, executors
from .state import Bracket, State, adaptive_executor_seconds, believed, grid_executor_seconds

SURPRISE = (
    0.15  # in log T: four deviations of what 3 % noise leaves around a line through two others; judgement
)


def informative(state: State) -> bool:
    """Whether there is anything to expect a capacity from."""
    settings = state.settings
    measured = (r for s in settings.scale_outs for r in believed(state.valid(s)))
    return bool(settings.guesses) or any(r.clear for r in measured)


def surprising(state: State) -> dict[int, float]:
    """Scale-outs whose results need another one -> the rate that is expected there, most surprising first.

    Measured once, off the line through the neighbours by more than noise: a step of the curve, or a probe
    that was wrong without showing it. Or measured twice, and as far apart: a third tells the odd one.
    """
    slots: list[float] = []
    logs: list[float] = []
    once: list[int] = []
    off: dict[int, tuple[float, float]] = {}
    sizes = [s for s in state.settings.scale_outs if state.has_value(s)]
    for size in sizes:
        values = [math.log(r.value_rps) for r in believed(state.valid(size)) if not r.sustained]
        slots.append(math.log(effective_slots(size, state.settings.tasks)))
        logs.append(math.fsum(values) / len(values))
        once += [size] if len(values) == 1 else []
        if len(values) == 2 and max(values) - min(values) > SURPRISE:
            off[size] = max(values) - min(values), math.exp(max(values))
    for i, size in enumerate(sizes):
        nearest = sorted((j for j in range(len(sizes)) if j != i), key=lambda j: abs(j - i))[:2]
        if size not in once or len(nearest) < 2:
            continue
        a, b = nearest
        if slots[a] == slots[b]:
            continue
        line = logs[a] + (logs[b] - logs[a]) * (slots[i] - slots[a]) / (slots[b] - slots[a])
        if abs(logs[i] - line) > SURPRISE:
            off[size] = abs(logs[i] - line), math.exp(line)
    return {s: off[s][1] for s in sorted(off, key=lambda s: -off[s][0])}


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
    text: str


def estimates(state: State) -> dict[int, Estimate]:
    """The capacity of each scale-out, as far as the search has come."""
    doubted = surprising(state)
    found: dict[int, Estimate] = {}
    for size in state.settings.scale_outs:
        bracket, measured = state.bracket(size), state.has_value(size)
        capacity = state.capacity.predict(size)
        if not measured and (refusal := _refusal(state, size, bracket)):
            capacity = Unknown(refusal)
        elif not measured and isinstance(capacity, Unknown):
            capacity = Unknown(f"{_not_reached(state, size, bracket)}: {capacity.reason}")
        found[size] = Estimate(
            scale_out=size,
            capacity=capacity,
            bracket=bracket,
            probes=len(state.valid(size)),
            invalid=len(state.at(size)) - len(state.valid(size)),
            measured=measured,
            flagged=bracket.flag or _off_the_line(size, doubted),
        )
    return found


def _off_the_line(size: int, doubted: dict[int, float]) -> str:
    if size not in doubted:
        return ""
    return f"{doubted[size]:,.0f} records/s were expected here; probe it once more"


def _refusal(state: State, size: int, bracket: Bracket) -> str:
    if given_up := state.given_up(size):
        return given_up
    return f"its probes contradict each other: {bracket.contradiction}" if bracket.contradiction else ""


def _not_reached(state: State, size: int, bracket: Bracket) -> str:
    if bracket.sustained_rps > 0.0:
        return f"{executors(size)} sustained {bracket.sustained_rps:,.0f} records/s and were never saturated"
    why = f" ({state.done})" if state.done else " yet"
    return f"{executors(size, 'were')} not probed{why}"


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
    if settings.strategy == "adaptive":
        missing = sum(s for s in settings.scale_outs if not state.has_value(s) and not state.given_up(s))
        return max(
            adaptive_executor_seconds(settings, state.expected),
            state.spent + missing * (settings.warm_up_s + settings.probe_s),
        )
    first, increment = settings.grid
    cost = grid_executor_seconds(
        {s: one.mid_rps for s, one in state.expected.items()},
        increment_rps=increment,
        first_rate_rps=first,
        probe_s=settings.probe_s,
        warm_up_s=settings.warm_up_s,
    )
    return min(cost, math.inf if budget is None else budget)
