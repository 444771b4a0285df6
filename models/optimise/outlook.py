"""What happens from now on, draw by draw: which load, which capacity, which downtime, which recovery?

One draw is a path of the forecast with a capacity for every size and a downtime for every kind of event. All
sizes are looked at on the same draws, so that they differ by what they are and not by luck.

What might the capacity be, draw by draw?

An interval (low, mid, high) at confidence c becomes a split log-normal that has exactly these quantiles:

    T_p = mid · (high / mid)^{z_p / z_c}  for z_p ≥ 0,     mid · (low / mid)^{−z_p / z_c}  for z_p < 0

with z_c the normal quantile of (1 + c)/2 and z_p evenly spaced normal quantiles in a fixed shuffled order.
The same z serves every scale-out: that the model is off, it is off in the same direction everywhere, and two
candidates must not differ by luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from statistics import NormalDist

import numpy as np

from ..arguments import Array, whole
from ..promise import Input, backlog_records
from ..quantities import Interval, Unknown
from .engine import Engine, largest_bin_mean
from .question import Question
from .verdict import Recoveries, rate

SUREST = 0.9999  # judgement: an interval that claims certainty is read as this


def normal_draws(count: int, *, seed: int) -> Array:
    """Evenly spaced quantiles of the normal distribution, shuffled by the seed: no luck in the tails."""
    n = whole("count", count)
    quantile = NormalDist().inv_cdf
    z = np.array([quantile((i + 0.5) / n) for i in range(n)])
    # a stream of its own: the downtimes are drawn with the plain seed
    return np.random.default_rng([whole("seed", seed, at_least=0), 1]).permutation(z)


def capacity_draws(intervals: Sequence[Interval], z: Array) -> Array:
    """One capacity per interval and draw: (intervals, draws)."""
    low, mid, high = (np.array([[getattr(i, end)] for i in intervals]) for end in ("low", "mid", "high"))
    zc = np.array([[NormalDist().inv_cdf((1 + min(i.confidence, SUREST)) / 2)] for i in intervals])
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.log(np.maximum(low, 0.0) / mid) * -np.minimum(z, 0.0)
        above = np.log(high / mid) * np.maximum(z, 0.0)
        drawn = mid * np.exp(np.where(z < 0, below, above) / zc)
    result: Array = np.where(mid > 0, drawn, 0.0)
    return result


FIGURES_REACH = (1.5, 5.0)  # targets; judgement: far enough to say by how much a promise is missed
PHASES = 2  # the stream of random numbers for the moment within a batch


class Outlook:
    """The draws for one question."""

    def __init__(
        self, question: Question, *, engine: Engine, observed_rps: float, lag_records: float
    ) -> None:
        forecast = question.forecast
        assert not isinstance(forecast, Unknown)
        self.question, self.engine = question, engine
        self.observed_rps, self.lag_records, self.step_s = observed_rps, lag_records, float(forecast.step_s)
        self.arrivals = question.arrivals
        self.peaks: Array = self.arrivals.max(axis=1)
        past = np.full(len(self.arrivals), self.observed_rps)
        self.input = Input(self.arrivals, step_s=self.step_s, past_rps=past)
        mid = np.asarray(forecast.mid, dtype=np.float64)[: self.arrivals.shape[1]]
        self.projected_rps = float(largest_bin_mean(mid))
        paths = len(self.arrivals)
        z = normal_draws(paths, seed=question.seed)
        given = {s: c for s in question.sizes if isinstance(c := question.capacity_of(s), Interval)}
        self.known = tuple(given)
        drawn = capacity_draws(list(given.values()), z) if given else ()
        self.capacity = dict(zip(self.known, drawn, strict=True))
        self.sustained = {s: engine.sustained_rps(self.capacity[s], scale_out=s) for s in self.known}
        kinds = [*question.kinds, *(f"{question.rescale}_{way}" for way in ("out", "in"))]
        self.downtime = {kind: self._downtime(kind) for kind in kinds}
        self.phase = np.random.default_rng([question.seed, PHASES]).permutation(
            (np.arange(paths) + 0.5) / paths
        )

    def _downtime(self, kind: str) -> Array | Unknown:
        """Per draw, from the event until work goes on."""
        model = self.question.downtime
        if isinstance(model, Unknown):
            return model
        drawn = model.samples(kind, paths=len(self.arrivals), seed=self.question.seed)
        if isinstance(drawn, Unknown) or not self.known:
            return drawn
        return self.engine.dead_s(drawn, rate_rps=self.observed_rps)

    @cached_property
    def peak_in_words(self) -> tuple[str, str]:
        """5 and 95 % of the largest rate to come."""
        low, high = np.quantile(self.peaks, [0.05, 0.95])
        return rate(low), rate(high)

    def change_kind(self, scale_out: int) -> str:
        """How a change to this size is learnt: live_out, restart_in, …"""
        return f"{self.question.rescale}_{'out' if scale_out > self.question.current else 'in'}"

    def recoveries(self, scale_out: int, kind: str, moments_s: Array, *, reach: float) -> Array:
        """Recovery of every draw after an event of this kind at these moments: (moments, paths).

        In the form the engine really follows, up to `reach` targets after the event; beyond the forecast the
        rates stay as they end.
        """
        downtime = self.downtime[kind]
        assert not isinstance(downtime, Unknown)
        target = self.question.promise.target_s
        rates, grid = self.input.rates_rps, self.input.grid_s
        begins = np.rint(moments_s / grid).astype(np.intp)
        length = math.ceil(reach * target / grid)
        columns = np.minimum(begins[:, None] + np.arange(length), rates.shape[1] - 1)
        lag = np.stack([self._lag(scale_out, float(b * grid), rates[:, b]) for b in begins])
        taken: Array = self.engine.recovery_s(
            rates[:, columns].transpose(1, 0, 2).reshape(-1, length),
            capacity_rps=np.tile(self.capacity[scale_out], len(begins)),
            downtime_s=np.tile(downtime, len(begins)),
            lag_records=lag.reshape(-1),
            scale_out=scale_out,
            target_s=target,
            step_s=grid,
        )
        return taken.reshape(len(begins), -1)

    def _lag(self, scale_out: int, moment_s: float, rate_rps: Array) -> Array:
        """What a failure at this moment meets: the backlog or the open batch, and what is repeated."""
        behind = backlog_records(
            self.input,
            capacity_rps=self.sustained[scale_out],
            lag_records=self.lag_records,
            moment_s=moment_s,
        )
        unread = self.engine.unread_records(
            rate_rps, capacity_rps=self.capacity[scale_out], scale_out=scale_out, phase=self.phase
        )
        ends = np.array([moment_s, moment_s - self.engine.replay_s])
        repeated = -np.diff(self.input.at(ends), axis=1)[:, 0]
        result: Array = np.maximum(behind, unread) + repeated
        return result

    def figures(self, scale_out: int, kind: str | Unknown, moment_s: float | Unknown) -> Recoveries | Unknown:
        """How long the recovery takes after a failure of this kind at this moment."""
        if isinstance(kind, Unknown) or isinstance(moment_s, Unknown):
            return Unknown("the worst moment is not known")
        for reach in FIGURES_REACH:
            drawn = self.recoveries(scale_out, kind, np.array([moment_s]), reach=reach)
            low, mid, high = np.quantile(drawn, [0.05, 0.5, 0.95], method="inverted_cdf")  # never inf − inf
            within = self.question.promise.within_s(drawn[0])
            if np.isfinite(max(high, within)):
                break
        return Recoveries(float(low), float(mid), float(high), 0.9, within)
