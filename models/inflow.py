"""How many records have arrived by any moment, exactly, when rates are constant within a step?

    F(t) = Σ_{j<k} f_j·Δ + f_k·(t − k·Δ),   k = ⌊t/Δ⌋;   before 0 the first rate, after the end the last one.

Both recovery forms read arrivals only through F, so neither a sample in between nor a rounded-up second
can slip in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arguments import Array, numbers
from .quantities import Misuse

Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Inflow:
    """Arrival rates of many paths on one grid, with their running sums."""

    rates: Array  # (paths, steps)
    summed: Array  # (paths, steps + 1): records by the beginning of each step, and by the end
    step_s: float
    lead: tuple[int, ...]
    """The shape the paths came in, without their time axis."""

    @classmethod
    def of(cls, name: str, rates_rps: Any, *, step_s: float) -> Inflow:
        """Rates (…, steps), constant within each step; anything that is not a rate is refused by name."""
        given = numbers(name, rates_rps, at_least=0.0)
        if given.ndim == 0 or given.shape[-1] == 0:
            raise Misuse(name, f"needs a time axis with at least one step, got shape {given.shape}")
        rates = given.reshape(-1, given.shape[-1])
        summed = np.zeros((rates.shape[0], rates.shape[1] + 1))
        np.cumsum(rates, axis=1, out=summed[:, 1:])
        summed *= step_s
        return cls(rates=rates, summed=summed, step_s=step_s, lead=given.shape[:-1])

    @property
    def steps(self) -> int:
        return int(self.rates.shape[1])

    @property
    def horizon_s(self) -> float:
        return self.steps * self.step_s

    def paths(self, shape: tuple[int, ...]) -> Index:
        """Which path each lane of a result of this shape runs on; its last axis is not the paths' own."""
        numbered = np.arange(math.prod(self.lead), dtype=np.intp).reshape((*self.lead, 1))
        return np.broadcast_to(numbered, shape).reshape(-1)

    def by(self, path: Index, at_s: Array) -> Array:
        """Records arrived between 0 and `at_s` on each path; negative before 0."""
        step = np.clip(at_s / self.step_s, 0, self.steps - 1).astype(np.intp)
        arrived: Array = self.summed[path, step] + (at_s - step * self.step_s) * self.rates[path, step]
        return arrived

    def resumes(self, path: Index, at_s: Array) -> Array:
        """From when on do records arrive again? `at_s` where they do, inf where none come any more."""
        step = np.clip(at_s / self.step_s, 0, self.steps - 1).astype(np.intp)
        return np.maximum(at_s, self._next_busy_s[path, step])

    @cached_property
    def _next_busy_s(self) -> Array:
        begins = np.where(self.rates > 0, np.arange(self.steps) * self.step_s, np.inf)
        return np.minimum.accumulate(begins[:, ::-1], axis=1)[:, ::-1]


def broadcast(name: str, shape: tuple[int, ...], values: Array) -> tuple[int, ...]:
    """The common shape, or one error that names the argument that does not fit."""
    try:
        return np.broadcast_shapes(shape, values.shape)
    except ValueError:
        raise Misuse(
            name, f"has shape {values.shape}, which does not broadcast to the result's {shape}"
        ) from None
