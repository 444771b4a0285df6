"""Which probe tells most for its executor-seconds?

1. Scout: while nothing is known, the smallest scale-out is driven up until it saturates: the cheapest begin.
2. Cover: every scale-out is saturated once. A saturated probe *measures* the capacity (what was processed),
   which a kept-up rate does not; and small ones, done early, say at which rate a large one will saturate.
3. Refine: where a probe lowers the summed variance of log T most per executor-second, at the most likely
   capacity: half of these probes are sustained and prove the estimate from below, the others measure it
   again. A scale-out that was measured once and lies off the line through its neighbours is saturated again
   first: it is a step of the curve, or it was a probe nobody should have believed.

It ends at a 1 % bracket (or a 90 % interval as narrow) everywhere, or at the budget.
"""

from __future__ import annotations

import math

from .curve import QUANTILE, Curve, effective_slots
from .evidence import curve_of, informative, largest, likely, middle, surprising
from .settings import Settings, adaptive_executor_seconds
from .state import State

FIRST_RATE_RPS = (
    1_000.0  # where nobody gives one: half a core of a simple job; one climbs from there; judgement
)
CLIMB = 4.0  # from a rate that was sustained while nothing else is known; overshoot harms nothing; judgement
OVERSHOOT = 1.3  # least above the prediction for a probe that has to saturate: ten times the noise
MOST_OVERSHOOT = 2.0  # a source can emit only so much; a wrong prediction costs one more probe; judgement
LINEAR_MARGIN = (
    1.15  # above scaling linearly from the most efficient scale-out, where any curve saturates; judgement
)
AT_THE_SOURCE_LIMIT = 0.99


def next_probe(state: State) -> tuple[int, float] | str:
    """The (scale-out, rate) to probe next, or why there is none (empty: the pending ones must come first)."""
    settings = state.settings
    busy = {p.scale_out for p in state.pending}
    if not informative(state):
        return _scout(state, busy)
    curve = curve_of(state)
    open_sizes = [s for s in settings.scale_outs if not _closed(state, curve, s)]
    if not open_sizes:
        return _why_closed(state)
    affordable = [s for s in open_sizes if fits_budget(state, s)]
    uncovered = [s for s in affordable if not state.has_value(s)]
    if uncovered:
        wanted = [s for s in uncovered if s not in busy]
    else:
        allowance = _allowance(state, curve)
        affordable = [s for s in affordable if state.committed + cost(settings, s) <= allowance]
        if not affordable:
            least = min(cost(settings, s) for s in open_sizes)
            return "" if busy else _spent(state, allowance, least)
        wanted = [s for s in affordable if s not in busy]
    wanted = [s for s in wanted if has_room(state, s)]
    if not wanted:
        return ""
    gain = dict(zip(curve.scale_outs, curve.gain.tolist(), strict=True))
    chosen = max(wanted, key=lambda s: (gain[s] / s, -s))
    rate = _rate(state, curve, chosen)
    if not uncovered:
        for size, expected in surprising(state).items():
            if size in wanted:
                # At a rate that saturates it in either case: a lower one would only confirm what was seen.
                chosen, rate = size, OVERSHOOT * max(expected, middle(curve, size))
                break
    return chosen, min(rate, state.source_limit_rps)


def cost(settings: Settings, scale_out: int) -> float:
    """Executor-seconds of one probe at this scale-out."""
    return scale_out * (settings.warm_up_s + settings.probe_s)


def fits_budget(state: State, scale_out: int) -> bool:
    """Would one more probe here stay within the budget, with all that is pending?"""
    budget = state.settings.budget_executor_seconds
    return budget is None or state.committed + cost(state.settings, scale_out) <= budget * (1.0 + 1e-12)


def has_room(state: State, scale_out: int) -> bool:
    """Are there executors for it beside the probes that run?"""
    limit = state.settings.executors_at_once
    return limit is None or sum(p.scale_out for p in state.pending) + scale_out <= limit


