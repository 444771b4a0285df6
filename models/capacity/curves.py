"""Curves of capacity over the scale-out that the measurements allow, and their range at any scale-out.

With log rates ȳ_j of weight W_j at sizes x_j, bounds L_b of weight w_b, and a curve log T = c + h(x; u, φ):

    RSS(c, u, φ) = Σ W_j (ȳ_j − c − h(x_j))² + Σ w_b max(0, L_b − c − h(x_b))² + scatter within sizes
    allowed      = every curve with RSS ≤ RSS_min + t²·s²,     t = the 95 % quantile of Student's t
    interval(x)  = [min, max] of T(x) over the allowed curves, mid = the curve at RSS_min

For a form that is linear in its parameters this is exactly the t interval at 90 %; for the others it is
the profile likelihood interval, which neither leaves the form's limits nor needs a derivative. The
allowed set is the same for every x, so low, mid and high never fall where the curves rise.

**Measurements** are merged by size. A run that could not keep up measures the capacity itself, with noise;
a run that kept up is a lower bound of it. Noise is proportional to the rate, so everything is in logs:

    ȳ_j = Σ w_i log r_i / Σ w_i    over the saturated runs i at size j;   w = duration, of mean 1
    L_j = log of the highest sustained rate at size j, a bound from below

With a stated standard error e_i, w_i = (σ₀ r_i/e_i)² takes the place of the duration.

Noise may grow with the size, as x^γ: then w_i is divided by the mean of (x_j/x̄)^2γ over what γ may be, x̄ the
geometric mean of the sizes. So a γ that is not well known makes both ends count for less. It follows from how
the runs of each size scatter, Q_j with n_j − 1 degrees of freedom, where these are enough to show it:

    log p(γ) = −½ N log Σ Q_j x_j^(−2γ) − γ Σ (n_j − 1) log x_j − ½ (γ/GROWTH)²,     N = Σ (n_j − 1)

That γ is not known makes the noise at a size less sure than its degrees of freedom ν say: the log of a
variance with ν of them varies by 2/ν, and that of x^2γ is added. So t has ν' of them,

    1/ν' = 1/ν + ½·d,     d = 4 var γ · mean of log²(x_j/x̄)

**Forms.** Every form is a scale times a shape. The shape is pinned at the smallest and the largest measured
size, x₁ and x_m (effective slots), by u = log T(x_m)/T(x₁), so that the same u means the same measured gain
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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arguments import Array, whole
from ..quantities import Measurement, Misuse, quantile_95

FORMS = ("linear", "sqrt", "log1p", "power", "usl")
"""From the plainest to the richest; of forms that say the same the first is named."""

PARAMETERS: Mapping[str, int] = {"linear": 2, "sqrt": 2, "log1p": 2, "power": 2, "usl": 3}

STEEPEST = 1.5
"""No shape is steeper than x^1.5 over the measured range, nor below it. Judgement: speed-ups beyond
linear come from caches and are small; the room above 1 is for noise."""

_CURVES: Mapping[str, Callable[[Array], Array]] = {"linear": np.asarray, "sqrt": np.sqrt, "log1p": np.log1p}


def gain_limit(form: str, span: float) -> float:
    """The largest log gain over the measured range that this form allows."""
    return math.log(span) * (1.0 if form == "usl" else STEEPEST)


def log_gain(form: str, sizes: Array, shapes: Array, *, smallest: float, largest: float) -> Array:
    """Log of the capacity of each size over that of the smallest measured size, for each shape.

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


def effective_slots(scale_out: float, tasks: int | None) -> float:
    """Slots that are busy on average when `tasks` equal tasks run in ⌈tasks/s⌉ waves."""
    return float(scale_out) if tasks is None else tasks / math.ceil(tasks / scale_out)


NOISE = 0.03
"""σ₀: how far two probes of the same capacity are apart before anything was measured twice. Judgement: a
few percent on a shared machine. It counts as one observation, and only where the measurements leave
fewer than two degrees of freedom or the form open."""

CONTRADICTION = 0.10
"""How far a sustained rate may lie above a saturated one before one of the two must be wrong (agreed)."""

_LEAST_NOISE = 0.002  # of one run; judgement: equal rates come from rounding or a run that was counted twice
_SMALLEST_ERROR = 0.005  # relative; judgement: a capacity drifts by more than that from run to run


