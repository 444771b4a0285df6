"""Capacity of the running workers, learnt while the job runs below its limit.

Per worker a line of throughput over CPU, y = a + b·x, from moments that add up exactly (`worker_moments`):

    b = S_xy / S_xx,     T_w = ȳ_w + b·(c_w − x̄_w),     c_w = x̄_w / max x̄,     T = Σ_w T_w

The hottest worker saturates first, at CPU 1; the others then stand at their share of it, *in proportion*
(Daedalus §3.1: the ratio of two workers' CPU stays, the difference grows with the load). A sample of age τ
weighs 2^(−τ/half-life). While CPU has hardly varied least squares is wild, so a prior puts phantom samples
"no CPU, no throughput" under the line: with weight λ and n samples they hold the share

    π = k / (S_xx + k),   k = x̄²·λn/(λ + n)

of the slope, nearly all at first and ever less as S_xx grows. Standard errors: the samples' own, of the
usual form s²·(1/n + (c − x̄)²/S_xx), and π times the error of the prior, INTERCEPT·T_w·(c − x̄)/x̄,
which is common to all workers and therefore added up before it is squared.

**What a line cannot show** widens the interval beyond its standard error:

    curvature     ± ½·CURVATURE·b·(c − x̄)²/x̄          throughput as CPU^(1 ± CURVATURE), common to all workers
    scatter of x  + b·(1/r² − 1)·(c − x̄)              least squares is too flat by up to r²
    the limit     down to the line at CPU max(LIMIT, highest seen)   unless the share given is what runs out

**Workers share a slope.** One that cannot tell by itself, with r² below `TELLS` or a falling line, takes the
fleet's slope, relative to its own means; the others keep theirs, so that a noisy one does not hide the sum:

    β = Σ S_xy/(x̄ȳ s²) / Σ S_xx/(x̄² s²),   T_w = ȳ_w·(1 + β·(c_w − x̄_w)/x̄_w)      s² relative, of each worker
    τ² = mean square of the others' own β_w around it: the error of taking it

What each worker has shown is kept in seven numbers that add up exactly.

Weighted moments of CPU x and throughput y; two sets join without error however the samples were split
(Chan, Golub & LeVeque 1983), with δ the difference of the means:

    W = W₁ + W₂     x̄ = x̄₁ + δ_x·W₂/W     S_xy = S_xy₁ + S_xy₂ + δ_x·δ_y·W₁W₂/W

Ageing multiplies W and every S by one factor, ΣW² by its square, and leaves the means alone.

`joined` combines what profiling says about a scale-out with what the running job shows.

Both speak in logs, with standard errors e₁ and e₂ taken from their 90 % intervals, d apart:

    log T̂ = (y₁/e₁² + y₂/e₂²) / (1/e₁² + 1/e₂²),     e² = 1 / (1/e₁² + 1/e₂²)

Where only one of the two has *observed* this scale-out, the difference is the other's error: e² + d² takes
the place of its e². Where both or neither have and d is more than the errors explain, both are
widened by d²/(e₁² + e₂²) (Birge 1932), and the interval holds both until a probe has settled it. Of each
interval the side counts that faces the other: a line that may end early says little against a lower profile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..arguments import Array, number, numbers, whole
from ..quantities import Interval, Json, Misuse, Unknown, quantile_95
from .curves import NOISE

if TYPE_CHECKING:
    from ..control.state import PredictsCapacity


@dataclass(frozen=True)
class Moments:
    """Weighted moments of (cpu, throughput) samples; the default is no sample at all."""

    weight: float = 0.0
    weight_squared: float = 0.0  # Σ w², for the effective number of samples
    mean_x: float = 0.0
    mean_y: float = 0.0
    s_xx: float = 0.0
    s_xy: float = 0.0
    s_yy: float = 0.0

    @classmethod
    def of(cls, x: Array, y: Array, weights: Array) -> Self:
        """Moments of one batch, by two passes."""
        total = float(weights.sum())
        if total <= 0.0:
            return cls()
        mean_x, mean_y = float(weights @ x) / total, float(weights @ y) / total
        dx, dy = x - mean_x, y - mean_y
        return cls(
            total,
            float(weights @ weights),
            mean_x,
            mean_y,
            float(weights @ (dx * dx)),
            float(weights @ (dx * dy)),
            float(weights @ (dy * dy)),
        )

    @property
    def movement(self) -> float:
        """Standard deviation of the throughput, as a share of its mean."""
        return math.sqrt(self.s_yy / self.weight) / self.mean_y if self.weight * self.mean_y > 0.0 else 0.0

    @property
    def agreement(self) -> float:
        """r²: how much of either's movement goes with the other's; 0 where one has not moved."""
        moved = self.s_xx * self.s_yy
        return self.s_xy**2 / moved if moved > 0.0 else 0.0

    def __add__(self, other: Moments) -> Moments:
        if self.weight == 0.0 or other.weight == 0.0:
            return other if self.weight == 0.0 else self
        total = self.weight + other.weight
        share = other.weight / total
        dx, dy = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        cross = self.weight * share
        return Moments(
            total,
            self.weight_squared + other.weight_squared,
            self.mean_x + dx * share,
            self.mean_y + dy * share,
            self.s_xx + other.s_xx + cross * dx * dx,
            self.s_xy + other.s_xy + cross * dx * dy,
            self.s_yy + other.s_yy + cross * dy * dy,
        )

    def aged(self, factor: float) -> Moments:
        """The same samples, every one worth `factor` of what it was."""
        if factor == 1.0 or self.weight * factor < 1e-200:  # long forgotten: no sample, not a tiny number
            return self if factor == 1.0 else Moments()
        return Moments(
            self.weight * factor,
            self.weight_squared * factor * factor,
            self.mean_x,
            self.mean_y,
            self.s_xx * factor,
            self.s_xy * factor,
            self.s_yy * factor,
        )

    @property
    def samples(self) -> float:
        """The number of equally weighted samples with the same information."""
        return self.weight**2 / self.weight_squared if self.weight_squared > 0.0 else 0.0

    def to_list(self) -> list[float]:
        return [float(v) for v in astuple(self)]


INTERCEPT = 0.10
"""How far from the origin a worker's line may pass, in shares of its capacity, when only the prior says that
it passes through it. Judgement: an idle JVM takes a few percent of its CPU."""
PER_DOUBLING = 0.10
"""Error of scaling the workers seen to twice or half their number. Judgement: between a straight line and
x^0.85, the range that profiled jobs mostly fall in."""
CURVATURE = 0.3
"""How far from 1 the exponent of throughput over CPU may be. Judgement: a record gets cheaper or dearer as
batches grow, by a tenth or two over a day."""
LIMIT = 0.5
"""A job that waits for look-ups or its broker ends at a lower CPU than 1: measured at two thirds, where slots
were never idle. Judgement: no lower than half."""
TELLS = (
    0.5  # r² from which a worker's own line counts; judgement: below it the slope is off by a factor of two
)
FARTHEST = 2.0  # agreed: beyond twice or half the workers nothing is said
_MOST_CPU = 1.05  # sampling jitter; beyond it the values are percent
_FORGOTTEN = 1e-6
"""Samples' worth of weight below which a worker is dropped: after twenty half-lives. Judgement: every restart
of a job brings workers with new names, and the old ones would be kept for ever."""
_FLAT = 1e-12  # S_xx over n·x̄² below which CPU has not varied but for rounding

Samples = Mapping[Any, Any] | Sequence[Sequence[float]] | Array


class OnlineCapacity:
    """The running job's capacity from CPU (or busy share) and throughput of each worker.

    `update` and `merge` change the object and return it. `limiting`: the share given is of what runs out
    first, as the busy share of an executor's slots is; the processor share alone may end below 1.
    """

    def __init__(
        self, *, half_life_s: float | None = None, prior_weight: float = 0.0, limiting: bool = False
    ) -> None:
        self.limiting = limiting
        self.half_life_s = None if half_life_s is None else number("half_life_s", half_life_s, above=0.0)
        self.prior_weight = number("prior_weight", prior_weight, at_least=0.0)
        self._moments: dict[str, Moments] = {}
        self._workers: tuple[str, ...] = ()
        self._elapsed_s = 0.0

    @property
    def workers(self) -> tuple[str, ...]:
        return self._workers

    def update(self, worker_cpu: Samples, worker_throughput_rps: Samples, *, step_s: float = 1.0) -> Self:
        """Learn rows of samples, oldest first, `step_s` apart; NaN is a sample that is missing."""
        step_s = number("step_s", step_s, above=0.0)
        cpu = _columns("worker_cpu", worker_cpu)
        throughput = _columns("worker_throughput_rps", worker_throughput_rps)
        if set(cpu) != set(throughput):
            odd = ", ".join(sorted(set(cpu) ^ set(throughput)))
            raise Misuse("worker_throughput_rps", f"must name the workers of worker_cpu; only in one: {odd}")
        rows = {len(column) for column in (*cpu.values(), *throughput.values())}
        if len(rows) > 1:
            raise Misuse("worker_cpu", f"every worker needs as many samples, got {sorted(rows)}")
        if high := [w for w, column in cpu.items() if bool((column > _MOST_CPU).any())]:
            raise Misuse("worker_cpu", f"must lie in 0…1, worker {high[0]} has {np.nanmax(cpu[high[0]]):g}")
        count = rows.pop() if rows else 0
        if cpu and not count:
            return self
        ages = step_s * np.arange(count - 1, -1, -1)
        weights = np.ones(count) if self.half_life_s is None else np.exp2(-ages / self.half_life_s)
        self._age(count * step_s)
        for worker, x in cpu.items():
            y = throughput[worker]
            there = ~(np.isnan(x) | np.isnan(y))
            batch = Moments.of(x[there], y[there], weights[there])
            self._moments[worker] = self._moments.get(worker, Moments()) + batch
        self._workers = tuple(cpu)
        return self

    def merge(self, other: OnlineCapacity) -> Self:
        """Add the samples of `other`, taken *after* those of this one; its workers are the current ones."""
        if not isinstance(other, OnlineCapacity):
            raise Misuse("other", f"must be an OnlineCapacity, got {other!r}")
        if (other.half_life_s, other.prior_weight) != (self.half_life_s, self.prior_weight):
            raise Misuse("other", "has another half-life or prior: its samples were weighed differently")
        if other.limiting != self.limiting:
            raise Misuse("other", "was given shares of another kind (limiting)")
        learnt, workers = dict(other._moments), other._workers
        self._age(other._elapsed_s)
        for worker, moments in learnt.items():
            self._moments[worker] = self._moments.get(worker, Moments()) + moments
        self._workers = workers or self._workers
        return self

    def total(self, scale_out: int | Unknown | None = None) -> Interval | Unknown:
        """Capacity of the current workers, or of `scale_out` such workers (90 % interval)."""
        if isinstance(scale_out, Unknown):
            return scale_out
        wanted = None if scale_out is None else whole("scale_out", scale_out)
        lines = self._lines()
        if isinstance(lines, Unknown):
            return lines
        count = len(lines)
        wanted = count if wanted is None else wanted
        if not count / FARTHEST <= wanted <= count * FARTHEST:
            return Unknown(
                f"{count} workers were seen, {wanted} are more than a factor of {FARTHEST:g} away: "
                "profile the job at that size"
            )
        factor = wanted / count
        total = sum(line.rate for line in lines) * factor
        if total <= 0.0:
            return Unknown("no worker has processed anything yet: capacity shows only under load")
        variance = sum(line.variance for line in lines) * factor**2
        variance += sum(line.common_error for line in lines) ** 2 * factor**2
        variance += (PER_DOUBLING * math.log2(factor) * total) ** 2
        degrees = sum(line.degrees for line in lines)
        half = math.hypot(
            quantile_95(degrees if degrees >= 1.0 else 1.0) * math.sqrt(variance),
            sum(line.bent for line in lines) * factor,
        )
        flat = sum(line.flat for line in lines) * factor
        low = total - half
        if not self.limiting:
            low = min(low, sum(line.shown for line in lines) * factor)
        return Interval(max(low, 0.0), total, total + math.hypot(half, flat), 0.9)

    def movement(self) -> tuple[float, float]:
        """Standard deviation of throughput as a share of its mean, and its r² with CPU.

        Of the worker in the middle. Scatter of the CPU itself flattens least squares by up to 1 − r²,
        which no standard error shows, and of a load that stands still all is scatter.
        """
        seen = [self._moments[w] for w in self._workers if w in self._moments]
        if not seen:
            return 0.0, 0.0
        return float(np.median([m.movement for m in seen])), float(np.median([m.agreement for m in seen]))

    def _lines(self) -> list[_Line] | Unknown:
        if not self._workers:
            return Unknown("no worker took part in the last update")
        present = {w: self._moments[w] for w in self._workers}
        if silent := [w for w, m in present.items() if m.weight == 0.0]:
            return Unknown(f"no sample of worker {', '.join(silent)} yet: wait for its first")
        hottest = max(m.mean_x for m in present.values())
        if hottest <= 0.0:
            return Unknown("no worker has used any CPU yet: capacity shows only under load")
        noise = _common_noise(list(present.values()))
        fleet = _fleet(list(present.values()))
        lines = []
        for worker, moments in present.items():
            cpu = moments.mean_x / hottest
            line = _line(worker, moments, cpu, self.prior_weight, noise)
            if isinstance(fleet, Slope) and moments.mean_y > 0.0 and not _tells(moments):
                line = _by_the_fleet(moments, cpu, fleet)
            if isinstance(line, Unknown):
                return line
            lines.append(line)
        return lines

    def _age(self, by_s: float) -> None:
        self._elapsed_s += by_s
        if self.half_life_s is not None:
            factor = math.exp2(-by_s / self.half_life_s)
            aged = {w: m.aged(factor) for w, m in self._moments.items()}
            self._moments = {w: m for w, m in aged.items() if m.weight > _FORGOTTEN}

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "model": "online capacity",
            "half_life_s": self.half_life_s,
            "prior_weight": self.prior_weight,
            "limiting": self.limiting,
            "elapsed_s": self._elapsed_s,
            "workers": list(self._workers),
            "moments": {w: m.to_list() for w, m in self._moments.items()},
        }

    @classmethod
    def from_json(cls, data: Json) -> Self:
        if data.get("schema") != 1 or data.get("model") != "online capacity":
            raise Misuse("data", f"is not an online capacity of schema 1: {data.get('model')!r}")
        result = cls(
            half_life_s=data["half_life_s"],
            prior_weight=data["prior_weight"],
            limiting=data.get("limiting", True),  # before it was written, only busy shares were stored
        )
        result._elapsed_s = float(data["elapsed_s"])
        result._workers = tuple(data["workers"])
        result._moments = {w: Moments(*values) for w, values in data["moments"].items()}
        return result


@dataclass(frozen=True)
class _Line:
    """One worker's capacity, its own variance, and the errors that it shares with the other workers."""

    rate: float
    variance: float = 0.0
    common_error: float = 0.0  # of the prior or of the fleet's slope
    degrees: float = 0.0
    bent: float = 0.0  # by curvature, either way
    flat: float = 0.0  # by scatter of the CPU, upwards
    shown: float = 0.0  # what it carries at the lowest CPU at which something else may end it


