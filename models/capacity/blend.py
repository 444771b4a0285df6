"""Profiling says one thing about this scale-out and the running job another: what is the capacity?

Both speak in logs, with standard errors e₁ and e₂ taken from their 90 % intervals, d apart:

    log T̂ = (y₁/e₁² + y₂/e₂²) / (1/e₁² + 1/e₂²),     e² = 1 / (1/e₁² + 1/e₂²)

Where only one of the two has *observed* this scale-out, the difference is the other's error: e² + d² takes
the place of its e². Where both or neither have and d is more than the errors explain, both are
widened by d²/(e₁² + e₂²) (Birge 1932).
"""

from __future__ import annotations

import math

from ..quantities import Interval, Unknown
from .students_t import quantile_95

_NORMAL = quantile_95(math.inf)
_LEAST_ERROR = 0.01
"""Relative. Judgement: samples a second apart are less independent than they are counted, and a capacity
drifts by as much between the day it was profiled and today."""


def joined(
    profiled: Interval | Unknown, live: Interval | Unknown, *, was_probed: bool, is_running: bool
) -> Interval | Unknown:
    """One interval from the profile's and the live job's; the two marks say which has observed this size."""
    if isinstance(profiled, Unknown) and isinstance(live, Unknown):
        return Unknown(f"profile: {profiled.reason}; live: {live.reason}")
    if isinstance(profiled, Unknown) or isinstance(live, Unknown):
        return live if isinstance(profiled, Unknown) else profiled
    y1, y2 = math.log(profiled.mid), math.log(live.mid)
    v1, v2 = _error(profiled) ** 2, _error(live) ** 2
    apart = (y1 - y2) ** 2
    if was_probed == is_running:
        widened = max(1.0, apart / (v1 + v2))
        v1, v2 = v1 * widened, v2 * widened
    elif was_probed:
        v2 += apart
    else:
        v1 += apart
    mid = (y1 * v2 + y2 * v1) / (v1 + v2)
    half = _NORMAL * math.sqrt(v1 * v2 / (v1 + v2))
    return Interval(math.exp(mid - half), math.exp(mid), math.exp(mid + half), profiled.confidence)


def _error(interval: Interval) -> float:
    """The standard error in logs that the wider side of a 90 % interval stands for."""
    above = math.log(interval.high / interval.mid)
    below = math.log(interval.mid / interval.low) if interval.low > 0.0 else above
    return max(above, below, _LEAST_ERROR) / _NORMAL
