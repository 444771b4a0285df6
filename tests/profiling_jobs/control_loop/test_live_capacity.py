"""What running workers show of the capacity, and when they and the profile have disagreed for long."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from models.capacity.online import LiveCapacity, said_live
from models.quantities import Interval, Unknown
from profiling_jobs.control_loop.memory import APART_S, ASK_AGAIN_S, CapacityDrift, nothing_learnt

pytestmark = pytest.mark.fast

CAPACITY_RPS = 1000.0
IDLE_SHARE = 0.7  # of its time a worker is at work at no load at all; `enrichment` was measured so


class Profile:
    def predict(self, scale_out: int) -> Interval | Unknown:
        return Interval(950.0, CAPACITY_RPS, 1050.0, 0.9)


def watched(rates_rps: list[float]):
    online, noise = nothing_learnt(), np.random.default_rng(1)
    for rate in rates_rps:
        share = IDLE_SHARE + (1.0 - IDLE_SHARE) * rate / CAPACITY_RPS + float(noise.normal(0.0, 0.005))
        online.update({"a": share}, {"a": rate}, step_s=60.0)
    return online


def test_a_load_that_moves_shows_where_it_ends() -> None:
    found = said_live(watched([200.0, 400.0, 300.0, 550.0, 250.0, 450.0] * 3), 1)
    assert isinstance(found, Interval)
    assert found.mid == pytest.approx(CAPACITY_RPS, rel=0.1)


@pytest.mark.parametrize("rates", [[300.0] * 30, [300.0 + n % 7 for n in range(30)], [300.0], []])
def test_a_load_that_stands_still_shows_nothing_and_the_profile_holds(rates: list[float]) -> None:
    online = watched(rates)
    assert isinstance(said_live(online, 1), Unknown)
    assert LiveCapacity(Profile(), online).predict(1) == Profile().predict(1)


def test_shares_that_do_not_follow_the_load_show_nothing() -> None:
    online, noise = nothing_learnt(), np.random.default_rng(2)
    for rate in [200.0, 400.0, 300.0, 550.0] * 5:
        online.update({"a": float(noise.uniform(0.5, 0.9))}, {"a": rate}, step_s=60.0)
    found = said_live(online, 1)
    assert isinstance(found, Unknown)
    assert "r²" in found.reason


# When a profile is out of date


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
