"""How far from the mean, in standard errors, is the 95 % quantile when the noise itself was estimated?"""

from __future__ import annotations

import math

_NORMAL_95 = 1.6448536269514722


def quantile_95(degrees: float) -> float:
    """The 95 % quantile of Student's t, so that ± this many standard errors hold 90 %; exact for 1, 2, ∞."""
    if degrees <= 1.0:
        return math.tan(0.45 * math.pi)
    if degrees <= 2.0:
        exact_2 = 0.9 / math.sqrt(0.5 * 0.95 * 0.05 * 4.0)
        return exact_2 + (math.tan(0.45 * math.pi) - exact_2) * (2.0 / degrees - 1.0)
    # Cornish–Fisher (Abramowitz & Stegun 26.7.5): within 0.5 % from 2 degrees of freedom on.
    z = _NORMAL_95
    terms = (
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
        (79.0 * z**9 + 776.0 * z**7 + 1482.0 * z**5 - 1920.0 * z**3 - 945.0 * z) / 92160.0,
    )
    return z + sum(g / degrees ** (i + 1) for i, g in enumerate(terms))
