"""Help during a recovery: a larger size, where the job would not be back in time or falls further behind.

    end(s) = elapsed + rescale + (lag + rescale · arrival) / (T(s) − arrival)      inf if T(s) ≤ arrival

with rescale = 0 for the present size. Help is needed if end(present) misses the target, or if lag still grows
although the job commits again; then the smallest size that keeps the target is taken, or, if none does, the
smallest within a tenth of the fastest. While nothing is committed, more executors would not help.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..quantities import Unknown, executors
from .evidence import Seen, capacity_mid, lag_rises
from .recovering import elapsed_s
from .state import Incident, State

WORTH_IT = 0.9  # of the time it takes without help (judgement)
NEAR_FASTEST = 1.1  # judgement
DRAWS = 101  # enough for a median
RESCALE_S = 30.0  # Daedalus' downtime of a scale-out, until one of ours was measured


def help_needed(
    state: State, seen: Seen, incident: Incident, sizes: Sequence[int]
) -> tuple[int, str] | Unknown:
    """A larger size that gets the job back sooner, and why; or why none is asked for."""
    current, target_s = seen.scale_out, state.settings.promise.target_s
    if isinstance(incident.first_commit_at_s, Unknown):
        return Unknown("nothing is committed yet, more executors would not help")
    if isinstance(seen.lag_s, Unknown):
        return Unknown("the lag is unknown")
    staying_s = _end_s(state, seen, incident, current)
    grows = seen.behind and _grows_again(state, incident)
    if isinstance(staying_s, Unknown):
        emergency = state.settings.emergency_scale_out
        if grows and emergency is not None and emergency > current:
            return emergency, "lag grows and the capacity is unknown: the emergency size"
        return staying_s
    if not grows and (staying_s <= target_s or seen.caught_up):
        return Unknown(f"{executors(current, 'are')} back after {staying_s:.0f} s (target {target_s:.0f} s)")
    if grows and not math.isinf(staying_s):  # the models are too hopeful, so the job itself is believed
        return _by_throughput(state, seen, sizes)
    ends = {s: _end_s(state, seen, incident, s) for s in sizes if s > current}
    known = {s: end for s, end in ends.items() if not isinstance(end, Unknown)}
    fastest_s = min(known.values(), default=math.inf)
    if fastest_s >= WORTH_IT * staying_s or math.isinf(fastest_s):
        return Unknown("no larger size is known to be faster")
    enough = max(target_s, NEAR_FASTEST * fastest_s)
    best = min(s for s, end in known.items() if end <= enough)
    return best, (
        f"{executors(current)} would be back {_text(staying_s)}, {best} after {known[best]:.0f} s, "
        f"target {target_s:.0f} s"
    )


def contradicted(state: State, seen: Seen, sizes: Sequence[int]) -> tuple[int, str] | Unknown:
    """A larger size where the job falls behind although the models say that its size fits; or why none."""
    bound_s = state.settings.lag_bound_s
    if isinstance(seen.lag_s, Unknown) or seen.lag_s <= bound_s or not lag_rises(state, seen):
        return Unknown("the job does not fall behind")
    return _by_throughput(state, seen, sizes)


def _by_throughput(state: State, seen: Seen, sizes: Sequence[int]) -> tuple[int, str] | Unknown:
    """The size that would work off the lag within the target, by what each executor does now."""
    o, current = seen.observation, seen.scale_out
    if isinstance(o.arrival_rps, Unknown) or isinstance(o.lag_records, Unknown):
        return Unknown("the load is unknown")
    if isinstance(o.throughput_rps, Unknown) or o.throughput_rps <= 0.0:
        return Unknown("the throughput is unknown")
    needed = o.arrival_rps + o.lag_records / state.settings.promise.target_s
    larger = [s for s in sizes if s > current]
    enough = [s for s in larger if s >= current * needed / o.throughput_rps]
    if not larger:
        return Unknown("there is no larger size")
    return (min(enough) if enough else max(larger)), (
        f"lag grows although the models say that {executors(current, 'fit')}: they do {o.throughput_rps:.0f} "
        f"records/s where {needed:.0f} are needed"
    )


def _end_s(state: State, seen: Seen, incident: Incident, scale_out: int) -> float | Unknown:
    capacity = capacity_mid(state.settings, scale_out)
    arrival, lag = _arrival_rps(state, seen), seen.observation.lag_records
    if isinstance(capacity, Unknown):
        return capacity
    if isinstance(arrival, Unknown):
        return arrival
    if isinstance(lag, Unknown):
        return lag
    spare = capacity - arrival
    if spare <= 0.0:
        return math.inf
    rescale_s = 0.0 if scale_out == seen.scale_out else _rescale_s(state)
    return elapsed_s(incident, seen.now) + rescale_s + (lag + rescale_s * arrival) / spare


def _arrival_rps(state: State, seen: Seen) -> float | Unknown:
    arrival, forecast = seen.observation.arrival_rps, seen.observation.forecast
    if isinstance(arrival, Unknown) or isinstance(forecast, Unknown):
        return arrival
    steps = max(1, math.ceil(state.settings.promise.target_s / forecast.step_s))
    return max(arrival, float(forecast.mid[:steps].mean()))


def _rescale_s(state: State) -> float:
    downtime = state.settings.models.downtime
    if isinstance(downtime, Unknown):
        return RESCALE_S
    draws = downtime.samples(f"{state.settings.path}_out", paths=DRAWS, seed=state.settings.seed)
    return RESCALE_S if isinstance(draws, Unknown) else float(statistics.median(draws.tolist()))


def _text(seconds: float) -> str:
    return "never" if math.isinf(seconds) else f"after {seconds:.0f} s"


def _grows_again(state: State, incident: Incident) -> bool:
    """Has lag grown since the job commits again?"""
    first = incident.first_commit_at_s
    lags = [] if isinstance(first, Unknown) else [lag for t, lag in incident.trace if t >= first]
    return len(lags) > 1 and lags[-1] > max(lags[:-1]) and lags[-1] - lags[0] > state.settings.trigger_s
