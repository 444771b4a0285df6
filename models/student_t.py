"""Quantiles of Student's t distribution."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

import numpy as np

from .arguments import Array, number, numbers
from .quantities import Misuse

GRID = 4001
"""Points: relative error below 1e-5 for probabilities 0.001 … 0.999 and ν from 1 to 10 000 (measured)."""

FAR = 40.0
"""Standard deviations at which a tail that is nearly normal is cut."""


def student_quantiles(probabilities: Array, *, degrees: float) -> Array:
    """The quantiles of Student's t at these probabilities, each in (0, 1)."""
    p = numbers("probabilities", probabilities)
    nu = number("degrees", degrees, at_least=1.0)
    if bool(((p <= 0) | (p >= 1)).any()):
        raise Misuse("probabilities", "must be in (0, 1)")
    widest = min(math.pi / 2.0, FAR / math.sqrt(nu))
    theta = np.linspace(0.0, widest, GRID)
    density = np.cos(theta) ** (nu - 1.0)
    above = np.zeros(GRID)
    # Simpson over each interval, with its middle: the plain trapezium is too coarse for the far tail.
    middle = np.cos((theta[1:] + theta[:-1]) / 2.0) ** (nu - 1.0)
    pieces = (density[1:] + 4.0 * middle + density[:-1]) / 6.0
    above[:-1] = np.cumsum(pieces[::-1])[::-1]  # summed from the tail inwards, where it is small
    tail = 0.5 * above / above[0]
    outside = np.minimum(p, 1.0 - p)
    # Interpolated in the logarithm, in which both tails are nearly straight.
    known = tail > 0
    angle = np.interp(-np.log(outside), -np.log(tail[known]), theta[known])
    result: Array = np.where(p < 0.5, -1.0, 1.0) * math.sqrt(nu) * np.tan(angle)
    return result


@functools.lru_cache(maxsize=4096)
def quantile_95(degrees: float) -> float:
    """The 95 % quantile, so that ± this many standard errors cover 90 %; below 1 degree as for 1."""
    if math.isinf(degrees):
        return NormalDist().inv_cdf(0.95)
    return float(student_quantiles(np.array([0.95]), degrees=max(1.0, degrees))[0])
