"""Has something failed, and is the job over it?

A failure shows as a new run id (driver_kill), as fewer executors alive than before (executor_kill), or as a
gap between commits beyond its bound while there is work (driver_freeze when the driver no longer says how
many executors it has, executor_freeze otherwise); a failure that we injected keeps its own name. A size
that changes is a rescale, whoever did it: live_out or live_in, restart_out or restart_in with a new run id.

On the grid of ticks the failure is placed by the input that was left lying since the tick before,

    failed_at = now − (lag − lag before) / arrival      not before the tick before,

the first commit afterwards by the work done since, and the end by the straight line through the two ticks
between which lag came back into its band. All three are good to a part of an interval; drills, which sample
several times a second, measure the same things by the second.
"""

from __future__ import annotations

import math
from dataclasses import replace

from models.quantities import EVENT_KINDS, Alarm, Instruction, Learn, RecoveryEvent, Unknown
from models.recovery import recovered_at

from .seeing import Seen, capacity_mid
from .state import Incident, Sample, State

KEPT_TRACE = 512


def notice_failure(state: State, seen: Seen) -> State:
    """The state with a failure begun, or with the one under way marked as spoilt by a second one."""
    if seen.unusable:
        return state
    found = _what_failed(state, seen)
    if found is None:
        return state
    kind, why = found
    injected = state.directives.injected
    at_s = _failed_at_s(seen)
    if (
        injected is not None
        and injected.kind in EVENT_KINDS
        and seen.now - injected.at_s < seen.now - at_s + 600.0
    ):
        kind, at_s, why = injected.kind, injected.at_s, f"{why}; we injected {injected.kind}"
    if state.recovering is not None:
        spoilt = f"{why} while it was still recovering from {state.recovering.kind}"
        return replace(state, recovering=replace(state.recovering, spoilt=spoilt))
    return begin(state, seen, kind=kind, at_s=at_s, why=why)


def begin(state: State, seen: Seen, *, kind: str, at_s: float, why: str) -> State:
    """The state in which a failure or rescale of this kind began at `at_s`."""
    previous = seen.previous
    spoilt = ""
    if isinstance(previous, Unknown) or seen.now - previous.at_s > state.settings.longest_gap_s:
        spoilt = "nobody was watching just before it"
    elif not isinstance(previous.lag_s, Unknown) and previous.lag_s > seen.band_s:
        spoilt = f"the job was {previous.lag_s:.0f} s behind already"
    elif isinstance(previous.lag_s, Unknown):
        spoilt = "the lag before it is unknown"
    scale_out = seen.scale_out if isinstance(previous, Unknown) else previous.scale_out
    incident = Incident(
        kind=kind,
        scale_out=scale_out,
        failed_at_s=at_s,
        noticed_at_s=seen.observation.at_s,
        why=why,
        band_s=seen.band_s,
        commit_at_s=seen.observation.last_commit_at_s,
        spoilt=spoilt,
    )
    return replace(state, recovering=incident, stretch=None)


def follow(state: State, seen: Seen) -> tuple[State, tuple[Instruction, ...]]:
    """The state one tick further in its recovery, and what was learnt if it is over."""
    incident = state.recovering
    if incident is None or seen.unusable:
        return state, ()
    at_s = seen.observation.at_s
    incident = replace(incident, first_commit_at_s=_first_commit_at_s(state, seen, incident))
    if not isinstance(seen.lag_s, Unknown):
        incident = replace(incident, trace=(*incident.trace, (at_s, seen.lag_s))[-KEPT_TRACE:])
    state = replace(state, recovering=incident)
    back_at_s = _back_at_s(state, incident)
    if math.isfinite(back_at_s) and state.change is None:
        return _end(state, seen, incident, back_at_s)
    if at_s - incident.failed_at_s > state.settings.longest_recovery_s:
        return _end(state, seen, incident, math.inf)
    return state, ()


def elapsed_s(incident: Incident, now: float) -> float:
    """Seconds since the failure."""
    return max(0.0, now - incident.failed_at_s)


def _what_failed(state: State, seen: Seen) -> tuple[str, str] | None:
    o, previous, change = seen.observation, seen.previous, state.change
    if isinstance(previous, Unknown):
        return None
    restarted = not isinstance(o.run_id, Unknown) and _differs(previous.run_id, o.run_id)
    if (
        restarted
        and change is not None
        and state.settings.path == "restart"
        and change.run_id == previous.run_id
    ):
        return None  # our own restart
    came_back_smaller = restarted and state.directives.foreign_edit is False
    if seen.sized and change is None and seen.scale_out != previous.scale_out and not came_back_smaller:
        direction = "out" if seen.scale_out > previous.scale_out else "in"
        kind = f"{'restart' if restarted else 'live'}_{direction}"
        return kind, f"the size went from {previous.scale_out} to {seen.scale_out} executors"
    if restarted:
        return "driver_kill", f"the query runs anew (run {o.run_id}, before {previous.run_id})"
    if change is not None:
        return None  # whether it works is judged by `changing`
    if _fewer_alive(seen, previous):
        return "executor_kill", f"{o.executors_alive} of {seen.scale_out} executors are alive"
    still_down = state.recovering is not None and isinstance(state.recovering.first_commit_at_s, Unknown)
    return None if still_down else _commit_gap(state, seen)


def _differs(before: str | Unknown, now: str | Unknown) -> bool:
    return not isinstance(before, Unknown) and not isinstance(now, Unknown) and before != now


def _fewer_alive(seen: Seen, previous: Sample) -> bool:
    alive, before = seen.observation.executors_alive, previous.executors_alive
    if isinstance(alive, Unknown) or not seen.sized:
        return False
    # A gap that Spark cannot fill (a full cluster) is one failure, not a new one at every tick.
    return alive < (seen.scale_out if isinstance(before, Unknown) else min(seen.scale_out, before))


