"""What do people, windows and experiments say about a job now? Rows of the store, as control reads them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from models.control import Directives, Injected, Pause, Pin, State
from models.errors import HeadroomError
from models.ports import Directive, Status
from models.quantities import Unknown

from .changes import Order, Outcome
from .context import Loop
from .live_state import Memory

PUTS_RIGHT = ("rollback", "reassert")


def directives(job: str, *, loop: Loop, memory: Memory, now_s: float) -> Directives:
    """All of them, for one tick."""
    found = {each.kind: each for each in loop.store.directives(job, now_s=now_s)}
    pause, pin, hold = found.get("pause"), found.get("pin"), found.get("hold")
    if pause is None and hold is not None and memory.control.foreign is None:
        pause = hold  # the foreign edit was forgotten with the control state, the hold was not
    resumed = [float(row["at_s"]) for row in loop.store.audit(job) if row["what"] == "resume"]
    return Directives(
        pause=None if pause is None else Pause(pause.who, pause.why, _until_s(pause)),
        pin=None if pin is None else Pin(int(pin.value or 0), pin.who, pin.why, _until_s(pin)),
        blackout=loop.blackout(job, now_s),
        resumed_at_s=max((at_s for at_s in resumed if at_s <= now_s), default=-math.inf),
        injected=_injected(job, loop),
        drill=loop.drill(job),
    )


def told(said: Directives, *, now_s: float) -> dict[str, Any]:
    """Those in force, for the evaluation."""
    found: dict[str, Any] = {}
    if said.pause is not None:
        found["pause"] = vars(said.pause)
    if said.pin is not None:
        found["pin"] = vars(said.pin)
    if said.blackout is not None:
        found["blackout"] = vars(said.blackout)
    if drill := said.drilled(now_s):
        found["drill"] = {"kind": drill.kind, "since_s": drill.since_s}
    return found


def forbids(said: Directives, order: Order) -> str:
    """Why a change that was ordered must not be begun now; empty if it may."""
    if said.pause is not None:
        return f"paused by {said.pause.who}: {said.pause.why}"
    if order.origin == "pin" or said.blackout is None:
        return ""
    # As control has it: a window that allows growing forbids decisions to shrink, not to put a size right.
    if said.blackout.scale_out_allowed and (order.to >= order.before or order.origin in PUTS_RIGHT):
        return ""
    return f"blackout: {said.blackout.why}"


def marked(
    said: Directives,
    *,
    scale_out: int | Unknown,
    state: State,
    ours: Outcome | None,
    status: Status | Unknown,
) -> Directives:
    """With our mark, where the declared size is what we set ourselves although control does not expect it.

    An order that was withdrawn or replaced just while it was carried out leaves such a size, and so does a
    job that was started anew with the size of its settings. What was set before a `resume` shows nothing any
    more: other hands have been at work since.
    """
    if isinstance(scale_out, Unknown) or isinstance(state.applied, Unknown):
        return said
    if scale_out in state.expected:
        return said
    mark = status if isinstance(status, Unknown) else status.ours
    if isinstance(mark, Unknown):
        done = ours is not None and ours.state != "refused" and scale_out == ours.to
        mark = done and ours is not None and ours.at_s > said.resumed_at_s
    return replace(said, foreign_edit=False) if mark else said


def _until_s(directive: Directive) -> float:
    return math.inf if directive.until_s is None else directive.until_s


def _injected(job: str, loop: Loop) -> Injected | None:
    if loop.failures is None:
        return None
    try:
        ours = [each for each in loop.failures.active() if each.deployment == job]
    except HeadroomError:
        return None  # then it is learnt under the name that its symptoms have
    newest = max(ours, key=lambda each: each.at_s, default=None)
    return None if newest is None else Injected(newest.kind, newest.at_s)
