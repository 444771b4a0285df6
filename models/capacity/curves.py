"""Curves of one form that the measurements allow, and their range at any scale-out.

With log rates ȳ_j of weight W_j at sizes x_j, bounds L_b of weight w_b, and a curve log T = c + h(x; u, φ):

    RSS(c, u, φ) = Σ W_j (ȳ_j − c − h(x_j))² + Σ w_b max(0, L_b − c − h(x_b))² + scatter within sizes
    allowed      = every curve with RSS ≤ RSS_min + t²·s²,     t = the 95 % quantile of Student's t
    interval(x)  = [min, max] of T(x) over the allowed curves, mid = the curve at RSS_min

For a form that is linear in its parameters this is exactly the t interval at 90 %; for the others it is
the profile likelihood interval, which neither leaves the form's limits nor needs a derivative. The
allowed set is the same for every x, so low, mid and high never fall where the curves rise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arguments import Array
from ..student_t import quantile_95
from .brackets import NOISE, PARAMETERS, Evidence, gain_limit, log_gain

_LEAST_NOISE = 0.002  # of one run; judgement: equal rates come from rounding or a run that was counted twice
_TIE = 1e-9  # far above rounding, far below any noise
_ZOOMS = 12  # each at least halves the box around the allowed shapes, or is the last
_REFINEMENTS = 5  # each divides the grid's step around the best shape by 6 or more


def _unit_grid(along: int, across: int) -> tuple[Array, Array]:
    u, share = np.linspace(0.0, 1.0, along), np.linspace(0.0, 1.0, across)
    grid = np.stack([np.repeat(u, across), np.tile(share, along)], axis=1)
    return grid, np.array([1.0 / (along - 1), 1.0 / max(across - 1, 1)])


_UNIT_GRIDS = {False: _unit_grid(49, 1), True: _unit_grid(25, 17)}


@dataclass(frozen=True)
class Noise:
    """s² of one measurement of weight 1, and the degrees of freedom it rests on."""

    variance: float
    degrees: float

    @property
    def reach(self) -> float:
        """t²·s²: how much RSS may rise above its minimum."""
        return quantile_95(self.degrees) ** 2 * self.variance + _TIE


def noise_of(evidence: Evidence, rss: float, *, parameters: int, prior: float = 0.0) -> Noise:
    """Noise of the measurements around a curve, with `prior` observations of NOISE added."""
    degrees = max(float(evidence.runs.sum()) - parameters, 0.0)
    if evidence.errors_known:
        # Stated errors need no estimate, unless the scatter says that they were too small.
        excess = rss / (degrees * NOISE**2) if degrees else 1.0
        if excess > 1.0 + 2.0 * (2.0 / max(degrees, 1.0)) ** 0.5:  # two standard deviations of χ²/degrees
            return Noise(rss / degrees + evidence.conflict, degrees)
        return Noise(NOISE**2 + evidence.conflict, np.inf)
    if not degrees:
        prior = max(prior, 1.0)
    variance = max((prior * NOISE**2 + rss) / (prior + degrees), _LEAST_NOISE**2)
    return Noise(variance + evidence.conflict, prior + degrees)


@dataclass(frozen=True)
class Curve:
    """The allowed curves of one form: the best one, and the range of the scale for every allowed shape."""

    form: str
    smallest: float
    largest: float
    best_shape: Array  # (2,)
    best_scale: float
    rss: float
    noise: Noise
    shapes: Array  # (allowed, 2)
    lowest_scale: Array  # (allowed,)
    highest_scale: Array

    def log_rates(self, sizes: Array) -> tuple[Array, Array, Array]:
        """Low, mid and high of log T at these effective slots."""
        gains = self._gains(sizes, self.shapes)
        mid = self.best_scale + self._gains(sizes, self.best_shape)
        low = np.min(self.lowest_scale[:, None] + gains, axis=0)
        high = np.max(self.highest_scale[:, None] + gains, axis=0)
        return np.minimum(low, mid), mid, np.maximum(high, mid)

    def _gains(self, sizes: Array, shapes: Array) -> Array:
        return log_gain(self.form, sizes, shapes, smallest=self.smallest, largest=self.largest)


def best_of(shapes: Array, rss: Array) -> int:
    """The shape that fits best; of several that fit alike, as all usl shapes do on two sizes, the least κ."""
    return int(np.argmin(rss + _TIE * shapes[:, 1]))


def curve(form: str, evidence: Evidence, *, noise: Noise | None) -> Curve:
    """Fit one form: zoom into the shapes until the allowed ones fill the grid, then refine the best.

    `noise` is one that several forms share, or None for the noise around this form alone.
    """
    limits = np.array([[0.0, gain_limit(form, evidence.span)], [0.0, 1.0]])

    def own(rss: float, parameters: int) -> Noise:
        return noise or noise_of(evidence, rss, parameters=parameters)

    grid, rss, step, box = _zoomed(
        form, evidence, limits, limits, reach=lambda least: own(least, PARAMETERS[form]).reach
    )
    shape, best_scale, least = _refined(form, evidence, grid[best_of(grid, rss)], step, limits)
    # A parameter that stands at its limit was not fitted: it gives its degree of freedom back.
    fitted = own(least, PARAMETERS[form] - _at_limits(form, shape, limits))
    if fitted.reach < own(least, PARAMETERS[form]).reach:
        grid, rss, step, box = _zoomed(form, evidence, box, limits, reach=lambda _: fitted.reach)
    shapes = np.vstack([grid[rss <= least + fitted.reach], shape])
    lowest, highest = _scale_range(form, evidence, shapes, least + fitted.reach)
    return Curve(
        form=form,
        smallest=float(evidence.sizes[0]),
        largest=float(evidence.sizes[-1]),
        best_shape=shape,
        best_scale=best_scale,
        rss=least,
        noise=fitted,
        shapes=shapes,
        lowest_scale=lowest,
        highest_scale=highest,
    )


def _zoomed(
    form: str, evidence: Evidence, box: Array, limits: Array, *, reach: Callable[[float], float]
) -> tuple[Array, Array, Array, Array]:
    """Shapes with their RSS, their steps and the box they fill, once the allowed ones fill most of it."""
    for _ in range(_ZOOMS):
        grid, step = _grid(form, box)
        _, rss = _profile(form, evidence, grid)
        best = best_of(grid, rss)
        allowed = grid[rss <= rss[best] + reach(float(rss[best]))]
        narrowed = np.stack([allowed.min(axis=0) - step, allowed.max(axis=0) + step], axis=1)
        narrowed = np.clip(narrowed, limits[:, :1], limits[:, 1:])
        width, before = narrowed[:, 1] - narrowed[:, 0], box[:, 1] - box[:, 0]
        if bool((width > 0.6 * before).all()) or width[0] < 1e-9:
            break
        box = narrowed
    return grid, rss, step, box


def _at_limits(form: str, shape: Array, limits: Array) -> int:
    """Number of the shape's parameters that are at a limit."""
    near = 1e-6
    ends = [bool((np.abs(shape[0] - limits[0]) < near).any())]
    if form == "usl":
        ends.append(bool((np.abs(shape[1] - limits[1]) < near).any()))
    return sum(ends)


