"""What the next tick makes of an ordered change, by its outcome or by how long it has waited."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from models import control
from models.control import Directives, Pause, Settings, State
from models.control.state import Change
from models.promise import Promise
from models.quantities import Unknown
from profiling_jobs.control_loop.applying import Followed, followed
from profiling_jobs.control_loop.memory import Outcome

pytestmark = pytest.mark.fast

SETTINGS = Settings(promise=Promise(180.0), max_scale_out=12, mode="apply")
PAUSED = Directives(pause=Pause("ann", "wait"))
NOT_READ = Unknown("not read")
CHANGE = Change("decision", 4, 6, 60.0, "because", NOT_READ, NOT_READ, NOT_READ, NOT_READ, epoch=7)


def ordered(origin: Any = "decision", **changes: Any) -> State:
    change = replace(CHANGE, origin=origin, **changes)
    return replace(control.start(SETTINGS), change=change, applied=6)


def follow(
    before: State, *, said: Directives | None = None, now_s: float = 120.0, **outcome: Any
) -> Followed:
    became = Outcome(7, 4, 6, begun_at_s=90.0, at_s=100.0, **outcome) if outcome else None
    return followed(before, outcome=became, said=said or Directives(), now_s=now_s)


def test_a_change_that_waits_still_stands() -> None:
    assert follow(ordered()) == Followed(ordered())


def test_one_that_is_forbidden_before_it_was_begun_is_withdrawn() -> None:
    found = follow(ordered(), said=PAUSED)
    assert (found.state.change, found.state.applied, found.alarms) == (None, 4, ())


def test_one_that_nothing_begins_is_withdrawn_with_an_alarm() -> None:
    found = follow(ordered(), now_s=240.0)
    assert found.state.change is None
    assert "ordered 180 s ago and nothing has begun it" in found.alarms[0]


def test_a_rollback_stands_also_while_paused() -> None:
    for said, now_s in ((PAUSED, 120.0), (None, 400.0)):
        assert follow(ordered("rollback"), said=said, now_s=now_s).state.ordered is not None


def test_a_rollback_has_all_its_time_once_nothing_forbids_it() -> None:
    waiting = follow(ordered("rollback"), said=PAUSED, now_s=400.0).state
    assert waiting.change is not None
    assert waiting.change.at_s == 400.0
    assert follow(waiting, now_s=460.0).state == waiting


def test_what_was_begun_is_measured_from_then_and_stands_although_paused() -> None:
    found = follow(ordered(), said=PAUSED, state="later", problem="the driver is silent")
    assert found.state.ordered is not None
    assert found.state.ordered.at_s == 90.0
    assert found.trouble == ("the change from 4 to 6 executors has not worked yet: the driver is silent",)


def test_what_was_refused_is_reported_to_control() -> None:
    change = follow(ordered(), state="refused", problem="no room").state.change
    assert change is not None
    assert change.refused == "no room"


@pytest.mark.parametrize(
    "state",
    [control.start(SETTINGS), ordered(problem="failed"), ordered(took_effect_at_s=100.0)],
)
def test_what_is_over_is_no_longer_ordered(state: State) -> None:
    assert follow(state) == Followed(state)
    assert state.ordered is None
