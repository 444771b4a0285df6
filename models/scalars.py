"""Can this one number be used? Without numpy, which a process that only checks a scale-out need not load."""

from __future__ import annotations

import math
from typing import Any

from .quantities import Misuse


def number(
    name: str, value: Any, *, at_least: float = -math.inf, above: float = -math.inf, at_most: float = math.inf
) -> float:
    """A finite number within its bounds."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise Misuse(name, f"must be a number, got {value!r}") from None
    except OverflowError:
        raise Misuse(name, "is larger than any number that is reckoned with") from None
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
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool":  # numpy's own
        raise Misuse(name, f"must be a whole number, got {value!r}")
    result = number(name, value)
    if result != int(result):
        raise Misuse(name, f"must be a whole number, got {value!r}")
    if result < at_least:
        raise Misuse(name, f"must be >= {at_least}, got {value!r}")
    return int(result)