def _line(worker: str, seen: Moments, cpu: float, prior_weight: float, common: float) -> _Line | Unknown:
    if seen.mean_y == 0.0:
        return _Line(0.0)  # carries nothing, as one without a partition, and adds nothing
    spread = seen.s_xx if _has_moved(seen) else 0.0
    pulled = seen + Moments(prior_weight) if prior_weight > 0.0 else seen
    prior_spread = pulled.s_xx - seen.s_xx
    if spread + prior_spread <= 0.0:
        return Unknown(
            f"the CPU of worker {worker} has not varied, so nothing shows how throughput rises with it: "
            "wait for the load to change, or give a prior_weight"
        )
    slope = pulled.s_xy / pulled.s_xx
    rate = pulled.mean_y + slope * (cpu - pulled.mean_x)
    if slope <= 0.0 or rate <= 0.0:
        return Unknown(
            f"the throughput of worker {worker} does not rise with its CPU ({slope:.3g} records/s per core): "
            "CPU is not what limits this job, use the busy share"
        )
    degrees = seen.samples - 2.0
    if degrees >= 1.0 and spread > 0.0:
        left = max(seen.s_yy - seen.s_xy**2 / seen.s_xx, 0.0) / seen.weight
        noise = left * seen.samples / degrees
    elif common >= 0.0:
        noise, degrees = common * seen.mean_y**2, 0.0
    elif prior_weight > 0.0:
        noise, degrees = (NOISE * seen.mean_y) ** 2, 0.0
    else:
        return Unknown(
            f"worker {worker} has {seen.samples:.2g} samples: too few to tell how far they scatter"
        )
    share = prior_spread / pulled.s_xx
    away = cpu - seen.mean_x
    own = 1.0 / seen.samples
    if spread > 0.0:
        own += (away * (1.0 - share)) ** 2 * seen.weight_squared / seen.weight / spread
    prior_error = share * INTERCEPT * rate * abs(away) / seen.mean_x if seen.mean_x > 0.0 else 0.0
    flat = (1.0 - share) * slope * (1.0 / seen.agreement - 1.0) * away if seen.agreement > 0.0 else 0.0
    return _drawn(seen, cpu, slope, rate, noise * own, prior_error, degrees, max(flat, 0.0))


