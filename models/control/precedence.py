"""What outranks a decision: pause, foreign edit, pin, drill, blackout, then the mode of the job."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..quantities import Hold, Unknown, executors
from .evidence import Seen
from .state import NOT_APPLIED, NOT_VERIFIED, ForeignEdit, Origin, State


@dataclass(frozen=True)
class Wish:
    """A size that somebody wants, before the limits."""

    to: int
    origin: Origin
    reason: str


@dataclass(frozen=True)
class Free:
    """Nobody has ordered anything: decide."""


FREE = Free()


def notice_orders(state: State, seen: Seen) -> State:
    """The state with a foreign edit noticed, and with what `resume` ends ended."""
    resumed_at_s = state.directives.resumed_at_s
    kept = tuple(q for q in state.quarantined if q.since_s > resumed_at_s)
    state = replace(state, quarantined=kept)
    if state.settings.mode != "apply":
        # Whoever took away our hands looks after the size now; what we had set is not ours to bring back.
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


def orders(state: State, seen: Seen) -> Hold | Wish | Free:
    """The order that outranks a decision now, if there is one."""
    now, settings, directives = seen.now, state.settings, state.directives
    if pause := directives.paused(now):
        return Hold(f"paused by {pause.who}{_until(pause.until_s, now)}: {pause.why}")
    if edit := state.foreign:
        return Hold(
            f"foreign edit: somebody set {executors(edit.found)} where we had set {edit.ours}; "
            "it is theirs until `headroom resume`"
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
        return Wish(pin.scale_out, "pin", order)
    if drill := directives.drilled(now):
        return Hold(
            f"drill under way: {drill.kind} on purpose, for {now - drill.since_s:.0f} s; nothing is decided "
            "until the drill is over"
        )
    blackout = directives.blackout
    if blackout is not None and not blackout.scale_out_allowed:
        return Hold(f"blackout, nothing changes: {blackout.why}")
    if settings.mode == "observe":
        return Hold("mode observe: measuring and learning, deciding nothing")
    return FREE


def lost_our_size(state: State, scale_out: int) -> bool:
    """Has the job come back with another size although the declared one still carries our mark?

    What was verified under wider bounds than today's is not brought back.
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


def _until(until_s: float, now: float) -> str:
    return "" if math.isinf(until_s) else f" for another {until_s - now:.0f} s"
