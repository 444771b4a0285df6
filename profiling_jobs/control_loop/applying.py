"""Apply an ordered change of the size exactly once, and follow what became of it.

`apply` carries the change out, however often it is called and whatever dies in the middle:

    is it still ordered?          the control state holds the change, or a newer one has taken its place
    is it forbidden meanwhile?    pause, blackout, mode: then it is left alone
    is it ours to do?             a lease on its epoch; the deployment refuses older epochs
    was it begun before?          the outcome is written before and after, and the deployment is asked

A size is set, not changed by an amount: asking again for what is set already does nothing, so a change that
was begun is completed by asking again.

`follow` tells control at the next tick what became of it:

    not begun, and forbidden meanwhile  withdrawn: it has not failed and teaches nothing; a rollback waits
    not begun within take_effect_s      withdrawn, with an alarm: nothing carries out changes
    begun later than ordered            measured from when it was begun
    refused for good                    failed: taken back now, not after the time-out

Whether the job is healthy with its new size, and whether to go back, is decided by control at later ticks.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from models import control
from models.control import Directives, Settings, State
from models.control.state import Change
from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe
from models.ports import Lease, Status
from models.quantities import Json, Unknown, executors

from ..periodic import Periodic
from .context import Loop
from .memory import Outcome, Tick, outcome, save_outcome
from .observe import Observed, directives

LEASE_S = 45.0
"""Renewed while an attempt is at work, so it outlasts any change; after a crash the next tick (E = 60 s) may
go on. Judgement."""
RENEWALS = 3  # per lease, so that one may be missed
PUTS_RIGHT = ("rollback", "reassert")


@dataclass(frozen=True)
class Followed:
    """Control's state before it steps, and what is known of the change that was ordered."""

    state: State
    alarms: tuple[str, ...] = ()
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True)
class Applied:
    """The result of one attempt."""

    did: Literal["scaled", "nothing", "refused", "later"]
    """scaled: the size is set. nothing: there was nothing to do, or it was done before. later: try again.
    refused: it cannot be done, control takes it back."""
    reason: str
    before: int | None = None
    to: int | None = None
    path: str = ""
    took_s: float = 0.0


def follow(state: State, tick: Tick, seen: Observed) -> Followed:
    """The state that knows what became of the ordered change and what people say now."""
    ours = tick.outcome
    found = followed(state, outcome=ours, said=seen.directives, now_s=tick.now_s)
    said = marked(
        seen.directives,
        scale_out=seen.observation.scale_out,
        status=seen.status,
        state=found.state,
        ours=ours,
    )
    return replace(found, state=found.state.with_directives(said))


def followed(state: State, *, outcome: Outcome | None, said: Directives, now_s: float) -> Followed:
    """What became of the ordered change by its outcome, or by how long it has waited without one."""
    change = state.ordered
    if change is None:
        return Followed(state)
    if outcome is None or outcome.epoch != change.epoch:
        return _waiting(state, change, said, now_s)
    state = control.begun(state, at_s=outcome.begun_at_s)
    if outcome.state == "refused":
        return Followed(control.refused(state, why=outcome.problem))
    trouble = (f"{_named(change)} has not worked yet: {outcome.problem}",) if outcome.problem else ()
    return Followed(state, trouble=trouble)


def _waiting(state: State, change: Change, said: Directives, now_s: float) -> Followed:
    """It was ordered, and no attempt has begun yet."""
    if change.origin == "rollback" and state.settings.mode == "apply":
        # Withdrawn, it would leave the size that failed. Once nothing forbids it, it has as long as any other
        # to begin; then control raises an alarm.
        return Followed(control.begun(state, at_s=now_s) if forbids(said, change) else state)
    if forbids(said, change) or state.settings.mode != "apply":
        return Followed(control.withdrawn(state))
    waited_s = now_s - change.at_s
    if waited_s < state.settings.take_effect_s:
        return Followed(state)
    alarm = (
        f"{_named(change)} was ordered {waited_s:.0f} s ago and nothing has begun it: is what carries out "
        "changes running? It is withdrawn and decided anew"
    )
    return Followed(control.withdrawn(state), alarms=(alarm,))


