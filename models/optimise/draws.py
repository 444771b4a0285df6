"""What might the capacity be, draw by draw?

An interval (low, mid, high) at confidence c becomes a split log-normal that has exactly these quantiles:

    T_p = mid · (high / mid)^{z_p / z_c}  for z_p ≥ 0,     mid · (low / mid)^{−z_p / z_c}  for z_p < 0

with z_c the normal quantile of (1 + c)/2 and z_p evenly spaced normal quantiles in a fixed shuffled order.
The same z serves every scale-out: that the model is off, it is off in the same direction everywhere, and two
candidates must not differ by luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from ..arguments import Array, whole
from ..quantities import Interval

SUREST = 0.9999  # judgement: an interval that claims certainty is read as this


def normal_draws(count: int, *, seed: int) -> Array:
    """Evenly spaced quantiles of the normal distribution, shuffled by the seed: no luck in the tails."""
    n = whole("count", count)
    quantile = NormalDist().inv_cdf
    z = np.array([quantile((i + 0.5) / n) for i in range(n)])
    # a stream of its own: the downtimes are drawn with the plain seed
    return np.random.default_rng([whole("seed", seed, at_least=0), 1]).permutation(z)


def capacity_draws(intervals: Sequence[Interval], z: Array) -> Array:
    """One capacity per interval and draw: (intervals, draws)."""
    low, mid, high = (np.array([[getattr(i, end)] for i in intervals]) for end in ("low", "mid", "high"))
    zc = np.array([[NormalDist().inv_cdf((1 + min(i.confidence, SUREST)) / 2)] for i in intervals])
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.log(np.maximum(low, 0.0) / mid) * -np.minimum(z, 0.0)
        above = np.log(high / mid) * np.maximum(z, 0.0)
        drawn = mid * np.exp(np.where(z < 0, below, above) / zc)
    result: Array = np.where(mid > 0, drawn, 0.0)
    return result
