"""At which rate does each scale-out stop keeping up, and what has to be tried to find out?

    state = start(Settings(scale_outs=(1, 2, 4), warm_up_s=120, probe_s=60, first_rate_rps=1_000))
    while not isinstance(probes := ask(state), Done):
        for probe in probes:                                   # these may run at the same time
            state = tell(state, judge(probe, facts_of(probe)))
    capacity = estimates(state)

`ask` only reads: a probe that was asked and not told is asked again, also after `State.from_json`. What
follows depends on what was told and on nothing else. No probe is asked that would exceed the budget
together with those still running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..quantities import Measurement, Misuse
from . import adaptive, stepped
from .probe import Probe, Result
from .settings import Settings
from .state import Done, State

NEXT: dict[str, Callable[[State], tuple[int, float] | str]] = {
    "adaptive": adaptive.next_probe,
    "stepped": stepped.next_probe,
}


def start(settings: Settings, *, known: Iterable[Measurement] = ()) -> State:
    """Begin a search, if wanted from what an earlier one has measured (any scale-outs, in any order)."""
    known = tuple(known)
    for measurement in known:
        if not isinstance(measurement, Measurement):
            raise Misuse("known", f"must be Measurements, got {measurement!r}")
    useful = tuple(m for m in known if m.throughput_rps > 0.0)
    return _asked(State(settings=settings, known=useful))


def ask(state: State) -> tuple[Probe, ...] | Done:
    """What to run now: every probe that is not told yet, or why the search is over."""
    return state.pending or Done(state.done)


def tell(state: State, result: Result) -> State:
    """The search after one of the asked probes has come back, in any order."""
    if not isinstance(result, Result):
        raise Misuse("result", f"must be a Result, got {result!r}")
    if result.probe not in state.pending:
        raise Misuse(
            "result",
            f"probe {result.probe.number} was not asked or is told already; told: {len(state.results)}",
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
