"""Capacity curve without an assumed form: where none of the forms fits, and for the search's next probe.

One Gaussian process over log T, so that a probe at one scale-out says something about the others, and as much
as the data allow: with x = log(effective slots), so that
scale-outs that keep as many slots busy are one,

    log T(s) = guess(s) + b0 + b1·x + g(x) + h(s)
    g smooth (squared exponential, amplitude a), h rough (independent per number of slots, deviation t)
    a saturated probe:  log throughput = log T(s) + noise,   deviation n
    a sustained probe:  its rate is a lower bound,           P = logistic(1.702 (log T - log rate) / n)

g bends the line into sqrt, log and contention curves; h carries what is in no family, such as a staircase
that was not declared. a, t and n are not chosen but averaged over a grid by how well they explain the results
(Laplace evidence), so an estimate leans on its neighbours where the curve is smooth, on its own probes where
it is not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arguments import Array
from ..quantities import Interval

LEVEL_DEVIATION = 10.0  # of b0 without a guess: any unit of work, any cluster
GUESSED_LEVEL_DEVIATION = 0.4  # with one: a single-slot run is right within a factor of two; judgement
SLOPE, SLOPE_DEVIATION = (
    0.8,
    0.4,
)  # of b1: between no gain (0) and linear (1), with room on both sides; judgement
GUESSED_SLOPE_DEVIATION = 0.3  # of b1 around a guess that already has its own slope; judgement
BEND_LENGTH = 1.0  # of g in log slots: a curve bends over about a factor of three; judgement
BENDS = (
    0.03,
    0.12,
    0.4,
)  # a: line in log-log; log and sqrt; strong contention (USL), from those curves over 3…24
ROUGH = (0.003, 0.02, 0.06, 0.15, 0.4)  # t: none … steps of a factor of two between neighbours
NOISES = (0.35, 0.6, 1.0, 1.7, 3.0)  # n as multiples of the noise expected of one probe
NOISE_DEVIATION = 0.5  # how far the real noise may be from the expected one, in log; judgement
LOGISTIC = 1.702  # the logistic function closest to the normal distribution's
CONFIDENCE, QUANTILE = 0.90, 1.645
NEWTON_STEPS, HALVINGS = 25, 6


@dataclass(frozen=True)
class Seen:
    """One result as the curve sees it."""

    slots: float
    rps: float
    sustained: bool
    relative_error: float = 0.0


@dataclass(frozen=True)
class SmoothCurve:
    """Log capacity at each number of slots: mean, deviation, and what one more probe there would settle."""

    log_mean: Array
    log_deviation: Array
    gain: Array
    """By how much one more probe there lowers the summed variance of log T."""


@dataclass(frozen=True)
class Expected:
    """What the search expects of one scale-out."""

    log_mean: float
    log_deviation: float
    gain: float
    """By how much one more probe here lowers the summed variance of log T over all scale-outs."""

    @property
    def mid_rps(self) -> float:
        """The most likely capacity."""
        return math.exp(self.log_mean)

    @property
    def interval(self) -> Interval:
        spread = min(QUANTILE * self.log_deviation, 300.0)
        mid = min(max(self.log_mean, -300.0), 300.0)
        return Interval(math.exp(mid - spread), math.exp(mid), math.exp(mid + spread), CONFIDENCE)


def fit_curve(
    wanted: Sequence[float], seen: Sequence[Seen], *, noise: float, guess: Mapping[float, float] | None = None
) -> SmoothCurve:
    """The capacity with each of these numbers of slots, as far as the results show it.

    `guess`: slots -> rate, where there is an idea before anything is measured.
    """
    slots = np.array(wanted)
    known = np.array(sorted({o.slots for o in seen}))
    centre = float(np.log(slots).mean())
    x, x_known = np.log(slots) - centre, np.log(known) - centre
    if guess:
        prior, prior_known = _guessed(slots, guess), _guessed(known, guess)
        level, slope_deviation = GUESSED_LEVEL_DEVIATION, GUESSED_SLOPE_DEVIATION
    else:
        start = float(np.mean([math.log(o.rps) for o in seen])) if seen else 0.0
        prior, prior_known = start + SLOPE * x, start + SLOPE * x_known
        level, slope_deviation = LEVEL_DEVIATION, SLOPE_DEVIATION
    grid = np.array(list(itertools.product(BENDS, ROUGH, NOISES)))
    bend, rough, multiple = (grid[:, i, None, None] for i in range(3))

    def covariance(a: Array, b: Array) -> Array:
        smooth = np.exp(-0.5 * ((a[:, None] - b) / BEND_LENGTH) ** 2)
        same = (np.abs(a[:, None] - b) < 1e-9).astype(float)
        line = level**2 + slope_deviation**2 * np.outer(a, b)
        return np.asarray(line + bend**2 * smooth + rough**2 * same)

    inside = covariance(x_known, x_known)
    deviation = noise * multiple[:, 0, 0]
    log_weight = -0.5 * (np.log(multiple[:, 0, 0]) / NOISE_DEVIATION) ** 2

    where: NDArray[np.intp] = np.searchsorted(known, [o.slots for o in seen])
    y = np.log([o.rps for o in seen])
    bounds = np.array([o.sustained for o in seen], dtype=bool)
    errors = np.maximum(deviation[:, None], np.array([o.relative_error for o in seen]))
    spread = np.eye(len(known))[where]
    weights, root, inner, evidence = _laplace(prior_known, inside, y, bounds, errors, where, spread)
    weight = np.exp(log_weight + evidence - np.max(log_weight + evidence))
    weight = weight / weight.sum()

    # Of what is asked: mean = prior + K* a, covariance = K** - K* W½ B⁻¹ W½ K*.
    across = covariance(x_known, x)
    half = root[:, :, None] * across
    posterior = covariance(x, x) - np.swapaxes(half, 1, 2) @ np.linalg.solve(inner, half)
    mean = prior + np.einsum("bij,bi->bj", across, weights)
    variance = np.maximum(np.diagonal(posterior, axis1=1, axis2=2), 1e-12)
    middle = weight @ mean
    total = weight @ (variance + (mean - middle) ** 2)
    settles = (posterior**2).sum(axis=1) / (variance + deviation[:, None] ** 2)
    return SmoothCurve(middle, np.sqrt(total), weight @ settles)


def _guessed(slots: Array, guess: Mapping[float, float]) -> Array:
    """Log rates by the guess; outside of it the nearest one grows with the slots to the usual power."""
    sizes = np.array(sorted(guess))
    rates = np.log([guess[s] for s in sizes.tolist()])
    beyond = np.log(slots / np.clip(slots, sizes[0], sizes[-1]))
    return np.asarray(np.interp(np.log(slots), np.log(sizes), rates) + SLOPE * beyond)


def _laplace(
    prior: Array,
    covariance: Array,
    y: Array,
    bounds: Array,
    errors: Array,
    where: NDArray[np.intp],
    spread: Array,
) -> tuple[Array, Array, Array, Array]:
    """Weights a = K⁻¹ (mode - prior), W½, B = I + W½ K W½ and log evidence, for the whole grid at once.

    Newton's method in the form of Rasmussen & Williams, algorithm 3.1; a step that does not help is halved,
    as the curvature of a bound that is far away vanishes and a full step would overshoot.
    """
    many, d = covariance.shape[:2]
    a, value = np.zeros((many, d)), np.full(many, -np.inf)
    f = np.broadcast_to(prior, (many, d)).copy()

    def likelihood(f: Array) -> tuple[Array, Array, Array]:
        z = (f[:, where] - y) / errors
        tail = np.exp(-np.logaddexp(0.0, LOGISTIC * z))  # 1 - P(sustained)
        log_p = np.where(
            bounds,
            -np.logaddexp(0.0, -LOGISTIC * z),
            -0.5 * z**2 - np.log(errors) - 0.5 * math.log(2.0 * math.pi),
        )
        first = np.where(bounds, LOGISTIC * tail, -z) / errors
        second = np.where(bounds, LOGISTIC**2 * tail * (1.0 - tail), 1.0) / errors**2
        return log_p.sum(axis=1), first @ spread, second @ spread

    log_p, first, second = likelihood(f)
    value = log_p.copy()
    for _ in range(NEWTON_STEPS):
        root = np.sqrt(second)
        b = second * (f - prior) + first
        inner = np.eye(d) + root[:, :, None] * covariance * root[:, None, :]
        pulled = root * np.einsum("bij,bj->bi", covariance, b)
        step = b - root * np.linalg.solve(inner, pulled[:, :, None])[:, :, 0] - a
        length = np.ones(many)
        for _ in range(HALVINGS):
            tried = a + length[:, None] * step
            f_tried = prior + np.einsum("bij,bj->bi", covariance, tried)
            log_p, first, second = likelihood(f_tried)
            reached = log_p - 0.5 * np.einsum("bi,bi->b", tried, f_tried - prior)
            worse = reached < value - 1e-9
            if not worse.any():
                break
            length = np.where(worse, 0.5 * length, length)
        moved = float(np.max(np.abs(reached - value)))
        a, f, value = tried, f_tried, reached
        if moved < 1e-6:
            break
    root = np.sqrt(second)
    inner = np.eye(d) + root[:, :, None] * covariance * root[:, None, :]
    evidence = value - 0.5 * np.linalg.slogdet(inner)[1]
    return a, root, inner, evidence
