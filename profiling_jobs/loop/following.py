"""What has become of the change that was ordered, as far as control has to know before it steps?

never begun, and forbidden meanwhile       withdrawn: it has not failed and teaches nothing; a rollback waits
never begun for as long as a change takes  withdrawn, and somebody has to look why nothing runs
begun later than ordered                   measured from when it was begun
refused for good                           failed: taken back now, not after the time-out
"""

from __future__ import annotations

import math

from models import control
from models.control import Directives, State
from models.wording import executors

from .changes import Order, Outcome
from .directing import forbids


def followed(
    state: State, *, order: Order | None, outcome: Outcome | None, said: Directives, now_s: float
) -> tuple[State, Order | None, tuple[str, ...], tuple[str, ...]]:
    """The state that knows what became of the order, and the order if it still stands.

    Then what somebody has to look at, and what is only to be written down.
    """
    change = state.change
    if order is None or change is None or change.problem or not math.isinf(change.took_effect_at_s):
        return state, None, (), ()
    if outcome is None or outcome.epoch != order.epoch:
        return *_waiting(state, order, said, now_s), ()
    state = control.begun(state, at_s=outcome.begun_at_s)
    if outcome.state == "refused":
        return control.refused(state, why=outcome.problem), None, (), ()
    trouble = (f"{_named(order)} has not worked yet: {outcome.problem}",) if outcome.problem else ()
    return state, order, (), trouble


def still_ordered(state: State, order: Order | None) -> Order | None:
    """The order after control has stepped: only while its change is under way and not seen in effect."""
    change = state.change
    if order is None or change is None or change.problem or not math.isinf(change.took_effect_at_s):
        return None
    return order if change.to == order.to and change.origin == order.origin else None


def _waiting(
    state: State, order: Order, said: Directives, now_s: float
) -> tuple[State, Order | None, tuple[str, ...]]:
    """Nobody has begun it yet."""
    if order.origin == "rollback" and state.settings.mode == "apply":
        # Forgotten, it would leave the size that failed. Once nothing forbids it, it has as long as ever to
        # begin; then control calls a person.
        return control.begun(state, at_s=now_s) if forbids(said, order) else state, order, ()
    if forbids(said, order) or state.settings.mode != "apply":
        return control.withdrawn(state), None, ()
    waited_s = now_s - order.at_s
    if waited_s < state.settings.take_effect_s:
        return state, order, ()
    said_so = (
        f"{_named(order)} was ordered {waited_s:.0f} s ago and nobody has begun it: is what carries out "
        "changes running? It is withdrawn and decided anew"
    )
    return control.withdrawn(state), None, (said_so,)


def _named(order: Order) -> str:
    return f"the change from {order.before} to {executors(order.to)}"
