"""Numbers as a person reads them, and what a move to fewer executors costs and saves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from models.optimise.question import Recoveries, against_promise, change_cost, rate, seconds, span
from models.promise import Promise
from models.quantities import percent

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("rps", "text"),
    [
        (0.0, "0"),
        (0.25, "0.25"),
        (950.0, "950"),
        (999.4, "999"),
        (999.6, "1k"),
        (1500.0, "1.5k"),
        (9_960.0, "10k"),
        (36_400.0, "36k"),
        (999_600.0, "1M"),
        (1_234_567.0, "1.2M"),
        (42e6, "42M"),
    ],
)
def test_rates(rps, text) -> None:
    assert rate(rps) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        ("31k", "36k", "31–36k"),
        ("950", "1.2k", "950–1.2k"),
        ("36k", "36k", "36k"),
        ("0", "950", "0–950"),
        ("1k", "1.2k", "1.0–1.2k"),
    ],
)
def test_spans(low, high, text) -> None:
    assert span(low, high) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.95, "95 %"), (0.9499, "94.9 %"), (0.9996, "99.9 %"), (1.0, "100 %"), (0.0, "0 %"), (0.29, "29 %")],
)
def test_a_share_is_never_rounded_up_to_what_was_promised(share, text) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("within_s", "share", "confidence", "text"),
    [
        (112.2, 0.985, 0.95, "95 % of recoveries within 112 s ≤ 120 s"),
        (9.2, 1.0, 0.999, "99.9 % of recoveries within 9.2 s ≤ 120 s"),
        (147.0, 0.94, 0.95, "95 % of recoveries within 147 s > 120 s"),
        (120.01, 0.94, 0.95, "95 % of recoveries within 120.1 s > 120 s"),
        (119.99, 0.95, 0.95, "95 % of recoveries within 120 s ≤ 120 s"),
        (math.inf, 0.83, 0.95, "recovery within 120 s in 83 % < 95 %"),
        # judged by a neighbour: the share is what was compared
        (123.0, 0.96, 0.95, "recovery within 120 s in 96 % ≥ 95 %"),
        (118.0, 0.9496, 0.95, "recovery within 120 s in 94.9 % < 95 %"),
    ],
)
def test_a_recovery_beside_its_promise(within_s, share, confidence, text) -> None:
    taken = Recoveries(2.0, 3.0, 900.0, 0.9, within_s)
    assert against_promise(taken, share, Promise(120.0, confidence)) == text


@pytest.mark.parametrize("confidence", [0.05, 0.29, 0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("count", [1, 7, 60, 200])
def test_in_time_often_enough_is_within_the_promised_time(confidence, count) -> None:
    promise = Promise(100.0, confidence)
    for kept in range(count + 1):
        recoveries = np.array([99.0] * kept + [math.inf] * (count - kept))
        assert promise.keeps(kept / count) == (promise.within_s(recoveries) <= 100.0)


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.0"), (9.96, "10"), (179.6, "180"), (5.25, "5.2")])
def test_seconds(value, text) -> None:
    assert seconds(value) == text


# What a move to fewer executors costs and saves


MOVE = {"current": 10, "to": 8, "downtime_s": 60.0, "recovery_s": 120.0, "target_s": 180.0, "stay_s": 900.0}


def test_by_hand() -> None:
    # 2 executors for 900 s; 10 idle for 60 s; 60·120/2 lag-seconds at 10/180 executors each
    cost = change_cost(**MOVE)
    assert (cost.saved, cost.idle, cost.lag) == (1800.0, 600.0, pytest.approx(200.0))
    assert cost.worth


@pytest.mark.parametrize(
    ("changed", "worth"),
    [
        ({"stay_s": 400.0}, False),
        ({"stay_s": 400.0001}, True),
        ({"to": 9}, True),
        ({"to": 9, "stay_s": 700.0}, False),
        ({"downtime_s": 0.0, "recovery_s": 0.0, "stay_s": 1.0}, True),
        ({"recovery_s": math.inf}, False),  # it would never come back
        ({"to": 10}, False),
        ({"to": 12}, False),  # growing is never a saving
        ({"stay_s": 0.0}, False),
    ],
)
def test_only_what_saves_more_than_it_costs_is_worth_it(changed, worth) -> None:
    assert change_cost(**(MOVE | changed)).worth is worth
