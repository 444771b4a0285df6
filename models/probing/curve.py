"""The capacity of each scale-out, given everything that the probes of a search have shown so far.

One Gaussian process over log T, so that a probe at one scale-out says something about the others, and as much
as the data allow: with x = log(effective slots),

    log T(s) = guess(s) + b0 + b1·x + g(x) + h(s)
    g smooth (squared exponential, amplitude a), h rough (independent per scale-out, deviation t)
    a saturated probe:  log throughput = log T(s) + noise,   deviation n
    a sustained probe:  its rate is a lower bound,           P = logistic(1.702 (log T - log rate) / n)
    an earlier result:  both, plus a shift common to all earlier results and one of its own, for drift

g bends the line into sqrt, log and contention curves; h carries what is in no family, such as a staircase
that was not declared. a, t and n are not chosen but averaged over a grid by how well they explain the results
(Laplace evidence), so an estimate leans on its neighbours where the curve is smooth, on its own probes where
it is not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ..arguments import Array
from ..quantities import Interval
from .state import State, believed

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

    scale_out: int
    rps: float
    sustained: bool
    earlier: bool = False
    relative_error: float = 0.0


@dataclass(frozen=True)
class Curve:
    """Log capacity at each scale-out: mean, deviation, and what one more probe anywhere would settle."""

    scale_outs: tuple[int, ...]
    log_mean: Array
    log_deviation: Array
    gain: Array
    """For each scale-out, by how much one more probe there lowers the summed variance of log T."""

    def interval(self, scale_out: int) -> Interval:
        """The capacity there, 90 %."""
        i = self.scale_outs.index(scale_out)
        spread = min(QUANTILE * float(self.log_deviation[i]), 300.0)
        mid = float(np.clip(self.log_mean[i], -300.0, 300.0))
        return Interval(math.exp(mid - spread), math.exp(mid), math.exp(mid + spread), CONFIDENCE)


def effective_slots(scale_out: int, tasks: int | None) -> float:
    """How many executors' worth of work fits: tasks run in ceil(tasks / s) waves, so s alone misleads."""
    return float(scale_out) if tasks is None else tasks / math.ceil(tasks / scale_out)


def fit_curve(
    scale_outs: Iterable[int],
    seen: Iterable[Seen],
    *,
    noise: float,
    drift: float,
    tasks: int | None = None,
    guess: Mapping[int, float] | None = None,
) -> Curve:
    """The capacity at each of these scale-outs, as far as the results show it."""
    wanted = tuple(scale_outs)
    seen = tuple(seen)
    # A coordinate is log T now, or what an earlier session would have called it.
    coordinates = [(s, False) for s in wanted]
    coordinates += sorted({(o.scale_out, o.earlier) for o in seen} - set(coordinates))
    at = {c: i for i, c in enumerate(coordinates)}
    sizes = np.array([s for s, _ in coordinates])
    earlier = np.array([e for _, e in coordinates])
    x = np.log([effective_slots(s, tasks) for s in sizes.tolist()])
    x = x - x[: len(wanted)].mean()
    if guess:
        prior = np.interp(np.log(sizes), *_logs(guess)) + np.array(
            [_beyond(int(s), guess, tasks) for s in sizes]
        )
        level, slope_deviation = GUESSED_LEVEL_DEVIATION, GUESSED_SLOPE_DEVIATION
    else:
        start = float(np.mean([math.log(o.rps) for o in seen])) if seen else 0.0
        prior, level, slope_deviation = start + SLOPE * x, LEVEL_DEVIATION, SLOPE_DEVIATION
    grid = np.array(list(itertools.product(BENDS, ROUGH, NOISES)))
    bend, rough, multiple = (grid[:, i, None, None] for i in range(3))
    smooth = np.exp(-0.5 * ((x[:, None] - x) / BEND_LENGTH) ** 2)
    same = (sizes[:, None] == sizes).astype(float)
    line = level**2 + slope_deviation**2 * np.outer(x, x)
    shift = 0.5 * drift**2 * (np.outer(earlier, earlier) + np.diag(earlier))
    covariance = line + shift + bend**2 * smooth + rough**2 * same
    deviation = noise * multiple[:, 0, 0]
    log_weight = -0.5 * (np.log(multiple[:, 0, 0]) / NOISE_DEVIATION) ** 2

    where = np.array([at[o.scale_out, o.earlier] for o in seen], dtype=int)
    y = np.log([o.rps for o in seen])
    bounds = np.array([o.sustained for o in seen], dtype=bool)
    errors = np.maximum(deviation[:, None], np.array([o.relative_error for o in seen]))
    spread = np.eye(len(coordinates))[where] if seen else np.zeros((0, len(coordinates)))
    mean, root, inner, evidence = _laplace(prior, covariance, y, bounds, errors, where, spread)
    weight = np.exp(log_weight + evidence - np.max(log_weight + evidence))
    weight = weight / weight.sum()

    # Posterior covariance: K - K W½ B⁻¹ W½ K.
    half = root[:, :, None] * covariance
    posterior = covariance - np.swapaxes(half, 1, 2) @ np.linalg.solve(inner, half)
    k = len(wanted)
    variance = np.maximum(np.diagonal(posterior, axis1=1, axis2=2)[:, :k], 1e-12)
    middle = weight @ mean[:, :k]
    total = weight @ (variance + (mean[:, :k] - middle) ** 2)
    settles = (posterior[:, :k, :k] ** 2).sum(axis=1) / (variance + deviation[:, None] ** 2)
    return Curve(wanted, middle, np.sqrt(total), weight @ settles)


