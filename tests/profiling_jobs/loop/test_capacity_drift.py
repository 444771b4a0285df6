"""When is a profile out of date? When it and the running job have disagreed for half an hour."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from models.quantities import Interval, Unknown
from profiling_jobs.loop.capacity_drift import APART_S, ASK_AGAIN_S, CapacityDrift

pytestmark = pytest.mark.fast

PROFILE = Interval(3_900.0, 4_000.0, 4_100.0, 0.9)
SLOWER = Interval(2_900.0, 3_000.0, 3_100.0, 0.9)
SAME = Interval(3_500.0, 3_800.0, 4_100.0, 0.9)


def tick(state: CapacityDrift, now_s: float, **changes: Any) -> CapacityDrift:
    given: dict[str, Any] = {
        "version": 1,
        "scale_out": 4,
        "profile": PROFILE,
        "online": SLOWER,
        "alarms": (),
        **changes,
    }
    return state.seen(now_s=now_s, **given)


def test_half_an_hour_of_disagreement_asks_for_that_size() -> None:
    state = tick(CapacityDrift(), 0.0)
    state = tick(state, APART_S - 1.0)
    assert state.requests == ()
    state = tick(state, APART_S)
    (request,) = state.requests
    assert (request["scale_outs"], request["since_s"]) == ([4], APART_S)
    assert tick(state, APART_S + 60.0).requests[0]["since_s"] == APART_S
    assert tick(state, APART_S + ASK_AGAIN_S).requests[0]["since_s"] == APART_S + ASK_AGAIN_S


@pytest.mark.parametrize("changes", [{"online": SAME}, {"version": 2}])
def test_agreement_or_new_models_begin_anew(changes: dict[str, Any]) -> None:
    state = tick(tick(CapacityDrift(), 0.0), APART_S - 1.0, **changes)
    assert tick(state, APART_S + 1.0, **changes).requests == ()


@pytest.mark.parametrize(
    "changes",
    [{"scale_out": Unknown("x")}, {"profile": Unknown("x")}, {"online": Unknown("x")}],
)
def test_what_cannot_be_compared_says_nothing(changes: dict[str, Any]) -> None:
    state = tick(CapacityDrift(), 0.0, **changes)
    assert (state.requests, state.apart_since_s) == ((), math.inf)


def test_a_version_that_cannot_be_read_changes_nothing() -> None:
    state = tick(tick(CapacityDrift(), 0.0), APART_S)
    assert tick(state, APART_S + 60.0, version=Unknown("x"), profile=Unknown("x")) == state


def test_models_caught_in_the_act_are_asked_about_at_once() -> None:
    state = tick(CapacityDrift(), 0.0, online=SAME, alarms=["models contradicted: lag grows"])
    assert state.requests[0]["why"] == "the job fell behind at 4 executors, which fit"


def test_it_comes_back_from_json() -> None:
    state = tick(tick(CapacityDrift(), 0.0), APART_S)
    assert CapacityDrift.from_json(json.loads(json.dumps(state.to_json()))) == state
