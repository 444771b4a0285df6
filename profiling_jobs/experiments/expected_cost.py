"""What a profile and a series of drills will take, estimated before anything was measured.

    profile   the search itself is asked what it would probe, of a job that is assumed: its capacity rises as
              T(s) = T(1) s / (1 + σ (s − 1)), and no probe is off. A probe takes (warm-up + watching) · s
              executor-seconds on a new copy; the next ones find a copy that runs already
    drills    a copy gets ready; each failure then takes the undisturbed window, a recovery and its hold

The stepped strategy has as many probes as the capacity has steps, which nothing tells before: its estimate is
what the budget allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from models import probing
from models.capacity.curves import effective_slots
from models.downtime import downtime_priors
from models.probing import Done, Probe, Result, Settings
from models.recovery import steady_recovery_s

from .drill import HOLD_BATCHES, HOLD_S, WINDOW_BATCHES, WINDOW_S
from .drilling import Cell

ONE_RPS = 800.0  # of one executor, where no guess is given: how many records it is hardly matters
CONTENTION = 0.12  # measured with the benchmark job `enrichment`, as in models.simulation.batches
RESCALED_S = 75.0  # simulated, 64–95 s: until a copy is steady at another size, settled and at its rate
AGAIN_S = 45.0  # simulated, 17–75 s: the same at a size that it had before
UTILISATION = 0.6  # at which drills are caused


@dataclass(frozen=True)
class Cost:
    """What something is expected to take. `executor_seconds` are those of copies."""

    seconds: float
    executor_seconds: float
    number: int
    """Of probes or drills."""


def of_profile(search: Settings, *, longest_window_s: float = 0.0) -> Cost:
    """The cost of a search from its beginning to its end."""
    searches = [search]
    if search.strategy == "adaptive" and search.first_guess is None:
        # The stages of a single executor show where to begin, or it is probed: half-way between the two.
        guess = {size: ONE_RPS * size for size in search.scale_outs}
        searches.append(replace(search, first_guess=guess))
    found = [_searched(one, longest_window_s=longest_window_s) for one in searches]
    return Cost(
        fmean(one.seconds for one in found),
        fmean(one.executor_seconds for one in found),
        max(one.number for one in found),
    )


def _searched(search: Settings, *, longest_window_s: float) -> Cost:
    state, seconds = probing.start(search), 0.0
    while not isinstance(probes := probing.ask(state), Done):
        seen = all(state.at(probe.scale_out) for probe in probes)
        ready_s = longest_window_s + (AGAIN_S if seen else RESCALED_S)
        took_s = search.probe_s + (min(ready_s, search.warm_up_s) if state.results else search.warm_up_s)
        seconds += took_s
        for probe in probes:  # those that run at the same time
            state = probing.tell(state, _assumed(probe, search, took_s=took_s))
    return Cost(seconds, state.spent, len(state.results))


def of_drills(
    cells: Sequence[Cell], *, ready_s: float, trigger_s: float, silence_s: float, longest_s: float
) -> Cost:
    """The cost of drills on copies. `silence_s`: after which Spark gives a silent executor up.

    One that recovers from a kill is ready for the next drill at its size and rate.
    """
    priors = downtime_priors(heartbeat_timeout_s=silence_s)
    seconds = executor_seconds = 0.0
    ready: tuple[int, float] | None = None
    for cell in cells:
        recovery_s = steady_recovery_s(
            utilisation=UTILISATION, downtime_s=priors[cell.kind].typical_s, replay_s=0.0
        )
        took_s = max(WINDOW_S, WINDOW_BATCHES * trigger_s) + min(recovery_s, longest_s)
        took_s += max(HOLD_S, HOLD_BATCHES * trigger_s)
        if ready != (cell.scale_out, cell.rate_rps):
            took_s += ready_s
        ready = (cell.scale_out, cell.rate_rps) if cell.kind.endswith("_kill") else None
        seconds += took_s
        executor_seconds += took_s * cell.scale_out
    return Cost(seconds, executor_seconds, len(cells))


def _assumed(probe: Probe, search: Settings, *, took_s: float) -> Result:
    """The result of a probe of the assumed job; in the stepped search of one that is never saturated."""
    slots = effective_slots(probe.scale_out, search.tasks)
    one_rps = min((rate / size for size, rate in search.guesses), default=ONE_RPS)
    most = one_rps * slots / (1.0 + CONTENTION * (slots - 1.0))
    most = math.inf if search.strategy == "stepped" else most
    return Result(
        probe,
        "sustained" if probe.rate_rps <= most else "not sustained",
        offered_rps=probe.rate_rps,
        throughput_rps=min(probe.rate_rps, most),
        executor_seconds=took_s * probe.scale_out,
    )
