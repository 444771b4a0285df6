"""How do jobs scale, and what does a noisy profiling of them look like? Generated capacity curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.arguments import Array
from models.quantities import Measurement


def _usl(contention: float, coherence: float) -> Callable[[float], float]:
    def rate(s: float) -> float:
        best = s if coherence == 0.0 else min(s, max(math.sqrt((1.0 - contention) / coherence), 1.0))
        return 1000.0 * best / (1.0 + contention * (best - 1.0) + coherence * best * (best - 1.0))

    return rate


@dataclass(frozen=True)
class Truth:
    """A capacity curve, and the form it belongs to (None: to none of ours)."""

    form: str | None
    rate: Callable[[float], float]

    def measured(
        self, design: Design, seed: int, *, noise: float = 0.03, heavy_tails: bool = False
    ) -> list[Measurement]:
        """Saturated probes at every size of a design, with proportional noise."""
        random = np.random.default_rng(seed)
        shape = (len(design.sizes), design.repeats)
        if heavy_tails:  # Student's t with 4 degrees of freedom, scaled to the same standard deviation
            errors = random.standard_t(4, shape) / math.sqrt(2.0)
        else:
            errors = random.standard_normal(shape)
        return [
            Measurement(s, 1.3 * self.rate(s), self.rate(s) * max(1.0 + noise * error, 0.1), False)
            for s, row in zip(design.sizes, errors, strict=True)
            for error in row
        ]


@dataclass(frozen=True)
class Design:
    """Which scale-outs are probed, how often each."""

    sizes: tuple[int, ...]
    repeats: int = 1

    @property
    def asked(self) -> Sequence[int]:
        """At, between and beyond the sizes: the last is twice the largest."""
        return (self.sizes[0], self.sizes[0] + 1, (self.sizes[-2] + self.sizes[-1]) // 2, 2 * self.sizes[-1])


DESIGNS: Mapping[str, Design] = {
    "4 sizes": Design((1, 2, 4, 8)),
    "6 sizes": Design((1, 2, 4, 8, 12, 16)),
    "4 sizes × 3": Design((1, 2, 4, 8), 3),
    "6 sizes × 4": Design((1, 2, 4, 8, 16, 32), 4),
}
TRUTHS: Mapping[str, Truth] = {
    "linear": Truth("linear", lambda s: 1000.0 * s),
    "linear with a fixed part": Truth("linear", lambda s: 300.0 + 900.0 * s),
    "sqrt": Truth("sqrt", lambda s: 2000.0 * math.sqrt(s)),
    "sqrt with a fixed part": Truth("sqrt", lambda s: 500.0 + 1500.0 * math.sqrt(s)),
    "log1p": Truth("log1p", lambda s: 3000.0 * math.log1p(s)),
    "power 0.8": Truth("power", lambda s: 1000.0 * s**0.8),
    "power 0.95": Truth("power", lambda s: 1000.0 * s**0.95),
    "usl, contention": Truth("usl", _usl(0.2, 0.0)),
    "usl, light": Truth("usl", _usl(0.05, 0.001)),
    "usl, peak at 17": Truth("usl", _usl(0.1, 0.003)),
}
OUTSIDE: Mapping[str, Truth] = {
    "saturating exponential": Truth(None, lambda s: 12000.0 * -math.expm1(-s / 10.0)),
    "linear up to 6, then flat": Truth(None, lambda s: 1000.0 * min(s, 6.0)),
}


@dataclass(frozen=True)
class LiveJob:
    """Workers below their limit: CPU follows a slow load, the second worker at 0.8 of the first's."""

    noise: float = 0.05
    intercept: float = 30.0

    @property
    def capacity(self) -> float:
        return 2 * self.intercept + (1000.0 - self.intercept) * 1.8

    def samples(self, count: int, seed: int, *, swing: float = 0.2) -> tuple[Array, Array]:
        """CPU within 0.35 ± swing and throughput, one row a second."""
        random = np.random.default_rng(seed)
        hot = 0.35 + swing * np.sin(np.arange(count) / 200.0 + random.uniform(0.0, 6.0))
        hot += 0.1 * swing * random.standard_normal(count)
        cpu = np.clip(np.stack([hot, 0.8 * hot], axis=1), 0.01, 0.6)
        rates = self.intercept + (1000.0 - self.intercept) * cpu
        return cpu, rates * (1.0 + self.noise * random.standard_normal(cpu.shape))
