"""Latency model: predicted p95 latency at a scale-out and rate, and whether that is normal for the job.

Two clusters of the measured latencies say which are normal. Then, with u = rate / T(s) the utilisation,

    ln latency ≈ h(u) + β · ln s,    h rising (isotonic, linear between its knots),  β ≤ 0

β is learnt from the normal points, and only when it is clearly there: at equal utilisation a larger job waits
less, because one free worker is easier to find. So latency never falls with the rate and never rises with s.

A prediction is normal if it is at most the largest normal latency: values between the two clusters were never
observed, and a wrong "normal" breaks a promise where a wrong "abnormal" costs an executor. Overload that was
not measured is never normal: above the upper end of the capacity's interval it is abnormal,
and between the highest measured utilisation and that it is unknown.

**Clusters.** With y = ln latency and q its lower quartile (so that up to three quarters may be abnormal),
values above `LATEST` times q are cut to that, because the size of an outlier says nothing about the other
points. The sorted points are cut in two where the sum of squares between the parts is largest,

    k · (n − k) / n · (ȳ₂ − ȳ₁)²

which is the exact two-means split of one dimension. With m₁, m₂ the medians of the parts a cut counts only if

    m₂ − m₁ ≥ ln FACTOR_APART   and   m₂ − m₁ ≥ SPREADS_APART · 1.4826 · median |y − own median|

(the second on the robust scale: where latencies wander by themselves it takes more), and if the
lower part is not a stray reading: `NORMAL_SHARE` of the points and at least three, or half of fewer than six.
When no cut counts, one cluster is empty and every latency is normal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from . import codec
from .arguments import Array, number, numbers, whole
from .quantities import Interval, Json, Measurement, Misuse, Unknown, executors

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
        """Whether a measured latency is normal: by the nearer of the two edges, as a ratio."""
        if math.isinf(self.normal_up_to_ms):
            return True
        y, low, high = (
            math.log(max(v, SHORTEST_MS)) for v in (latency_ms, self.normal_up_to_ms, self.abnormal_from_ms)
        )
        return y <= (low + high) / 2


ALL_NORMAL = Clusters(math.inf, math.inf)


def two_clusters(latencies_ms: object) -> Clusters:
    """The two clusters of these latencies."""
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


CONFIDENCE = 0.9
FEWEST_POINTS = 4  # judgement: two of each kind
REACH = 1.05  # judgement: 5 % beyond the highest measured utilisation is still what was measured there
CLEARLY = 2.0  # standard errors that β must differ from zero: the usual 95 %


class Capacity(Protocol):
    """The part of a capacity model that is used here."""

    def predict(self, scale_out: int, /) -> Interval | Unknown:
        """The highest rate that `scale_out` executors sustain."""


@dataclass(frozen=True)
class LatencyModel:
    """Latency over utilisation and scale-out, and what of it is normal."""

    schema: ClassVar[int] = 1
    measurements: tuple[Measurement, ...]
    """Those with a latency, at scale-outs of known capacity."""
    capacity: Any
    clusters: Clusters
    slope: float
    knots: tuple[tuple[float, float, float, float], ...]
    """(u, h(u), and its 90 % band), rising in every column. Empty when there are too few measurements."""

    @classmethod
    def fit(cls, measurements: Sequence[Measurement], capacity: Capacity) -> Self:
        """Fit to measurements, given the capacity of each scale-out."""
        return cls._fit(measurements, capacity, band=True)

    @classmethod
    def _fit(cls, measurements: Sequence[Measurement], capacity: Capacity, *, band: bool) -> Self:
        if not callable(getattr(capacity, "predict", None)):
            raise Misuse("capacity", f"must have predict(scale_out), got {capacity!r}")
        if not all(isinstance(m, Measurement) for m in measurements):
            raise Misuse("measurements", "must all be of models.quantities.Measurement")
        known = {s: capacity.predict(s) for s in sorted({m.scale_out for m in measurements})}
        load = [(m, _utilisation(m.offered_rps, known[m.scale_out])) for m in measurements]
        usable = [(m, u, m.latency_ms) for m, u in load if m.latency_ms is not None and u is not None]
        kept = tuple(m for m, _, _ in usable)
        if len(kept) < FEWEST_POINTS:
            return cls(kept, capacity, ALL_NORMAL, 0.0, ())
        clusters = two_clusters([latency for _, _, latency in usable])
        u = np.array([u for _, u, _ in usable])
        y = np.log(np.maximum([latency for _, _, latency in usable], 1.0))
        size = np.log([m.scale_out for m in kept])
        normal = np.array([clusters.is_normal(latency) for _, _, latency in usable], dtype=bool)
        slope = _effect_of_size(u, y, size, normal)
        knots = _band(u, y - slope * size, clusters, apart=band)
        return cls(kept, capacity, clusters, slope, knots)

    def predict(self, scale_out: int, rate_rps: float) -> Interval | Unknown:
        """Predicted latency: 95th percentile over records, milliseconds."""
        s, rate = whole("scale_out", scale_out), number("rate_rps", rate_rps, at_least=0.0)
        capacity = self._capacity(s)
        if isinstance(capacity, Unknown):
            return capacity
        u = rate / capacity.mid
        last_u, last_y = self.knots[-1][:2]
        abnormal_seen = last_y > math.log(self.clusters.normal_up_to_ms)
        if u > last_u * REACH and not abnormal_seen:
            return Unknown(
                f"{rate:.0f} records/s are {u:.0%} of what {executors(s, 'sustain')} and latency was "
                f"measured only up to {last_u:.0%}: measure one point at the higher utilisation"
            )
        size = self.slope * math.log(s)
        mid = math.exp(self._at(u, column=1) + size)
        low = math.exp(self._at(rate / max(capacity.high, capacity.mid), column=2) + size)
        worst = rate / capacity.low if capacity.low > 0 else math.inf
        high = math.inf if worst > last_u * REACH else math.exp(self._at(worst, column=3) + size)
        return Interval(min(low, mid), mid, max(high, mid), CONFIDENCE)

    def is_normal(self, scale_out: int, rate_rps: float) -> bool | Unknown:
        """Whether latency will be normal there."""
        s, rate = whole("scale_out", scale_out), number("rate_rps", rate_rps, at_least=0.0)
        capacity = self._capacity(s)
        if isinstance(capacity, Unknown):
            return capacity
        if rate > capacity.high and rate / capacity.mid > self.knots[-1][0]:
            return False
        latency = self.predict(s, rate)
        if isinstance(latency, Unknown):
            return latency
        return latency.mid <= self.clusters.normal_up_to_ms * (1 + 1e-9)

    def leave_one_out(self) -> dict[str, int]:
        """Confusion counts of "abnormal" for measurements that the model has not seen.

        Truth: the cluster among all latencies. Prediction: clusters, regression and a `CapacityModel` fitted
        again without it; a capacity of another kind stays as given. An unknown counts as wrong.
        """
        counts = {"tp": 0, "fp": 0, "fn": 0, "tn": 0}
        for i, held_out in enumerate(self.measurements):
            rest = self.measurements[:i] + self.measurements[i + 1 :]
            model = self._fit(rest, _without(self.capacity, held_out), band=False)
            normal = model.is_normal(held_out.scale_out, held_out.offered_rps)
            assert held_out.latency_ms is not None
            if self.clusters.is_normal(held_out.latency_ms):
                counts["fp" if isinstance(normal, Unknown) or not normal else "tn"] += 1
            else:
                counts["fn" if isinstance(normal, Unknown) or normal else "tp"] += 1
        return counts

    def _capacity(self, scale_out: int) -> Interval | Unknown:
        if not self.knots:
            return Unknown(
                f"{len(self.measurements)} measurements with a latency and a known capacity, "
                f"{FEWEST_POINTS} are needed: profile more rates"
            )
        capacity: Interval | Unknown = self.capacity.predict(scale_out)
        if isinstance(capacity, Unknown):
            return Unknown(f"latency at {executors(scale_out)} needs their capacity: {capacity.reason}")
        if capacity.mid <= 0:
            return Unknown(
                f"{executors(scale_out, 'sustain')} nothing by the capacity model: profile them again"
            )
        return capacity

    def _at(self, u: float, *, column: int) -> float:
        return float(np.interp(u, [k[0] for k in self.knots], [k[column] for k in self.knots]))

    @classmethod
    def from_json(cls, data: Json, capacity: Capacity | None = None) -> Self:
        """The model that was written; `capacity` replaces the one it was fitted with."""
        if data.get("schema") != cls.schema:
            raise Misuse("data.schema", f"must be {cls.schema}, got {data.get('schema')!r}")
        if capacity is None:
            from .capacity import CapacityModel

            capacity = CapacityModel.from_json(data["capacity"])
        unbounded = data.get("clusters") is None  # as the first versions wrote it
        data = {**data, "clusters": codec.to_json(ALL_NORMAL)} if unbounded else data
        return codec.from_json(cls, data, capacity=capacity)


def _utilisation(rate_rps: float, capacity: Interval | Unknown) -> float | None:
    return None if isinstance(capacity, Unknown) or capacity.mid <= 0 else rate_rps / capacity.mid


def _without(capacity: Any, measurement: Measurement) -> Any:
    """The capacity fitted again without a measurement; one that was given otherwise stays as it is."""
    from .capacity import CapacityModel

    if not isinstance(capacity, CapacityModel) or measurement not in capacity.measurements:
        return capacity
    rest = list(capacity.measurements)
    rest.remove(measurement)
    return CapacityModel.fit(rest, list(capacity.candidates), tasks=capacity.tasks)


def _rising(x: Array, y: Array) -> tuple[Array, Array]:
    """The rising function nearest to the points in absolute distance, as knots (pool adjacent violators).

    Medians, so that one hiccup at low load does not lift everything above it; of two middle values the later.
    """
    order = np.lexsort((y, x))
    x, y = x[order], y[order]
    pools: list[tuple[float, float, float, list[float]]] = []
    for at in np.split(np.arange(len(x)), np.flatnonzero(np.diff(x)) + 1):
        values = y[at].tolist()
        first = last = float(x[at[0]])
        middle = values[len(values) // 2]
        while pools and pools[-1][2] >= middle:
            first, _, _, before = pools.pop()
            values = sorted(before + values)
            middle = values[len(values) // 2]
        pools.append((first, last, middle, values))
    knots = [(u, middle) for first, last, middle, _ in pools for u in sorted({first, last})]
    return np.array([k[0] for k in knots]), np.array([k[1] for k in knots])


def _effect_of_size(u: Array, y: Array, size: Array, normal: NDArray[np.bool_]) -> float:
    """β ≤ 0 by back-fitting on the normal points, 0 unless it is clearly there."""
    u, y, size = u[normal], y[normal], size[normal]
    centred = size - size.mean()
    square = float(centred @ centred)
    if len(u) < FEWEST_POINTS or square == 0.0:
        return 0.0
    slope = error = 0.0
    for _ in range(3):  # settles to three digits; more changes nothing
        rest = y - np.interp(u, *_rising(u, y - slope * size))
        slope = min(0.0, float(centred @ rest) / square)
        left = rest - rest.mean() - slope * centred
        error = math.sqrt(float(left @ left) / (len(u) - 2) / square)
    return slope if slope < -CLEARLY * error else 0.0


def _band(
    u: Array, y: Array, clusters: Clusters, *, apart: bool
) -> tuple[tuple[float, float, float, float], ...]:
    """The knots of h with a band from the residuals of points left out, apart for normal and abnormal."""
    at, mid = _rising(u, y)
    low, high = mid.copy(), mid.copy()
    if apart:
        missed, predicted = np.empty(len(u)), np.empty(len(u))
        for i in range(len(u)):
            kept = np.arange(len(u)) != i
            predicted[i] = np.interp(u[i], *_rising(u[kept], y[kept]))
            missed[i] = y[i] - predicted[i]
        edge = math.log(clusters.normal_up_to_ms)
        for knots, points in ((mid <= edge, predicted <= edge), (mid > edge, predicted > edge)):
            errors = np.sort(missed[points] if points.sum() >= FEWEST_POINTS else missed)
            beyond = min(len(errors), math.ceil((len(errors) + 1) * (1 + CONFIDENCE) / 2)) - 1
            low[knots] += min(0.0, errors[len(errors) - 1 - beyond])
            high[knots] += max(0.0, errors[beyond])
        low, high = np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)
    return tuple(zip(at.tolist(), mid.tolist(), low.tolist(), high.tolist(), strict=True))
