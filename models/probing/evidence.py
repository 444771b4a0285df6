"""What do the results of a search say about the capacity of each scale-out?

The results of one session, the earlier ones it began from and the first guess become one `Curve`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .brackets import believed
from .curve import Curve, Seen, effective_slots, fit_curve
from .state import State

SURPRISE = (
    0.15  # in log T: four deviations of what 3 % noise leaves around a line through two others; judgement
)


def informative(state: State) -> bool:
    """Is there anything at all to predict a capacity from?"""
    return bool(
        state.settings.guesses
        or any(not m.sustained for m in state.known)
        or any(r.clear for s in state.settings.scale_outs for r in believed(state.valid(s)))
    )


def curve_of(state: State, scale_outs: Iterable[int] | None = None) -> Curve:
    """Everything known about the capacities, at these scale-outs (default: those of the search)."""
    settings = state.settings
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
            relative_error=(r.standard_error_rps or 0.0) / r.value_rps,
        )
        for s in settings.scale_outs
        for r in believed(state.valid(s))
    ]
    return fit_curve(
        settings.scale_outs if scale_outs is None else scale_outs,
        seen,
        noise=settings.noise,
        drift=settings.drift,
        tasks=settings.tasks,
        guess=dict(settings.guesses),
    )


def likely(curve: Curve) -> dict[int, float]:
    """The most likely capacities."""
    return {s: middle(curve, s) for s in curve.scale_outs}


def largest(curve: Curve) -> float:
    """How much, at most, does the most capable scale-out do?"""
    return max(curve.interval(s).high for s in curve.scale_outs)


def surprising(state: State) -> dict[int, float]:
    """Which scale-outs, measured once, lie off the line through their neighbours, and what does it say there?

    Off by more than noise: a step of the curve, or one probe that was wrong in a way nobody could see.
    Most surprising first.
    """
    slots: list[float] = []
    logs: list[float] = []
    once: list[int] = []
    sizes = [s for s in state.settings.scale_outs if state.has_value(s)]
    for size in sizes:
        values = [r.value_rps for r in believed(state.valid(size)) if not r.sustained]
        slots.append(math.log(effective_slots(size, state.settings.tasks)))
        logs.append(math.fsum(map(math.log, values)) / len(values))
        once += [size] if len(values) == 1 else []
    off: dict[int, tuple[float, float]] = {}
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


def middle(curve: Curve, scale_out: int) -> float:
    """The most likely capacity there."""
    return math.exp(float(curve.log_mean[curve.scale_outs.index(scale_out)]))
