"""Profiles whose truth is known: latency as a queue makes it, at scale-outs whose capacity is a given curve.

latency(u) = base + trigger / 2 + service · u / (1 − u) below capacity; above it the backlog of the whole
stay, (u − 1) · stay seconds of input, waits in front of every record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from models.latency import LatencyModel
from models.quantities import Interval, Measurement, Unknown

STAY_S = 360.0  # Phoebe: 300 s to settle and half of the 120 s that are averaged
CURVES: dict[str, Callable[[float], float]] = {
    "linear": lambda s: 18_000.0 * s,
    "with an intercept": lambda s: 12_000.0 + 15_500.0 * s,
    "sqrt": lambda s: 85_000.0 * math.sqrt(s),
    "log1p": lambda s: 120_000.0 * math.log1p(s),
    "power": lambda s: 25_000.0 * s**0.8,
    "usl": lambda s: 24_000.0 * s / (1 + 0.015 * (s - 1) + 0.0002 * s * (s - 1)),
}


@dataclass(frozen=True)
class Truth:
    curve: str
    base_ms: float = 600.0
    trigger_ms: float = 800.0
    service_ms: float = 40.0
    pooling: float = 0.0
    """Latency below capacity falls with scale_out^(−pooling)."""
    stay_s: float = STAY_S
    """How long a backlog grows: a short probe shows a gentle rise past saturation."""

    def capacity_rps(self, scale_out: float) -> float:
        return CURVES[self.curve](scale_out)

    def latency_ms(self, scale_out: int, rate_rps: float) -> float:
        u = rate_rps / self.capacity_rps(scale_out)
        waiting = self.service_ms * min(u / (1 - u), 100.0) if u < 1 else self.service_ms * 100.0
        backlog = max(0.0, u - 1.0) * self.stay_s * 1_000.0
        return float((self.base_ms + self.trigger_ms / 2 + waiting) * scale_out**-self.pooling + backlog)


def profile(
    truth: Truth,
    *,
    noise: float,
    seed: int,
    scale_outs: tuple[int, ...] = (2, 5, 8, 11, 14, 17, 20, 23),
    step_share: float = 1 / 20,
    past_saturation: int = 1,
) -> list[Measurement]:
    """Phoebe's profiling: all scale-outs through the same rates; one that saturated leaves after
    `past_saturation` more steps. `step_share`: the rate step as a share of the largest capacity. The noise is
    on latency and on saturated throughput, which stays between what was sustained and what was offered."""
    rng = np.random.default_rng(seed)
    step = truth.capacity_rps(max(scale_outs)) * step_share
    found = []
    for s in scale_outs:
        over, rate, sustained = 0, step, 0.0
        while over < past_saturation:
            capacity = truth.capacity_rps(s)
            saturated = rate > capacity
            over += saturated
            sustained = sustained if saturated else rate
            wobble = math.exp(noise * rng.standard_normal())
            found.append(
                Measurement(
                    scale_out=s,
                    offered_rps=rate,
                    throughput_rps=min(max(capacity * wobble, sustained), rate),
                    sustained=not saturated,
                    latency_ms=truth.latency_ms(s, rate) * math.exp(noise * rng.standard_normal()),
                )
            )
            rate += step
    return found


@dataclass(frozen=True)
class KnownCapacity:
    """A capacity that is given, with a relative uncertainty: what a fitted one would say at best."""

    truth: Truth
    uncertainty: float = 0.05

    def predict(self, scale_out: int) -> Interval | Unknown:
        mid = self.truth.capacity_rps(scale_out)
        return Interval(mid * (1 - self.uncertainty), mid, mid * (1 + self.uncertainty), 0.9)


Scenario = tuple[str, Truth, dict[str, object]]
SCENARIOS: tuple[Scenario, ...] = (
    *((f"{curve}, killed when saturated", Truth(curve), {}) for curve in CURVES),
    ("linear, four sizes", Truth("linear"), {"scale_outs": (2, 4, 8, 16), "step_share": 1 / 10}),
    ("power, two steps past saturation", Truth("power"), {"past_saturation": 2}),
    ("usl, small jobs are faster", Truth("usl", service_ms=100.0), {}),
    ("sqrt, latency falls with executors", Truth("sqrt", pooling=0.3), {}),
    ("log1p, a ten-second trigger", Truth("log1p", base_ms=300.0, trigger_ms=10_000.0), {}),
    ("linear, tens of milliseconds", Truth("linear", base_ms=20.0, trigger_ms=0.0, service_ms=8.0), {}),
)


Points = tuple[str, Truth, tuple[float, ...]]
"""Name, truth, and the shares of its capacity at which each of five sizes is probed."""

SPARSE: tuple[Points, ...] = (
    ("three rates", Truth("linear"), (0.4, 0.8, 1.1)),
    ("three rates, one of them far above", Truth("sqrt"), (0.3, 0.6, 1.6)),
    ("three rates, none above", Truth("power"), (0.3, 0.6, 0.9)),
    ("every point abnormal", Truth("linear"), (1.1, 1.3, 1.6, 2.0)),
    ("every point barely abnormal", Truth("usl"), (1.04, 1.1, 1.2, 1.3)),
    ("every point normal", Truth("log1p"), (0.2, 0.4, 0.6, 0.8)),
    (
        "gentle saturation",
        Truth("linear", service_ms=400.0, stay_s=10.0),
        (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2),
    ),
    (
        "gentle saturation, sqrt",
        Truth("sqrt", base_ms=200.0, trigger_ms=0.0, service_ms=150.0, stay_s=20.0),
        (0.3, 0.5, 0.7, 0.85, 0.95, 1.05, 1.2),
    ),
    (
        "a long queue before saturation",
        Truth("power", base_ms=100.0, trigger_ms=100.0, service_ms=300.0, stay_s=60.0),
        (0.3, 0.5, 0.7, 0.8, 0.9, 1.1),
    ),
)


def sparse_profile(points: Points, *, noise: float, seed: int) -> list[Measurement]:
    """Each of five sizes at these shares of its capacity, plus how the capacity itself was measured."""
    _, truth, shares = points
    rng = np.random.default_rng(seed)
    found = []
    for s in (1, 2, 4, 8, 16):
        capacity = truth.capacity_rps(s)
        for share in shares:
            rate, wobble = share * capacity, math.exp(0.3 * noise * rng.standard_normal())
            found.append(
                Measurement(
                    scale_out=s,
                    offered_rps=rate,
                    throughput_rps=rate if share <= 1.0 else min(capacity * wobble, rate),
                    sustained=share <= 1.0,
                    latency_ms=truth.latency_ms(s, rate) * math.exp(noise * rng.standard_normal()),
                )
            )
        if max(shares) <= 1.0:  # a probe without latencies, so that the capacity is known
            found.append(Measurement(s, 1.5 * capacity, capacity, sustained=False))
    return found


def wrong_on_new_points(model: LatencyModel, truth: Truth, seed: int) -> tuple[float, float, int]:
    """Shares wrong of the model and of the rule on points that were not measured, and normal overloads.

    Truth: abnormal from the capacity on. Unknown counts as wrong. Points within 4 % of the capacity are left
    out: there either may be said.
    """
    rng = np.random.default_rng([seed, 5])
    ours = rule = never = asked = 0
    for _ in range(100):
        s, u = int(rng.choice([1, 2, 3, 4, 6, 8, 12, 16])), float(rng.uniform(0.2, 1.6))
        if abs(u - 1.0) < 0.04:
            continue
        rate = u * truth.capacity_rps(s)
        capacity = model.capacity.predict(s)
        if isinstance(capacity, Unknown):
            continue
        said = model.is_normal(s, rate)
        asked += 1
        ours += isinstance(said, Unknown) or said != (u < 1.0)
        rule += (rate <= 0.95 * capacity.mid) != (u < 1.0)
        never += said is True and rate > capacity.high
    return ours / asked, rule / asked, never


def rule_of_thumb(model: LatencyModel) -> dict[str, int]:
    """The peer: abnormal when the rate is above 0.95 · T(s), with a capacity that has seen every point."""
    counts = {"tp": 0, "fp": 0, "fn": 0, "tn": 0}
    for m in model.measurements:
        normal = model.clusters.is_normal(m.latency_ms)
        above = m.offered_rps > 0.95 * model.capacity.predict(m.scale_out).mid
        counts[("fp" if above else "tn") if normal else ("tp" if above else "fn")] += 1
    return counts


def rates(counts: dict[str, int]) -> tuple[float, float]:
    """(recall, specificity) of "abnormal"; 1 where there was nothing to find."""
    abnormal, normal = counts["tp"] + counts["fn"], counts["tn"] + counts["fp"]
    return (counts["tp"] / abnormal if abnormal else 1.0, counts["tn"] / normal if normal else 1.0)
