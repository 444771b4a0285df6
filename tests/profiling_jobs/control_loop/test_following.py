"""What the next tick makes of an order that somebody else was to carry out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from models import control
from models.control import Directives, Pause, Settings, State
from models.control.state import Change
from models.promise import Promise
from models.quantities import Unknown
from profiling_jobs.control_loop.applying import followed, still_ordered
from profiling_jobs.control_loop.changes import Order, Outcome

pytestmark = pytest.mark.fast

SETTINGS = Settings(promise=Promise(180.0), max_scale_out=12, mode="apply")
ORDER = Order(7, 4, 6, "decision", "because", 60.0)
PAUSED = Directives(pause=Pause("ann", "wait"))
NOT_READ = Unknown("not read")


def ordered(origin: Any = "decision", **changes: Any) -> State:
    change = Change(origin, 4, 6, 60.0, NOT_READ, NOT_READ, NOT_READ, NOT_READ)
    return replace(control.start(SETTINGS), change=replace(change, **changes), applied=6)


def follow(
    before: State,
    *,
    order: Order = ORDER,
    said: Directives | None = None,
    now_s: float = 120.0,
    **outcome: Any,
) -> tuple[State, Order | None, tuple[str, ...], tuple[str, ...]]:
    became = Outcome(7, 4, 6, begun_at_s=90.0, at_s=100.0, **outcome) if outcome else None
    return followed(before, order=order, outcome=became, said=said or Directives(), now_s=now_s)


def test_an_order_that_waits_still_stands() -> None:
    assert follow(ordered()) == (ordered(), ORDER, (), ())


def test_one_that_is_forbidden_before_it_was_begun_is_withdrawn() -> None:
    state, order, worries, _ = follow(ordered(), said=PAUSED)
    assert (state.change, state.applied, order, worries) == (None, 4, None, ())


def test_one_that_nobody_begins_is_withdrawn_and_told() -> None:
    state, order, (worry,), _ = follow(ordered(), now_s=240.0)
    assert (state.change, order) == (None, None)
    assert "ordered 180 s ago and nobody has begun it" in worry


def test_a_rollback_stands_whoever_pauses() -> None:
    back = replace(ORDER, origin="rollback")
    for said, now_s in ((PAUSED, 120.0), (None, 400.0)):
        state, order, *_ = follow(ordered("rollback"), order=back, said=said, now_s=now_s)
        assert state.change is not None
        assert order == back


def test_a_rollback_has_all_its_time_once_nothing_forbids_it() -> None:
    back = replace(ORDER, origin="rollback")
    waiting, *_ = follow(ordered("rollback"), order=back, said=PAUSED, now_s=400.0)
    assert waiting.change is not None
    assert waiting.change.at_s == 400.0
    assert follow(waiting, order=back, now_s=460.0)[0] == waiting


def test_what_was_begun_is_measured_from_then_and_stands_although_paused() -> None:
    state, order, *_, trouble = follow(ordered(), said=PAUSED, state="later", problem="the driver is silent")
    assert state.change is not None
    assert state.change.at_s == 90.0
    assert order == ORDER
    assert trouble == ("the change from 4 to 6 executors has not worked yet: the driver is silent",)


def test_what_was_refused_is_told_to_control() -> None:
    state, order, *_ = follow(ordered(), state="refused", problem="no room")
    assert state.change is not None
    assert (state.change.refused, order) == ("no room", None)


@pytest.mark.parametrize(
    "state",
    [control.start(SETTINGS), ordered(problem="failed"), ordered(took_effect_at_s=100.0)],
)
def test_what_is_over_is_no_longer_ordered(state: State) -> None:
    assert follow(state) == (state, None, (), ())
    assert still_ordered(state, ORDER) is None


def test_only_its_own_change_keeps_an_order() -> None:
    assert still_ordered(ordered(), ORDER) == ORDER
    assert still_ordered(ordered("pin"), ORDER) is None
    assert still_ordered(ordered(), None) is None
    assert math.isinf(ordered().change.took_effect_at_s)  # type: ignore[union-attr]
