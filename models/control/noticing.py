"""Has something failed?

A failure shows as a new run id (driver_kill), as fewer executors alive than before (executor_kill), or as a
gap between commits beyond its bound while there is work (driver_freeze when the driver no longer says how
many executors it has, executor_freeze otherwise). A failure that we injected is noticed at once and keeps its
own name. A size that changes without us is a rescale: live_out or live_in, restart_out or restart_in with a
new run id. Where only commits are seen its owner has told us of it some time later, and it is no event.

    bound of the gap = longest_commit_gap_s + the seconds of work that waited when the last batch began

because a batch that holds a backlog is long without anything being wrong.
"""

from __future__ import annotations

import math
from dataclasses import replace

from models.quantities import EVENT_KINDS, RESCALE_KINDS, Alarm, Instruction, Unknown

from ..wording import executors
from .recovering import begin, failed_at_s
from .seeing import Seen, capacity_mid
from .state import Change, Sample, State

STANDSTILL = "standstill"  # no kind of failure: it is never learnt
INJECTED_WITHIN_S = 600.0  # a failure injected earlier than this has shown itself before (judgement)


def notice_failure(state: State, seen: Seen) -> State:
    """The state with a failure begun, or with the recovery under way marked as spoilt by a second one."""
    if seen.unusable or isinstance(seen.previous, Unknown):
        return state
    found = _what_failed(state, seen, seen.previous)
    if found is None:
        return state
    kind, why = found
    at_s = failed_at_s(state, seen, kind)
    injected = state.directives.injected
    if injected is not None and injected.kind in EVENT_KINDS and kind not in RESCALE_KINDS:
        since_s = max(at_s - INJECTED_WITHIN_S, state.settled_at_s)
        if since_s < injected.at_s <= seen.now:
            kind, at_s, why = injected.kind, injected.at_s, f"{why}; we injected {injected.kind}"
    incident = state.recovering
    if incident is None:
        return begin(state, seen, kind=kind, at_s=at_s, why=why, lag_before_s=seen.previous.lag_s)
    if incident.failed_at_s == at_s and incident.kind == kind:
        return state
    spoilt = f"{why} while it was still recovering from {incident.kind}"
    if incident.kind in RESCALE_KINDS and kind not in RESCALE_KINDS:
        state = begin(state, seen, kind=kind, at_s=at_s, why=why, lag_before_s=seen.previous.lag_s)
        incident = state.recovering
        assert incident is not None
    return replace(state, recovering=replace(incident, spoilt=spoilt))


def short_of_executors(state: State, seen: Seen) -> tuple[State, tuple[Instruction, ...]]:
    """The state that knows since when executors are missing, and one alarm if that lasts."""
    alive = seen.observation.executors_alive
    if not seen.sized or isinstance(alive, Unknown):
        return state, ()
    if alive >= seen.scale_out or state.change is not None:
        return replace(state, short_since_s=math.inf), ()
    since_s = min(state.short_since_s, seen.now)
    state = replace(state, short_since_s=since_s)
    if seen.now - since_s < state.settings.take_effect_s:
        return state, ()
    return state, (
        Alarm(
            f"only {alive} of {executors(seen.scale_out, 'are')} alive for {seen.now - since_s:.0f} s now "
            "and Spark has not replaced them: is there room in the cluster?"
        ),
    )


def _what_failed(state: State, seen: Seen, previous: Sample) -> tuple[str, str] | None:
    o, change, injected = seen.observation, state.change, state.directives.injected
    restarted = _differs(previous.run_id, o.run_id)
    if restarted and change is not None and _is_our_restart(state, change, previous):
        return None
    came_back_smaller = restarted and state.directives.foreign_edit is False
    resized = seen.sized and change is None and seen.scale_out != previous.scale_out
    if resized and not came_back_smaller and not state.settings.only_commits:
        kind = (
            f"{'restart' if restarted else 'live'}_{'out' if seen.scale_out > previous.scale_out else 'in'}"
        )
        return kind, f"the size went from {previous.scale_out} to {executors(seen.scale_out)}"
    if restarted:
        return "driver_kill", f"the query runs anew (run {o.run_id}, before {previous.run_id})"
    if injected is not None and injected.kind in EVENT_KINDS and previous.at_s < injected.at_s <= o.at_s:
        return injected.kind, "it was asked for"
    if change is not None:
        return None  # whether it works is judged by `changing`
    if _fewer_alive(seen, previous):
        return (
            "executor_kill",
            f"{o.executors_alive} of {executors(seen.scale_out, 'are')} alive",
        )
    still_down = state.recovering is not None and isinstance(state.recovering.first_commit_at_s, Unknown)
    return None if still_down else _commit_gap(state, seen)


def _is_our_restart(state: State, change: Change, previous: Sample) -> bool:
    return state.settings.path == "restart" and change.run_id == previous.run_id


def _differs(before: str | Unknown, now: str | Unknown) -> bool:
    return not isinstance(before, Unknown) and not isinstance(now, Unknown) and before != now


def _fewer_alive(seen: Seen, previous: Sample) -> bool:
    alive, before = seen.observation.executors_alive, previous.executors_alive
    if isinstance(alive, Unknown) or not seen.sized:
        return False
    # A gap that Spark cannot fill (a full cluster) is one failure, not a new one at every tick.
    return alive < (seen.scale_out if isinstance(before, Unknown) else min(seen.scale_out, before))


def _commit_gap(state: State, seen: Seen) -> tuple[str, str] | None:
    o = seen.observation
    if isinstance(o.last_commit_at_s, Unknown) or isinstance(o.lag_records, Unknown) or seen.idle:
        return None
    gap_s = o.at_s - max(o.last_commit_at_s, state.idle_until_s)
    bound_s = state.settings.longest_commit_gap_s + _batch_work_s(state, o.last_commit_at_s)
    if gap_s <= bound_s:
        return None
    kind = "driver_freeze" if isinstance(o.executors_alive, Unknown) else "executor_freeze"
    if state.settings.only_commits:
        kind = STANDSTILL
    return kind, (
        f"nothing was committed for {gap_s:.0f} s (bound {bound_s:.0f} s) "
        f"while {o.lag_records:.0f} records wait"
    )


def _batch_work_s(state: State, commit_at_s: float) -> float:
    """Seconds of work that waited at the first tick after this commit."""
    waiting = next((s for s in state.history if s.at_s >= commit_at_s), None)
    if waiting is None or isinstance(waiting.lag_records, Unknown):
        return 0.0
    capacity = capacity_mid(state.settings, waiting.scale_out)
    if not isinstance(capacity, Unknown) and capacity > 0.0:
        return waiting.lag_records / capacity
    return 0.0 if isinstance(waiting.lag_s, Unknown) else waiting.lag_s