def marked(
    said: Directives,
    *,
    scale_out: int | Unknown,
    status: Status | Unknown,
    state: State,
    ours: Outcome | None,
) -> Directives:
    """With our mark, where the declared size is one that we set although control does not expect it.

    A change that was withdrawn or replaced just while it was carried out leaves such a size, and so does a
    job that was started anew with the size of its settings. What was set before a `resume` shows nothing any
    more: the size was set by others since.
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


def forbids(said: Directives, change: Change) -> str:
    """Why an ordered change must not be begun now; empty if it may."""
    if said.pause is not None:
        return f"paused by {said.pause.who}: {said.pause.why}"
    if change.origin == "pin" or said.blackout is None:
        return ""
    # As in control: a window that allows growing forbids decisions to shrink, not to put a size right.
    if said.blackout.scale_out_allowed and (change.to >= change.before or change.origin in PUTS_RIGHT):
        return ""
    return f"blackout: {said.blackout.why}"


def pending(state: State, tick: Tick) -> Json | None:
    """What has to be carried out now, as `Evaluation.apply` shows it; None while nothing has to."""
    change, known, now_s = state.ordered, tick.outcome, tick.now_s
    if change is None:
        return None
    if known is None or known.epoch != change.epoch:
        # A new key once a lease: a run that was lost before it began is replaced.
        attempt = f"wait{int((now_s - change.at_s) // LEASE_S)}"
    elif known.state in ("done", "refused"):
        return None
    elif known.state == "begun" and 0.0 <= now_s - known.at_s < LEASE_S:  # or the clock was set back
        return None  # an attempt is at work
    else:
        attempt = f"{known.state}{known.tries}"
    shown = {name: getattr(change, name) for name in ("epoch", "before", "to", "origin", "reason", "at_s")}
    return {**shown, "key": f"{tick.job}:{change.epoch}:{attempt}"}


def apply(job: str, *, epoch: int, settings: Settings, loop: Loop, holder: str) -> Applied:
    """Carry out the change that the tick of this epoch has ordered. `holder` names this attempt."""
    change = _still_ordered(job, epoch, settings, loop)
    if isinstance(change, Applied):
        return change
    lease = Lease(job, epoch, holder, loop.clock.now_s() + LEASE_S)
    if not loop.store.claim(lease, now_s=loop.clock.now_s()):
        return Applied("later", f"epoch {epoch} of {job}, or a newer one, is being carried out already")
    try:
        with _renewed(lease, loop):
            change = _still_ordered(job, epoch, settings, loop)  # again, now that no other attempt is at it
            return change if isinstance(change, Applied) else _carry_out(job, change, settings.path, loop)
    finally:
        loop.store.release(lease)


def _still_ordered(job: str, epoch: int, settings: Settings, loop: Loop) -> Change | Applied:
    """The change, if it is still to be carried out; else why not."""
    tick = Tick.of(job, settings, loop, now_s=loop.clock.now_s())
    change, known = tick.memory.control.ordered, tick.outcome
    if known is not None and known.epoch >= epoch and known.state in ("done", "refused"):
        why = f"epoch {known.epoch} of {job} is {known.state} already"
        return Applied("nothing", why, known.before, known.to)
    if change is None or change.epoch != epoch:
        newer = "" if change is None else f", epoch {change.epoch} has taken its place"
        return Applied("nothing", f"epoch {epoch} of {job} is no longer ordered{newer}")
    if settings.mode != "apply":
        return Applied("nothing", f"mode {settings.mode}: nothing is touched")
    why = forbids(directives(tick), change) or _too_old(change, settings, tick.now_s)
    begun = known is not None and known.epoch == epoch and known.state == "begun"
    if why and not begun:  # what is half done is completed
        return Applied("nothing", why)
    return change


def _too_old(change: Change, settings: Settings, now_s: float) -> str:
    waited_s = now_s - change.at_s
    if waited_s <= settings.take_effect_s or change.origin == "rollback":  # control gives that one up itself
        return ""
    return f"it was ordered {waited_s:.0f} s ago: the next tick decides anew"


def _carry_out(job: str, change: Change, path: Literal["live", "restart"], loop: Loop) -> Applied:
    """The attempt itself, recorded before and after."""
    assert change.epoch is not None
    now_s, known = loop.clock.now_s(), outcome(loop.store, job)
    begun = Outcome(change.epoch, change.before, change.to, "begun", begun_at_s=now_s, at_s=now_s)
    if known is not None and known.epoch == change.epoch:
        begun = replace(known, state="begun", at_s=now_s, tries=known.tries + 1, problem="")
    try:
        status = loop.deployments.status(job)
    except Misconfigured as gone:
        return _ended(job, loop, begun, "refused", str(gone))
    except HeadroomError as silent:
        return _ended(job, loop, begun, "later", str(silent))
    declared = status.declared_scale_out
    ours = {change.before, change.to} if known is None else {change.before, change.to, known.to}
    if declared not in ours:
        found = declared.reason if isinstance(declared, Unknown) else executors(declared)
        why = f"the size was set to {found} meanwhile, and not by us: it is not touched"
        return Applied("nothing", why, change.before, change.to)
    if declared == change.to and status.executors_alive == change.to:
        _ended(job, loop, begun, "done", "")
        return Applied("nothing", f"{job} has {executors(change.to)} already", change.before, change.to)
    save_outcome(loop.store, job, begun)
    try:
        done = loop.deployments.scale(job, change.to, epoch=change.epoch, path=path)
    except NotReady as later:
        return _ended(job, loop, begun, "later", str(later))
    except (Unsafe, Misconfigured) as refused:
        return _ended(job, loop, begun, "refused", str(refused))
    now_s = loop.clock.now_s()
    save_outcome(
        loop.store, job, replace(begun, state="done", at_s=now_s, path=done.path, took_s=done.took_s)
    )
    sentence = (
        f"{job} scaled from {change.before} to {executors(change.to)}, {done.path}, in {done.took_s:.1f} s"
    )
    return Applied("scaled", sentence, change.before, change.to, done.path, done.took_s)


def _ended(
    job: str, loop: Loop, begun: Outcome, state: Literal["done", "later", "refused"], problem: str
) -> Applied:
    save_outcome(loop.store, job, replace(begun, state=state, at_s=loop.clock.now_s(), problem=problem))
    did: Literal["nothing", "later", "refused"] = "nothing" if state == "done" else state
    return Applied(did, problem, begun.before, begun.to)


def _renewed(lease: Lease, loop: Loop) -> Periodic:
    """Renew the lease for as long as the work takes."""

    def renew() -> None:
        now_s = loop.clock.now_s()
        with suppress(HeadroomError):  # several a lease: the next one is in time, too
            loop.store.claim(replace(lease, until_s=now_s + LEASE_S), now_s=now_s)

    return Periodic(renew, every_s=LEASE_S / RENEWALS, name=f"lease-{lease.job}")


def _named(change: Change) -> str:
    return f"the change from {change.before} to {executors(change.to)}"