def _drawn(
    seen: Moments,
    cpu: float,
    slope: float,
    rate: float,
    variance: float,
    common_error: float,
    degrees: float,
    flat: float,
) -> _Line:
    """A line with the errors that its samples cannot show."""
    away = cpu - seen.mean_x
    bent = 0.5 * CURVATURE * slope * away**2 / seen.mean_x if seen.mean_x > 0.0 else 0.0
    highest = seen.mean_x + 2.0 * math.sqrt(seen.s_xx / seen.weight)
    shown = rate - slope * max(cpu - max(LIMIT * cpu, highest), 0.0)
    return _Line(rate, variance, common_error, degrees, bent, flat, max(shown, 0.0))


@dataclass(frozen=True)
class Slope:
    """Relative slope β = b·x̄/ȳ shared by the workers, its standard error, and τ: how far theirs differ."""

    mid: float
    error: float
    apart: float


def _has_moved(seen: Moments) -> bool:
    return seen.s_xx > _FLAT * seen.weight * seen.mean_x**2


def _tells(seen: Moments) -> bool:
    """Whether a worker's own line counts."""
    return seen.samples >= 3.0 and _has_moved(seen) and seen.s_xy > 0.0 and seen.agreement >= TELLS


def _fleet(workers: Sequence[Moments]) -> Slope | None:
    """The slope that the workers share, if some of them tell."""
    telling = [m for m in workers if _tells(m)]
    if not telling:
        return None
    own = np.array([m.s_xy / m.s_xx * m.mean_x / m.mean_y for m in telling])
    left = np.array([max(m.s_yy - m.s_xy**2 / m.s_xx, 0.0) / m.mean_y**2 for m in telling])
    spread = np.array([m.s_xx / m.mean_x**2 for m in telling])
    degrees = np.array([m.samples - 2.0 for m in telling])
    errors = np.maximum(left / degrees / spread, 1e-12)
    mid = float(np.sum(own / errors) / np.sum(1.0 / errors))
    apart = float(np.mean((own - mid) ** 2)) if len(own) > 1 else (INTERCEPT * mid) ** 2
    return Slope(mid, math.sqrt(1.0 / float(np.sum(1.0 / errors))), math.sqrt(apart))


