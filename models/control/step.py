"""One tick of control: collect, notice, decide, limit, instruct.

collect     judge the observation: is it fresh, what is missing, how far behind is the job?
notice      what has happened: foreign edits, failures, recoveries, our changes, measurements
decide      the size that is wanted; the first of these that applies:
                paused, foreign edit, pin, drill, blackout, mode             (`precedence`)
                blind, change under way, size lost, recovering, decision     (`decide`)
limit       bounds, quarantine, cool-down, scale-in window, step limit
instruct    one Scale or Hold, then alarms and facts to learn

Help during a recovery is a larger size, where the job would not be back in time or falls further behind:

    end(s) = elapsed + rescale + (lag + rescale · arrival) / (T(s) − arrival)      inf if T(s) ≤ arrival

with rescale = 0 for the present size. Help is needed if end(present) misses the target, or if lag still grows
although the job commits again; then the smallest size that keeps the target is taken, or, if none does, the
smallest within a tenth of the fastest. While nothing is committed, more executors would not help.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .. import arguments
from ..errors import HeadroomError
from ..observation import Observation
from ..quantities import Alarm, Hold, Instruction, Scale, Unknown, executors, lasting
from .changes import ROLLED_BACK, change_to, is_quarantined, patience_s, verify
from .evidence import ARRIVAL_WINDOW_S, Seen, capacity_mid, collect, lag_rises, learn, remember
from .recovering import elapsed_s, follow, notice_failure, short_of_executors
from .state import (
    ALARM_EVERY_S,
    NOT_APPLIED,
    NOT_VERIFIED,
    STALE_AFTER_S,
    Change,
    Decision,
    ForeignEdit,
    Held,
    Incident,
    Move,
    Pin,
    Settings,
    Situation,
    State,
    decided,
)

EVERY_TICK_S = 1e-3  # a tick at any later moment is a new one
_NO_DIGITS = str.maketrans("", "", "0123456789.,")
BROKEN = (HeadroomError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError)
"""What a model that was damaged, or made for something else, may raise."""


RESUME = "`headroom resume`, or the time that was given"
NEXT = "another decision: every tick decides anew"
COOLED = "the end of the cool-down"
WINDOW = "the scale-in window"
QUARANTINE = "the end of the quarantine, or `headroom resume`"


@dataclass(frozen=True)
class NoAnswer:
    """The optimiser could not answer."""

    reason: str
    feasible: bool = False
    alarm: str | None = None

    @property
    def scale_out(self) -> Unknown:
        return Unknown(self.reason)


def start(settings: Settings) -> State:
    """The state of a job before its first tick."""
    return State(settings=settings)


def step(state: State, observation: Observation, now: float) -> tuple[State, list[Instruction]]:
    """The next state, and the instructions: one Scale or Hold first, then alarms and facts to learn."""
    now = arguments.number("now", now)
    back_s = state.stepped_at_s - now
    clock: tuple[Instruction, ...] = ()
    if back_s > STALE_AFTER_S:
        state = with_clock_put_back(state, now)
        clock = (
            Alarm(f"the clock was put back by {back_s:.0f} s: what was seen by the wrong one is forgotten"),
        )
    elif back_s >= 0.0:
        again = f"this moment was evaluated already, {back_s:.0f} s ago"
        return state, [Hold(again, ends="the clock", again_at_s=state.stepped_at_s + EVERY_TICK_S)]
    seen = collect(state, observation, now)
    state, facts = notice(state, seen)
    state, wanted, alarms = decide(state, seen)
    wanted = limit(state, seen, wanted)
    return instruct(state, seen, wanted, clock + facts + alarms)


def with_clock_put_back(state: State, now: float) -> State:
    """The state after the clock was put back: sizes and changes stay, moments that lie ahead do not."""
    change, foreign = state.change, state.foreign
    if change is not None:
        effect_s = change.took_effect_at_s
        effect_s = effect_s if math.isinf(effect_s) else min(effect_s, now)
        change = replace(change, at_s=min(change.at_s, now), took_effect_at_s=effect_s)
    return State(
        settings=state.settings,
        directives=state.directives,
        change=change,
        applied=state.applied,
        last_good=state.last_good,
        foreign=None if foreign is None else replace(foreign, since_s=min(foreign.since_s, now)),
        quarantined=tuple(q for q in state.quarantined if q.since_s <= now),
    )


def notice(state: State, seen: Seen) -> tuple[State, tuple[Instruction, ...]]:
    """What has happened since the last tick, and the facts and alarms that follow from it."""
    state, blind = unobserved(state, seen)
    state = notice_foreign_edit(state, seen)
    drilled = _drilled(state, seen)
    if not drilled:
        state = notice_failure(state, seen)
    state, verified = verify(state, seen)
    state, recovered = follow(state, seen)
    if drilled:
        settled_s = state.settled_at_s if seen.unusable else seen.observation.at_s
        state = replace(state, stretch=None, short_since_s=math.inf, settled_at_s=settled_s)
        return state, blind + verified + recovered
    state, learnt = learn(state, seen)
    state, short = short_of_executors(state, seen)
    return state, blind + verified + recovered + learnt + short


def unobserved(state: State, seen: Seen) -> tuple[State, tuple[Instruction, ...]]:
    """The state that knows since when nothing can be concluded, and an alarm if that lasts."""
    if not seen.unusable and not seen.missing:
        return replace(state, missing_since_s=math.inf), ()
    since_s = min(state.missing_since_s, seen.now)
    state, blind_s = replace(state, missing_since_s=since_s), seen.now - since_s
    if blind_s < state.settings.missing_after_s:
        return state, ()
    why = next(iter(seen.missing), seen.unusable)
    return state, (Alarm(f"the job cannot be observed for {blind_s:.0f} s: its size is held, {why}"),)


def decide(state: State, seen: Seen) -> tuple[State, Hold | Scale, tuple[Instruction, ...]]:
    """The size that is wanted now, before the limits, or a hold with its reason."""
    outranks = precedence(state, seen)
    if outranks is not None:
        return state, outranks, ()
    if seen.unusable or seen.missing:
        return state, _blind(seen), ()
    if state.change is not None:
        return *_under_way(state, seen), ()
    if lost_our_size(state, seen.scale_out):
        return state, _reassert(state, seen), ()
    if state.recovering is not None:
        return state, _recovering(state, seen), ()
    return _optimise(state, seen)


def precedence(state: State, seen: Seen) -> Hold | Scale | None:
    """What outranks a decision: pause, foreign edit, pin, drill, blackout, mode. None if nothing does."""
    now, settings, directives = seen.now, state.settings, state.directives
    if pause := directives.paused(now):
        return Hold(f"paused by {pause.who}{_until(pause.until_s, now)}: {pause.why}", ends=RESUME)
    if edit := state.foreign:
        return Hold(
            f"foreign edit: the size was set to {executors(edit.found)} where we had set {edit.ours}; "
            "it is not touched until `headroom resume`",
            ends=RESUME,
        )
    if pin := directives.pinned(now):
        order = f"pinned to {executors(pin.scale_out)} by {pin.who}{_until(pin.until_s, now)}: {pin.why}"
        if not settings.min_scale_out <= pin.scale_out <= settings.max_scale_out:
            return Hold(
                f"{order}; but the bounds are {settings.min_scale_out}…{settings.max_scale_out}: "
                "change the bounds or the pin",
                ends="a pin within the bounds, or " + RESUME,
                patience_s=0.0,
            )
        if not seen.sized or seen.scale_out == pin.scale_out or _is_at_it(state.change, pin):
            return Hold(order, ends=RESUME)
        return Scale(pin.scale_out, order, "pin")
    if drill := directives.drilled(now):
        return Hold(
            f"drill under way: {drill.kind} on purpose, for {lasting(now - drill.since_s)}; nothing is "
            "decided until the drill is over",
            ends="the end of the drill",
            patience_s=2.0 * settings.longest_recovery_s,
        )
    blackout = directives.blackout
    if blackout is not None and not blackout.scale_out_allowed:
        return Hold(f"blackout, nothing changes: {blackout.why}", ends="the end of the blackout window")
    if settings.mode == "observe":
        return Hold("mode observe: measuring and learning, deciding nothing", ends="mode recommend or apply")
    return None


def instruct(
    state: State, seen: Seen, wanted: Hold | Scale, facts: tuple[Instruction, ...]
) -> tuple[State, list[Instruction]]:
    """Turn what is wanted into an instruction, once, and remember the tick."""
    if isinstance(wanted, Scale):
        if state.settings.mode != "apply":
            would = f"would scale to {executors(wanted.to)}: {wanted.reason}"
            wanted = Hold(f"mode {state.settings.mode}, {would}", would=wanted.to, ends="mode apply")
        else:
            moves = _moved(state, seen, wanted)
            state = replace(change_to(state, seen, wanted), moves=moves)
    state, wanted, overdue = _timed(state, seen, wanted)
    facts += overdue
    state, kept = _not_again(state, seen, facts)
    return remember(state, seen), [wanted, *kept]


def _timed(
    state: State, seen: Seen, wanted: Hold | Scale
) -> tuple[State, Hold | Scale, tuple[Instruction, ...]]:
    """The hold with the time at which it is looked at again, and an alarm if it lasts beyond its reason."""
    if isinstance(wanted, Scale):
        return replace(state, held=None), wanted, ()
    now, held = seen.now, state.held
    wanted = replace(wanted, again_at_s=now + state.settings.interval_s)
    if held is None or held.ends != wanted.ends or now - state.stepped_at_s > state.settings.longest_gap_s:
        held = Held(ends=wanted.ends, since_s=now)
    state = replace(state, held=held)
    held_s = now - held.since_s
    if held_s < wanted.patience_s or math.isinf(wanted.patience_s):
        return state, wanted, ()
    alarm = f"the size is held until {wanted.ends}, for {lasting(held_s)} already: {wanted.reason}"
    return state, wanted, (Alarm(alarm),)


def notice_foreign_edit(state: State, seen: Seen) -> State:
    """The state with a foreign edit noticed, and with everything ended that `resume` ends."""
    resumed_at_s = state.directives.resumed_at_s
    kept = tuple(q for q in state.quarantined if q.since_s > resumed_at_s)
    state = replace(state, quarantined=kept)
    if state.settings.mode != "apply":
        # Without mode apply people look after the size: what we had set is not ours to bring back.
        state = replace(state, change=None, applied=NOT_APPLIED, last_good=NOT_VERIFIED)
    foreign = state.foreign
    if foreign is not None and foreign.since_s <= resumed_at_s:
        ours = seen.scale_out if seen.sized else Unknown("the size was not readable at the resume")
        # Taken over, not verified: nothing that we would bring back.
        return replace(state, foreign=None, applied=ours, last_good=NOT_VERIFIED)
    if foreign is not None or state.settings.mode != "apply" or not seen.sized:
        return state
    if not _is_foreign(state, seen):
        return state
    ours = state.applied if not isinstance(state.applied, Unknown) else seen.scale_out
    edit = ForeignEdit(since_s=seen.now, found=seen.scale_out, ours=ours)
    return replace(state, foreign=edit, change=None)


def lost_our_size(state: State, scale_out: int) -> bool:
    """Whether the job came back with another size although the declared one still carries our mark.

    A size that was verified under wider bounds than today's is not brought back.
    """
    settings = state.settings
    return (
        settings.mode == "apply"
        and state.directives.foreign_edit is False
        and not isinstance(state.last_good, Unknown)
        and state.last_good == state.applied
        and settings.min_scale_out <= state.last_good <= settings.max_scale_out
        and scale_out != state.last_good
    )


def _is_foreign(state: State, seen: Seen) -> bool:
    mark = state.directives.foreign_edit
    if not isinstance(mark, Unknown):
        return mark
    if isinstance(state.applied, Unknown):
        return False  # nothing of ours can have been overwritten
    return seen.scale_out not in state.expected


def _is_at_it(change: Change | None, pin: Pin) -> bool:
    """Whether a change to the pinned size is under way, or was tried for a pin and needs a person."""
    if change is None or change.to != pin.scale_out:
        return False
    return not change.problem or change.origin == "pin"


def _drilled(state: State, seen: Seen) -> bool:
    """Whether a drill was going on since the tick before: it measures by itself what it causes."""
    since_s = seen.now if isinstance(seen.previous, Unknown) else seen.previous.at_s
    return state.directives.drilled(since_s) is not None


def _until(until_s: float, now: float) -> str:
    return "" if math.isinf(until_s) else f" for another {lasting(until_s - now)}"


def _blind(seen: Seen) -> Hold:
    """Hold, as nothing may be concluded from this tick."""
    why = seen.unusable or f"missing: {', '.join(seen.missing)}"
    return Hold(f"size held, {why}", ends="metrics that can be read")


def _under_way(state: State, seen: Seen) -> tuple[State, Hold | Scale]:
    change, settings = state.change, state.settings
    assert change is not None
    since = f"{lasting(seen.now - change.at_s)} ago"
    if not change.problem:
        return state, Hold(
            f"change from {change.before} to {executors(change.to)} asked for {since} is being verified",
            ends="the verification of the change, or its rollback",
            patience_s=settings.take_effect_s + settings.settled_after_s + 3.0 * patience_s(settings),
        )
    failed = f"{executors(change.to)} failed: {change.problem}"
    if change.origin not in ROLLED_BACK:
        return state, Hold(f"{change.origin} to {failed}: `headroom resume`", ends=RESUME, patience_s=0.0)
    if seen.scale_out != change.before:
        return state, Scale(change.before, f"rolled back, {failed}", "rollback")
    state = replace(state, change=None, applied=change.before, settled_at_s=seen.observation.at_s)
    return state, Hold(f"still {executors(change.before)}, {failed}", ends=NEXT)


def _recovering(state: State, seen: Seen) -> Hold | Scale:
    incident = state.recovering
    assert incident is not None
    said = (
        f"recovering from {incident.kind} for {lasting(elapsed_s(incident, seen.now))} ({incident.why}), "
        f"lag {'unknown' if isinstance(seen.lag_s, Unknown) else f'{seen.lag_s:.0f} s'}"
    )
    sizes = [s for s in state.settings.sizes if is_quarantined(state, s, seen.now) is None]
    found = help_needed(state, seen, incident, sizes)
    if isinstance(found, Unknown):
        return Hold(
            f"{said}: {found.reason}",
            ends="the end of the recovery",
            patience_s=state.settings.longest_recovery_s + state.settings.take_effect_s,
        )
    to, why = found
    return Scale(to, f"emergency, {said}: {why}", "emergency")


def _reassert(state: State, seen: Seen) -> Scale:
    assert not isinstance(state.last_good, Unknown)
    plural = "s" * (seen.scale_out != 1)
    why = (
        f"the job came back with {seen.scale_out} executor{plural}: re-asserted are the {state.last_good} "
        "that were verified"
    )
    return Scale(state.last_good, why, "reassert")


def _optimise(state: State, seen: Seen) -> tuple[State, Hold | Scale, tuple[Instruction, ...]]:
    settings, current = state.settings, seen.scale_out
    sizes = tuple(s for s in settings.sizes if s == current or is_quarantined(state, s, seen.now) is None)
    if not sizes:
        barred = "; ".join(q.text(seen.now) for q in state.quarantined if seen.now < q.until_s)
        said = f"{executors(current)} held, every size that may be taken is in quarantine: {barred}"
        return state, Hold(said, ends=QUARANTINE, patience_s=0.0), ()
    before = state.last_decision
    likely = None if isinstance(before, Unknown) or isinstance(before.smallest, Unknown) else before.smallest
    situation = Situation(
        settings=settings,
        observation=seen.observation,
        current=current,
        candidates=sizes,
        stay_s=stay_s(state, seen.now),
        likely=likely,
    )
    decision: Decision
    try:
        decision = settings.decide(situation)
    except BROKEN as error:
        decision = NoAnswer(f"the models could not be evaluated ({type(error).__name__}: {error})")
    kept = decided(decision, at_s=seen.now, current=current, models_version=settings.models.version)
    state = replace(state, last_decision=kept, moves=_with_load(state, seen))
    worries: tuple[Instruction, ...] = (Alarm(decision.alarm),) if decision.alarm else ()
    if isinstance(decision.scale_out, Unknown):
        undecided = Hold(
            f"{executors(current)} held, no decision: {decision.scale_out.reason}",
            ends="what is missing for a decision",
            patience_s=settings.missing_after_s,
        )
        return state, undecided, worries
    least = decision.scale_out if isinstance(kept.smallest, Unknown) else kept.smallest
    outgrown = too_few(state, seen, least)
    if outgrown is not None and not _is_clear(state, seen, least):
        least = min(
            (s for s in settings.sizes if outgrown.to <= s <= current),
            default=max(least, min(current, settings.sizes[-1])),
        )
    recommended = state.recommended.add(
        seen.now,
        least,
        window_s=_clear_for_s(settings),
        gap_s=settings.longest_gap_s,
    )
    state = replace(state, recommended=recommended)
    if decision.scale_out <= current:
        contradiction = contradicted(state, seen, sizes)
        if not isinstance(contradiction, Unknown):
            to, why = contradiction
            return (
                state,
                Scale(to, f"emergency: {why}", "emergency"),
                (*worries, Alarm(f"models contradicted: {why}")),
            )
    return state, Scale(decision.scale_out, decision.reason, "decision"), worries


def trouble_key(said: str) -> str:
    """The same for the same trouble with other numbers, or with other details behind the colon."""
    return said.split(":")[0].translate(_NO_DIGITS)


def _not_again(state: State, seen: Seen, facts: tuple[Instruction, ...]) -> tuple[State, list[Instruction]]:
    """The facts without alarms that were raised a short while ago."""
    kept: list[Instruction] = []
    raised = {key: at_s for key, at_s in state.alarmed_at_s.items() if seen.now - at_s < ALARM_EVERY_S}
    for fact in facts:
        if isinstance(fact, Alarm):
            key = trouble_key(fact.reason)
            if key in raised:
                continue
            raised[key] = seen.now
        kept.append(fact)
    return replace(state, alarmed_at_s=raised), kept


def limit(state: State, seen: Seen, wanted: Hold | Scale) -> Hold | Scale:
    """The change as far as the limits allow it, or a hold with the limit that forbids it.

        out:  to ≤ current + max_step_out
        in:   to ≥ largest recommendation of the window
              to ≥ current − max_step_in
              to ≥ (1 − max_share_in) · current, or the next aligned size

    A limit that cuts a change moves it to an aligned size nearer to the present one. The next aligned size
    can always be reached, also where it lies further away than a step. Only where the present size itself
    lies beyond all of them, because bounds were moved, it goes there by steps. Nothing shrinks while the job
    is behind, while executors are missing, or while it cannot be seen to work.
    """
    if isinstance(wanted, Hold) or wanted.origin in ("pin", "rollback", "reassert"):
        return wanted
    current = seen.scale_out
    if wanted.to == current:
        barred = [q.text(seen.now) for q in state.quarantined if seen.now < q.until_s]
        return Hold("; ".join((wanted.reason, *barred)), ends=NEXT)
    return _out(state, seen, wanted) if wanted.to > current else _in(state, seen, wanted)


def _out(state: State, seen: Seen, wanted: Scale) -> Hold | Scale:
    settings, current, now = state.settings, seen.scale_out, seen.now
    waits_s = settings.cooldown_out_s - (now - state.changed_at_s)
    if waits_s > 0:
        said = f"cool-down, no scale-out for another {lasting(waits_s)}; wanted: {wanted.reason}"
        return Hold(said, ends=COOLED, patience_s=2.0 * settings.cooldown_out_s)
    highest = current + settings.max_step_out if settings.max_step_out is not None else wanted.to
    larger = [s for s in settings.sizes if current < s <= wanted.to]
    sizes = [s for s in larger if s <= highest] or larger[:1]
    if current < settings.sizes[0]:
        sizes = [min(highest, wanted.to)] if highest < settings.sizes[0] else sizes
    return _nearest(state, seen, wanted, sizes[::-1])


def _in(state: State, seen: Seen, wanted: Scale) -> Hold | Scale:
    settings, current, now = state.settings, seen.scale_out, seen.now
    refused = _why_not_in(state, seen)
    if refused is not None:
        return replace(refused, reason=f"{refused.reason}; wanted: {wanted.reason}")
    outgrown = too_few(state, seen, wanted.to)
    window_s = settings.scale_in_window_s if outgrown is None else _clear_for_s(settings)
    largest = state.recommended.maximum(now, window_s)
    if isinstance(largest, Unknown):
        return Hold(f"no scale-in: {largest.reason}", ends=WINDOW, patience_s=2.0 * window_s)
    if largest >= current and outgrown is not None:
        ago = lasting(now - outgrown.at_s)
        fewer = f"fewer than {outgrown.to} were too few {ago} ago, at {outgrown.load_rps:,.0f} records/s"
        return Hold(f"no scale-in: {fewer}; wanted: {wanted.reason}", ends="a lower load")
    if largest >= current:
        return Hold(
            f"scale-in window: {executors(largest, 'were')} recommended "
            f"{lasting(state.recommended.age_of(largest, now))} ago (window {lasting(window_s)}); "
            f"wanted: {wanted.reason}",
            ends=WINDOW,
        )
    lowest = max(largest, wanted.to)
    nearest = lowest if settings.max_step_in is None else max(lowest, current - settings.max_step_in)
    smaller = [s for s in settings.sizes if lowest <= s < current]
    sizes = [s for s in smaller if s >= nearest] or smaller[-1:]
    if current > settings.sizes[-1]:
        sizes = [nearest] if nearest > settings.sizes[-1] else sizes
    # Aligned sizes may lie further apart than the share; the next one is then as small a step as there is.
    gentle = [s for s in sizes if s >= current * (1.0 - settings.max_share_in)]
    return _nearest(state, seen, wanted, gentle or sizes[::-1])


RETURNS_S = 43_200.0  # judgement: half a day; by then a daily load has changed
FALLS = 0.1  # judgement: means of five minutes scatter by less; doubled with every return to a larger size
FALLS_AT_MOST = 0.5
SCATTERS = 3.0  # judgement: nearly all of a noise lies within three standard deviations
REST_S = 3_600.0  # judgement: noise that lasts for minutes has been high and low in an hour
KEPT_MOVES = 16
CLEAR = 0.25  # of the misses that the promise allows; judgement: some 20 % of load; halved with every return
CLEAR_FOR = 15.0  # intervals; judgement: three times as long as a noise of some intervals stays low


def too_few(state: State, seen: Seen, to: int) -> Move | None:
    """The change that shows that so few executors are too few for a load like today's, if any.

    Around a threshold a noisy load recommends a smaller size for a whole window now and then, and the larger
    one again soon after. So executors that were added for a load go only when it has fallen:

        load < (1 − share) · load at the change, for REST_S
        share = FALLS · 2^(returns to a larger size), or SCATTERS · the load's scatter over ten minutes

    A load below 1 − FALLS_AT_MOST of it is no noise: there the scale-in window is enough. Where so few
    executors have clearly kept the promise for CLEAR_FOR intervals they are not too few either: what was
    added for a doubt that has gone, such as that of a forecast after a start, goes again.
    """
    load_rps, rest_s = _load_rps(state, seen), max(REST_S, state.settings.scale_in_window_s)

    def counts(move: Move) -> bool:
        if isinstance(load_rps, Unknown) or isinstance(move.load_rps, Unknown):
            return True
        return load_rps >= (1.0 - FALLS_AT_MOST) * move.load_rps

    found = (
        move
        for move in state.moves
        if to < move.to and seen.now - move.at_s < RETURNS_S and seen.now - move.high_at_s < rest_s
        if counts(move)
    )
    return max(found, key=lambda move: move.to, default=None)


def _is_clear(state: State, seen: Seen, size: int) -> bool:
    """Whether this size keeps the promise by so much that noise of the load would not change it."""
    decided = state.last_decision
    verdicts = () if isinstance(decided, Unknown) else decided.verdicts
    verdict = next((one for one in verdicts if one["scale_out"] == size), {})
    shares = [verdict.get(name) for name in ("probability", "load_probability")]
    missed = (1.0 - state.settings.promise.confidence) * CLEAR / 2.0 ** _returns(state, seen)
    return all(isinstance(share, float) and share >= 1.0 - missed for share in shares)


def _clear_for_s(settings: Settings) -> float:
    return max(settings.scale_in_window_s, CLEAR_FOR * settings.interval_s)


def _returns(state: State, seen: Seen) -> int:
    """How often executors that were given up were added again lately."""
    recent = [move for move in state.moves if seen.now - move.at_s < RETURNS_S]
    return sum(b.to > b.before and a.to < a.before for a, b in itertools.pairwise(recent))


def stay_s(state: State, now: float) -> float:
    """How long a size likely stays: as long as lately in the median, or as the present one has already."""
    times = [move.at_s for move in state.moves]
    if len(times) < 3:
        return Situation.stay_s
    spells = [later - earlier for earlier, later in itertools.pairwise(times)]
    return max(statistics.median(spells), now - times[-1])


def _load_rps(state: State, seen: Seen) -> float | Unknown:
    """The mean arrival rate of the last minutes, or the peak that is forecast."""
    o = seen.observation
    rates = [s.arrival_rps for s in state.history if s.at_s >= o.at_s - ARRIVAL_WINDOW_S]
    known = [r for r in (*rates, o.arrival_rps) if not isinstance(r, Unknown)]
    if not known:
        return Unknown("the load is unknown")
    mean_rps = sum(known) / len(known)
    return mean_rps if isinstance(o.forecast, Unknown) else max(mean_rps, o.forecast.peak.mid)


def _with_load(state: State, seen: Seen) -> tuple[Move, ...]:
    """The changes, with the load that came just after each, and when it was last as high."""
    load_rps, window_s = _load_rps(state, seen), state.settings.scale_in_window_s
    rates = [s.arrival_rps for s in state.history if not isinstance(s.arrival_rps, Unknown)]
    mean_rps = sum(rates) / max(len(rates), 1)
    scatter = math.sqrt(sum((r / mean_rps - 1.0) ** 2 for r in rates) / len(rates)) if mean_rps else 0.0
    share = min(max(FALLS * 2.0 ** _returns(state, seen), SCATTERS * scatter), FALLS_AT_MOST)

    def seen_again(move: Move) -> Move:
        if isinstance(move.load_rps, Unknown) or isinstance(load_rps, Unknown):
            return move
        highest_rps = max(move.load_rps, load_rps) if seen.now - move.at_s < window_s else move.load_rps
        high = load_rps >= (1.0 - share) * highest_rps
        return replace(move, load_rps=highest_rps, high_at_s=seen.now if high else move.high_at_s)

    return tuple(seen_again(move) for move in state.moves)


def _moved(state: State, seen: Seen, order: Scale) -> tuple[Move, ...]:
    """The changes with this one, if it was decided."""
    if order.origin not in ("decision", "emergency"):
        return state.moves
    # Executors that are added for a backlog or in a recovery say nothing of the load.
    for_load = order.to > seen.scale_out and not seen.behind and state.recovering is None
    load_rps = _load_rps(state, seen) if for_load else Unknown("it was not for the load")
    high_at_s = seen.now if for_load else -math.inf
    move = Move(seen.now, seen.scale_out, order.to, load_rps=load_rps, high_at_s=high_at_s)
    return (*state.moves, move)[-KEPT_MOVES:]


def _why_not_in(state: State, seen: Seen) -> Hold | None:
    settings, o, now = state.settings, seen.observation, seen.now
    if not seen.caught_up:
        behind = f"{_seconds(seen.lag_s)} of input behind, band {seen.band_s:.0f} s"
        late_s = settings.longest_recovery_s
        return Hold(f"catching up ({behind}): no scale-in", ends="a lag in its band", patience_s=late_s)
    if seen.committing is not True and o.lag_records != 0:
        silent = "no scale-in, the job cannot be seen to work: neither commits nor throughput"
        patience_s = math.inf if seen.idle else settings.missing_after_s
        return Hold(silent, ends="a commit", patience_s=patience_s)
    if not isinstance(o.executors_alive, Unknown) and o.executors_alive < seen.scale_out:
        alive = f"only {o.executors_alive} of {executors(seen.scale_out, 'are')} alive"
        ends = "all of its executors alive"
        return Hold(f"no scale-in while {alive}", ends=ends, patience_s=settings.take_effect_s)
    blackout = state.directives.blackout
    if blackout is not None:
        return Hold(f"blackout, nothing shrinks: {blackout.why}", ends="the end of the blackout window")
    waits_s = settings.cooldown_in_s - (now - state.changed_at_s)
    if waits_s > 0:
        cooling = f"cool-down, no scale-in for another {lasting(waits_s)}"
        return Hold(cooling, ends=COOLED, patience_s=2.0 * settings.cooldown_in_s)
    window_s = settings.scale_in_window_s
    if not state.recommended.covers(now, window_s):
        covered_s = max(0.0, now - state.recommended.since_s)
        filling = f"scale-in window not full, {lasting(covered_s)} of {lasting(window_s)}"
        return Hold(filling, ends=WINDOW, patience_s=2.0 * window_s)
    return None


def _nearest(state: State, seen: Seen, wanted: Scale, sizes: list[int]) -> Hold | Scale:
    """The change moved to the first of these sizes that is not in quarantine."""
    for size in sizes:
        if is_quarantined(state, size, seen.now) is None:
            cut = "" if size == wanted.to else f" (a limited step towards {wanted.to})"
            return replace(wanted, to=size, reason=f"{wanted.reason}{cut}")
    barred = is_quarantined(state, wanted.to, seen.now)
    if barred is not None:
        return Hold(barred.text(seen.now), ends=QUARANTINE)
    # What is recommended was raised by the window to a size that is not aligned with the present one.
    return Hold(f"no aligned size lies between; wanted: {wanted.reason}", ends=NEXT)


def _seconds(value: float | Unknown) -> str:
    return "an unknown number of seconds" if isinstance(value, Unknown) else f"{value:.0f} s"


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
    grows = seen.behind and _grows_again(state, seen.lag_s, incident)
    if isinstance(staying_s, Unknown):
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
        f"lag grows although the models say that {executors(current, 'fit')}: they do "
        f"{o.throughput_rps:,.0f} records/s where {needed:,.0f} are needed"
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


def _grows_again(state: State, lag_s: float, incident: Incident) -> bool:
    """Whether lag has grown, from tick to tick, since the job commits again."""
    first = incident.first_commit_at_s
    if isinstance(first, Unknown):
        return False
    ticks = [sample.lag_s for sample in state.history if sample.at_s >= first]
    before = [each for each in ticks if not isinstance(each, Unknown)]
    return bool(before) and lag_s > max(before) and lag_s - before[0] > state.settings.trigger_s
