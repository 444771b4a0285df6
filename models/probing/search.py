"""The search for the capacity of each scale-out: which probe comes next.

    state = start(Settings(scale_outs=(1, 2, 4), warm_up_s=120, probe_s=60, first_rate_rps=1_000))
    while not isinstance(probes := ask(state), Done):
        for probe in probes:                                   # these may run at the same time
            state = tell(state, judge(probe, facts_of(probe)))
    capacity = estimates(state)

`ask` only reads: a probe without a result yet is asked again, also by a state that was read from JSON.
No probe is asked that would exceed the budget together with those still running.

The adaptive strategy asks the probe that shows most for its executor-seconds:

1. Scout: while nothing is known, the smallest scale-out is driven up until it saturates: the cheapest begin.
2. Cover: every scale-out is saturated once. A saturated probe *measures* the capacity (what was processed),
   which a kept-up rate does not; and small ones, done early, say at which rate a large one will saturate.
3. Refine: where a probe lowers the summed variance of log T most per executor-second, at the most likely
   capacity: half of these probes are sustained and prove the estimate from below, the others measure it
   again. A scale-out that was measured once and lies off the line through its neighbours is saturated again
   first: it is a step of the curve, or it was a wrong probe. So is one whose two results disagree; neither is
   left open for the sake of a fifth of the grid's cost, only for a budget that was given. The size that was
   probed last is probed again while that shows nearly as much: its copy is warm.

It ends at a 1 % bracket (or a 90 % interval as narrow) everywhere, or at the budget.

The stepped strategy is the classical grid: all scale-outs at the same rate, then all at the next (Phoebe
§III-C). After each step a scale-out leaves when it did not sustain the rate, or when its latency has left the
others':

    three or more left   two-means on log latency (best split of the sorted values); the upper group leaves
                         when its centre is more than `FAR` times the lower one's
    fewer                a line through log latency over rate of its own earlier steps; it leaves beyond `FAR`
                         times what the line says, once there are two earlier steps
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..capacity.curves import effective_slots
from ..capacity.smooth import QUANTILE
from ..quantities import Misuse
from .findings import informative, surprising
from .probe import Probe, Result
from .state import Done, Settings, State, adaptive_executor_seconds

FIRST_RATE_RPS = 1_000.0  # where none is given: half a core of a simple job; one climbs from there; judgement
CLIMB = 4.0  # from a rate that was sustained while nothing else is known; overshoot harms nothing; judgement
OVERSHOOT = 1.3  # least above the prediction for a probe that has to saturate: ten times the noise
MOST_OVERSHOOT = 2.0  # a source can emit only so much; a wrong prediction costs one more probe; judgement
LINEAR_MARGIN = (
    1.15  # above scaling linearly from the most efficient scale-out, where any curve saturates; judgement
)
AT_THE_SOURCE_LIMIT = 0.99
STAY = 0.25  # of the best gain: a copy at this size has neither to be rescaled nor warmed up; judgement
FAR = 3.0  # Phoebe's prototype: valid iff latency < 3 × the smallest, and within 3 × of the regression
FEWEST_TO_CLUSTER = 3  # Phoebe §III-C
MOST_STEPS = 200  # a grid that never ends is a wrong increment; judgement


def start(settings: Settings) -> State:
    """Begin a search."""
    return _asked(State(settings=settings))


def ask(state: State) -> tuple[Probe, ...] | Done:
    """What to run now: every probe without a result, or why the search is over."""
    return state.pending or Done(state.done)


def tell(state: State, result: Result) -> State:
    """The search after one of the asked probes has come back, in any order."""
    if not isinstance(result, Result):
        raise Misuse("result", f"must be a Result, got {result!r}")
    if result.probe not in state.pending:
        raise Misuse(
            "result",
            f"probe {result.probe.number} was not asked, or has a result already",
        )
    rest = tuple(p for p in state.pending if p != result.probe)
    return _asked(replace(state, results=(*state.results, result), pending=rest))


def run(state: State, measure: Callable[[Probe], Result]) -> State:
    """Search to the end, one probe after the other."""
    while not isinstance(probes := ask(state), Done):
        state = tell(state, measure(probes[0]))
    return state


def _asked(state: State) -> State:
    settings = state.settings
    at_once = settings.parallel or (1 if settings.strategy == "adaptive" else len(settings.scale_outs))
    while len(state.pending) < at_once:
        wanted = NEXT[settings.strategy](state)
        if isinstance(wanted, str):
            return state if state.pending else replace(state, done=wanted or "nothing is left to probe")
        scale_out, rate = wanted
        probe = Probe(
            number=len(state.results) + len(state.pending),
            scale_out=scale_out,
            rate_rps=rate,
            warm_up_s=settings.warm_up_s,
            probe_s=settings.probe_s,
            attempt=len(state.invalid_in_a_row(scale_out)) + 1,
        )
        state = replace(state, pending=(*state.pending, probe))
    return state


# -------------------------------------------------------------------------------- adaptive


def _adaptive(state: State) -> tuple[int, float] | str:
    """The (scale-out, rate) to probe next, or why there is none (empty: the pending ones must come first)."""
    settings = state.settings
    busy = {p.scale_out for p in state.pending}
    if not informative(state):
        return _scout(state, busy)
    sizes = state.expected
    open_sizes = [s for s in settings.scale_outs if not _closed(state, s)]
    if not open_sizes:
        return _why_closed(state)
    affordable = [s for s in open_sizes if fits_budget(state, s)]
    doubted: dict[int, float] = {}
    uncovered = [s for s in affordable if not state.has_value(s)]
    if uncovered:
        wanted = [s for s in uncovered if s not in busy]
    else:
        # One probe alone may be wrong without showing it: that is settled whatever the grid would cost.
        doubted = surprising(state)
        most = _most(state)
        affordable = [s for s in affordable if s in doubted or state.committed + cost(settings, s) <= most]
        if not affordable:
            least = min(cost(settings, s) for s in open_sizes)
            return "" if busy else _spent(state, most, least)
        wanted = [s for s in affordable if s not in busy]
    wanted = [s for s in wanted if has_room(state, s)]
    if not wanted:
        return ""
    worth = {s: sizes[s].gain / s for s in wanted}
    chosen = max(wanted, key=lambda s: (worth[s], -s))
    last = state.results[-1].probe.scale_out if state.results else chosen
    if not uncovered and last in wanted and worth[last] >= STAY * worth[chosen]:
        chosen = last
    rate = _rate(state, chosen)
    if not uncovered:
        for size, by_others in doubted.items():
            if size in wanted:
                # At a rate that saturates it in either case: a lower one would only confirm what was seen.
                chosen, rate = size, OVERSHOOT * max(by_others, sizes[size].mid_rps)
                break
    return chosen, min(rate, state.source_limit_rps)


def cost(settings: Settings, scale_out: int) -> float:
    """Executor-seconds of one probe at this scale-out."""
    return scale_out * (settings.warm_up_s + settings.probe_s)


def fits_budget(state: State, scale_out: int) -> bool:
    """Whether one more probe here stays within the budget, with all that is pending."""
    budget = state.settings.budget_executor_seconds
    return budget is None or state.committed + cost(state.settings, scale_out) <= budget * (1.0 + 1e-12)


def has_room(state: State, scale_out: int) -> bool:
    """Whether there are executors for it beside the probes that run."""
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
        first = settings.first_rate_rps or FIRST_RATE_RPS
        return size, min(max(first, elsewhere, CLIMB * tried), state.source_limit_rps)
    return "" if busy else _why_closed(state)


def _exhausted(state: State, size: int) -> bool:
    """Whether no further probe here can help: given up, probed enough, or sustains all the source offers."""
    # What a smaller scale-out keeps up with, a larger one does too: nothing would be learnt there.
    limit = AT_THE_SOURCE_LIMIT * state.source_limit_rps
    return (
        bool(state.given_up(size))
        or len(state.valid(size)) >= state.settings.most_probes
        or any(s <= size and state.bracket(s).sustained_rps >= limit for s in state.settings.scale_outs)
    )


def _closed(state: State, size: int) -> bool:
    if _exhausted(state, size):
        return True
    if not state.has_value(size):
        return False
    interval = state.expected[size].interval
    width = min(state.bracket(size).width, interval.high / interval.low - 1.0)
    return width <= state.settings.bracket


def _why_closed(state: State) -> str:
    settings = state.settings
    given_up = [s for s in settings.scale_outs if state.given_up(s)]
    text = f"every scale-out is known within {settings.bracket:.0%}, or was probed as often as allowed"
    if state.source_limit_rps < math.inf:
        text += f", or sustains the {state.source_limit_rps:,.0f} records/s that are offered at most"
    if given_up:
        text += f"; given up: {', '.join(map(str, given_up))}"
    return text


def _spent(state: State, allowance: float, least: float) -> str:
    return (
        f"{state.spent:,.0f} of {allowance:,.0f} executor-seconds are spent, "
        f"and the cheapest probe left costs {least:,.0f}"
    )


def _most(state: State) -> float:
    """Up to which total refining may go: the budget, or a fifth of the grid for the curve known so far."""
    budget = state.settings.budget_executor_seconds
    if budget is None:
        return adaptive_executor_seconds(state.settings, state.expected)
    return budget * (1.0 + 1e-12)


def _rate(state: State, size: int) -> float:
    sizes = state.expected
    here, deviation = sizes[size].mid_rps, sizes[size].log_deviation
    bracket = state.bracket(size)
    if not state.has_value(size):
        slots = effective_slots(size, state.settings.tasks)
        efficient = [
            sizes[s].mid_rps / effective_slots(s, state.settings.tasks)
            for s in state.settings.scale_outs
            if state.has_value(s)
        ]
        linear = LINEAR_MARGIN * slots * max(efficient, default=math.inf)
        surely = OVERSHOOT * here * math.exp(min(QUANTILE * deviation, math.log(MOST_OVERSHOOT)))
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
    spread = 2.0 * deviation
    low, high = max(low, here * math.exp(-spread)), min(high, here * math.exp(spread))
    if low >= high:
        return OVERSHOOT * here
    inside = 0.5 * state.settings.bracket
    return here if low * (1.0 + inside) <= here <= high * (1.0 - inside) else math.sqrt(low * high)


# --------------------------------------------------------------------------------- stepped


def _stepped(state: State) -> tuple[int, float] | str:
    """The next (scale-out, rate) of the grid, or why there is none (an empty text: the step is not over)."""
    settings = state.settings
    first, increment = settings.grid
    left: dict[int, str] = {}
    for step in range(MOST_STEPS):
        rate = first + step * increment
        active = [s for s in settings.scale_outs if s not in left]
        if not active:
            return "every scale-out has left the grid: " + "; ".join(f"{s} {why}" for s, why in left.items())
        if rate > state.source_limit_rps:
            return (
                f"{rate:,.0f} records/s is more than the source can offer; not saturated: {_listed(active)}"
            )
        pending = {p.scale_out for p in state.pending}
        results: dict[int, Result] = {}
        waiting = any(p.rate_rps == rate for p in state.pending)
        for size in active:
            found = _at_rate(state, size, rate)
            if found is not None:
                results[size] = found
            elif (given_up := state.given_up(size)) or size in pending:
                left |= {size: given_up} if given_up else {}
            elif not fits_budget(state, size):
                left[size] = (
                    f"the budget of {settings.budget_executor_seconds:,.0f} executor-seconds is spent"
                )
            elif has_room(state, size):
                return size, rate
            else:
                waiting = True
        if waiting:
            return ""
        left |= _leaving(state, results)
    return (
        f"the grid has {MOST_STEPS} steps and has not saturated {_listed(active)}; use a larger increment_rps"
    )


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def _at_rate(state: State, size: int, rate: float) -> Result | None:
    return next((r for r in state.valid(size) if r.probe.rate_rps == rate), None)


def _leaving(state: State, results: Mapping[int, Result]) -> dict[int, str]:
    left = {s: f"did not sustain {r.rate_rps:,.0f}" for s, r in results.items() if not r.sustained}
    rest = {
        s: r for s, r in results.items() if s not in left and r.latency_ms is not None and r.latency_ms > 0.0
    }
    latencies = {s: r.latency_ms for s, r in rest.items() if r.latency_ms is not None}
    if len(latencies) >= FEWEST_TO_CLUSTER:
        abnormal = unlike_the_others(latencies)
    else:
        abnormal = frozenset(s for s in latencies if unlike_itself(_history(state, s, rest[s]), rest[s]))
    return left | {
        s: f"left its normal latency at {rest[s].rate_rps:,.0f} ({latencies[s]:,.0f} ms)" for s in abnormal
    }


def _history(state: State, size: int, until: Result) -> list[Result]:
    return [
        r
        for r in state.valid(size)
        if r.probe.rate_rps < until.probe.rate_rps and r.latency_ms is not None and r.latency_ms > 0.0
    ]


def unlike_the_others(latencies_ms: Mapping[int, float]) -> frozenset[int]:
    """The scale-outs whose latency is of another kind than the others' at the same rate."""
    order = sorted(latencies_ms, key=lambda s: latencies_ms[s])
    logs = np.log([latencies_ms[s] for s in order])
    if len(order) < 2:
        return frozenset()

    def within(cut: int) -> float:
        return float(sum(((part - part.mean()) ** 2).sum() for part in (logs[:cut], logs[cut:])))

    cut = min(range(1, len(order)), key=within)
    apart = float(logs[cut:].mean() - logs[:cut].mean())
    return frozenset(order[cut:]) if apart > math.log(FAR) else frozenset()


def unlike_itself(earlier: Sequence[Result], now: Result) -> bool:
    """Whether this latency is beyond what the scale-out's own earlier steps lead to expect."""
    if len(earlier) < 2:
        return False
    rates = np.array([r.rate_rps for r in earlier])
    logs = np.log([r.latency_ms or 1.0 for r in earlier])
    centred = rates - rates.mean()
    spread = float(centred @ centred)
    slope = float(centred @ logs) / spread if spread > 0.0 else 0.0
    expected = float(logs.mean()) + slope * (now.rate_rps - float(rates.mean()))
    return math.log(now.latency_ms or 1.0) - expected > math.log(FAR)


NEXT: dict[str, Callable[[State], tuple[int, float] | str]] = {"adaptive": _adaptive, "stepped": _stepped}