@dataclass(frozen=True)
class Growth:
    """How fast the noise may grow with the size: exponents γ, how likely each is, and x̄."""

    exponents: Array
    shares: Array
    centre: float
    doubt: float = 0.0
    """Variance of log x^2γ that is left, the mean over the sizes."""

    def variance(self, slots: float) -> float:
        """Of one run, over that of a run at x̄."""
        return float(self.shares @ (slots / self.centre) ** (2.0 * self.exponents))


STEADY = Growth(np.zeros(1), np.ones(1), 1.0)
"""Noise that does not grow."""


@dataclass(frozen=True)
class Evidence:
    """Saturated runs merged by size, in logs, and bounds from below."""

    sizes: Array  # effective slots, ascending, distinct
    log_rates: Array
    weights: Array  # summed over the runs of a size
    runs: Array  # how many there were
    scatter: float  # Σ w (log r − ȳ)² within sizes
    conflict: float  # variance by which bounds and estimates contradict each other
    errors_known: bool  # every weight comes from a stated standard error: variance = NOISE²/weight
    bound_sizes: Array
    bound_logs: Array
    bound_weights: Array
    scale_outs: tuple[int, ...]  # with a saturated run, ascending
    bounded: tuple[tuple[int, float], ...]  # (scale-out, highest sustained rate) with no saturated run
    growth: Growth

    @property
    def span(self) -> float:
        return float(self.sizes[-1] / self.sizes[0]) if len(self.sizes) else 1.0


def gather(given: tuple[Measurement, ...], *, tasks: int | None = None) -> Evidence:
    """Sort measurements into estimates and bounds; a contradiction is an error that names both rates."""
    weights, errors_known = _weights(given)
    estimates: dict[float, list[tuple[float, float]]] = {}
    bounds: dict[float, tuple[float, float]] = {}
    bounded: list[tuple[int, float]] = []
    conflict = 0.0
    saturated_at = sorted({m.scale_out for m in given if not m.sustained})
    for scale_out in sorted({m.scale_out for m in given}):
        here = [(m, w) for m, w in zip(given, weights, strict=True) if m.scale_out == scale_out]
        saturated = sorted((math.log(m.throughput_rps), w) for m, w in here if not m.sustained)
        sustained = [(m.throughput_rps, w) for m, w in here if m.sustained and m.throughput_rps > 0.0]
        slots = effective_slots(scale_out, tasks)
        if saturated:
            estimates.setdefault(slots, []).extend(saturated)
        if not sustained:
            continue
        highest = max(rate for rate, _ in sustained)
        bound = math.log(highest)
        weight = max(w for rate, w in sustained if rate == highest)
        if not saturated:
            bounded.append((scale_out, highest))
        else:
            total = math.fsum(w for _, w in saturated)
            estimate = math.fsum(w * y for y, w in saturated) / total
            gap = bound - estimate
            if gap > math.log1p(CONTRADICTION):
                raise Misuse(
                    "measurements",
                    f"at scale-out {scale_out} {highest:g} records/s were sustained, but the job was "
                    f"saturated at {math.exp(estimate):g}: {math.expm1(gap):.0%} apart, more than "
                    f"{CONTRADICTION:.0%}; one is wrong or out of date, leave it out or probe again",
                )
            if gap > 0.0:
                # The truth lies between the two: go the bound's share of the way, and count half the gap
                # as error of every such measurement.
                shift = gap * weight / (total + weight)
                moved = [(y + shift, w) for y, w in saturated]
                estimates[slots][-len(saturated) :] = moved
                conflict = max(conflict, (0.5 * gap) ** 2)
                continue
        if slots not in bounds or bound > bounds[slots][0]:
            bounds[slots] = (bound, weight)
    sizes = sorted(estimates)
    growth = STEADY if errors_known else _growth(estimates)
    estimates = {x: [(y, w / growth.variance(x)) for y, w in runs] for x, runs in estimates.items()}
    totals = [math.fsum(w for _, w in estimates[x]) for x in sizes]
    means = [
        math.fsum(w * y for y, w in sorted(estimates[x])) / total
        for x, total in zip(sizes, totals, strict=True)
    ]
    scatter = math.fsum(
        w * (y - mean) ** 2 for x, mean in zip(sizes, means, strict=True) for y, w in estimates[x]
    )
    bound_sizes = sorted(bounds)
    return Evidence(
        sizes=np.array(sizes),
        log_rates=np.array(means),
        weights=np.array(totals),
        runs=np.array([len(estimates[x]) for x in sizes]),
        scatter=scatter,
        conflict=conflict,
        errors_known=errors_known,
        bound_sizes=np.array(bound_sizes),
        bound_logs=np.array([bounds[x][0] for x in bound_sizes]),
        bound_weights=np.array([bounds[x][1] for x in bound_sizes]),
        scale_outs=tuple(saturated_at),
        bounded=tuple(bounded),
        growth=growth,
    )