def _scout(state: State, busy: set[int]) -> tuple[int, float] | str:
    settings = state.settings
    for size in settings.scale_outs:
        if _exhausted(state, size):
            continue
        if busy:
            return ""
        if not fits_budget(state, size):
            return _spent(state, settings.budget_executor_seconds or 0.0, cost(settings, size))
        # A rate that was only just missed is one to climb from too: noise may have missed it.
        tried = max((r.rate_rps for r in state.valid(size)), default=0.0)
        elsewhere = max(state.bracket(s).sustained_rps for s in settings.scale_outs)
        known = max((m.throughput_rps for m in state.known), default=0.0)
        first = settings.first_rate_rps or known or FIRST_RATE_RPS
        return size, min(max(first, elsewhere, CLIMB * tried), state.source_limit_rps)
    return "" if busy else _why_closed(state)


def _exhausted(state: State, size: int) -> bool:
    """Can no further probe here help: given up, probed enough, or sustains all the source can offer?"""
    # What a smaller scale-out keeps up with, a larger one does too: nothing would be learnt there.
    limit = AT_THE_SOURCE_LIMIT * state.source_limit_rps
    return (
        bool(state.given_up(size))
        or len(state.valid(size)) >= state.settings.most_probes
        or any(s <= size and state.bracket(s).sustained_rps >= limit for s in state.settings.scale_outs)
    )


def _closed(state: State, curve: Curve, size: int) -> bool:
    if _exhausted(state, size):
        return True
    if not state.has_value(size):
        return False
    interval = curve.interval(size)
    width = min(state.bracket(size).width, interval.high / interval.low - 1.0)
    return width <= state.settings.bracket


def _why_closed(state: State) -> str:
    settings = state.settings
    given_up = [s for s in settings.scale_outs if state.given_up(s)]
    text = f"every scale-out is known within {settings.bracket:.0%}, or was probed as often as allowed"
    if state.source_limit_rps < math.inf:
        text += f", or sustains the {state.source_limit_rps:,.0f} records/s the source can offer"
    if given_up:
        text += f"; given up: {', '.join(map(str, given_up))}"
    return text


def _spent(state: State, allowance: float, least: float) -> str:
    return (
        f"{state.spent:,.0f} of {allowance:,.0f} executor-seconds are spent, "
        f"and the cheapest probe left costs {least:,.0f}"
    )


def _allowance(state: State, curve: Curve) -> float:
    """Up to which total may refining go? The budget, or a fifth of the grid for the curve as known so far."""
    settings = state.settings
    if settings.budget_executor_seconds is not None:
        return settings.budget_executor_seconds * (1.0 + 1e-12)
    return adaptive_executor_seconds(settings, likely(curve), largest_rps=largest(curve))


def _rate(state: State, curve: Curve, size: int) -> float:
    here = middle(curve, size)
    bracket = state.bracket(size)
    if not state.has_value(size):
        slots = effective_slots(size, state.settings.tasks)
        efficient = [
            middle(curve, s) / effective_slots(s, state.settings.tasks)
            for s in curve.scale_outs
            if state.has_value(s)
        ]
        linear = LINEAR_MARGIN * slots * max(efficient, default=math.inf)
        spread = QUANTILE * float(curve.log_deviation[curve.scale_outs.index(size)])
        surely = OVERSHOOT * here * math.exp(min(spread, math.log(MOST_OVERSHOOT)))
        rate = max(OVERSHOOT * here, min(linear, surely, MOST_OVERSHOOT * here))
        if bracket.contradiction:
            return max(rate, OVERSHOOT * bracket.sustained_rps)
        # What was sustained here has shown that the curve is too low.
        return (
            max(rate, MOST_OVERSHOOT * bracket.sustained_rps) if bracket.sustained_rps > 0.8 * here else rate
        )
    low, high = bracket.sustained_rps, bracket.not_sustained_rps
    if low >= high:
        return OVERSHOOT * here
    spread = 2.0 * float(curve.log_deviation[curve.scale_outs.index(size)])
    low, high = max(low, here * math.exp(-spread)), min(high, here * math.exp(spread))
    if low >= high:
        return OVERSHOOT * here
    inside = 0.5 * state.settings.bracket
    return here if low * (1.0 + inside) <= here <= high * (1.0 - inside) else math.sqrt(low * high)
