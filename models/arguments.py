"""Checks of array arguments; `Misuse` names the argument that cannot be used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .quantities import Misuse, number, whole

__all__ = ["Array", "number", "numbers", "whole"]

Array = NDArray[np.float64]


def numbers(
    name: str,
    values: Any,
    *,
    at_least: float = -math.inf,
    missing_allowed: bool = False,
    infinite_allowed: bool = False,
) -> Array:
    """An array of floats. NaN means *missing* and is refused unless it is allowed; a zero is a value."""
    try:
        result: Array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise Misuse(name, "must be numbers of one shape") from None
    missing = np.isnan(result)
    if not missing_allowed and bool(missing.any()):
        raise Misuse(name, "must not contain NaN")
    if not infinite_allowed and bool(np.isinf(result).any()):
        raise Misuse(name, "must be finite")
    if bool((result[~missing] < at_least).any()):
        raise Misuse(name, f"must be >= {at_least:g}, got {float(np.nanmin(result)):g}")
    return result