def _grid(form: str, box: Array) -> tuple[Array, Array]:
    """Shapes that fill the box, (cells, 2), and their steps; only usl has a second direction."""
    unit, steps = _UNIT_GRIDS[form == "usl"]
    width = box[:, 1] - box[:, 0]
    return box[:, 0] + unit * width, steps * width


def _residuals(form: str, evidence: Evidence, shapes: Array) -> tuple[Array, Array]:
    """ȳ − h and L − h, for every shape."""
    sizes = np.concatenate([evidence.sizes, evidence.bound_sizes])
    gains = log_gain(
        form, sizes, shapes, smallest=float(evidence.sizes[0]), largest=float(evidence.sizes[-1])
    )
    known = np.concatenate([evidence.log_rates, evidence.bound_logs]) - gains
    return known[:, : len(evidence.sizes)], known[:, len(evidence.sizes) :]


def _profile(form: str, evidence: Evidence, shapes: Array) -> tuple[Array, Array]:
    """The best scale of every shape and the RSS it leaves."""
    free, bounds = _residuals(form, evidence, shapes)
    weights, bound_weights = evidence.weights, evidence.bound_weights
    total = weights.sum()
    scale = free @ weights / total
    # Bounds that the curve would break pull it up; each round fewer of them are broken.
    for _ in range(len(bound_weights)):
        broken = bound_weights * (bounds > scale[:, None])
        raised = (free @ weights + (broken * bounds).sum(axis=1)) / (total + broken.sum(axis=1))
        if np.array_equal(raised, scale):
            break
        scale = raised
    rss = ((free - scale[:, None]) ** 2) @ weights + evidence.scatter
    if len(bound_weights):
        rss = rss + (np.maximum(bounds - scale[:, None], 0.0) ** 2) @ bound_weights
    return scale, rss


def _scale_range(form: str, evidence: Evidence, shapes: Array, limit: float) -> tuple[Array, Array]:
    """The lowest and the highest scale of each shape at which RSS is within the limit."""
    free, bounds = _residuals(form, evidence, shapes)
    scale, _ = _profile(form, evidence, shapes)
    ends = []
    for side in (-1.0, 1.0):
        end = scale
        for _ in range(len(evidence.bound_weights) + 1):
            broken: NDArray[np.float64] = evidence.bound_weights * (bounds > end[:, None])
            total = evidence.weights.sum() + broken.sum(axis=1)
            centre = (free @ evidence.weights + (broken * bounds).sum(axis=1)) / total
            left = (
                ((free - centre[:, None]) ** 2) @ evidence.weights
                + (broken * (bounds - centre[:, None]) ** 2).sum(axis=1)
                + evidence.scatter
            )
            end = centre + side * np.sqrt(np.maximum(limit - left, 0.0) / total)
        ends.append(end)
    return ends[0], ends[1]


def _refined(
    form: str, evidence: Evidence, shape: Array, step: Array, limits: Array
) -> tuple[Array, float, float]:
    """The best shape to many digits: a small grid around it, five times over."""
    for _ in range(_REFINEMENTS):
        box = np.clip(np.stack([shape - step, shape + step], axis=1), limits[:, :1], limits[:, 1:])
        grid, step = _grid(form, box)
        scale, rss = _profile(form, evidence, grid)
        best = best_of(grid, rss)
        shape = grid[best]
    return shape, float(scale[best]), float(rss[best])
