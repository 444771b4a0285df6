"""What has a worker shown so far, in seven numbers that add up exactly?

Weighted moments of CPU x and throughput y; two sets join without error however the samples were split
(Chan, Golub & LeVeque 1983), with δ the difference of the means:

    W = W₁ + W₂     x̄ = x̄₁ + δ_x·W₂/W     S_xy = S_xy₁ + S_xy₂ + δ_x·δ_y·W₁W₂/W

Ageing multiplies W and every S by one factor, ΣW² by its square, and leaves the means alone.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Self

from ..arguments import Array


@dataclass(frozen=True)
class Moments:
    """Weighted moments of (cpu, throughput) samples; the default is no sample at all."""

    weight: float = 0.0
    weight_squared: float = 0.0  # Σ w², for the effective number of samples
    mean_x: float = 0.0
    mean_y: float = 0.0
    s_xx: float = 0.0
    s_xy: float = 0.0
    s_yy: float = 0.0

    @classmethod
    def of(cls, x: Array, y: Array, weights: Array) -> Self:
        """Moments of one batch, by two passes."""
        total = float(weights.sum())
        if total <= 0.0:
            return cls()
        mean_x, mean_y = float(weights @ x) / total, float(weights @ y) / total
        dx, dy = x - mean_x, y - mean_y
        return cls(
            total,
            float(weights @ weights),
            mean_x,
            mean_y,
            float(weights @ (dx * dx)),
            float(weights @ (dx * dy)),
            float(weights @ (dy * dy)),
        )

    @property
    def movement(self) -> float:
        """Standard deviation of the throughput, as a share of its mean."""
        return math.sqrt(self.s_yy / self.weight) / self.mean_y if self.weight * self.mean_y > 0.0 else 0.0

    @property
    def agreement(self) -> float:
        """r²: how much of either's movement goes with the other's; 0 where one has not moved."""
        moved = self.s_xx * self.s_yy
        return self.s_xy**2 / moved if moved > 0.0 else 0.0

    def __add__(self, other: Moments) -> Moments:
        if self.weight == 0.0 or other.weight == 0.0:
            return other if self.weight == 0.0 else self
        total = self.weight + other.weight
        share = other.weight / total
        dx, dy = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        cross = self.weight * share
        return Moments(
            total,
            self.weight_squared + other.weight_squared,
            self.mean_x + dx * share,
            self.mean_y + dy * share,
            self.s_xx + other.s_xx + cross * dx * dx,
            self.s_xy + other.s_xy + cross * dx * dy,
            self.s_yy + other.s_yy + cross * dy * dy,
        )

    def aged(self, factor: float) -> Moments:
        """The same samples, every one worth `factor` of what it was."""
        if factor == 1.0 or self.weight * factor < 1e-200:  # long forgotten: no sample, not a tiny number
            return self if factor == 1.0 else Moments()
        return Moments(
            self.weight * factor,
            self.weight_squared * factor * factor,
            self.mean_x,
            self.mean_y,
            self.s_xx * factor,
            self.s_xy * factor,
            self.s_yy * factor,
        )

    @property
    def samples(self) -> float:
        """How many samples of equal weight would say as much?"""
        return self.weight**2 / self.weight_squared if self.weight_squared > 0.0 else 0.0

    def to_list(self) -> list[float]:
        """The seven numbers, in order."""
        return [float(v) for v in astuple(self)]
