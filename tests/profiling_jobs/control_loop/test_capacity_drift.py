"""When is a profile out of date? When it and the running job have disagreed for half an hour."""

from __future__ import annotations

import math
from typing import Any

import pytest

from models import codec
from models.quantities import Interval, Unknown
from profiling_jobs.control_loop.live_capacity import APART_S, ASK_AGAIN_S, CapacityDrift

pytestmark = pytest.mark.fast

PROFILE = Interval(3_900.0, 4_000.0, 4_100.0, 0.9)
SLOWER = Interval(2_900.0, 3_000.0, 3_100.0, 0.9)
SAME = Interval(3_500.0, 3_800.0, 4_100.0, 0.9)
TICK_S = 60.0
LONGEST_GAP_S = 180.0


def tick(state: CapacityDrift, now_s: float, **changes: Any) -> CapacityDrift:
    given: dict[str, Any] = {
        "version": 1,
        "scale_out": 4,
        "profile": PROFILE,
        "online": SLOWER,
        "alarms": (),
        **changes,
    }
    return state.seen(now_s=now_s, longest_gap_s=LONGEST_GAP_S, **given)


def ticks(state: CapacityDrift, from_s: float, to_s: float, **changes: Any) -> CapacityDrift:
    """One a minute, both ends included."""
    for minute in range(round((to_s - from_s) / TICK_S) + 1):
        state = tick(state, from_s + TICK_S * minute, **changes)
    return state


def test_half_an_hour_of_disagreement_asks_for_that_size() -> None:
    state = ticks(CapacityDrift(), 0.0, APART_S - TICK_S)
    assert state.requests == ()
    state = tick(state, APART_S)
    (request,) = state.requests
    assert (request["scale_outs"], request["since_s"]) == ([4], APART_S)
    state = ticks(state, APART_S + TICK_S, APART_S + ASK_AGAIN_S - TICK_S)
    assert state.requests[0]["since_s"] == APART_S
    assert tick(state, APART_S + ASK_AGAIN_S).requests[0]["since_s"] == APART_S + ASK_AGAIN_S


@pytest.mark.parametrize("changes", [{"online": SAME}, {"version": 2}, {"scale_out": 2}])
def test_agreement_new_models_or_another_size_begin_anew(changes: dict[str, Any]) -> None:
    state = ticks(CapacityDrift(), 0.0, APART_S - 2 * TICK_S)
    state = tick(state, APART_S - TICK_S, **changes)
    assert tick(state, APART_S).requests == tick(state, APART_S, **changes).requests == ()


@pytest.mark.parametrize(("minutes", "asked"), [(2, True), (10, False)])
def test_what_could_not_be_compared_for_long_is_not_counted_as_disagreement(
    minutes: int, asked: bool
) -> None:
    state = ticks(CapacityDrift(), 0.0, 600.0)
    again_s = 600.0 + TICK_S * (minutes + 1)
    state = ticks(state, 600.0 + TICK_S, again_s - TICK_S, online=Unknown("x"))
    assert bool(ticks(state, again_s, APART_S).requests) == asked


def test_two_ticks_far_apart_do_not_make_half_an_hour() -> None:
    assert tick(tick(CapacityDrift(), 0.0), 2 * APART_S).requests == ()


@pytest.mark.parametrize(
    "changes",
    [{"scale_out": Unknown("x")}, {"profile": Unknown("x")}, {"online": Unknown("x")}],
)
def test_what_cannot_be_compared_says_nothing(changes: dict[str, Any]) -> None:
    state = tick(CapacityDrift(), 0.0, **changes)
    assert (state.requests, state.apart_since_s) == ((), math.inf)


def test_a_version_that_cannot_be_read_changes_nothing() -> None:
    state = ticks(CapacityDrift(), 0.0, APART_S)
    assert tick(state, APART_S + 60.0, version=Unknown("x"), profile=Unknown("x")) == state


def test_models_caught_in_the_act_are_asked_about_at_once() -> None:
    state = tick(CapacityDrift(), 0.0, online=SAME, alarms=["models contradicted: lag grows"])
    assert state.requests[0]["why"] == "the job fell behind at 4 executors, which fit"


def test_it_comes_back_from_json() -> None:
    state = ticks(CapacityDrift(), 0.0, APART_S)
    assert codec.from_json(CapacityDrift, codec.loads(codec.dumps("state", codec.to_json(state)))) == state