def _by_the_fleet(seen: Moments, cpu: float, fleet: Slope) -> _Line:
    """A worker that cannot tell by itself: its own means, and the slope of the others."""
    ahead = (cpu - seen.mean_x) / seen.mean_x
    rate = max(seen.mean_y * (1.0 + fleet.mid * ahead), 0.0)
    slope = fleet.mid * seen.mean_y / seen.mean_x
    left = max(seen.s_yy - 2.0 * slope * seen.s_xy + slope**2 * seen.s_xx, 0.0) / seen.weight
    variance = left / max(seen.samples - 1.0, 1.0) + (seen.mean_y * ahead * fleet.apart) ** 2
    return _drawn(seen, cpu, slope, rate, variance, seen.mean_y * abs(ahead) * fleet.error, 0.0, 0.0)


def _common_noise(workers: Sequence[Moments]) -> float:
    """Relative residual variance over all workers, or −1: for those too new to have their own."""
    total, degrees = 0.0, 0.0
    for m in workers:
        own = m.samples - 2.0
        if own >= 1.0 and m.mean_y > 0.0 and _has_moved(m):
            total += max(m.s_yy - m.s_xy**2 / m.s_xx, 0.0) / m.weight * m.samples / m.mean_y**2
            degrees += own
    return total / degrees if degrees > 0.0 else -1.0


