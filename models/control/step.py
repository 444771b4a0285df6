"""One tick of control: collect, notice, decide, limit, instruct.

collect     judge the observation: is it fresh, what is missing, how far behind is the job?
notice      what has happened: foreign edits, failures, recoveries, our changes, measurements
decide      the size that is wanted; the first of these that applies:
                paused, foreign edit, pin, drill, blackout, mode             (`precedence`)
                blind, change under way, size lost, recovering, decision     (`decide`)
limit       bounds, quarantine, cool-down, scale-in window, step limit
instruct    one Scale or Hold, then alarms and facts to learn
"""

from __future__ import annotations

import math
from dataclasses import replace

from .. import arguments
from ..observation import Observation
from ..quantities import Alarm, Hold, Instruction, Scale, Unknown, executors, lasting
from .changes import ROLLED_BACK, change_to, is_quarantined, verify
from .deciding import Situation, decided
from .emergency import contradicted, help_needed
from .evidence import Seen, collect, learn, remember
from .recovering import elapsed_s, follow, notice_failure, short_of_executors
from .settings import Settings
from .state import NOT_APPLIED, NOT_VERIFIED, ForeignEdit, State

NO_DIGITS = str.maketrans("", "", "0123456789.,")


def start(settings: Settings) -> State:
    """The state of a job before its first tick."""
    return State(settings=settings)


def step(state: State, observation: Observation, now: float) -> tuple[State, list[Instruction]]:
    """The next state, and the instructions: one Scale or Hold first, then alarms and facts to learn."""
    now = arguments.number("now", now)
    back_s = state.stepped_at_s - now
    clock: tuple[Instruction, ...] = ()
    if back_s > state.settings.stale_after_s:
        state = with_clock_put_back(state, now)
        clock = (
            Alarm(f"the clock was put back by {back_s:.0f} s: what was seen by the wrong one is forgotten"),
        )
    elif back_s >= 0.0:
        return state, [Hold(f"this moment was evaluated already, {back_s:.0f} s ago")]
    seen = collect(state, observation, now)
    state, facts = notice(state, seen)
    state, wanted, alarms = decide(state, seen)
    wanted = limit(state, seen, wanted)
    return instruct(state, seen, wanted, clock + facts + alarms)


def with_clock_put_back(state: State, now: float) -> State:
    """What is still true after the clock was wrong: sizes and orders, and no moment that lies ahead."""
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
    state = notice_foreign_edit(state, seen)
    drilled = _drilled(state, seen)
    if not drilled:
        state = notice_failure(state, seen)
    state, verified = verify(state, seen)
    state, recovered = follow(state, seen)
    if drilled:
        settled_s = state.settled_at_s if seen.unusable else seen.observation.at_s
        state = replace(state, stretch=None, short_since_s=math.inf, settled_at_s=settled_s)
        return state, verified + recovered
    state, learnt = learn(state, seen)
    state, short = short_of_executors(state, seen)
    return state, verified + recovered + learnt + short


def decide(state: State, seen: Seen) -> tuple[State, Hold | Scale, tuple[Instruction, ...]]:
    """The size that is wanted now, before the limits, or a hold with its reason."""
    outranks = precedence(state, seen)
    if outranks is not None:
        return state, outranks, ()
    if seen.unusable or seen.missing:
        return state, _blind(state, seen), ()
    if state.change is not None:
        return state, _under_way(state, seen), ()
    if lost_our_size(state, seen.scale_out):
        return state, _reassert(state, seen), ()
    if state.recovering is not None:
        return state, _recovering(state, seen), ()
    return _optimise(state, seen)


def precedence(state: State, seen: Seen) -> Hold | Scale | None:
    """What outranks a decision: pause, foreign edit, pin, drill, blackout, mode. None if nothing does."""
    now, settings, directives = seen.now, state.settings, state.directives
    if pause := directives.paused(now):
        return Hold(f"paused by {pause.who}{_until(pause.until_s, now)}: {pause.why}")
    if edit := state.foreign:
        return Hold(
            f"foreign edit: the size was set to {executors(edit.found)} where we had set {edit.ours}; "
            "it is not touched until `headroom resume`"
        )
    if pin := directives.pinned(now):
        order = f"pinned to {executors(pin.scale_out)} by {pin.who}{_until(pin.until_s, now)}: {pin.why}"
        if not settings.min_scale_out <= pin.scale_out <= settings.max_scale_out:
            return Hold(
                f"{order}; but the bounds are {settings.min_scale_out}…{settings.max_scale_out}: "
                "change the bounds or the pin"
            )
        at_work = state.change is not None and state.change.to == pin.scale_out
        if not seen.sized or seen.scale_out == pin.scale_out or at_work:
            return Hold(order)
        return Scale(pin.scale_out, order, "pin")
    if drill := directives.drilled(now):
        return Hold(
            f"drill under way: {drill.kind} on purpose, for {lasting(now - drill.since_s)}; nothing is "
            "decided until the drill is over"
        )
    blackout = directives.blackout
    if blackout is not None and not blackout.scale_out_allowed:
        return Hold(f"blackout, nothing changes: {blackout.why}")
    if settings.mode == "observe":
        return Hold("mode observe: measuring and learning, deciding nothing")
    return None


