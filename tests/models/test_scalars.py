"""A number that cannot be used is refused by name, whoever's number it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from models.quantities import Misuse, number, whole

pytestmark = pytest.mark.fast


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
    code = "import sys, models.quantities; print('numpy' in sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