def _columns(argument: str, samples: Samples) -> dict[str, Array]:
    """worker -> its samples, oldest first; a single number is one sample."""
    if isinstance(samples, Mapping):
        columns = {
            str(worker): np.atleast_1d(
                numbers(f"{argument}[{worker!r}]", column, at_least=0.0, missing_allowed=True)
            )
            for worker, column in samples.items()
        }
        if flat := [w for w, column in columns.items() if column.ndim != 1]:
            raise Misuse(argument, f"worker {flat[0]} needs a number or a sequence of numbers")
        return columns
    table = numbers(argument, samples, at_least=0.0, missing_allowed=True)
    if table.ndim != 2:
        raise Misuse(
            argument, f"must be worker -> samples or an (n, workers) array, got {table.ndim} dimensions"
        )
    return {str(i): table[:, i] for i in range(table.shape[1])}


_NORMAL = quantile_95(math.inf)
_LEAST_ERROR = 0.01
"""Relative. Judgement: samples a second apart are less independent than they are counted, and a capacity
drifts by as much between the day it was profiled and today."""
_LARGEST_ERROR = 20.0  # in logs: knows nothing


def joined(
    profiled: Interval | Unknown, live: Interval | Unknown, *, was_probed: bool, is_running: bool
) -> Interval | Unknown:
    """One interval from those of profiling and of the live job.

    `was_probed`, `is_running`: which of the two has observed this size.
    """
    if isinstance(profiled, Unknown) and isinstance(live, Unknown):
        return Unknown(f"profile: {profiled.reason}; live: {live.reason}")
    if isinstance(profiled, Unknown) or isinstance(live, Unknown):
        return live if isinstance(profiled, Unknown) else profiled
    y1, y2 = math.log(profiled.mid), math.log(live.mid)
    v1, v2 = _error(profiled, towards=live.mid) ** 2, _error(live, towards=profiled.mid) ** 2
    apart = (y1 - y2) ** 2
    disagree = 0.0
    if was_probed == is_running:
        widened = max(1.0, apart / (v1 + v2))
        disagree = abs(y1 - y2) if widened > _NORMAL**2 else 0.0
        v1, v2 = v1 * widened, v2 * widened
    elif was_probed:
        v2 += apart
    else:
        v1 += apart
    mid = (y1 * v2 + y2 * v1) / (v1 + v2)
    half = _NORMAL * math.sqrt(v1 * v2 / (v1 + v2))
    low, high = mid - half, mid + half
    if disagree:
        low, high = min(low, y1, y2), max(high, y1, y2)
    return Interval(math.exp(low), math.exp(mid), math.exp(high), profiled.confidence)