def instruct(
    state: State, seen: Seen, wanted: Hold | Scale, facts: tuple[Instruction, ...]
) -> tuple[State, list[Instruction]]:
    """Turn what is wanted into an instruction, once, and remember the tick."""
    if isinstance(wanted, Scale):
        if state.settings.mode != "apply":
            would = f"would scale to {executors(wanted.to)}: {wanted.reason}"
            wanted = Hold(f"mode {state.settings.mode}, {would}", would=wanted.to)
        else:
            state = change_to(state, seen, wanted)
    state, kept = _not_again(state, seen, facts)
    return remember(state, seen), [wanted, *kept]


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
    """Has the job come back with another size although the declared one still carries our mark?

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


def _drilled(state: State, seen: Seen) -> bool:
    """Whether a drill was going on since the tick before: it measures by itself what it causes."""
    since_s = seen.now if isinstance(seen.previous, Unknown) else seen.previous.at_s
    return state.directives.drilled(since_s) is not None


def _until(until_s: float, now: float) -> str:
    return "" if math.isinf(until_s) else f" for another {lasting(until_s - now)}"


def _blind(state: State, seen: Seen) -> Hold | Scale:
    """Nothing may be concluded: hold, or take the emergency size if one is set."""
    settings, size = state.settings, seen.observation.scale_out
    why = seen.unusable or f"missing: {', '.join(seen.missing)}"
    emergency = settings.emergency_scale_out
    blind_s = seen.now - min(state.missing_since_s, seen.now)
    if emergency is None or isinstance(size, Unknown) or state.change is not None:
        return Hold(f"size held, {why}")
    if size >= emergency or blind_s < settings.missing_for_s:
        return Hold(f"size held, blind for {lasting(blind_s)}, {why}")
    return Scale(emergency, f"blind for {lasting(blind_s)}, the emergency size is taken; {why}", "emergency")


def _under_way(state: State, seen: Seen) -> Hold | Scale:
    change = state.change
    assert change is not None
    since = f"{lasting(seen.now - change.at_s)} ago"
    if not change.problem:
        return Hold(
            f"change from {change.before} to {executors(change.to)} asked for {since} is being verified"
        )
    if change.origin not in ROLLED_BACK:
        return Hold(f"{change.origin} to {executors(change.to)} failed ({change.problem}): `headroom resume`")
    return Scale(change.before, f"rolled back, {executors(change.to)} failed: {change.problem}", "rollback")


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
        return Hold(f"{said}: {found.reason}")
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
    decision = settings.decide(
        Situation(settings=settings, observation=seen.observation, current=current, candidates=sizes)
    )
    kept = decided(decision, at_s=seen.now, current=current, models_version=settings.models.version)
    state = replace(state, last_decision=kept)
    worries: tuple[Instruction, ...] = (Alarm(decision.alarm),) if decision.alarm else ()
    if isinstance(decision.scale_out, Unknown):
        emergency = settings.emergency_scale_out
        if emergency is not None and emergency > current and seen.behind:
            return (
                state,
                Scale(emergency, f"behind, and no decision: {decision.scale_out.reason}", "emergency"),
                worries,
            )
        return state, Hold(f"{executors(current)} held, no decision: {decision.scale_out.reason}"), worries
    recommended = state.recommended.add(
        seen.now,
        decision.scale_out if isinstance(kept.smallest, Unknown) else kept.smallest,
        window_s=settings.scale_in_window_s,
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


def _not_again(state: State, seen: Seen, facts: tuple[Instruction, ...]) -> tuple[State, list[Instruction]]:
    """The facts without alarms that were raised a short while ago."""
    kept: list[Instruction] = []
    every_s = state.settings.alarm_every_s
    raised = {key: at_s for key, at_s in state.alarmed_at_s.items() if seen.now - at_s < every_s}
    for fact in facts:
        if isinstance(fact, Alarm):
            key = fact.reason.split(":")[0].translate(NO_DIGITS)  # the same trouble with other numbers
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

    A limit that cuts a change moves it to an aligned size nearer to the present one; if none is left,
    it holds. Only where the present size itself lies beyond all of them, because bounds were moved, it goes
    there by steps. Nothing shrinks while the job is behind, while executors are missing, or while it cannot
    be seen to work.
    """
    if isinstance(wanted, Hold) or wanted.origin in ("pin", "rollback", "reassert"):
        return wanted
    current = seen.scale_out
    if wanted.to == current:
        barred = [q.text(seen.now) for q in state.quarantined if seen.now < q.until_s]
        return Hold("; ".join((wanted.reason, *barred)))
    return _out(state, seen, wanted) if wanted.to > current else _in(state, seen, wanted)