FEWEST_TO_GROW = 8.0  # degrees of freedom; judgement: of fewer the most even sizes look precise by chance
GROWTH = 0.7  # judgement: noise that grows with the square root of the size, and faster, is nothing unusual


def _growth(estimates: Mapping[float, list[tuple[float, float]]]) -> Growth:
    """How fast the noise grows with the size, as far as repeated runs show it."""
    logs, degrees, scatter = [], [], []
    for x, runs in sorted(estimates.items()):
        if len(runs) > 1:
            total = math.fsum(w for _, w in runs)
            mean = math.fsum(w * y for y, w in sorted(runs)) / total
            logs.append(math.log(x))
            degrees.append(len(runs) - 1.0)
            scatter.append(math.fsum(w * (y - mean) ** 2 for y, w in sorted(runs)) + _LEAST_NOISE**2)
    if len(logs) < 2 or sum(degrees) < FEWEST_TO_GROW:
        return STEADY
    x, n, q = np.array(logs) - np.mean(logs), np.array(degrees), np.array(scatter)
    gamma = np.linspace(-1.0, 1.5, 51)
    log_p = -0.5 * n.sum() * np.log(np.exp(-2.0 * np.outer(gamma, x)) @ q) - gamma * float(n @ x)
    p = np.exp((log_p := log_p - 0.5 * (gamma / GROWTH) ** 2) - log_p.max())
    shares, every = p / p.sum(), np.log(sorted(estimates))
    doubt = 4.0 * float(shares @ (gamma - shares @ gamma) ** 2) * float(every.var())
    return Growth(gamma, shares, math.exp(every.mean()), doubt)


def checked(measurements: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """The measurements, each checked; a broken one is an error that names its place."""
    if isinstance(measurements, Measurement):
        raise Misuse("measurements", "must be a sequence of Measurement, got a single one")
    try:
        given = tuple(measurements)
    except TypeError:
        raise Misuse("measurements", f"must be a sequence of Measurement, got {measurements!r}") from None
    for m in given:
        if not isinstance(m, Measurement):
            raise Misuse("measurements", f"must be a sequence of Measurement, got an entry {m!r}")
        whole("measurements", m.scale_out)
        if m.sustained:
            continue
        if m.throughput_rps <= 0.0:
            raise Misuse(
                "measurements",
                f"at scale-out {m.scale_out} a saturated run shows 0 records/s: that is a broken probe, "
                "leave it out",
            )
        if m.origin == "profile" and 0.0 < m.offered_rps * (1.0 + CONTRADICTION) < m.throughput_rps:
            raise Misuse(
                "measurements",
                f"at scale-out {m.scale_out} {m.throughput_rps:g} records/s are called saturated, but only "
                f"{m.offered_rps:g} were offered: more cannot have come through, check the two rates",
            )
    return given


def _weights(given: tuple[Measurement, ...]) -> tuple[list[float], bool]:
    """Duration of each run over the mean, or the stated precision; a duration of 0 counts as the median."""
    stated = [m.duration_s for m in given if m.duration_s > 0.0]
    usual = float(np.median(stated)) if stated else 1.0
    durations = [m.duration_s if m.duration_s > 0.0 else usual for m in given]
    mean = math.fsum(durations) / len(durations) if durations else 1.0
    weights = [d / mean for d in durations]
    saturated = [m for m in given if not m.sustained]
    known = bool(saturated) and all(m.standard_error_rps is not None for m in saturated)
    for i, m in enumerate(given):
        if m.standard_error_rps is not None and m.throughput_rps > 0.0 and not m.sustained:
            relative = max(m.standard_error_rps / m.throughput_rps, _SMALLEST_ERROR)
            weights[i] = (NOISE / relative) ** 2
    return weights, known


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
    degrees = 1.0 / (1.0 / (prior + degrees) + 0.5 * evidence.growth.doubt)
    return Noise(variance + evidence.conflict, degrees)


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
