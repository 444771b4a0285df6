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
widened by d²/(e₁² + e₂²) (Birge 1932).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Self

import numpy as np

from ..arguments import Array, number, numbers, whole
from ..quantities import Interval, Json, Misuse, Unknown
from ..student_t import quantile_95
from .brackets import NOISE


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
        """The seven numbers, in order."""
        return [float(v) for v in astuple(self)]


INTERCEPT = 0.10
"""How far from the origin a worker's line may pass, in shares of its capacity, when only the prior says that
it passes through it. Judgement: an idle JVM takes a few percent of its CPU."""
PER_DOUBLING = 0.10
"""Error of scaling the workers seen to twice or half their number. Judgement: between a straight line and
x^0.85, the range that profiled jobs mostly fall in."""
FARTHEST = 2.0  # agreed: beyond twice or half the workers nothing is said
_MOST_CPU = 1.05  # sampling jitter; beyond it the values are percent
_FORGOTTEN = 1e-6
"""Samples' worth of weight below which a worker is dropped: after twenty half-lives. Judgement: every restart
of a job brings workers with new names, and the old ones would be kept for ever."""
_FLAT = 1e-12  # S_xx over n·x̄² below which CPU has not varied but for rounding

Samples = Mapping[Any, Any] | Sequence[Sequence[float]] | Array


class OnlineCapacity:
    """The running job's capacity from CPU (or busy share) and throughput of each worker.

    `update` and `merge` change the object and return it.
    """

    def __init__(self, *, half_life_s: float | None = None, prior_weight: float = 0.0) -> None:
        self.half_life_s = None if half_life_s is None else number("half_life_s", half_life_s, above=0.0)
        self.prior_weight = number("prior_weight", prior_weight, at_least=0.0)
        self._moments: dict[str, Moments] = {}
        self._workers: tuple[str, ...] = ()
        self._elapsed_s = 0.0

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers of the last update."""
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
        variance += (sum(line.prior_error for line in lines) * factor) ** 2
        variance += (PER_DOUBLING * math.log2(factor) * total) ** 2
        degrees = sum(line.degrees for line in lines)
        half = quantile_95(degrees if degrees >= 1.0 else 1.0) * math.sqrt(variance)
        return Interval(max(total - half, 0.0), total, total + half, 0.9)

    def movement(self) -> tuple[float, float]:
        """Standard deviation of throughput as a share of its mean, and its r² with CPU.

        Of the worker that shows it least. Scatter of the CPU itself flattens least squares by up to 1 − r²,
        which no standard error shows, and of a load that stands still all is scatter.
        """
        seen = [self._moments[w] for w in self._workers if w in self._moments]
        return (
            min((moments.movement for moments in seen), default=0.0),
            min((moments.agreement for moments in seen), default=0.0),
        )

    def _lines(self) -> list[_Line] | Unknown:
        if not self._workers:
            return Unknown("no worker took part in the last update")
        present = {w: self._moments[w] for w in self._workers}
        if silent := [w for w, m in present.items() if m.weight == 0.0]:
            return Unknown(f"no sample of worker {', '.join(silent)} yet: wait for its first")
        hottest = max(m.mean_x for m in present.values())
        if hottest <= 0.0:
            return Unknown("no worker has used any CPU yet: capacity shows only under load")
        common = _common_noise(list(present.values()))
        lines = []
        for worker, moments in present.items():
            line = _line(worker, moments, moments.mean_x / hottest, self.prior_weight, common)
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
        """Everything learnt, as plain JSON."""
        return {
            "schema": 1,
            "model": "online capacity",
            "half_life_s": self.half_life_s,
            "prior_weight": self.prior_weight,
            "elapsed_s": self._elapsed_s,
            "workers": list(self._workers),
            "moments": {w: m.to_list() for w, m in self._moments.items()},
        }

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """The same again; it goes on learning where it stopped."""
        if data.get("schema") != 1 or data.get("model") != "online capacity":
            raise Misuse("data", f"is not an online capacity of schema 1: {data.get('model')!r}")
        result = cls(half_life_s=data["half_life_s"], prior_weight=data["prior_weight"])
        result._elapsed_s = float(data["elapsed_s"])
        result._workers = tuple(data["workers"])
        result._moments = {w: Moments(*values) for w, values in data["moments"].items()}
        return result


@dataclass(frozen=True)
class _Line:
    """One worker's capacity, its own variance, and what the prior may be wrong by."""

    rate: float
    variance: float
    prior_error: float
    degrees: float


def _line(worker: str, seen: Moments, cpu: float, prior_weight: float, common: float) -> _Line | Unknown:
    if seen.mean_y == 0.0:
        return _Line(0.0, 0.0, 0.0, 0.0)  # carries nothing, as one without a partition, and adds nothing
    spread = seen.s_xx if seen.s_xx > _FLAT * seen.weight * seen.mean_x**2 else 0.0
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
    per_sample = seen.weight_squared / seen.weight
    own = 1.0 / seen.samples
    if spread > 0.0:
        own += (away * (1.0 - share)) ** 2 * per_sample / spread
    prior_error = share * INTERCEPT * rate * abs(away) / seen.mean_x if seen.mean_x > 0.0 else 0.0
    return _Line(rate, noise * own, prior_error, degrees)


def _common_noise(workers: Sequence[Moments]) -> float:
    """Relative residual variance over all workers, or −1: for those too new to have their own."""
    total, degrees = 0.0, 0.0
    for m in workers:
        own = m.samples - 2.0
        if own >= 1.0 and m.mean_y > 0.0 and m.s_xx > _FLAT * m.weight * m.mean_x**2:
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
    v1, v2 = _error(profiled) ** 2, _error(live) ** 2
    apart = (y1 - y2) ** 2
    if was_probed == is_running:
        widened = max(1.0, apart / (v1 + v2))
        v1, v2 = v1 * widened, v2 * widened
    elif was_probed:
        v2 += apart
    else:
        v1 += apart
    mid = (y1 * v2 + y2 * v1) / (v1 + v2)
    half = _NORMAL * math.sqrt(v1 * v2 / (v1 + v2))
    return Interval(math.exp(mid - half), math.exp(mid), math.exp(mid + half), profiled.confidence)


def _error(interval: Interval) -> float:
    """The standard error in logs that the wider side of a 90 % interval stands for."""
    above = math.log(interval.high / interval.mid)
    below = math.log(interval.mid / interval.low) if interval.low > 0.0 else above
    return max(above, below, _LEAST_ERROR) / _NORMAL