def _error(interval: Interval, *, towards: float) -> float:
    """The standard error in logs that one side of a 90 % interval stands for."""
    if towards < interval.mid:
        side = math.log(interval.mid / interval.low) if interval.low > 0.0 else math.inf
    else:
        side = math.log(interval.high / interval.mid)
    return min(max(side, _LEAST_ERROR), _LARGEST_ERROR) / _NORMAL


MOVED = 0.10
"""Of the mean rate. Judgement: a load that stands still shows nothing but the scatter of its samples."""


TOGETHER = 0.9
"""Judgement: then the line is too flat by a tenth at most."""


def said_live(online: OnlineCapacity, scale_out: int) -> Interval | Unknown:
    """Capacity that the workers show; Unknown until the load has moved enough."""
    moved, together = online.movement()
    if moved < MOVED or together < TOGETHER:
        return Unknown(
            f"the load has moved by {moved:.0%} (r² of the workers' shares {together:.2f}): a line needs "
            f"{MOVED:.0%} and {TOGETHER:g}"
        )
    return online.total(scale_out)


@dataclass(frozen=True)
class LiveCapacity:
    """The profile's capacity, corrected by what the running workers show."""

    profile: PredictsCapacity
    online: OnlineCapacity

    def predict(self, scale_out: int) -> Interval | Unknown:
        """Capacity at this size; Unknown where the profile's is."""
        profiled = self.profile.predict(scale_out)
        if isinstance(profiled, Unknown):
            return profiled
        return joined(
            profiled,
            said_live(self.online, scale_out),
            was_probed=scale_out in _probed(self.profile),
            is_running=scale_out == len(self.online.workers),
        )


def _probed(profile: Any) -> tuple[int, ...]:
    """The sizes that were saturated when the job was profiled."""
    model = getattr(profile, "sustained", profile)
    return tuple(getattr(model, "saturated_at", ()))
