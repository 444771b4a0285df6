"""Failures and recoveries: noticed by their symptoms, followed until the lag is back in its band.

A failure shows as a new run id (driver_kill), as fewer executors alive than before (executor_kill), or as a
gap between commits beyond its bound while there is work (driver_freeze when the driver no longer says how
many executors it has, executor_freeze otherwise). A failure that we injected is noticed at once and keeps its
own name. A size that changes without us is a rescale: live_out or live_in, restart_out or restart_in with a
new run id. For an attached job a change of `executors` is no event: it was declared at some later time.

    bound of the gap = longest_commit_gap_s + the seconds of work that waited when the last batch began

because a batch that holds a backlog is long without anything being wrong.

Where the commits of each interval are known, the longest gap between two of them is the downtime. Otherwise,
on the grid of ticks, the failure is placed by the input that was not processed since the tick before,

    failed_at = now − (lag − lag before) / arrival      not before the tick before,

the first commit afterwards by the work that was done since, and the end by the straight line through the two
ticks between which lag came back into its band. These are accurate to a part of an interval; drills sample
several times a second and measure the same things by the second.

Without input Spark commits nothing: a job with all of its executors has then recovered at an unknown moment.
Nothing is learnt from that, nor from a recovery during which the job was not observed.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from ..quantities import (
    EVENT_KINDS,
    RESCALE_KINDS,
    Alarm,
    Instruction,
    Learn,
    RecoveryEvent,
    Unknown,
    executors,
)
from ..recovery import recovered_at
from .evidence import Seen, capacity_mid
from .state import Change, Incident, Sample, State

STANDSTILL = "standstill"  # no kind of failure: it is never learnt
INJECTED_WITHIN_S = 600.0  # a failure injected earlier than this has shown itself before (judgement)


def notice_failure(state: State, seen: Seen) -> State:
    """The state with a failure begun, or with the recovery under way marked as spoilt by a second one."""
    if seen.unusable or isinstance(seen.previous, Unknown):
        return state
    found = _what_failed(state, seen, seen.previous)
    if found is None:
        return state
    kind, why = found
    at_s = failed_at_s(state, seen, kind)
    injected = state.directives.injected
    if injected is not None and injected.kind in EVENT_KINDS and kind not in RESCALE_KINDS:
        since_s = max(at_s - INJECTED_WITHIN_S, state.settled_at_s)
        if since_s < injected.at_s <= seen.now:
            kind, at_s, why = injected.kind, injected.at_s, f"{why}; we injected {injected.kind}"
    incident = state.recovering
    if incident is None:
        return begin(state, seen, kind=kind, at_s=at_s, why=why, lag_before_s=seen.previous.lag_s)
    if incident.failed_at_s == at_s and incident.kind == kind:
        return state
    spoilt = f"{why} while it was still recovering from {incident.kind}"
    if incident.kind in RESCALE_KINDS and kind not in RESCALE_KINDS:
        state = begin(state, seen, kind=kind, at_s=at_s, why=why, lag_before_s=seen.previous.lag_s)
        incident = state.recovering
        assert incident is not None
    return replace(state, recovering=replace(incident, spoilt=spoilt))


def short_of_executors(state: State, seen: Seen) -> tuple[State, tuple[Instruction, ...]]:
    """The state that knows since when executors are missing, and one alarm if that lasts."""
    alive = seen.observation.executors_alive
    if not seen.sized or isinstance(alive, Unknown):
        return state, ()
    if alive >= seen.scale_out or state.change is not None:
        return replace(state, short_since_s=math.inf), ()
    since_s = min(state.short_since_s, seen.now)
    state = replace(state, short_since_s=since_s)
    if seen.now - since_s < state.settings.take_effect_s:
        return state, ()
    return state, (
        Alarm(
            f"only {alive} of {executors(seen.scale_out, 'are')} alive for {seen.now - since_s:.0f} s now "
            "and Spark has not replaced them: is there room in the cluster?"
        ),
    )


def _what_failed(state: State, seen: Seen, previous: Sample) -> tuple[str, str] | None:
    o, change, injected = seen.observation, state.change, state.directives.injected
    restarted = _differs(previous.run_id, o.run_id)
    if restarted and change is not None and _is_our_restart(state, change, previous):
        return None
    came_back_smaller = restarted and state.directives.foreign_edit is False
    resized = seen.sized and change is None and seen.scale_out != previous.scale_out
    if resized and not came_back_smaller and not state.settings.only_commits:
        kind = (
            f"{'restart' if restarted else 'live'}_{'out' if seen.scale_out > previous.scale_out else 'in'}"
        )
        return kind, f"the size went from {previous.scale_out} to {executors(seen.scale_out)}"
    if restarted:
        return "driver_kill", f"the query runs anew (run {o.run_id}, before {previous.run_id})"
    if injected is not None and injected.kind in EVENT_KINDS and previous.at_s < injected.at_s <= o.at_s:
        return injected.kind, "it was asked for"
    if change is not None:
        return None  # whether it works is judged by `changing`
    if _fewer_alive(seen, previous):
        return (
            "executor_kill",
            f"{o.executors_alive} of {executors(seen.scale_out, 'are')} alive",
        )
    still_down = state.recovering is not None and isinstance(state.recovering.first_commit_at_s, Unknown)
    return None if still_down else _commit_gap(state, seen)


def _is_our_restart(state: State, change: Change, previous: Sample) -> bool:
    return state.settings.path == "restart" and change.run_id == previous.run_id


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
    if isinstance(o.last_commit_at_s, Unknown) or isinstance(o.lag_records, Unknown) or seen.idle:
        return None
    gap_s = o.at_s - max(o.last_commit_at_s, state.idle_until_s)
    bound_s = state.settings.longest_commit_gap_s + _batch_work_s(state, o.last_commit_at_s)
    if gap_s <= bound_s:
        return None
    kind = "driver_freeze" if isinstance(o.executors_alive, Unknown) else "executor_freeze"
    if state.settings.only_commits:
        kind = STANDSTILL
    return kind, (
        f"nothing was committed for {gap_s:.0f} s (bound {bound_s:.0f} s) "
        f"while {o.lag_records:.0f} records wait"
    )


def _batch_work_s(state: State, commit_at_s: float) -> float:
    """Seconds of work that waited at the first tick after this commit."""
    waiting = next((s for s in state.history if s.at_s >= commit_at_s), None)
    if waiting is None or isinstance(waiting.lag_records, Unknown):
        return 0.0
    capacity = capacity_mid(state.settings, waiting.scale_out)
    if not isinstance(capacity, Unknown) and capacity > 0.0:
        return waiting.lag_records / capacity
    return 0.0 if isinstance(waiting.lag_s, Unknown) else waiting.lag_s


KEPT_TRACE = 512
WHOLE_INTERVAL = 0.9  # of an interval left lying: nothing was done in it (judgement)


def begin(
    state: State, seen: Seen, *, kind: str, at_s: float, why: str, lag_before_s: float | Unknown
) -> State:
    """The state in which a failure or rescale of this kind began at `at_s`."""
    previous, spoilt = seen.previous, ""
    if state.settings.only_commits:
        spoilt = "only its commits are seen: what failed is not known"
    elif isinstance(previous, Unknown) or seen.now - previous.at_s > state.settings.longest_gap_s:
        spoilt = "the job was not observed just before it"
    elif isinstance(lag_before_s, Unknown):
        spoilt = "the lag before it is unknown"
    elif lag_before_s > seen.band_s:
        spoilt = f"the job was {lag_before_s:.0f} s behind already"
    incident = Incident(
        kind=kind,
        scale_out=seen.scale_out if isinstance(previous, Unknown) else previous.scale_out,
        failed_at_s=at_s,
        noticed_at_s=seen.observation.at_s,
        why=why,
        band_s=seen.band_s,
        spoilt=spoilt,
    )
    return replace(state, recovering=incident, stretch=None)


def failed_at_s(state: State, seen: Seen, kind: str) -> float:
    """When it failed, as far as is known; not before the newest tick at which nothing waited for it."""
    return max(_failed_at_s(state, seen, kind), state.idle_until_s)


def _failed_at_s(state: State, seen: Seen, kind: str) -> float:
    """As far as the tick before, the commits and the lag tell."""
    o, previous = seen.observation, seen.previous
    assert not isinstance(previous, Unknown)
    commit = o.last_commit_at_s
    gap = _longest_gap(seen, previous)
    if not isinstance(gap, Unknown):
        return gap[0]
    since_s = o.at_s - previous.at_s
    left_lying_s = _left_lying_s(seen, previous)
    stood_still_s = since_s / 2.0 if isinstance(left_lying_s, Unknown) else max(left_lying_s, 0.0)
    if (
        not isinstance(commit, Unknown)
        and commit <= previous.at_s
        and stood_still_s >= WHOLE_INTERVAL * since_s
    ):
        return commit  # it failed before the tick before, which had not shown it yet
    if kind == "executor_kill" and _goes_on(state, seen) and not isinstance(commit, Unknown):
        # The others went on committing: what was lost is the batch that had to be run again.
        return max(previous.at_s, commit - max(stood_still_s, state.settings.trigger_s))
    return o.at_s - min(stood_still_s, since_s)


def follow(state: State, seen: Seen) -> tuple[State, tuple[Instruction, ...]]:
    """The state one tick further in its recovery, and what was learnt if it is over."""
    incident = state.recovering
    if incident is None or seen.unusable:
        return state, ()
    at_s, away_s = seen.observation.at_s, _away_s(seen)
    incident = replace(incident, first_commit_at_s=_first_commit_at_s(state, seen, incident))
    if away_s > state.settings.longest_gap_s:
        incident = _spoilt(incident, f"the job was not observed for {away_s:.0f} s of it")
    if isinstance(incident.first_commit_at_s, Unknown) and seen.idle:
        incident = _spoilt(incident, "there was nothing to do: when it worked again cannot be seen")
        if _all_alive(seen) and state.change is None:
            return _over(state, seen), ()
    if not isinstance(seen.lag_s, Unknown):
        incident = replace(incident, trace=(*incident.trace, (at_s, seen.lag_s))[-KEPT_TRACE:])
    state = replace(state, recovering=incident)
    back_at_s = _back_at_s(state, incident)
    if math.isfinite(back_at_s) and state.change is None:
        return _over(state, seen), _learnt(incident, back_at_s)
    if at_s - incident.failed_at_s <= state.settings.longest_recovery_s or incident.given_up:
        return state, ()
    alarm = Alarm(
        f"not recovered {seen.now - incident.failed_at_s:.0f} s after {incident.kind} ({incident.why}): "
        "look at the driver and the executors"
    )
    facts = (*_learnt(incident, math.inf), alarm)
    if isinstance(incident.first_commit_at_s, Unknown):
        # Still down: no time for decisions, however long it takes.
        given_up = _spoilt(replace(incident, given_up=True), "it was given up before")
        return replace(state, recovering=given_up), facts
    return _over(state, seen), facts


def elapsed_s(incident: Incident, now: float) -> float:
    """Seconds since the failure."""
    return max(0.0, now - incident.failed_at_s)


def _spoilt(incident: Incident, why: str) -> Incident:
    """Nothing can be learnt from it; the first reason stays."""
    return replace(incident, spoilt=incident.spoilt or why)


def _away_s(seen: Seen) -> float:
    """Since the tick before."""
    return 0.0 if isinstance(seen.previous, Unknown) else seen.observation.at_s - seen.previous.at_s


def _all_alive(seen: Seen) -> bool:
    return seen.sized and seen.observation.executors_alive == seen.scale_out


def _over(state: State, seen: Seen) -> State:
    return replace(state, recovering=None, settled_at_s=seen.observation.at_s)


def _learnt(incident: Incident, back_at_s: float) -> tuple[Instruction, ...]:
    if incident.spoilt:
        return ()
    first = incident.first_commit_at_s
    downtime_s = math.inf if isinstance(first, Unknown) else max(0.0, first - incident.failed_at_s)
    event = RecoveryEvent(
        kind=incident.kind,
        scale_out=incident.scale_out,
        failed_at_s=incident.failed_at_s,
        downtime_s=downtime_s,
        recovery_s=max(back_at_s - incident.failed_at_s, downtime_s),
    )
    return (Learn(event),)


def _goes_on(state: State, seen: Seen) -> bool:
    """Was something committed a moment ago?"""
    o = seen.observation
    fresh = (
        not isinstance(o.last_commit_at_s, Unknown)
        and o.at_s - o.last_commit_at_s <= 2.0 * state.settings.trigger_s
    )
    return fresh and seen.committing is True


def _longest_gap(seen: Seen, previous: Sample) -> tuple[float, float] | Unknown:
    """The two ends of the longest time without a commit since the tick before; the second may be now."""
    o = seen.observation
    if isinstance(o.commits_at_s, Unknown) or isinstance(previous.commit_at_s, Unknown):
        return Unknown("the commits of this interval are not known one by one")
    times = sorted({previous.commit_at_s, *o.commits_at_s, o.at_s})
    start, end = max(itertools.pairwise(times), key=lambda gap: gap[1] - gap[0])
    return start, end


def _left_lying_s(seen: Seen, previous: Sample) -> float | Unknown:
    """Seconds of input by which lag grew since the tick before."""
    o = seen.observation
    if isinstance(o.lag_records, Unknown) or isinstance(previous.lag_records, Unknown):
        return Unknown("the lag is unknown")
    if isinstance(o.arrival_rps, Unknown) or o.arrival_rps <= 0.0:
        return Unknown("the arrival rate is unknown or zero")
    return (o.lag_records - previous.lag_records) / o.arrival_rps


def _first_commit_at_s(state: State, seen: Seen, incident: Incident) -> float | Unknown:
    o, known, previous = seen.observation, incident.first_commit_at_s, seen.previous
    if not isinstance(known, Unknown):
        return known
    if not isinstance(o.commits_at_s, Unknown):
        return min((t for t in o.commits_at_s if t > incident.failed_at_s), default=known)
    newest = o.last_commit_at_s
    if incident.kind == "executor_kill" and o.at_s == incident.noticed_at_s and _goes_on(state, seen):
        return newest
    # Somewhere after the tick before and not after the newest commit.
    from_s = (
        incident.failed_at_s if isinstance(previous, Unknown) else max(incident.failed_at_s, previous.at_s)
    )
    if isinstance(newest, Unknown):
        works = not isinstance(o.throughput_rps, Unknown) and o.throughput_rps > 0.0
        newest = o.at_s if works else -math.inf
    if newest <= from_s:
        return known
    capacity = capacity_mid(state.settings, incident.scale_out)
    rate = o.throughput_rps
    if seen.behind and not isinstance(capacity, Unknown) and capacity > 0.0 and not isinstance(rate, Unknown):
        # Still behind at the end, so it has worked without a pause since it came back.
        since_s = o.at_s - (from_s if isinstance(previous, Unknown) else previous.at_s)
        return min(max(o.at_s - rate * since_s / capacity, from_s), newest)
    if seen.caught_up and not isinstance(capacity, Unknown) and not isinstance(o.arrival_rps, Unknown):
        # What it lay down for has been worked off already, so it cannot have been down for longer than this.
        share = max(0.0, 1.0 - o.arrival_rps / capacity) if capacity > 0.0 else 0.0
        newest = min(newest, from_s + share * (o.at_s - from_s))
    return (from_s + newest) / 2.0


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
    elif math.isfinite(back_at_s) and times[k] - incident.first_commit_at_s < state.settings.longest_gap_s:
        back_at_s = (incident.first_commit_at_s + times[k]) / 2.0  # lag was never seen outside its band
    return max(back_at_s, incident.first_commit_at_s)
