"""What became of a change that was ordered? Whoever carries it out tells control before the next tick.

A change is ordered by one tick and carried out later, by somebody else: it may begin late, be refused, or
never begin because people have forbidden it meanwhile. What was never begun has not failed and teaches
nothing; what began late is measured from when it began.
"""

from __future__ import annotations

from dataclasses import replace

from models import arguments
from models.quantities import RESCALE_KINDS

from .state import NO_COMMIT, Incident, State


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
    """What the change itself has begun, as long as no failure has taken its place."""
    incident, change = state.recovering, state.change
    if incident is None or change is None or incident.kind not in RESCALE_KINDS:
        return None
    return incident if incident.failed_at_s == change.at_s else None
