"""Smooth periodic curve: harmonics of the periods that were found.

    s(t) = Σ_P Σ_{k ≤ K_P} a_{P,k} cos(2πkt/P) + b_{P,k} sin(2πkt/P)

The coefficients come from generalised least squares with first-order errors (Cochrane–Orcutt): level, line
and curve are fitted once by ordinary least squares, the memory φ of what is left is taken, and
x_t − φ x_{t−1} is fitted again. With white noise that is the ordinary fit, beside a random walk the fit of
differences.
K_P is the number of harmonics with the smallest Bayesian information criterion, period by period.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from ..arguments import Array

HARMONICS = (
    1,
    2,
    3,
    4,
    6,
    8,
    12,
    16,
    24,
)  # judgement: twice 24 coefficients draw a spike of 1/50 of a period


@dataclass(frozen=True)
class Fourier:
    """Periods in steps, the number of harmonics of each, and their cosine and sine coefficients."""

    periods: tuple[int, ...]
    harmonics: tuple[int, ...]
    coefficients: tuple[float, ...]

    def at(self, first: int, steps: int) -> Array:
        if not self.coefficients:
            return np.zeros(steps)
        at = first + np.arange(steps)
        result: Array = sum(
            (table[at % period] for period, table in zip(self.periods, _tables(self), strict=True)),
            np.zeros(steps),
        )
        return result


NO_CURVE = Fourier((), (), ())


@functools.lru_cache(maxsize=64)
def _tables(curve: Fourier) -> tuple[Array, ...]:
    """One period of each: a tick asks for a few steps of it many times."""
    found, begin = [], 0
    for period, count in zip(curve.periods, curve.harmonics, strict=True):
        own = np.array(curve.coefficients[begin : begin + 2 * count])
        found.append(_columns(0, period, (period,), (count,)) @ own)
        begin += 2 * count
    return tuple(found)


def fit_curve(values: Array, periods: tuple[int, ...], harmonics: tuple[int, ...] | None = None) -> Fourier:
    """The curve with these periods that fits the values (first value: step 0); `harmonics` None: chosen."""
    chosen: tuple[int, ...] = () if harmonics is None else harmonics
    if harmonics is None:
        for count in range(1, len(periods) + 1):
            options = [k for k in HARMONICS if 2 * k <= periods[count - 1]] or [1]
            tried = [(_fit(values, periods[:count], (*chosen, k))[0], k) for k in options]
            chosen = (*chosen, min(tried)[1])
    return Fourier(periods, chosen, tuple(_fit(values, periods, chosen)[1].tolist()))


def _columns(first: int, steps: int, periods: tuple[int, ...], harmonics: tuple[int, ...]) -> Array:
    at = first + np.arange(steps)
    parts = []
    for period, count in zip(periods, harmonics, strict=True):
        # The step modulo the period is exact however long the job has been running.
        angle = (2.0 * np.pi / period) * (at % period)[:, None] * np.arange(1, count + 1)
        parts += [np.cos(angle), np.sin(angle)]
    return np.hstack(parts)


def _fit(values: Array, periods: tuple[int, ...], harmonics: tuple[int, ...]) -> tuple[float, Array]:
    """The Bayesian information criterion and the coefficients."""
    n = values.size
    line = np.stack((np.ones(n), np.arange(n) / n), axis=1)
    columns = np.hstack((line, _columns(0, n, periods, harmonics)))
    seen = ~np.isnan(values)
    left = values - columns @ _least_squares(columns[seen], values[seen])
    both = seen[1:] & seen[:-1]
    power = float((left[:-1][both] ** 2).sum())
    memory = float((left[1:][both] * left[:-1][both]).sum()) / power if power > 0.0 else 0.0
    memory = min(max(memory, 0.0), 0.999)
    target = (values[1:] - memory * values[:-1])[both]
    sifted = (columns[1:] - memory * columns[:-1])[both]
    solution = _least_squares(sifted, target)
    squares = float(((target - sifted @ solution) ** 2).sum())
    floor = 1e-12 * float(target @ target) + 1e-300
    n, parameters = sifted.shape
    return n * math.log((squares + floor) / n) + parameters * math.log(n), solution[2:]


def _least_squares(columns: Array, target: Array) -> Array:
    """Normal equations with a trace of ridge: harmonics that two periods share have no single answer."""
    gram = columns.T @ columns
    ridge = 1e-9 * max(1.0, float(np.trace(gram)) / len(gram))
    result: Array = np.asarray(
        np.linalg.solve(gram + ridge * np.eye(len(gram)), columns.T @ target), np.float64
    )
    return result
