"""What should happen to this job now?

One tick: collect what was seen, notice what has happened since, decide what would be right, limit it to what
is allowed, and instruct. Precedence: paused → foreign edit → pin → drill → blackout → mode → step limit →
decision.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import arguments
from ..observation import Observation
from ..quantities import Alarm, Hold, Instruction, Scale, Unknown, executors
from .changes import ROLLED_BACK, change_to, is_quarantined, verify
from .deciding import Situation, decided
from .emergency import contradicted, help_needed
from .evidence import Seen, collect, learn, remember
from .limits import limit
from .precedence import Wish, lost_our_size, notice_orders, orders
from .recovering import elapsed_s, follow, notice_failure, short_of_executors
from .settings import Settings
from .state import State

if TYPE_CHECKING:
    from .precedence import Free


NO_DIGITS = str.maketrans("", "", "0123456789.,")


def start(settings: Settings) -> State:
    """The memory of a job nobody has looked at yet."""
    return State(settings=settings)


def step(state: State, observation: Observation, now: float) -> tuple[State, list[Instruction]]:
    """The next state, and what is to be done: one Scale or Hold first, then what to alarm and to learn."""
    now = arguments.number("now", now)
    back_s = state.stepped_at_s - now
    told: tuple[Instruction, ...] = ()
    if back_s > state.settings.stale_after_s:
        state = with_clock_put_back(state, now)
        told = (
            Alarm(f"the clock was put back by {back_s:.0f} s: what was seen by the wrong one is forgotten"),
        )
    elif back_s >= 0.0:
        return state, [Hold(f"this moment was evaluated already, {back_s:.0f} s ago")]
    seen = collect(state, observation, now)
    state, facts = notice(state, seen)
    state, wish, worries = decide(state, seen)
    wish = limit(state, seen, wish)
    return instruct(state, seen, wish, told + facts + worries)


def with_clock_put_back(state: State, now: float) -> State:
    """What is still true after the clock was wrong: sizes and orders; no moment that has not come yet."""
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
    """What has happened since the last tick: orders, failures, recoveries, changes, measurements."""
    state = notice_orders(state, seen)
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


def _drilled(state: State, seen: Seen) -> bool:
    """Whether a drill was going on since the tick before: it measures by itself what it causes."""
    since_s = seen.now if isinstance(seen.previous, Unknown) else seen.previous.at_s
    return state.directives.drilled(since_s) is not None


def decide(state: State, seen: Seen) -> tuple[State, Hold | Wish, tuple[Instruction, ...]]:
    """What would be right: an order, a rollback, an emergency, a decision, or a hold with its reason."""
    order: Hold | Wish | Free = orders(state, seen)
    if isinstance(order, Hold | Wish):
        return state, order, ()
    if seen.unusable or seen.missing:
        return state, _blind(state, seen), ()
    if state.change is not None:
        return state, _under_way(state, seen), ()
    if lost_our_size(state, seen.scale_out):
        return state, _reassert(state, seen), ()
    if state.recovering is not None:
        return state, _recovering(state, seen), ()
    return _optimise(state, seen)


def instruct(
    state: State, seen: Seen, wish: Hold | Wish, facts: tuple[Instruction, ...]
) -> tuple[State, list[Instruction]]:
    """Turn the wish into an instruction, once, and remember the tick."""
    first: Instruction
    if isinstance(wish, Hold):
        first = wish
    elif state.settings.mode != "apply":
        would = f"would scale to {executors(wish.to)}: {wish.reason}"
        first = Hold(f"mode {state.settings.mode}, {would}", would=wish.to)
    else:
        first = Scale(wish.to, wish.reason)
        state = change_to(state, seen, to=wish.to, origin=wish.origin)
    state, kept = _not_again(state, seen, facts)
    return remember(state, seen), [first, *kept]


def _blind(state: State, seen: Seen) -> Hold | Wish:
    """Nothing may be concluded: hold, or take the size somebody has set for this case."""
    settings, size = state.settings, seen.observation.scale_out
    why = seen.unusable or f"missing: {', '.join(seen.missing)}"
    emergency = settings.emergency_scale_out
    blind_s = seen.now - min(state.missing_since_s, seen.now)
    if emergency is None or isinstance(size, Unknown) or state.change is not None:
        return Hold(f"size held, {why}")
    if size >= emergency or blind_s < settings.missing_for_s:
        return Hold(f"size held, blind for {blind_s:.0f} s, {why}")
    return Wish(emergency, "emergency", f"blind for {blind_s:.0f} s, the emergency size is taken; {why}")


def _under_way(state: State, seen: Seen) -> Hold | Wish:
    change = state.change
    assert change is not None
    since = f"{seen.now - change.at_s:.0f} s ago"
    if not change.problem:
        return Hold(
            f"change from {change.before} to {executors(change.to)} asked for {since} is being verified"
        )
    if change.origin not in ROLLED_BACK:
        return Hold(f"{change.origin} to {executors(change.to)} failed ({change.problem}): `headroom resume`")
    return Wish(change.before, "rollback", f"rolled back, {executors(change.to)} failed: {change.problem}")


def _recovering(state: State, seen: Seen) -> Hold | Wish:
    incident = state.recovering
    assert incident is not None
    said = (
        f"recovering from {incident.kind} for {elapsed_s(incident, seen.now):.0f} s ({incident.why}), "
        f"lag {'unknown' if isinstance(seen.lag_s, Unknown) else f'{seen.lag_s:.0f} s'}"
    )
    sizes = [s for s in state.settings.sizes if is_quarantined(state, s, seen.now) is None]
    found = help_needed(state, seen, incident, sizes)
    if isinstance(found, Unknown):
        return Hold(f"{said}: {found.reason}")
    to, why = found
    return Wish(to, "emergency", f"emergency, {said}: {why}")


def _reassert(state: State, seen: Seen) -> Wish:
    assert not isinstance(state.last_good, Unknown)
    plural = "s" * (seen.scale_out != 1)
    why = (
        f"the job came back with {seen.scale_out} executor{plural}: re-asserted are the {state.last_good} "
        "that were verified"
    )
    return Wish(state.last_good, "reassert", why)


def _optimise(state: State, seen: Seen) -> tuple[State, Hold | Wish, tuple[Instruction, ...]]:
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
                Wish(emergency, "emergency", f"behind, and no decision: {decision.scale_out.reason}"),
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
                Wish(to, "emergency", f"emergency: {why}"),
                (*worries, Alarm(f"models contradicted: {why}")),
            )
    return state, Wish(decision.scale_out, "decision", decision.reason), worries


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
