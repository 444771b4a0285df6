"""Changes of the size that control has ordered: their begin, refusal, withdrawal, verification, rollback.

    took effect   declared size and live executors equal the target within take_effect_s; it is still declared
    healthy       something was committed since, and
                    after growing:    throughput is not below what it was before
                    after shrinking:  lag is in its band, or falls
    helped        judged only if the job was saturated before and is still saturated after it has settled:
                  mean throughput − throughput before ≥ EFFECTIVE_SHARE · (T(to) − T(before))

Lag that grows after growing is no failure of the change: the load may have risen, and fewer executors would
be worse. What fails is rolled back, and put in quarantine with everything beyond it, because a cluster
without room for five executors has none for six. A rollback or a pin that fails is not rolled back: an alarm
asks for a person.

A change is ordered by one tick and carried out later by another process: it may begin late, be refused, or
never begin because people have forbidden it meanwhile (`begun`, `refused`, `withdrawn`). What was never begun
has not failed and teaches nothing; what began late is measured from when it began.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from .. import arguments
from ..quantities import RESCALE_KINDS, Alarm, Instruction, Origin, Scale, Unknown, executors
from .evidence import Seen, capacity_mid, lag_rises
from .recovering import begin
from .state import NO_COMMIT, Change, Incident, Quarantine, Settings, State


def begun(state: State, *, at_s: float) -> State:
    """The state in which the change under way began only now; it has as long as ever to take effect."""
    at_s = arguments.number("at_s", at_s)
    change = state.change
    if change is None or change.problem or at_s <= change.at_s:
        return state
    incident = _its_incident(state)
    if incident is not None:
        later = replace(incident, failed_at_s=at_s, first_commit_at_s=NO_COMMIT)
        state = replace(state, recovering=later)
    return replace(state, change=replace(change, at_s=at_s), changed_at_s=at_s)


def refused(state: State, *, why: str) -> State:
    """The state that knows that the change under way cannot be carried out: the next tick takes it back."""
    change = state.change
    if change is None or change.problem:
        return state
    return replace(state, change=replace(change, refused=why))


def withdrawn(state: State) -> State:
    """The state as if the change under way, which was never begun, had not been ordered."""
    change = state.change
    if change is None or change.problem:
        return state
    if _its_incident(state) is not None:
        state = replace(state, recovering=None)
    # A size that was lost is still what we have applied: it is missed for as long as it is not brought back.
    applied = state.last_good if change.origin == "reassert" else change.before
    return replace(state, change=None, applied=applied)


def _its_incident(state: State) -> Incident | None:
    """The rescale that the change has begun, as long as no failure has replaced it."""
    incident, change = state.recovering, state.change
    if incident is None or change is None or incident.kind not in RESCALE_KINDS:
        return None
    return incident if incident.failed_at_s == change.at_s else None


EFFECTIVE_SHARE = 0.1  # of the expected gain: Flink's effectiveness threshold
QUARANTINE_S = 1_800.0  # doubled with every repetition, up to MAX_QUARANTINE_S (judgement)
MAX_QUARANTINE_S = 86_400.0
MIN_SATURATED_S = 120.0  # with batches of 10 s, an end more or less is 8 % of it (judgement)
BEFORE_S = 300.0  # of saturation before a change are looked at, where there was as much (judgement)
NOISE = 0.1  # throughput of one tick scatters by less (judgement)
ROLLED_BACK: tuple[Origin, ...] = ("decision", "emergency")

Followed = tuple[State, tuple[Instruction, ...]]


def change_to(state: State, seen: Seen, order: Scale) -> State:
    """The state in which this change of the size has just been ordered."""
    before, to = seen.scale_out, order.to
    change = Change(
        origin=order.origin,
        before=before,
        to=to,
        at_s=seen.now,
        reason=order.reason,
        run_id=seen.observation.run_id,
        lag_s=seen.lag_s,
        throughput_rps=_saturated_rps(state, seen),
        expected_rps=_expected_rps(state, before, to),
    )
    if state.recovering is None:
        kind = f"{state.settings.path}_{'out' if to > before else 'in'}"
        why = f"we go from {before} to {executors(to)}"
        state = begin(state, seen, kind=kind, at_s=seen.now, why=why, lag_before_s=seen.lag_s)
    elif isinstance(state.recovering.first_commit_at_s, Unknown):
        spoilt = "its size was changed during the downtime"
        state = replace(state, recovering=replace(state.recovering, spoilt=spoilt))
    return replace(state, change=change, applied=to, changed_at_s=seen.now, stretch=None)


def verify(state: State, seen: Seen) -> Followed:
    """The state after looking at the change under way; a failed one carries its problem."""
    change = state.change
    if change is None or not seen.sized:
        return state, ()
    if change.problem:
        return _look_again(state, seen, change), ()
    if change.refused:
        return _fail(state, seen, change, change.refused)
    if math.isinf(change.took_effect_at_s):
        waited_s = seen.now - change.at_s
        if _in_effect(seen, change):
            change = replace(change, took_effect_at_s=seen.observation.at_s)
        elif waited_s < state.settings.take_effect_s:
            return state, ()
        else:
            alive = seen.observation.executors_alive
            found = "live executors unknown" if isinstance(alive, Unknown) else f"{alive} alive"
            problem = f"it has not taken effect after {waited_s:.0f} s: declared {seen.scale_out}, {found}"
            arrived = change.before if isinstance(alive, Unknown) else max(change.before, alive)
            return _fail(state, seen, change, problem, works=arrived)
    state = replace(state, change=change)
    if seen.scale_out != change.to:
        return _lost(state, seen, change)
    if seen.observation.at_s - change.took_effect_at_s < state.settings.settled_after_s:
        return state, ()
    return _judge_health(state, seen, change)


def _lost(state: State, seen: Seen, change: Change) -> Followed:
    """The size was lost before it was verified; a size that we decided on is taken to be the cause."""
    if change.origin in ROLLED_BACK:
        return _fail(state, seen, change, f"the job went back to {executors(seen.scale_out)}")
    return replace(state, change=None), ()  # what was ordered or verified before is ordered again


def is_quarantined(state: State, scale_out: int, now: float) -> Quarantine | None:
    """The quarantine that bars this size now, if there is one."""
    return next((q for q in state.quarantined if q.bars(scale_out, now)), None)


def _in_effect(seen: Seen, change: Change) -> bool:
    alive = seen.observation.executors_alive
    return seen.scale_out == change.to and (isinstance(alive, Unknown) or alive == change.to)


def _saturated_rps(state: State, seen: Seen) -> float | Unknown:
    """Mean throughput of the ticks just before at which the job was behind."""
    if not seen.behind:
        return Unknown("the job was not saturated before the change")
    rates = [seen.observation.throughput_rps]
    for sample in reversed(state.history):
        behind = not isinstance(sample.lag_s, Unknown) and sample.lag_s > seen.band_s
        if not behind or sample.at_s < seen.observation.at_s - BEFORE_S or sample.scale_out != seen.scale_out:
            break
        rates.append(sample.throughput_rps)
    known = [rate for rate in rates if not isinstance(rate, Unknown)]
    return sum(known) / len(known) if known else Unknown("the throughput before the change is unknown")


def _expected_rps(state: State, before: int, to: int) -> float | Unknown:
    low, high = capacity_mid(state.settings, before), capacity_mid(state.settings, to)
    if isinstance(low, Unknown):
        return low
    return high if isinstance(high, Unknown) else high - low


def patience_s(settings: Settings) -> float:
    """How long a change that is in effect may take until the job is seen to be healthy with it."""
    return max(settings.promise.target_s, 2.0 * settings.settled_after_s)


def _judge_health(state: State, seen: Seen, change: Change) -> Followed:
    overdue = seen.now - change.took_effect_at_s >= patience_s(state.settings)
    if not _works(seen, change):
        return _fail(state, seen, change, "nothing was committed since") if overdue else (state, ())
    if seen.caught_up or change.origin not in ROLLED_BACK:
        return _succeed(state, seen, change), ()
    if change.to > change.before:
        return _judge_help(state, seen, change, overdue=overdue)
    if overdue and (isinstance(seen.lag_s, Unknown) or lag_rises(state, seen)):
        lag = "unknown" if isinstance(seen.lag_s, Unknown) else f"{seen.lag_s:.0f} s of input and rising"
        return _fail(state, seen, change, f"the job does not catch up, its lag is {lag}")
    return (_succeed(state, seen, change) if overdue else state), ()


def _works(seen: Seen, change: Change) -> bool:
    o = seen.observation
    if seen.idle:
        return True  # nothing to do is healthy too: commits stop with the input
    if not isinstance(o.last_commit_at_s, Unknown) and o.last_commit_at_s <= change.at_s:
        return False
    return seen.committing is True


def _judge_help(state: State, seen: Seen, change: Change, *, overdue: bool) -> Followed:
    """After growing, still behind: judge whether throughput rose by a fair share of what was expected."""
    throughput, before = seen.observation.throughput_rps, change.throughput_rps
    if isinstance(throughput, Unknown) or isinstance(before, Unknown):
        return (_succeed(state, seen, change) if overdue else state), ()
    if not isinstance(seen.previous, Unknown) and seen.previous.at_s >= change.took_effect_at_s:
        since_s = seen.observation.at_s - seen.previous.at_s
        change = replace(
            change,
            saturated_s=change.saturated_s + since_s,
            saturated_records=change.saturated_records + throughput * since_s,
        )
        state = replace(state, change=change)
    if change.saturated_s < MIN_SATURATED_S:
        return state, ()
    gain = change.saturated_records / change.saturated_s - before
    if gain < -NOISE * before:
        return _fail(state, seen, change, f"throughput fell by {-gain:,.0f} records/s")
    expected = change.expected_rps
    if isinstance(expected, Unknown) or gain >= EFFECTIVE_SHARE * expected:
        return _succeed(state, seen, change), ()
    problem = (
        f"not scalable: {change.before} → {executors(change.to)} brought {gain:+,.0f} of the {expected:,.0f} "
        "records/s expected; look for a hot partition, a slow sink or too few partitions"
    )
    return _fail(state, seen, change, problem, works=change.before)


def _succeed(state: State, seen: Seen, change: Change) -> State:
    kept = tuple(q for q in state.quarantined if not q.bars(change.to, q.since_s))
    done_at_s = seen.observation.at_s
    incident = state.recovering
    if incident is not None and incident.spoilt and incident.kind in RESCALE_KINDS:
        state = replace(state, recovering=None)  # the job was behind already: there is nothing to measure
    return replace(state, change=None, last_good=change.to, quarantined=kept, settled_at_s=done_at_s)


def _fail(state: State, seen: Seen, change: Change, problem: str, *, works: int | None = None) -> Followed:
    """The change has failed; after growing, `works` is the largest size that is known to be of use."""
    state = replace(state, change=replace(change, problem=problem))
    if state.recovering is not None:
        spoilt = f"the change to {executors(change.to)} failed"
        state = replace(state, recovering=replace(state.recovering, spoilt=spoilt))
    if change.origin not in ROLLED_BACK:
        alarm = (
            f"{change.origin} to {executors(change.to)} failed: {problem}. Nothing more is tried; "
            "look at the cluster, then `headroom resume`"
        )
        return state, (Alarm(alarm),)
    direction: Literal["out", "in"] = "out" if change.to > change.before else "in"
    barred = change.to if works is None or direction == "in" else min(works + 1, change.to)
    strikes = 1 + max((q.strikes for q in state.quarantined if q.direction == direction), default=0)
    bar_s = min(QUARANTINE_S * 2.0 ** (strikes - 1), MAX_QUARANTINE_S)
    quarantine = Quarantine(
        scale_out=barred,
        since_s=seen.now,
        until_s=seen.now + bar_s,
        strikes=strikes,
        why=problem,
        direction=direction,
    )
    others = tuple(q for q in state.quarantined if q.direction != direction)
    what = problem if problem.startswith("not scalable") else f"scale-{direction} failed: {problem}"
    alarm = f"{what}. Back to {executors(change.before)}; {quarantine.text(seen.now)}"
    return replace(state, quarantined=(*others, quarantine)), (Alarm(alarm),)


def _look_again(state: State, seen: Seen, change: Change) -> State:
    """A failed rollback or pin is over when it works after all, or at a `resume`."""
    if change.origin in ROLLED_BACK:
        return state
    resumed = state.directives.resumed_at_s > change.at_s
    works = _in_effect(seen, change) and seen.caught_up and seen.committing is True
    if not resumed and not works:
        return state
    applied = seen.scale_out if resumed else state.applied
    return replace(state, change=None, applied=applied, settled_at_s=seen.observation.at_s)
