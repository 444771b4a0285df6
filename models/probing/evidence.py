"""What do the results of a search say about the capacity of each scale-out?

The results of one session, the earlier ones it began from and the first guess become one `Curve`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .curve import Curve, Seen, fit_curve
from .state import State, believed


def informative(state: State) -> bool:
    """Is there anything at all to predict a capacity from?"""
    return bool(
        state.settings.guesses
        or any(not m.sustained for m in state.known)
        or any(not r.sustained for s in state.settings.scale_outs for r in believed(state.valid(s)))
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


def middle(curve: Curve, scale_out: int) -> float:
    """The most likely capacity there."""
    return math.exp(float(curve.log_mean[curve.scale_outs.index(scale_out)]))
