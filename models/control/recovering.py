"""Failures and recoveries: noticed by their symptoms, followed until the lag is back in its band.

The samples between two ticks show most failures, with their time (`Symptoms`): an executor that was lost, a
driver that died or fell silent first, brokers that did not answer while nothing was committed. An executor
that was silent before its loss was frozen: Spark had to wait for its time-out. Where no driver says so, that
is one whose loss comes long after the last commit. Otherwise a tick shows them: another run id or a driver
that is gone (driver_kill), fewer executors alive than before (executor_kill), or a gap between commits beyond
its bound while there is work (driver_freeze when the driver no longer says how many executors it has,
executor_freeze otherwise). A failure that we injected keeps its own name. A size that changes without us is a
rescale: live_out or live_in, restart_out or restart_in with a new run id. For an attached job a change of
`executors` is no event: it was declared at some later time.

    bound of the gap = longest_commit_gap_s + the seconds of work that waited when the last batch began

because a batch that holds a backlog is long without anything being wrong.

Where the commits of each interval are known, the longest gap between two of them is the downtime. Otherwise,
on the grid of ticks, the failure is placed by the input that was not processed since the tick before,

    failed_at = now − (lag − lag before) / arrival      not before the tick before,

and the first commit afterwards by the work that was done since: accurate to a part of an interval. The end is
on the straight line through the two readings of the lag between which it came back into its band. Where every
reading is known, that is the second that a drill would measure.

Without input Spark commits nothing: a job with all of its executors has then recovered at an unknown moment.
Nothing is learnt from that, from failures that overlap with each other or with a change of ours, nor from a
time in which Headroom itself did not watch the job.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass, replace

from ..observation import ExecutorLoss, Symptoms
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
from .state import NO_COMMIT, NO_RUN, Change, Incident, Sample, State

DRIVER_KINDS = ("driver_kill", "driver_freeze")
LOSE_EXECUTORS = ("executor_freeze", "node_loss", "network_partition", "pod_failure", "memory_stress")
FROZEN_S = 10.0  # judgement: Spark sees a killed process at once; a time-out is longer than this
BACK_S = 3.0  # judgement: a sampler asks again every second, and may have to connect anew
STANDSTILL = "standstill"  # no kind of failure: it is never learnt
INJECTED_WITHIN_S = 600.0  # a failure injected earlier than this has shown itself before (judgement)


def notice_failure(state: State, seen: Seen) -> State:
    """The state with a failure begun, or with the recovery under way marked as spoilt by a second one."""
    if seen.unusable or isinstance(seen.previous, Unknown):
        return state
    started_at_s, incident = state.directives.started_at_s, state.recovering
    if incident is not None and incident.failed_at_s <= started_at_s <= seen.now:
        state = _with_spoilt(state, "the job was started by an order meanwhile")
    state, failure = _what_failed(state, seen, seen.previous)
    if failure is None:
        return state
    kind, why = failure.kind, failure.why
    at_s = failed_at_s(state, seen, kind) if math.isnan(failure.at_s) else failure.at_s
    injected = state.directives.injected
    if injected is not None and injected.kind in EVENT_KINDS and kind not in RESCALE_KINDS:
        since_s = max(at_s - INJECTED_WITHIN_S, state.settled_at_s)
        if since_s < injected.at_s <= seen.now:
            kind, at_s, why = injected.kind, injected.at_s, f"{why}; we injected {injected.kind}"
    incident = state.recovering
    if at_s <= started_at_s:
        return state
    if incident is None:
        state = begin(state, seen, kind=kind, at_s=at_s, why=why, lag_before_s=_lag_before_s(state, at_s))
        return _with_spoilt(state, failure.spoilt)
    if incident.failed_at_s == at_s and incident.kind == kind:
        return state
    spoilt = f"{why} while it was still recovering from {incident.kind}"
    if incident.kind in RESCALE_KINDS and kind not in RESCALE_KINDS:
        state = begin(state, seen, kind=kind, at_s=at_s, why=why, lag_before_s=_lag_before_s(state, at_s))
    return _with_spoilt(state, spoilt)


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


@dataclass(frozen=True)
class Failure:
    """What happened since the tick before."""

    kind: str
    why: str
    at_s: float = math.nan
    """NaN where the samples do not show it."""
    spoilt: str = ""


def _what_failed(state: State, seen: Seen, previous: Sample) -> tuple[State, Failure | None]:
    """The first failure or rescale since the tick before that is no consequence of the one under way."""
    o, change, injected = seen.observation, state.change, state.directives.injected
    run = _known_run(state)
    restarted = _differs(run, o.run_id)
    if restarted and change is not None and _is_our_restart(state, change, run):
        return state, None
    came_back_smaller = restarted and state.directives.foreign_edit is False
    resized = seen.sized and change is None and seen.scale_out != previous.scale_out
    if resized and not came_back_smaller and not state.settings.only_commits:
        kind = (
            f"{'restart' if restarted else 'live'}_{'out' if seen.scale_out > previous.scale_out else 'in'}"
        )
        return state, Failure(kind, f"the size went from {previous.scale_out} to {executors(seen.scale_out)}")
    if not state.settings.only_commits and not isinstance(o.symptoms, Unknown):
        state, failures = _by_symptoms(state, seen, o.symptoms)
        if failures:
            first, *others = sorted(failures, key=lambda failure: failure.at_s)
            more = f"{others[0].why} as well" if others else ""
            return state, replace(first, spoilt=more)
    incident = state.recovering
    gone = isinstance(o.run_id, Unknown) and not isinstance(run, Unknown) and o.executors_alive == 0
    if restarted or (gone and seen.sized and not _is_our_restart(state, change, run)):
        if incident is not None and incident.kind in DRIVER_KINDS and incident.run_id == run:
            return state, None
        anew = f"the query runs anew (run {o.run_id}, before {run})"
        return state, Failure("driver_kill", anew if restarted else f"the driver of run {run} has gone")
    if injected is not None and injected.kind in EVENT_KINDS and previous.at_s < injected.at_s <= o.at_s:
        return state, Failure(injected.kind, "it was asked for")
    if change is not None:
        return state, None  # whether it works is judged by `changing`
    if _fewer_alive(seen, previous) and not _ends_in_a_loss(incident):
        why = f"{o.executors_alive} of {executors(seen.scale_out, 'are')} alive"
        return state, Failure("executor_kill", why)
    still_down = incident is not None and isinstance(incident.first_commit_at_s, Unknown)
    return state, None if still_down else _commit_gap(state, seen)


def _by_symptoms(state: State, seen: Seen, shown: Symptoms) -> tuple[State, list[Failure]]:
    """The failures that the samples of this interval show, each once, and none of our own doing."""
    change, incident = state.change, state.recovering
    found: list[Failure] = []
    for begin_s, end_s in shown.brokers_silent_s:
        if not seen.idle and not _went_on(state, seen, begin_s, end_s):
            why = f"the brokers did not answer for {end_s - begin_s:.0f} s, and nothing was committed"
            found.append(Failure("broker_restart", why, begin_s))
    silent_s = min((begin_s for begin_s, _ in shown.brokers_silent_s), default=math.inf)
    for loss in shown.drivers_lost:
        kind = "driver_freeze" if loss.silent_s >= FROZEN_S else "driver_kill"
        if _is_our_restart(state, change, loss.run_id) or (found and loss.at_s >= silent_s):
            continue
        if incident is not None and incident.kind in DRIVER_KINDS and incident.run_id == loss.run_id:
            if isinstance(incident.first_commit_at_s, Unknown) and incident.kind != "driver_freeze":
                incident = replace(incident, kind=kind, failed_at_s=loss.at_s)
                state = replace(state, recovering=incident)
            continue
        found.append(Failure(kind, f"the driver of run {loss.run_id} was lost", loss.at_s))
    lost = sorted(shown.executors_lost, key=lambda loss: loss.at_s)
    if change is not None:
        ours = max(0, change.before - change.to - change.lost)
        state = replace(state, change=replace(change, lost=change.lost + len(lost)))
        lost = lost[ours:]
    if lost and not _ends_in_a_loss(incident):
        failure = _of_executors(state, seen, lost)
        # They are counted at a tick, and read some seconds before or after it.
        counted = lost[0].at_s <= state.stepped_at_s and _noticed_just_before(incident, seen)
        if incident is None or not counted:
            found.append(failure)
        elif incident.kind == "executor_kill":
            state = replace(state, recovering=_known_better(incident, failure))
        elif incident.kind not in ("live_in", "restart_in"):
            found.append(failure)
    return state, found


def _noticed_just_before(incident: Incident | None, seen: Seen) -> bool:
    previous = seen.previous
    return (
        incident is not None and not isinstance(previous, Unknown) and incident.noticed_at_s == previous.at_s
    )


def _went_on(state: State, seen: Seen, begin_s: float, end_s: float) -> bool:
    """Whether batches were committed while the brokers were silent.

    One that had its records already may end meanwhile; one that begins cannot. At the end of the silence it
    may: the brokers are back some moments before we reach them again.
    """
    trigger_s, commits = state.settings.trigger_s, _commits_s(seen, until_s=end_s)
    after = [at_s for at_s in commits if at_s > begin_s + trigger_s]
    before = [at_s for at_s in commits if at_s <= begin_s + trigger_s]
    if not after or not before:
        return bool(after)
    usual_s = statistics.median_low([two - one for one, two in itertools.pairwise(commits)])
    stood_s = after[0] - before[-1]
    return end_s - after[0] > BACK_S or stood_s <= 2.0 * min(trigger_s, usual_s)


def _known_better(incident: Incident, failure: Failure) -> Incident:
    """The same failure, as a later reading shows it."""
    first = incident.first_commit_at_s
    goes_on = not isinstance(first, Unknown) and first <= failure.at_s
    return replace(
        incident,
        kind=failure.kind,
        failed_at_s=failure.at_s,
        why=failure.why,
        first_commit_at_s=NO_COMMIT if goes_on else first,
    )


def _of_executors(state: State, seen: Seen, lost: list[ExecutorLoss]) -> Failure:
    """The failure that these losses show. A frozen executor stops within the batch after the last commit."""
    first, why = lost[0], f"{executors(len(lost), 'were')} lost"
    commit_at_s = _newest_commit_s(seen, until_s=first.at_s)
    if not isinstance(first.silent_s, Unknown):
        if first.silent_s < FROZEN_S:
            return Failure("executor_kill", why, first.at_s)
        why = f"{why} after a silence of {first.silent_s:.0f} s"
        return Failure("executor_freeze", why, max(first.at_s - first.silent_s, commit_at_s))
    stood_s = first.at_s - commit_at_s
    bound_s = state.settings.trigger_s + FROZEN_S + _batch_work_s(state, commit_at_s)
    if seen.idle or not bound_s < stood_s < math.inf:
        return Failure("executor_kill", why, first.at_s)
    why = f"{why} after {stood_s:.0f} s without a commit"
    return Failure("executor_freeze", why, commit_at_s + state.settings.trigger_s / 2.0)


def _newest_commit_s(seen: Seen, *, until_s: float) -> float:
    """The newest commit up to then, as far as the ticks know; -inf where they know none."""
    return max(_commits_s(seen, until_s=until_s), default=-math.inf)


def _commits_s(seen: Seen, *, until_s: float) -> list[float]:
    """The commits since the tick before, and the newest one before that, as far as they are known."""
    known = [] if isinstance(seen.observation.commits_at_s, Unknown) else list(seen.observation.commits_at_s)
    for one in (seen.observation.last_commit_at_s, getattr(seen.previous, "commit_at_s", NO_COMMIT)):
        known += [] if isinstance(one, Unknown) else [one]
    return sorted({at_s for at_s in known if at_s <= until_s})


def _known_run(state: State) -> str | Unknown:
    """The newest run of the query that a tick has read."""
    runs = (sample.run_id for sample in reversed(state.history))
    return next((run for run in runs if not isinstance(run, Unknown)), NO_RUN)


def _ends_in_a_loss(incident: Incident | None) -> bool:
    """Whether the failure under way ends with the loss of an executor, which is then no second failure."""
    return (
        incident is not None
        and incident.kind in LOSE_EXECUTORS
        and isinstance(incident.first_commit_at_s, Unknown)
    )


def _with_spoilt(state: State, why: str) -> State:
    """Nothing can be learnt from the recovery under way; the first reason stays."""
    assert state.recovering is not None
    return replace(state, recovering=_spoilt(state.recovering, why))


def _is_our_restart(state: State, change: Change | None, run: str | Unknown) -> bool:
    return change is not None and state.settings.path == "restart" and change.run_id == run


def _differs(before: str | Unknown, now: str | Unknown) -> bool:
    return not isinstance(before, Unknown) and not isinstance(now, Unknown) and before != now


def _fewer_alive(seen: Seen, previous: Sample) -> bool:
    alive, before = seen.observation.executors_alive, previous.executors_alive
    if isinstance(alive, Unknown) or not seen.sized:
        return False
    if alive == 0 and isinstance(seen.observation.run_id, Unknown):
        return False  # its driver is starting
    # A gap that Spark cannot fill (a full cluster) is one failure, not a new one at every tick.
    return alive < (seen.scale_out if isinstance(before, Unknown) else min(seen.scale_out, before))


def _commit_gap(state: State, seen: Seen) -> Failure | None:
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
    return Failure(
        kind,
        f"nothing was committed for {gap_s:.0f} s (bound {bound_s:.0f} s) "
        f"while {o.lag_records:,.0f} records wait",
    )


def _batch_work_s(state: State, commit_at_s: float) -> float:
    """Seconds of work in the batch after this commit: what waited at the next tick, and had come by then."""
    waiting = next((s for s in state.history if s.at_s >= commit_at_s), None)
    if waiting is None or isinstance(waiting.lag_records, Unknown):
        return 0.0
    later_s = max(0.0, waiting.at_s - commit_at_s - state.settings.trigger_s)
    capacity, arrival_rps = capacity_mid(state.settings, waiting.scale_out), waiting.arrival_rps
    if not isinstance(capacity, Unknown) and capacity > 0.0:
        later = 0.0 if isinstance(arrival_rps, Unknown) else later_s * arrival_rps
        return max(0.0, waiting.lag_records - later) / capacity
    return 0.0 if isinstance(waiting.lag_s, Unknown) else max(0.0, waiting.lag_s - later_s)


def _lag_before_s(state: State, at_s: float) -> float | Unknown:
    """At the newest tick that was not after this moment, or else at the oldest that is known."""
    before = [sample for sample in state.history if sample.at_s <= at_s]
    return before[-1].lag_s if before else state.history[0].lag_s


KEPT_TRACE = 1200  # readings: twenty minutes of one a second, longer than a recovery is waited for by default
WHOLE_INTERVAL = 0.9  # of an interval left lying: nothing was done in it (judgement)


def begin(
    state: State, seen: Seen, *, kind: str, at_s: float, why: str, lag_before_s: float | Unknown
) -> State:
    """The state in which a failure or rescale of this kind began at `at_s`."""
    previous, spoilt = seen.previous, ""
    if state.settings.only_commits:
        spoilt = "only its commits are seen: what failed is not known"
    elif unseen := _unseen(state, seen):
        spoilt = f"{unseen} just before it"
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
        rate_rps=seen.observation.arrival_rps,
        spoilt=spoilt,
        run_id=_known_run(state),
    )
    return replace(state, recovering=incident, stretch=None)


def _unseen(state: State, seen: Seen) -> str:
    """Why what happened since the tick before was not seen; empty if it was."""
    o, previous, shown = seen.observation, seen.previous, seen.observation.symptoms
    if isinstance(previous, Unknown):
        return "the job was not observed"
    if state.observed_at_s > previous.at_s:
        return "its size was not known"
    if isinstance(shown, Unknown):
        away_s = o.at_s - previous.at_s
        return f"the job was not observed for {away_s:.0f} s" if away_s > state.settings.longest_gap_s else ""
    away_s = shown.watched_since_s - previous.at_s
    return f"Headroom itself did not watch it for {away_s:.0f} s" if away_s > 0.0 else ""


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
    at_s = seen.observation.at_s
    incident = replace(incident, first_commit_at_s=_first_commit_at_s(state, seen, incident))
    if at_s > incident.noticed_at_s and (unseen := _unseen(state, seen)):
        incident = _spoilt(incident, unseen)
    if isinstance(incident.first_commit_at_s, Unknown) and seen.idle:
        incident = _spoilt(incident, "there was nothing to do: when it worked again cannot be seen")
        if _all_alive(seen) and state.change is None:
            return _over(state, seen), ()
    read_until_s = incident.trace[-1][0] if incident.trace else -math.inf
    new = (reading for reading in seen.lags_s if reading[0] > read_until_s)
    incident = replace(incident, trace=(*incident.trace, *new)[-KEPT_TRACE:])
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
        rate_rps=None if isinstance(incident.rate_rps, Unknown) else incident.rate_rps,
    )
    return (Learn(event),)


def _goes_on(state: State, seen: Seen) -> bool:
    """Whether something was committed within the last two triggers."""
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
