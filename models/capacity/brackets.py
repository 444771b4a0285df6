"""Measurements of capacity merged by size, and the shapes that capacity can take over sizes.

A run that could not keep up measures the capacity itself, with noise; a run that kept up is a lower bound
of it. Noise is proportional to the rate, so everything is in logs:

    ȳ_j = Σ w_i log r_i / Σ w_i    over the saturated runs i at size j;   w = duration, of mean 1
    L_j = log of the highest sustained rate at size j, a bound from below

With a stated standard error e_i, w_i = (σ₀ r_i/e_i)² takes the place of the duration.

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

from ..arguments import Array, whole
from ..quantities import Measurement, Misuse

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


def effective_slots(scale_out: int, tasks: int | None) -> float:
    """Slots that are busy on average when `tasks` equal tasks run in ⌈tasks/s⌉ waves."""
    return float(scale_out) if tasks is None else tasks / math.ceil(tasks / scale_out)


NOISE = 0.03
"""σ₀: how far two probes of the same capacity are apart before anything was measured twice. Judgement: a
few percent on a shared machine. It counts as one observation, and only where the measurements leave
fewer than two degrees of freedom or the form open."""

CONTRADICTION = 0.10
"""How far a sustained rate may lie above a saturated one before one of the two must be wrong (agreed)."""

_SMALLEST_ERROR = 0.005  # relative; judgement: a capacity drifts by more than that from run to run


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
    )


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
