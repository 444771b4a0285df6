"""What does the classical grid ask: all scale-outs at the same rate, then all at the next (Phoebe §III-C)?

After each step a scale-out leaves when it did not sustain the rate, or when its latency has left the others':

    three or more left   two-means on log latency (best split of the sorted values); the upper group leaves
                         when its centre is more than `FAR` times the lower one's
    fewer                a line through log latency over rate of its own earlier steps; it leaves beyond `FAR`
                         times what the line says, once there are two earlier steps
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from .adaptive import fits_budget, has_room
from .probe import Result
from .state import State

FAR = 3.0  # Phoebe's prototype: valid iff latency < 3 × the smallest, and within 3 × of the regression
FEWEST_TO_CLUSTER = 3  # Phoebe §III-C
MOST_STEPS = 200  # a grid that never ends is a wrong increment; judgement


def next_probe(state: State) -> tuple[int, float] | str:
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
            return f"{rate:,.0f} records/s is more than the source can offer; not saturated: {_list(active)}"
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
        f"the grid has {MOST_STEPS} steps and has not saturated {_list(active)}; use a larger increment_rps"
    )


def _list(sizes: Sequence[int]) -> str:
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
    """Which scale-outs have a latency of another kind than the rest at the same rate?"""
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
    """Is this latency beyond what the scale-out's own earlier steps lead to expect?"""
    if len(earlier) < 2:
        return False
    rates = np.array([r.rate_rps for r in earlier])
    logs = np.log([r.latency_ms or 1.0 for r in earlier])
    centred = rates - rates.mean()
    spread = float(centred @ centred)
    slope = float(centred @ logs) / spread if spread > 0.0 else 0.0
    expected = float(logs.mean()) + slope * (now.rate_rps - float(rates.mean()))
    return math.log(now.latency_ms or 1.0) - expected > math.log(FAR)
