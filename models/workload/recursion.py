"""Which coefficients has an ARIMA, and what do they say of how it behaves?

w_t = c + Σ φ_i w_{t−i} + e_t + Σ θ_j e_{t−j}
"""

from __future__ import annotations

import math
from dataclasses import dataclass

AVERAGING = -0.5  # judgement: above it half of a jump is followed at once
REMEMBERED = 1_000  # judgement: steps of its own past that make up the usual deviation


@dataclass(frozen=True)
class Recursion:
    """The coefficients φ, θ, c, the standard deviation of e, and whether differences are modelled."""

    ar: tuple[float, ...]
    ma: tuple[float, ...]
    differenced: bool
    intercept: float
    deviation: float

    @property
    def averages(self) -> bool:
        """Does it keep a level, or average over so many steps that it follows one only slowly?"""
        return not self.differenced or sum(self.ma) < AVERAGING

    @property
    def order(self) -> tuple[int, int, int]:
        """(p, d, q), as ARIMA orders are written."""
        return len(self.ar), int(self.differenced), len(self.ma)

    @property
    def usual(self) -> float:
        """The w that it comes back to."""
        settled = 1.0 - sum(self.ar)
        return self.intercept / settled if abs(settled) > 1e-6 else 0.0

    @property
    def usual_deviation(self) -> float:
        """How far w lies from that, as a rule: σ √(Σ ψ²) with ψ what is left of an error j steps later."""
        psi = [1.0]
        for j in range(1, REMEMBERED):
            own = self.ma[j - 1] if j <= len(self.ma) else 0.0
            psi.append(own + sum(c * psi[j - 1 - i] for i, c in enumerate(self.ar[:j])))
        return self.deviation * math.sqrt(math.fsum(v * v for v in psi))
