"""Which of these latencies are normal for the job, and which are not?

y = ln latency, q its lower quartile (so that up to three quarters may be abnormal), and everything later than
`LATEST` times q counts as that late: how hopeless a point is says nothing about where the others stop.
The sorted points are cut in two where the sum of squares between the parts is largest,

    k · (n − k) / n · (ȳ₂ − ȳ₁)²

which is the exact two-means split of one dimension. With m₁, m₂ the medians of the parts a cut counts only if

    m₂ − m₁ ≥ ln FACTOR_APART   and   m₂ − m₁ ≥ SPREADS_APART · 1.4826 · median |y − own median|

(the second on the robust scale: where latencies wander by themselves it takes more), and if the
lower part is no stray reading: `NORMAL_SHARE` of the points and at least three, or half of fewer than six.
When no cut counts, one cluster is empty and every latency is normal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .arguments import numbers

FACTOR_APART = 3.0  # Phoebe's prototype drops a job at three times the least latency
SPREADS_APART = 4.0  # points without clusters reach 3.3 (normal) or 2.7 (uniform) when cut in two
NORMAL_SHARE = 0.1  # judgement: a profile has more healthy than hopeless points
LATEST = 20.0  # judgement: minutes where seconds are normal
SHORTEST_MS = 1.0  # latencies below the resolution of broker timestamps are equal


@dataclass(frozen=True)
class Clusters:
    """The two clusters: normal up to and including `normal_up_to_ms`, abnormal from `abnormal_from_ms` on."""

    normal_up_to_ms: float
    abnormal_from_ms: float
    """Infinite when every latency is normal; both are then."""

    def is_normal(self, latency_ms: float) -> bool:
        """In which cluster is a latency that was measured: the nearer of the two edges, by factors."""
        if math.isinf(self.normal_up_to_ms):
            return True
        y, low, high = (
            math.log(max(v, SHORTEST_MS)) for v in (latency_ms, self.normal_up_to_ms, self.abnormal_from_ms)
        )
        return y <= (low + high) / 2


ALL_NORMAL = Clusters(math.inf, math.inf)


def two_clusters(latencies_ms: object) -> Clusters:
    """Which latencies are normal and which are not?"""
    latency = np.sort(np.maximum(numbers("latencies_ms", latencies_ms, at_least=0.0).ravel(), SHORTEST_MS))
    n = len(latency)
    if n < 2:
        return ALL_NORMAL
    y = np.log(latency)
    y = np.minimum(y, y[(n - 1) // 4] + math.log(LATEST))
    count = np.arange(1, n)
    below = np.cumsum(y)[:-1]
    between = count * (n - count) / n * ((y.sum() - below) / (n - count) - below / count) ** 2
    fewest = max(math.ceil(NORMAL_SHARE * n), min(3, n // 2))
    possible = count[(count >= fewest) & (np.diff(y) > 0)]
    for k in possible[np.argsort(-between[possible - 1], kind="stable")]:
        lower, upper = float(np.median(y[:k])), float(np.median(y[k:]))
        spread = 1.4826 * float(np.median(np.abs(y - np.where(np.arange(n) < k, lower, upper))))
        if upper - lower >= max(math.log(FACTOR_APART), SPREADS_APART * spread):
            return Clusters(float(latency[k - 1]), float(latency[k]))
    return ALL_NORMAL
