"""Generated capacity curves, and noisy profiles of them."""

from __future__ import annotations

import itertools
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
        self,
        design: Design,
        seed: int,
        *,
        noise: float = 0.03,
        heavy_tails: bool = False,
        growth: float = 0.0,
        outliers: float = 0.0,
    ) -> list[Measurement]:
        """Saturated probes at every size of a design, with proportional noise.

        The noise grows as size^growth; `outliers` is the share of probes that are 40 % off, up or down.
        """
        random = np.random.default_rng(seed)
        shape = (len(design.sizes), design.repeats)
        if heavy_tails:  # Student's t with 4 degrees of freedom, scaled to the same standard deviation
            errors = random.standard_t(4, shape) / math.sqrt(2.0)
        else:
            errors = random.standard_normal(shape)
        errors = errors * np.array(design.sizes, dtype=float)[:, None] ** growth
        if outliers:
            odd = random.choice(errors.size, max(round(outliers * errors.size), 1), replace=False)
            errors.flat[odd] = random.choice([-0.4, 0.4], len(odd)) / noise
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

    @property
    def within(self) -> Sequence[int]:
        """Every measured size, and one between each two."""
        between = [(a + b) // 2 for a, b in itertools.pairwise(self.sizes)]
        return sorted({*self.sizes, *between})


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


def _falling(contention: float, coherence: float) -> Callable[[float], float]:
    """The universal scalability law past its peak, where executors that are too many cannot be left idle."""
    return lambda s: 1000.0 * s / (1.0 + contention * (s - 1.0) + coherence * s * (s - 1.0))


CEILINGS: Mapping[str, Truth] = {
    "sink that takes 3,000": Truth(None, lambda s: 1000.0 * min(s, 3.0)),
    "broker that gives 6,000": Truth(None, lambda s: 1000.0 * min(s, 6.0)),
    "sqrt up to 5,000": Truth(None, lambda s: min(2000.0 * math.sqrt(s), 5000.0)),
}
FALLING: Mapping[str, Truth] = {
    "falling from 10": Truth(None, _falling(0.05, 0.01)),
    "falling from 5": Truth(None, _falling(0.05, 0.04)),
}


@dataclass(frozen=True)
class LiveJob:
    """Workers below their limit: CPU follows a slow load, every second worker at 0.8 of the first's."""

    noise: float = 0.05
    intercept: float = 30.0
    workers: int = 2
    bend: float = 1.0
    """Exponent of throughput over CPU: above 1, each record costs less CPU when batches are large."""
    cpu_noise: float = 0.0
    """Scatter of the measured CPU, which flattens least squares."""
    limit: float = 1.0
    """CPU of the hottest worker at which something else, such as waiting for a look-up, ends it."""
    noisy: int = 0
    """So many workers measure throughput with ten times the noise."""

    @property
    def skew(self) -> Array:
        return np.where(np.arange(self.workers) % 2 == 0, 1.0, 0.8)

    @property
    def capacity(self) -> float:
        return float(self._rates(self.limit * self.skew).sum())

    def _rates(self, cpu: Array) -> Array:
        return self.intercept + (1000.0 - self.intercept) * cpu**self.bend

    def samples(
        self, count: int, seed: int, *, swing: float = 0.2, swing_s: float = 200.0, step_s: float = 1.0
    ) -> tuple[Array, Array]:
        """CPU within (0.35 ± swing) of the limit and throughput, one row each `step_s`."""
        random = np.random.default_rng(seed)
        hot = 0.35 + swing * np.sin(step_s * np.arange(count) / swing_s + random.uniform(0.0, 6.0))
        hot += 0.1 * swing * random.standard_normal(count)
        cpu = np.clip(self.limit * hot[:, None] * self.skew, 0.01, 0.6)
        scatter = np.where(np.arange(self.workers) < self.noisy, 10.0, 1.0) * self.noise
        rates = self._rates(cpu) * (1.0 + scatter * random.standard_normal(cpu.shape))
        seen = cpu + self.cpu_noise * random.standard_normal(cpu.shape)
        return np.clip(seen, 0.0, 1.0), np.maximum(rates, 0.0)
