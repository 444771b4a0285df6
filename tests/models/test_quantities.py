"""What the values refuse, and that nothing unknown passes for a number."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest

from models.quantities import (
    FAILURE_KINDS,
    RESCALE_KINDS,
    Interval,
    Measurement,
    Misuse,
    RecoveryEvent,
    Unknown,
)

pytestmark = pytest.mark.fast

RIGHT = {"scale_out": 2, "offered_rps": 100.0, "throughput_rps": 90.0, "sustained": False}
EVENT = {"kind": "executor_kill", "scale_out": 2, "failed_at_s": 0.0, "downtime_s": 3.0, "recovery_s": 9.0}


def test_unknown_is_neither_true_nor_false_and_says_why() -> None:
    with pytest.raises(TypeError, match="the broker is silent"):
        bool(Unknown("the broker is silent"))
    with pytest.raises(TypeError):
        assert not Unknown("x")
    assert Unknown("x") == Unknown("x")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scale_out", 0),
        ("scale_out", -3),
        ("scale_out", 1.5),
        ("scale_out", True),
        ("scale_out", "two"),
        ("scale_out", None),
        ("scale_out", math.nan),
        ("offered_rps", -1.0),
        ("offered_rps", math.nan),
        ("offered_rps", "many"),
        ("throughput_rps", math.inf),
        ("throughput_rps", None),
        ("sustained", 1),
        ("sustained", None),
        ("latency_ms", math.nan),
        ("latency_ms", -1.0),
        ("duration_s", -1.0),
        ("executor_seconds", math.inf),
        ("memory_mb", math.nan),
        ("standard_error_rps", -0.1),
        ("origin", "guess"),
    ],
)
def test_a_measurement_refuses_what_was_not_measured(field: str, value: Any) -> None:
    with pytest.raises(Misuse, match=rf"^Measurement\.{field}: "):
        Measurement(**{**RIGHT, field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "meteor"),
        ("scale_out", 0),
        ("scale_out", "two"),
        ("failed_at_s", math.inf),
        ("downtime_s", -1.0),
        ("downtime_s", math.nan),
        ("downtime_s", "long"),
        ("recovery_s", math.nan),
    ],
)
def test_an_event_refuses_what_cannot_have_been(field: str, value: Any) -> None:
    with pytest.raises(Misuse, match=rf"^RecoveryEvent\.{field}: "):
        RecoveryEvent(**{**EVENT, field: value})


def test_a_job_that_never_came_back_is_an_event() -> None:
    assert RecoveryEvent(**{**EVENT, "recovery_s": math.inf}).recovery_s == math.inf


@pytest.mark.parametrize(
    "values", [(2, 1, 3, 0.9), (1, 2, 1.5, 0.9), (math.nan, 1, 2, 0.9), (1, 2, 3, 0.0), (1, 2, 3, 1.1)]
)
def test_an_interval_is_ordered(values: tuple[float, float, float, float]) -> None:
    with pytest.raises(Misuse, match="Interval"):
        Interval(*values)


def test_failures_and_rescales_have_one_spelling_each() -> None:
    assert len(set(FAILURE_KINDS + RESCALE_KINDS)) == len(FAILURE_KINDS) + len(RESCALE_KINDS) == 17


def test_misuse_names_its_argument_and_travels_between_processes() -> None:
    wrong = Misuse("target_s", "must be > 0, got 0")
    assert (str(wrong), wrong.argument) == ("target_s: must be > 0, got 0", "target_s")
    assert isinstance(wrong, ValueError)
    assert str(copy.copy(wrong)) == str(pickle.loads(pickle.dumps(wrong))) == str(wrong)  # noqa: S301
