"""What a search has found: the capacity of each scale-out, and how far the search is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..capacity.curves import effective_slots
from ..capacity.smooth import Seen, SmoothCurve, fit_curve
from ..quantities import Interval, Measurement, Unknown, executors, quantile_95
from .state import Bracket, State, adaptive_executor_seconds, believed, grid_executor_seconds

SURPRISE = (
    0.15  # in log T: four deviations of what 3 % noise leaves around a line through two others; judgement
)


def informative(state: State) -> bool:
    """Whether there is anything to predict a capacity from."""
    return bool(
        state.settings.guesses
        or any(not m.sustained for m in state.known)
        or any(r.clear for s in state.settings.scale_outs for r in believed(state.valid(s)))
    )


def curve_of(state: State, scale_outs: Iterable[int] | None = None) -> SmoothCurve:
    """Everything known about the capacities, at these scale-outs (default: those of the search)."""
    settings = state.settings
    noise, _ = noise_of(state)
    seen = [
        Seen(
            scale_out=m.scale_out,
            rps=m.throughput_rps,
            sustained=m.sustained,
            earlier=True,
            relative_error=(m.standard_error_rps or 0.0) / m.throughput_rps,
        )
        for m in state.known
    ]
    seen += [
        Seen(
            scale_out=s,
            rps=r.value_rps,
            sustained=r.sustained,
            # One that only just fell short may have gone badly by chance: it counts for less.
            relative_error=max(
                (r.standard_error_rps or 0.0) / r.value_rps, 0.0 if r.sustained or r.clear else 1.25 * noise
            ),
        )
        for s in settings.scale_outs
        for r in believed(state.valid(s))
    ]
    return fit_curve(
        settings.scale_outs if scale_outs is None else scale_outs,
        seen,
        noise=noise,
        drift=settings.drift,
        tasks=settings.tasks,
        guess=dict(settings.guesses),
    )


REPEATS = 2.0  # results' worth of the noise that was stated; judgement: few repeats overrule it


def noise_of(state: State) -> tuple[float, float]:
    """Relative deviation of one probe, and its degrees of freedom: what was stated, and what repeats show."""
    squares, degrees = REPEATS * state.settings.noise**2, REPEATS
    for size in state.settings.scale_outs:
        logs = [math.log(r.value_rps) for r in believed(state.valid(size)) if r.clear]
        if len(logs) > 1:
            mean = math.fsum(logs) / len(logs)
            squares += math.fsum((y - mean) ** 2 for y in logs)
            degrees += len(logs) - 1
    return math.sqrt(squares / degrees), degrees


def likely(curve: SmoothCurve) -> dict[int, float]:
    """The most likely capacities."""
    return {int(s): middle(curve, s) for s in curve.scale_outs}


def largest(curve: SmoothCurve) -> float:
    """Upper end of the largest capacity."""
    return max(curve.interval(s).high for s in curve.scale_outs)


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


def middle(curve: SmoothCurve, scale_out: float) -> float:
    """The most likely capacity there."""
    return math.exp(float(curve.log_mean[curve.scale_outs.index(scale_out)]))


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
    text: str


def estimates(state: State) -> dict[int, Estimate]:
    """The capacity of each scale-out, as far as the search has come."""
    curve = curve_of(state) if informative(state) else None
    covered = sum(state.has_value(s) for s in state.settings.scale_outs)
    noise, degrees = noise_of(state)
    if curve is not None and noise > state.settings.noise:  # known from the repeats alone
        curve = replace(curve, quantile=quantile_95(degrees))
    doubted = surprising(state)
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
        capacities,
        increment_rps=increment,
        first_rate_rps=first,
        probe_s=settings.probe_s,
        warm_up_s=settings.warm_up_s,
    )
    return min(cost, math.inf if budget is None else budget)