def _logs(guess: Mapping[int, float]) -> tuple[Array, Array]:
    sizes = sorted(guess)
    return np.log(np.array(sizes, dtype=float)), np.log(np.array([guess[s] for s in sizes]))


def _beyond(size: int, guess: Mapping[int, float], tasks: int | None) -> float:
    """Outside what was guessed, the nearest guess grows with the slots to the usual power."""
    nearest = min(max(size, min(guess)), max(guess))
    return SLOPE * math.log(effective_slots(size, tasks) / effective_slots(nearest, tasks))


def _laplace(
    prior: Array, covariance: Array, y: Array, bounds: Array, errors: Array, where: Array, spread: Array
) -> tuple[Array, Array, Array, Array]:
    """Posterior mode, W½, B = I + W½ K W½ and log evidence, for the whole grid at once.

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
    return f, root, inner, evidence


SURPRISE = (
    0.15  # in log T: four deviations of what 3 % noise leaves around a line through two others; judgement
)


def informative(state: State) -> bool:
    """Whether there is anything to predict a capacity from."""
    return bool(
        state.settings.guesses
        or any(not m.sustained for m in state.known)
        or any(r.clear for s in state.settings.scale_outs for r in believed(state.valid(s)))
    )


def curve_of(state: State, scale_outs: Iterable[int] | None = None) -> Curve:
    """Everything known about the capacities, at these scale-outs (default: those of the search)."""
    settings = state.settings
    seen = [
        Seen(
            scale_out=m.scale_out,
            rps=m.throughput_rps,
            sustained=m.sustained,
            earlier=True,
            relative_error=(m.standard_error_rps or 0.0) / m.throughput_rps,
        )
        for m in state.known
    ]
    seen += [
        Seen(
            scale_out=s,
            rps=r.value_rps,
            sustained=r.sustained,
            relative_error=(r.standard_error_rps or 0.0) / r.value_rps,
        )
        for s in settings.scale_outs
        for r in believed(state.valid(s))
    ]
    return fit_curve(
        settings.scale_outs if scale_outs is None else scale_outs,
        seen,
        noise=settings.noise,
        drift=settings.drift,
        tasks=settings.tasks,
        guess=dict(settings.guesses),
    )


def likely(curve: Curve) -> dict[int, float]:
    """The most likely capacities."""
    return {s: middle(curve, s) for s in curve.scale_outs}


def largest(curve: Curve) -> float:
    """Upper end of the largest capacity."""
    return max(curve.interval(s).high for s in curve.scale_outs)


def surprising(state: State) -> dict[int, float]:
    """Scale-outs measured once that lie off the line through their neighbours -> what that line says.

    Off by more than noise: a step of the curve, or one probe that was wrong without showing it.
    Most surprising first.
    """
    slots: list[float] = []
    logs: list[float] = []
    once: list[int] = []
    sizes = [s for s in state.settings.scale_outs if state.has_value(s)]
    for size in sizes:
        values = [r.value_rps for r in believed(state.valid(size)) if not r.sustained]
        slots.append(math.log(effective_slots(size, state.settings.tasks)))
        logs.append(math.fsum(map(math.log, values)) / len(values))
        once += [size] if len(values) == 1 else []
    off: dict[int, tuple[float, float]] = {}
    for i, size in enumerate(sizes):
        nearest = sorted((j for j in range(len(sizes)) if j != i), key=lambda j: abs(j - i))[:2]
        if size not in once or len(nearest) < 2:
            continue
        a, b = nearest
        if slots[a] == slots[b]:
            continue
        line = logs[a] + (logs[b] - logs[a]) * (slots[i] - slots[a]) / (slots[b] - slots[a])
        if abs(logs[i] - line) > SURPRISE:
            off[size] = abs(logs[i] - line), math.exp(line)
    return {s: off[s][1] for s in sorted(off, key=lambda s: -off[s][0])}


def middle(curve: Curve, scale_out: int) -> float:
    """The most likely capacity there."""
    return math.exp(float(curve.log_mean[curve.scale_outs.index(scale_out)]))
