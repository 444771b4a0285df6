"""Latency model: predicted p95 latency at a scale-out and rate, and whether that is normal for the job.

Two clusters of the measured latencies say which are normal. Then, with u = rate / T(s) the utilisation,

    ln latency ≈ h(u) + β · ln s,    h rising (isotonic, linear between its knots),  β ≤ 0

β is learnt from the normal points, and only when it is clearly there: at equal utilisation a larger job waits
less, because one free worker is easier to find. So latency never falls with the rate and never rises with s.

**Normal or not** depends on the utilisation alone:

    normal  ⇔  u ≤ u*  and  rate ≤ upper end of the capacity's interval

u* is `RULE`, the one-line rule rate > 0.95·T, unless another u* puts at least `WORTH` more of the measured
points on their side; then it is the nearest such. So the measured latencies correct a capacity that is off,
and profiles that show little (three rates, only overload, only ease) are judged by the rule.

**Clusters.** With y = ln latency and q its lower quartile (so that up to three quarters may be abnormal),
values above `LATEST` times q are cut to that, because the size of an outlier says nothing about the other
points. The sorted points are cut in two where the sum of squares between the parts is largest,

    k · (n − k) / n · (ȳ₂ − ȳ₁)²

which is the exact two-means split of one dimension. With m₁, m₂ the medians of the parts a cut counts only if

    m₂ − m₁ ≥ ln FACTOR_APART   and   m₂ − m₁ ≥ SPREADS_APART · 1.4826 · median |y − own median|

(the second on the robust scale: where latencies wander by themselves it takes more), and if the
lower part is not a stray reading: `NORMAL_SHARE` of the points and at least three, or half of fewer than six.
When no cut counts, one cluster is empty and every latency is normal.

A job that did not keep up is not at ease, whatever its latency: if every point is of that kind, every latency
is abnormal. Where the job kept up at some points and not at others, and the cut puts more than `AGAINST` of
them on the wrong side that another cut would not, latency rises gently and the other cut is taken; the same
where no cut counts and one parts the two kinds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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


AGAINST = 0.1  # of the points; judgement: probes close to the capacity end on either side by chance


@dataclass(frozen=True)
class Clusters:
    """The two clusters: normal up to and including `normal_up_to_ms`, abnormal from `abnormal_from_ms` on."""

    normal_up_to_ms: float
    """0 when every latency is abnormal."""
    abnormal_from_ms: float
    """Infinite when every latency is normal; both are then."""

    @property
    def both(self) -> bool:
        """Whether there are normal latencies and abnormal ones."""
        return 0.0 < self.normal_up_to_ms < math.inf

    def is_normal(self, latency_ms: float) -> bool:
        """Whether a measured latency is normal: by the nearer of the two edges, as a ratio."""
        if math.isinf(self.normal_up_to_ms):
            return True
        y, low, high = (
            math.log(max(v, SHORTEST_MS)) for v in (latency_ms, self.normal_up_to_ms, self.abnormal_from_ms)
        )
        return y <= (low + high) / 2


ALL_NORMAL = Clusters(math.inf, math.inf)


def two_clusters(latencies_ms: object, *, sustained: Sequence[bool] | None = None) -> Clusters:
    """The two clusters of these latencies; `sustained`: at which of them the job kept up."""
    given = numbers("latencies_ms", latencies_ms, at_least=0.0).ravel()
    order = np.argsort(given, kind="stable")
    latency = np.maximum(given[order], SHORTEST_MS)
    n = len(latency)
    if n < 2:
        return ALL_NORMAL
    kept_up = np.ones(n, dtype=bool) if sustained is None else np.asarray(sustained, dtype=bool)[order]
    if not kept_up.any():
        return Clusters(0.0, float(latency[0]))
    cut = _two_means(latency)
    if not kept_up.all():
        cut = _keeping_apart(latency, kept_up, cut)
    return Clusters(float(latency[cut - 1]), float(latency[cut])) if cut else ALL_NORMAL


def _two_means(latency: Array) -> int:
    """How many of the sorted latencies are normal by the two-means cut; 0 where no cut counts."""
    n = len(latency)
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
            return int(k)
    return 0


def _keeping_apart(latency: Array, kept_up: NDArray[np.bool_], cut: int) -> int:
    """The cut, or the one that best parts the points at which the job kept up from the others."""
    n = len(latency)
    count = np.arange(1, n)
    wrong = np.cumsum(~kept_up)[:-1] + kept_up[::-1].cumsum()[::-1][1:]
    possible = count[np.diff(latency) > 0]
    if not len(possible):
        return cut
    gaps = np.log(latency[possible] / latency[possible - 1])
    best = int(possible[np.lexsort((-gaps, wrong[possible - 1]))[0]])
    now = wrong[cut - 1] if cut else AGAINST * n + wrong[best - 1] + (wrong[best - 1] <= AGAINST * n)
    return best if now - wrong[best - 1] > AGAINST * n else cut


CONFIDENCE = 0.9
FEWEST_POINTS = 4  # judgement: two of each kind
REACH = 1.05  # judgement: 5 % beyond the highest measured utilisation is still what was measured there
RULE = 0.95  # of the capacity: the one-line rule, and the peer that this model must not lose against
WORTH = 2  # points; judgement: one may be a hiccup
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
        model, u = cls._labelled(measurements, capacity)
        if len(u) < FEWEST_POINTS:
            return model
        latencies = np.array([m.latency_ms for m in model.measurements])
        y = np.log(np.maximum(latencies, 1.0))
        size = np.log([m.scale_out for m in model.measurements])
        normal = np.array([model.clusters.is_normal(ms) for ms in latencies.tolist()], dtype=bool)
        slope = _effect_of_size(u, y, size, normal)
        return replace(model, slope=slope, knots=_band(u, y - slope * size, model.clusters))

    @classmethod
    def _labelled(cls, measurements: Sequence[Measurement], capacity: Capacity) -> tuple[Self, Array]:
        """Normal or not, without the latencies themselves, and the utilisation of each measurement kept."""
        if not callable(getattr(capacity, "predict", None)):
            raise Misuse("capacity", f"must have predict(scale_out), got {capacity!r}")
        if not isinstance(measurements, Iterable) or not all(
            isinstance(m, Measurement) for m in measurements
        ):
            raise Misuse("measurements", "must all be of models.quantities.Measurement")
        known = {s: capacity.predict(s) for s in sorted({m.scale_out for m in measurements})}
        load = [(m, _utilisation(m.offered_rps, known[m.scale_out])) for m in measurements]
        usable = [(m, u, m.latency_ms) for m, u in load if m.latency_ms is not None and u is not None]
        kept = tuple(m for m, _, _ in usable)
        clusters = ALL_NORMAL
        if len(kept) >= FEWEST_POINTS:
            clusters = two_clusters([ms for _, _, ms in usable], sustained=[m.sustained for m in kept])
        return cls(kept, capacity, clusters, 0.0, ()), np.array([u for _, u, _ in usable])

    def predict(self, scale_out: int, rate_rps: float) -> Interval | Unknown:
        """Predicted latency: 95th percentile over records, milliseconds."""
        s, rate = whole("scale_out", scale_out), number("rate_rps", rate_rps, at_least=0.0)
        if not self.knots:
            return Unknown(
                f"{len(self.measurements)} measurements with a latency and a known capacity, "
                f"{FEWEST_POINTS} are needed: profile more rates"
            )
        capacity = self._capacity(s)
        if isinstance(capacity, Unknown):
            return capacity
        u = rate / capacity.mid
        last_u, last_y = self.knots[-1][:2]
        abnormal_seen = last_y > _log(self.clusters.normal_up_to_ms)
        if u > last_u * REACH and not abnormal_seen:
            return Unknown(
                f"{rate:,.0f} records/s are {u:.0%} of what {executors(s, 'sustain')} and latency was "
                f"measured only up to {last_u:.0%}: measure one point at the higher utilisation"
            )
        size = self.slope * math.log(s)
        mid = math.exp(self._at(u, column=1) + size)
        low = math.exp(self._at(rate / max(capacity.high, capacity.mid), column=2) + size)
        worst = rate / capacity.low if capacity.low > 0 else math.inf
        high = math.inf if worst > last_u * REACH else math.exp(self._at(worst, column=3) + size)
        return Interval(min(low, mid), mid, max(high, mid), CONFIDENCE)

    def is_normal(self, scale_out: int, rate_rps: float) -> bool | Unknown:
        """Whether the latency is normal: by the measured points where they tell, else by the rule."""
        s, rate = whole("scale_out", scale_out), number("rate_rps", rate_rps, at_least=0.0)
        capacity = self._capacity(s)
        if isinstance(capacity, Unknown):
            return capacity
        return rate <= min(self.limit * capacity.mid, capacity.high)

    @cached_property
    def limit(self) -> float:
        """The utilisation up to which latency is normal."""
        load = [
            (m, _utilisation(m.offered_rps, self.capacity.predict(m.scale_out))) for m in self.measurements
        ]
        points = [(u, self.clusters.is_normal(m.latency_ms or 0.0)) for m, u in load if u is not None]
        if len(points) < FEWEST_POINTS or not self.clusters.both:
            return RULE
        u = np.array(sorted(u for u, _ in points))
        cuts = np.concatenate([[0.0, RULE], u])
        above = np.array([u for u, _ in points])[:, None] > cuts
        wrong = (above == np.array([normal for _, normal in points])[:, None]).sum(axis=0)
        if wrong[1] - wrong.min() < WORTH:
            return RULE
        # A cut is as good as at the point below it until the next point. Of those gaps the nearest to the
        # rule, and its lower end: a wrong "normal" breaks a promise, a wrong "abnormal" costs an executor.
        gaps = [(float(c), float(u[u > c].min(initial=math.inf))) for c in cuts[wrong == wrong.min()]]
        return min(gaps, key=lambda gap: max(gap[0] - RULE, RULE - gap[1]))[0]

    def leave_one_out(self) -> dict[str, int]:
        """Confusion counts of "abnormal" for measurements that the model has not seen.

        Truth: the cluster among all latencies. Prediction: clusters, regression and a `CapacityModel` fitted
        again without it; a capacity of another kind stays as given. An unknown counts as wrong.
        """
        counts = {"tp": 0, "fp": 0, "fn": 0, "tn": 0}
        for i, held_out in enumerate(self.measurements):
            rest = self.measurements[:i] + self.measurements[i + 1 :]
            model, _ = self._labelled(rest, _without(self.capacity, held_out))
            normal = model.is_normal(held_out.scale_out, held_out.offered_rps)
            assert held_out.latency_ms is not None
            if self.clusters.is_normal(held_out.latency_ms):
                counts["fp" if isinstance(normal, Unknown) or not normal else "tn"] += 1
            else:
                counts["fn" if isinstance(normal, Unknown) or normal else "tp"] += 1
        return counts

    def _capacity(self, scale_out: int) -> Interval | Unknown:
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
        return codec.from_json(cls, data, capacity=capacity)


def _log(latency_ms: float) -> float:
    return math.log(max(latency_ms, SHORTEST_MS)) if latency_ms > 0.0 else -math.inf


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
    if normal.sum() < FEWEST_POINTS:
        return 0.0
    u, y, size = u[normal], y[normal], size[normal]
    centred = size - size.mean()
    square = float(centred @ centred)
    if square == 0.0:
        return 0.0
    slope = error = 0.0
    for _ in range(3):  # settles to three digits; more changes nothing
        rest = y - np.interp(u, *_rising(u, y - slope * size))
        slope = min(0.0, float(centred @ rest) / square)
        left = rest - rest.mean() - slope * centred
        error = math.sqrt(float(left @ left) / (len(u) - 2) / square)
    return slope if slope < -CLEARLY * error else 0.0


def _band(u: Array, y: Array, clusters: Clusters) -> tuple[tuple[float, float, float, float], ...]:
    """The knots of h with a band from the residuals of points left out, apart for normal and abnormal."""
    at, mid = _rising(u, y)
    low, high = mid.copy(), mid.copy()
    missed, predicted = np.empty(len(u)), np.empty(len(u))
    for i in range(len(u)):
        kept = np.arange(len(u)) != i
        predicted[i] = np.interp(u[i], *_rising(u[kept], y[kept]))
        missed[i] = y[i] - predicted[i]
    edge = _log(clusters.normal_up_to_ms)
    for knots, points in ((mid <= edge, predicted <= edge), (mid > edge, predicted > edge)):
        errors = np.sort(missed[points] if points.sum() >= FEWEST_POINTS else missed)
        beyond = min(len(errors), math.ceil((len(errors) + 1) * (1 + CONFIDENCE) / 2)) - 1
        low[knots] += min(0.0, errors[len(errors) - 1 - beyond])
        high[knots] += max(0.0, errors[beyond])
    low, high = np.minimum.accumulate(low[::-1])[::-1], np.maximum.accumulate(high)
    return tuple(zip(at.tolist(), mid.tolist(), low.tolist(), high.tolist(), strict=True))