def _commit_gap(state: State, seen: Seen) -> tuple[str, str] | None:
    o = seen.observation
    if isinstance(o.last_commit_at_s, Unknown) or o.lag_records == 0 or isinstance(o.lag_records, Unknown):
        return None
    if o.arrival_rps == 0.0 and seen.caught_up:
        return None
    gap = o.at_s - max(o.last_commit_at_s, state.idle_until_s)
    if gap <= state.settings.longest_commit_gap_s:
        return None
    kind = "driver_freeze" if isinstance(o.executors_alive, Unknown) else "executor_freeze"
    return kind, (
        f"nothing was committed for {gap:.0f} s (bound {state.settings.longest_commit_gap_s:.0f} s) "
        f"while {o.lag_records:.0f} records wait"
    )


def _failed_at_s(seen: Seen) -> float:
    o, previous = seen.observation, seen.previous
    assert not isinstance(previous, Unknown)
    commit = o.last_commit_at_s
    since_s = o.at_s - previous.at_s
    left_lying = _left_lying_s(seen, previous)
    stood_still = since_s / 2.0 if isinstance(left_lying, Unknown) else left_lying
    # Nothing done in the whole interval: it failed before the tick before, which had not shown it yet.
    if not isinstance(commit, Unknown) and commit <= previous.at_s and stood_still >= 0.9 * since_s:
        return commit
    return o.at_s - min(max(stood_still, 0.0), since_s)


def _left_lying_s(seen: Seen, previous: Sample) -> float | Unknown:
    """Seconds of input by which lag grew since the tick before."""
    o = seen.observation
    if isinstance(o.lag_records, Unknown) or isinstance(previous.lag_records, Unknown):
        return Unknown("the lag is unknown")
    if isinstance(o.arrival_rps, Unknown) or o.arrival_rps <= 0.0:
        return Unknown("the arrival rate is unknown or zero")
    return (o.lag_records - previous.lag_records) / o.arrival_rps


def _first_commit_at_s(state: State, seen: Seen, incident: Incident) -> float | Unknown:
    o = seen.observation
    if not isinstance(incident.first_commit_at_s, Unknown):
        return incident.first_commit_at_s
    from_s = incident.failed_at_s
    if not isinstance(seen.previous, Unknown):
        from_s = max(from_s, seen.previous.at_s)
    if isinstance(o.last_commit_at_s, Unknown):
        if isinstance(o.throughput_rps, Unknown) or o.throughput_rps <= 0.0 or o.at_s <= from_s:
            return incident.first_commit_at_s
        until_s = o.at_s
    elif o.last_commit_at_s <= incident.failed_at_s or o.last_commit_at_s <= from_s:
        return incident.first_commit_at_s
    else:
        until_s = o.last_commit_at_s
    if not isinstance(o.commits_at_s, Unknown):
        later = [t for t in o.commits_at_s if t > incident.failed_at_s]
        return min(later) if later else until_s
    capacity = capacity_mid(state.settings, incident.scale_out)
    if seen.behind and not isinstance(capacity, Unknown) and not isinstance(o.throughput_rps, Unknown):
        # Still behind at the end, so it has worked without a pause since it came back.
        since_s = o.at_s - (seen.previous.at_s if not isinstance(seen.previous, Unknown) else from_s)
        worked_s = o.throughput_rps * since_s / max(capacity, 1e-9)
        return min(max(o.at_s - worked_s, from_s), until_s)
    return (from_s + until_s) / 2.0


def _back_at_s(state: State, incident: Incident) -> float:
    """When lag came back into its band for good; inf while it has not, or while nothing is committed."""
    if isinstance(incident.first_commit_at_s, Unknown) or not incident.trace:
        return math.inf
    times, lags = zip(*incident.trace, strict=True)
    back_at_s = recovered_at(
        times,
        lags,
        failed_at_s=incident.first_commit_at_s,
        band_s=incident.band_s,
        hold_s=state.settings.recovered_after_s,
    )
    k = times.index(back_at_s) if math.isfinite(back_at_s) else 0
    if k > 0 and lags[k - 1] > incident.band_s:
        share = (lags[k - 1] - incident.band_s) / (lags[k - 1] - lags[k])
        back_at_s = times[k - 1] + share * (times[k] - times[k - 1])
    return max(back_at_s, incident.first_commit_at_s)


def _end(
    state: State, seen: Seen, incident: Incident, back_at_s: float
) -> tuple[State, tuple[Instruction, ...]]:
    facts: list[Instruction] = []
    first = incident.first_commit_at_s
    recovery_s = max(0.0, back_at_s - incident.failed_at_s)
    if not incident.spoilt:
        downtime_s = math.inf if isinstance(first, Unknown) else max(0.0, first - incident.failed_at_s)
        event = RecoveryEvent(
            kind=incident.kind,
            scale_out=incident.scale_out,
            failed_at_s=incident.failed_at_s,
            downtime_s=downtime_s,
            recovery_s=max(recovery_s, downtime_s),
        )
        facts.append(Learn(event))
    if math.isinf(recovery_s):
        facts.append(
            Alarm(
                f"not recovered {seen.now - incident.failed_at_s:.0f} s after {incident.kind} "
                f"({incident.why}): look at the driver and the executors"
            )
        )
    state = replace(state, settled_at_s=seen.observation.at_s)
    if isinstance(first, Unknown):  # still down: no time for decisions, however long it takes
        spoilt = incident.spoilt or "it was given up and recorded already"
        return replace(state, recovering=replace(incident, spoilt=spoilt)), tuple(facts)
    return replace(state, recovering=None), tuple(facts)
