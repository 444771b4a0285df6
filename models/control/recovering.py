"""When did it fail, when did it work again, and when was it over?

Where the commits of each interval are known, the longest gap between two of them is the downtime. Otherwise,
on the grid of ticks, the failure is placed by the input that was left lying since the tick before,

    failed_at = now − (lag − lag before) / arrival      not before the tick before,

the first commit afterwards by the work that was done since, and the end by the straight line through the two
ticks between which lag came back into its band. These are good to a part of an interval; drills, which sample
several times a second, measure the same things by the second.

Without input Spark commits nothing: then a job with all of its executors has recovered, and nobody can say
when. Nothing is learnt from that, nor from a recovery during which nobody was watching.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from models.quantities import Alarm, Instruction, Learn, RecoveryEvent, Unknown
from models.recovery import recovered_at

from .seeing import Seen, capacity_mid
from .state import Incident, Sample, State

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
        spoilt = "nobody was watching just before it"
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
    """When it failed, as far as can be told; not before the newest tick at which nothing waited for it."""
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
        incident = _spoilt(incident, f"nobody was watching for {away_s:.0f} s of it")
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
        back_at_s = (incident.first_commit_at_s + times[k]) / 2.0  # nobody saw lag outside its band
    return max(back_at_s, incident.first_commit_at_s)
