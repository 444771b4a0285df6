"""Can this argument be used? One clear error that names it, before any number is computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .quantities import Misuse

Array = NDArray[np.float64]


def number(
    name: str, value: Any, *, at_least: float = -math.inf, above: float = -math.inf, at_most: float = math.inf
) -> float:
    """A finite number within its bounds."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise Misuse(name, f"must be a number, got {value!r}") from None
    if not math.isfinite(result):
        raise Misuse(name, f"must be finite, got {value!r}")
    if result < at_least:
        raise Misuse(name, f"must be >= {at_least:g}, got {value!r}")
    if result <= above:
        raise Misuse(name, f"must be > {above:g}, got {value!r}")
    if result > at_most:
        raise Misuse(name, f"must be <= {at_most:g}, got {value!r}")
    return result


def whole(name: str, value: Any, *, at_least: int = 1) -> int:
    """A whole number, by default >= 1, as a scale-out is."""
    if isinstance(value, bool | np.bool_):
        raise Misuse(name, f"must be a whole number, got {value!r}")
    result = number(name, value)
    if result != int(result):
        raise Misuse(name, f"must be a whole number, got {value!r}")
    if result < at_least:
        raise Misuse(name, f"must be >= {at_least}, got {value!r}")
    return int(result)


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