def _out(state: State, seen: Seen, wanted: Scale) -> Hold | Scale:
    settings, current, now = state.settings, seen.scale_out, seen.now
    waits_s = settings.cooldown_out_s - (now - state.changed_at_s)
    if waits_s > 0:
        return Hold(f"cool-down, no scale-out for another {lasting(waits_s)}; wanted: {wanted.reason}")
    highest = current + settings.max_step_out if settings.max_step_out is not None else wanted.to
    sizes = [s for s in settings.sizes if current < s <= min(wanted.to, highest)]
    if not sizes and current < settings.sizes[0]:
        sizes = [highest]
    return _nearest(state, seen, wanted, sizes[::-1])


def _in(state: State, seen: Seen, wanted: Scale) -> Hold | Scale:
    settings, current, now = state.settings, seen.scale_out, seen.now
    refused = _why_not_in(state, seen)
    if refused:
        return Hold(f"{refused}; wanted: {wanted.reason}")
    window_s = settings.scale_in_window_s
    largest = state.recommended.maximum(now, window_s)
    if isinstance(largest, Unknown):
        return Hold(f"no scale-in: {largest.reason}")
    if largest >= current:
        return Hold(
            f"scale-in window: {executors(largest, 'were')} recommended "
            f"{lasting(state.recommended.age_of(largest, now))} ago (window {lasting(window_s)}); "
            f"wanted: {wanted.reason}"
        )
    lowest = max(largest, wanted.to)
    if settings.max_step_in is not None:
        lowest = max(lowest, current - settings.max_step_in)
    sizes = [s for s in settings.sizes if lowest <= s < current]
    if not sizes and current > settings.sizes[-1]:
        sizes = [lowest]
    # Aligned sizes may lie further apart than the share; the next one is then as small a step as there is.
    gentle = [s for s in sizes if s >= current * (1.0 - settings.max_share_in)]
    return _nearest(state, seen, wanted, gentle or sizes[::-1])


def _why_not_in(state: State, seen: Seen) -> str:
    settings, o, now = state.settings, seen.observation, seen.now
    if not seen.caught_up:
        return f"catching up ({_seconds(seen.lag_s)} of input behind, band {seen.band_s:.0f} s): no scale-in"
    if seen.committing is not True and o.lag_records != 0:
        return "no scale-in, the job cannot be seen to work: neither commits nor throughput"
    if not isinstance(o.executors_alive, Unknown) and o.executors_alive < seen.scale_out:
        return f"no scale-in while only {o.executors_alive} of {executors(seen.scale_out, 'are')} alive"
    blackout = state.directives.blackout
    if blackout is not None:
        return f"blackout, nothing shrinks: {blackout.why}"
    waits_s = settings.cooldown_in_s - (now - state.changed_at_s)
    if waits_s > 0:
        return f"cool-down, no scale-in for another {lasting(waits_s)}"
    if not state.recommended.covers(now, settings.scale_in_window_s):
        covered_s = max(0.0, now - state.recommended.since_s)
        return f"scale-in window not full, {lasting(covered_s)} of {lasting(settings.scale_in_window_s)}"
    return ""


def _nearest(state: State, seen: Seen, wanted: Scale, sizes: list[int]) -> Hold | Scale:
    """The change moved to the first of these sizes that is not in quarantine."""
    for size in sizes:
        if is_quarantined(state, size, seen.now) is None:
            cut = "" if size == wanted.to else f" (a limited step towards {wanted.to})"
            return replace(wanted, to=size, reason=f"{wanted.reason}{cut}")
    barred = is_quarantined(state, wanted.to, seen.now)
    if barred is not None:
        return Hold(barred.text(seen.now))
    between = f"between {seen.scale_out} and {wanted.to}"
    return Hold(f"step limit: it reaches no aligned size {between}; wanted: {wanted.reason}")


def _seconds(value: float | Unknown) -> str:
    return "an unknown number of seconds" if isinstance(value, Unknown) else f"{value:.0f} s"
