"""What the values refuse, and that nothing unknown passes for a number."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from fresh_python import printed

from models.quantities import (
    FAILURE_KINDS,
    RESCALE_KINDS,
    Interval,
    Misuse,
    RecoveryEvent,
    Unknown,
    counted,
    executors,
    number,
    whole,
)

pytestmark = pytest.mark.fast

EVENT = {"kind": "executor_kill", "scale_out": 2, "failed_at_s": 0.0, "downtime_s": 3.0, "recovery_s": 9.0}


def test_unknown_is_neither_true_nor_false_and_says_why() -> None:
    with pytest.raises(TypeError, match="the broker is silent"):
        bool(Unknown("the broker is silent"))
    with pytest.raises(TypeError):
        assert not Unknown("x")
    assert Unknown("x") == Unknown("x")


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


# Numbers


@pytest.mark.parametrize("value", [3, 3.0, np.int32(3), np.float64(3.0)])
def test_a_whole_number_is_one_however_it_is_kept(value: object) -> None:
    found = whole("scale_out", value)
    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize(
    "value", [True, np.True_, 2.5, 0, float("nan"), "many", None, pytest.param(10**400, id="400 digits")]
)
def test_what_is_no_scale_out_is_refused(value: object) -> None:
    with pytest.raises(Misuse, match="scale_out"):
        whole("scale_out", value)


@pytest.mark.parametrize(
    ("value", "bounds"),
    [(-1.0, {"at_least": 0.0}), (0.0, {"above": 0.0}), (2.0, {"at_most": 1.0}), (float("inf"), {})],
)
def test_bounds_are_kept(value: float, bounds: dict[str, float]) -> None:
    with pytest.raises(Misuse, match="share"):
        number("share", value, **bounds)


def test_they_are_checked_without_numpy() -> None:
    assert printed("import sys, models.quantities; print(int('numpy' in sys.modules))") == 0


# Words


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 executors are"), (1, "1 executor is"), (2, "2 executors are"), (11, "11 executors are")],
)
def test_so_many_and_what_they_do(number, said):
    assert executors(number, "are") == said
    assert executors(number) == counted(number, "executor") == said.rpartition(" ")[0]


@pytest.mark.parametrize(
    ("do", "one", "two"),
    [
        ("sustain", "1 executor sustains", "2 executors sustain"),
        ("were", "1 executor was", "2 executors were"),
    ],
)
def test_what_one_does(do, one, two):
    assert (executors(1, do), executors(2, do)) == (one, two)
