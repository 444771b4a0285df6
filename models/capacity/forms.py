"""Which shapes can capacity take as a job gets more executors?

Every form is a scale times a shape. The shape is pinned at the smallest and the largest measured size,
x₁ and x_m (effective slots), by u = log T(x_m)/T(x₁), so that the same u means the same measured gain
whatever the form, and forms differ only in how they bend between the two and beyond:

    linear, sqrt, log1p   T(x) = T(x₁)·(1 + (eᵘ − 1)·(g(x) − g(x₁)) / (g(x_m) − g(x₁))),  g = x, √x, log(1+x)
                          that is a + b·g(x): the intercept is free, as a fixed part is common
    power                 T(x) = T(x₁)·(x/x₁)^(u / log X),                                  X = x_m/x₁
    usl                   T(x) = T(x₁)·z / (1 + σ(z − 1) + κz(z − 1)),                      z = x/x₁
                          σ(X − 1) + κX(X − 1) = X·e⁻ᵘ − 1, the loss at x_m; φ = the share of it that is κ's

The universal scalability law keeps its form when the unit of x changes, so z in place of x loses nothing.
Past its peak z = √((1 − σ)/κ) it stays at the peak: an executor too many can be left idle.
All shapes are non-decreasing and positive, u ≥ 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ..arguments import Array

FORMS = ("linear", "sqrt", "log1p", "power", "usl")
"""From the plainest to the richest; of forms that say the same the first is named."""

PARAMETERS: Mapping[str, int] = {"linear": 2, "sqrt": 2, "log1p": 2, "power": 2, "usl": 3}

STEEPEST = 1.5
"""No shape is steeper than x^1.5 over the measured range, nor below it. Judgement: speed-ups beyond
linear come from caches and are small; the room above 1 is for noise."""

_CURVES: Mapping[str, Callable[[Array], Array]] = {"linear": np.asarray, "sqrt": np.sqrt, "log1p": np.log1p}


def gain_limit(form: str, span: float) -> float:
    """Which log gain over the measured range is the largest this form can show?"""
    return math.log(span) * (1.0 if form == "usl" else STEEPEST)


def log_gain(form: str, sizes: Array, shapes: Array, *, smallest: float, largest: float) -> Array:
    """How much more than the smallest measured size does each size carry, in logs, for each shape?

    `shapes` is (…, 2): u and φ (φ is read by usl alone). The result is (…, sizes).
    """
    u, share = shapes[..., 0, None], shapes[..., 1, None]
    z = sizes / smallest
    span = largest / smallest
    if form == "power":
        return np.asarray(u * (np.log(z) / math.log(span)))
    if form == "usl":
        loss = np.maximum(span * np.exp(-u) - 1.0, 0.0)
        sigma = np.minimum((1.0 - share) * loss / (span - 1.0), 1.0)
        kappa = share * loss / (span * (span - 1.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            peak = np.where(kappa > 0.0, np.sqrt((1.0 - sigma) / kappa), np.inf)
        z = np.minimum(z, np.maximum(peak, 1.0))
        return np.asarray(np.log(z) - np.log1p((z - 1.0) * (sigma + kappa * z)))
    g = _CURVES[form]
    first, last = g(np.array([smallest, largest]))
    way = (g(sizes) - first) / (last - first)
    # Below the smallest size a steep straight line would cross zero: there x^1.5 takes over.
    lowest = np.where(z < 1.0, z**STEEPEST, 1.0)
    return np.asarray(np.log(np.maximum(1.0 + np.expm1(u) * way, lowest)))


def effective_slots(scale_out: int, tasks: int | None) -> float:
    """How many slots are busy on average when `tasks` equal tasks run in ⌈tasks/s⌉ waves?"""
    return float(scale_out) if tasks is None else tasks / math.ceil(tasks / scale_out)
