"""What a move to fewer executors costs and saves."""

from __future__ import annotations

import math

import pytest

from models.optimise.question import change_cost
from models.quantities import Misuse

pytestmark = pytest.mark.fast

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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("current", 0),
        ("to", 1.5),
        ("downtime_s", -1.0),
        ("downtime_s", math.nan),
        ("recovery_s", math.nan),
        ("recovery_s", -1.0),
        ("target_s", 0.0),
        ("stay_s", -1.0),
    ],
)
def test_a_wrong_question_names_its_argument(name, value) -> None:
    with pytest.raises(Misuse, match=f"^{name}: "):
        change_cost(**(MOVE | {name: value}))
