"""How is a change of the size carried out exactly once, whoever tries, and whatever dies in the middle?

    is it still ordered?          the control state says so, or a newer order has taken its place
    is it forbidden meanwhile?    pause, blackout, mode: then it is left alone
    is it ours to do?             a lease on its epoch; the deployment refuses older epochs
    was it begun before?          the outcome is written before and after, and the deployment is looked at

A size is set, not changed by so much: asking again for what is set already does nothing, so a change that was
begun is completed by asking again. Whether the job is healthy with it, and whether to go back, is control's
business at the next ticks.

What has become of the change that was ordered, as far as control has to know before it steps?

never begun, and forbidden meanwhile       withdrawn: it has not failed and teaches nothing; a rollback waits
never begun for as long as a change takes  withdrawn, and somebody has to look why nothing runs
begun later than ordered                   measured from when it was begun
refused for good                           failed: taken back now, not after the time-out
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from models import control
from models.control import Directives, Settings, State
from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe
from models.ports import Lease
from models.quantities import Json, Unknown, executors

from .changes import Order, Outcome, outcome, tell
from .context import Loop
from .directives import directives, forbids
from .live_state import recall


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


LEASE_S = 45.0
"""Prolonged while somebody works, so it outlasts any change; after a crash the next tick (E = 60 s) may go
on. Judgement."""
RENEWALS = 3  # per lease, so that one may be missed


@dataclass(frozen=True)
class Applied:
    """What an attempt has come to."""

    did: Literal["scaled", "nothing", "refused", "later"]
    """scaled: the size is set. nothing: there was nothing to do, or it was done before. later: try again.
    refused: it cannot be done, control takes it back."""
    reason: str
    before: int | None = None
    to: int | None = None
    path: str = ""
    took_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


def pending(job: str, *, order: Order | None, loop: Loop, now_s: float) -> Json | None:
    """What has to be carried out now, as `Evaluation.apply` says it; None while nothing has to."""
    if order is None:
        return None
    said = outcome(loop.store, job)
    if said is None or said.epoch != order.epoch:
        # Once a lease: a run that was lost before it began is replaced.
        attempt = f"wait{int((now_s - order.at_s) // LEASE_S)}"
    elif said.state in ("done", "refused"):
        return None
    elif said.state == "begun" and now_s - said.at_s < LEASE_S:
        return None  # somebody is at work
    else:
        attempt = f"{said.state}{said.tries}"
    return {**order.to_json(), "key": f"{job}:{order.epoch}:{attempt}"}


def apply(job: str, *, epoch: int, settings: Settings, loop: Loop, holder: str) -> Applied:
    """Carry out the change that the tick of this epoch has ordered. `holder` names this attempt."""
    order = _order(job, epoch, settings, loop)
    if isinstance(order, Applied):
        return order
    lease = Lease(job, epoch, holder, loop.clock.now_s() + LEASE_S)
    if not loop.store.claim(lease, now_s=loop.clock.now_s()):
        return Applied("later", f"somebody else carries out epoch {epoch} of {job}, or a newer one")
    try:
        with _prolonged(lease, loop):
            order = _order(job, epoch, settings, loop)  # again, now that nobody else is at it
            return order if isinstance(order, Applied) else _carry_out(job, order, settings.path, loop)
    finally:
        loop.store.release(lease)


def _order(job: str, epoch: int, settings: Settings, loop: Loop) -> Order | Applied:
    """The order, if it is still to be carried out; else why not."""
    memory, now_s = recall(loop.store, job, settings), loop.clock.now_s()
    order, said = memory.order, outcome(loop.store, job)
    if said is not None and said.epoch >= epoch and said.state in ("done", "refused"):
        return Applied(
            "nothing", f"epoch {said.epoch} of {job} is {said.state} already", said.before, said.to
        )
    if order is None or order.epoch != epoch:
        newer = "" if order is None else f", epoch {order.epoch} has taken its place"
        return Applied("nothing", f"epoch {epoch} of {job} is no longer ordered{newer}")
    if settings.mode != "apply":
        return Applied("nothing", f"mode {settings.mode}: nothing is touched")
    orders = directives(job, loop=loop, memory=memory, now_s=now_s)
    why = forbids(orders, order) or _too_old(order, settings, now_s)
    begun = said is not None and said.epoch == epoch and said.state == "begun"
    if why and not begun:  # what is half done is completed
        return Applied("nothing", why)
    return order


def _too_old(order: Order, settings: Settings, now_s: float) -> str:
    waited_s = now_s - order.at_s
    if waited_s <= settings.take_effect_s or order.origin == "rollback":  # control gives that one up itself
        return ""
    return f"it was ordered {waited_s:.0f} s ago: the next tick decides anew"


def _carry_out(job: str, order: Order, path: Literal["live", "restart"], loop: Loop) -> Applied:
    """The attempt itself, written down before and after."""
    now_s, said = loop.clock.now_s(), outcome(loop.store, job)
    begun = Outcome(order.epoch, order.before, order.to, "begun", begun_at_s=now_s, at_s=now_s)
    if said is not None and said.epoch == order.epoch:
        begun = replace(said, state="begun", at_s=now_s, tries=said.tries + 1, problem="")
    try:
        status = loop.deployments.status(job)
    except Misconfigured as gone:
        return _ended(job, loop, begun, "refused", str(gone))
    except HeadroomError as silent:
        return _ended(job, loop, begun, "later", str(silent))
    declared = status.declared_scale_out
    ours = {order.before, order.to} if said is None else {order.before, order.to, said.to}
    if declared not in ours:
        found = declared.reason if isinstance(declared, Unknown) else executors(declared)
        why = f"somebody has set {found} meanwhile, it is not touched"
        return Applied("nothing", why, order.before, order.to)
    if declared == order.to and status.executors_alive == order.to:
        _ended(job, loop, begun, "done", "")
        return Applied("nothing", f"{job} has {executors(order.to)} already", order.before, order.to)
    tell(loop.store, job, begun)
    try:
        done = loop.deployments.scale(job, order.to, epoch=order.epoch, path=path)
    except NotReady as later:
        return _ended(job, loop, begun, "later", str(later))
    except (Unsafe, Misconfigured) as refused:
        return _ended(job, loop, begun, "refused", str(refused))
    now_s = loop.clock.now_s()
    tell(loop.store, job, replace(begun, state="done", at_s=now_s, path=done.path, took_s=done.took_s))
    said_so = (
        f"{job} scaled from {order.before} to {executors(order.to)}, {done.path}, in {done.took_s:.1f} s"
    )
    return Applied("scaled", said_so, order.before, order.to, done.path, done.took_s)


def _ended(
    job: str, loop: Loop, begun: Outcome, state: Literal["done", "later", "refused"], problem: str
) -> Applied:
    ended = replace(begun, state=state, at_s=loop.clock.now_s(), problem=problem)
    tell(loop.store, job, ended)
    did: Literal["nothing", "later", "refused"] = "nothing" if state == "done" else state
    return Applied(did, problem, begun.before, begun.to)


@contextmanager
def _prolonged(lease: Lease, loop: Loop) -> Iterator[None]:
    """Held for as long as the work takes, even if that is longer than one lease."""
    over = threading.Event()

    def prolong() -> None:
        while not over.wait(LEASE_S / RENEWALS):
            now_s = loop.clock.now_s()
            with suppress(HeadroomError):  # of several a lease: the next one is in time, too
                loop.store.claim(replace(lease, until_s=now_s + LEASE_S), now_s=now_s)

    keeper = threading.Thread(target=prolong, name=f"headroom-lease-{lease.job}", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
