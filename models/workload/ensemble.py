"""Candidates of a forecast, and their weighted mean.

**Naive candidates** (those of `arima` stand beside them).

    last value        f(t + h) = y(t)
    seasonal naive    f(t + h) = y(t + h − P)
    recent median     f(t + h) = median of the last W observed values; of the last 12 only once all of
                      those were on one side of it, because then the level has moved; of those
                      since a long gap or a jump, because nothing says that it has not

A missing value is replaced by what the candidate itself expected, so that a gap never reads as zero.

**Back-test.** Rolling origin: from every step in the later part of the history each candidate forecasts the
whole horizon, having seen only what came before; its coefficients come from before the first of these steps.
The back-test is the forecaster itself, run over that part as it runs live afterwards (`fitting`).

**Weights.** Each new value y is held against what candidate i forecast for it at the last origins; the mean
of |y − f_i| over these, discounted with a half-life of two horizons, is its loss L_i:

    w_i ∝ exp(−SHARPNESS · (L_i − min L) / scale)        scale: geometric mean of the smallest loss of a step

Only differences count, so what surprises all candidates, such as a jump, does not blur the weights.

**Jumps.** A value that lies further from the weighted forecast than FAR usual errors begins an excursion.
Two versions of the candidates are kept until it is over: one *moved*, which takes what is seen for the new
level, and one *held*, for which these values are missing. Of the moved one only those candidates count
whose forecast begins at what is seen. When a value is near the held forecast again, the excursion was a
spike, and the held version goes on; after LONGEST steps the level has moved. Which of the two forecasts is
decided by experience: with m earlier excursions that stayed and k that came back after at least so many
steps, the moved one while m + PRIOR ≥ k. So a first jump is believed at once, and where loads come back
after four steps, the fifth is waited for.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from .. import codec
from ..arguments import Array
from ..quantities import Json, Unknown
from .arima import LONG_GAP, Arima, Trend

ONE_SIDED = 12  # of noise around one level about one value in 4 000 completes such a run
SHARPNESS = 20.0  # judgement, no other was tried: a twentieth of the error is a factor of e in weight
FAR = 5.0  # mean absolute errors, four standard deviations: one value in 15 000 of white noise
LONGEST = 12  # steps; judgement: what has lasted six minutes at 30 s is a level
PRIOR = 2  # excursions; judgement: two spikes before the third is waited for
REMEMBERED = 20  # excursions
FEWEST = 10  # judgement: errors from which on the usual one is known to a quarter
SMALLEST = 0.05  # of the best loss; judgement: steps without any error, such as quiet nights, are no scale
MOST_GROWN = 10.0  # times; judgement
CLIPPED = 3.0  # usual errors; a jump says little about the next error
USUAL_HALF_LIFE = 20  # steps
MOST_LEADS = 40  # of a longer horizon only every second, third … step is judged
INVISIBLE = 0.02  # of the rate; judgement: such a jump changes no decision, however smooth the load was
PRECISE = 1e-4  # of the rate; judgement: candidates that differ by less are equally good
TINY = 1e-9  # records/s: rounding


class Candidate(Protocol):
    """Forecast candidate."""

    @property
    def name(self) -> str: ...

    def see(self, values: Array) -> None: ...

    def restart(self) -> None:
        """Forget the level: it has moved to the next value."""

    def ahead(self, steps: int) -> Array: ...


@dataclass(frozen=True)
class BacktestError:
    """Errors of one candidate over the horizon that was tested."""

    mae_rps: float
    wape: float | Unknown
    """Sum of the absolute errors over the sum of the observed rates."""
    origins: int
    steps: int
    """The horizon tested, in steps."""

    @classmethod
    def of(cls, *, off: float, total: float, count: int, origins: int, steps: int) -> BacktestError:
        """From the sums of the absolute errors and of the observed rates."""
        wape = off / total if total > 0.0 else Unknown("nothing arrived over the horizons tested")
        return cls(off / max(1, count), wape, origins, steps)


@dataclass(kw_only=True)
class LastValue:
    """The newest observed value, repeated."""

    kind: ClassVar[str] = "last"
    name: ClassVar[str] = "last value"
    last: float = 0.0

    def see(self, values: Array) -> None:
        observed = values[~np.isnan(values)]
        if observed.size:
            self.last = float(observed[-1])

    def restart(self) -> None:
        """Nothing to do: the next value is its level anyway."""

    def ahead(self, steps: int) -> Array:
        return np.full(steps, self.last)


@dataclass(kw_only=True)
class SeasonalNaive:
    """The value one period ago."""

    kind: ClassVar[str] = "seasonal"
    period: int
    ring: list[float] = field(default_factory=list)
    """The last `period` values, oldest first."""
    last: float = 0.0

    @property
    def name(self) -> str:
        return f"seasonal naive {self.period}"

    def see(self, values: Array) -> None:
        for value in values.tolist():
            if value == value:
                self.last = value
            elif len(self.ring) >= self.period:
                value = self.ring[-self.period]
            else:
                value = self.last
            self.ring.append(value)
        del self.ring[: -self.period]

    def restart(self) -> None:
        """Nothing to do: the period goes on."""

    def ahead(self, steps: int) -> Array:
        """Forecast of the next `steps` steps; before one full period was observed, the last value."""
        if len(self.ring) < self.period:
            return np.full(steps, self.last)
        return np.resize(np.array(self.ring[:steps]), steps)


@dataclass(kw_only=True)
class RecentMedian:
    """The median of the newest observed values, which spikes and noise do not move."""

    kind: ClassVar[str] = "median"
    window: int
    recent: list[float] = field(default_factory=list)
    run: int = 0
    """How many values in a row were above (positive) or below (negative) the median before them."""
    missing: int = 0
    """Missing values in a row, up to now."""

    @property
    def name(self) -> str:
        return f"median of {self.window}"

    def see(self, values: Array) -> None:
        for value in values.tolist():
            if value != value:
                self.missing += 1
                continue
            if self.missing > LONG_GAP:
                self.recent, self.run = [], 0
            self.missing = 0
            middle = self._middle()
            if value == middle or not self.recent:
                self.run = 0
            elif value > middle:
                self.run = max(self.run, 0) + 1
            else:
                self.run = min(self.run, 0) - 1
            self.recent.append(value)
            del self.recent[: -self.window]
            if abs(self.run) >= ONE_SIDED:
                del self.recent[:-ONE_SIDED]
                self.run = 0

    def restart(self) -> None:
        """Take the next value for the level: it has moved."""
        self.missing = LONG_GAP + 1

    def _middle(self) -> float:
        ordered = sorted(self.recent)
        half = len(ordered) // 2
        if not ordered:
            return 0.0
        return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2

    def ahead(self, steps: int) -> Array:
        return np.full(steps, self._middle())


KINDS: Mapping[str, Any] = {
    kind.kind: kind for kind in (LastValue, SeasonalNaive, RecentMedian, Arima, Trend)
}


class Ensemble:
    """The candidates, their record, and the excursion under way."""

    kind: ClassVar[str] = "ensemble"

    def __init__(self, members: Sequence[Candidate], *, steps: int) -> None:
        self.members = list(members)
        self.held: list[Candidate] = []
        """The same without the values of the excursion under way; empty when there is none."""
        self.silent: list[bool] = []
        """Members that forecast something else than what is observed since it began."""
        self.run = 0
        """Its length so far."""
        self.outcomes: list[int] = []
        """Lengths of earlier excursions, 0 for those that stayed."""
        self.steps = steps
        self.stride = -(-steps // MOST_LEADS)
        self.leads = steps // self.stride
        self.at = 0
        self.losses = np.zeros(len(self.members))
        self.log_scale = 0.0
        self.scored = 0.0
        """The discounted number of steps in `losses`."""
        self.usual = 0.0
        """Mean absolute error one step ahead; jumps count only CLIPPED times."""
        self.seen = 0.0
        """The discounted number of errors in it."""
        self.issued = np.empty((0, len(self.members), self.leads))
        """Forecasts (origins, members, leads), newest origin first."""
        self._known = np.empty((0, 0))
        self.sums = np.zeros((2, len(self.members)))
        """Of absolute errors and observed rates since the beginning, of each member."""
        self.counts = [0, 0]
        """Of the values in `sums`, and of origins."""

    @property
    def name(self) -> str:
        """The member with the largest weight."""
        return self.members[int(self._weights(self._active).argmax())].name

    def errors(self) -> Mapping[str, BacktestError]:
        """Errors of each member since the beginning."""
        return {
            member.name: BacktestError.of(
                off=float(off),
                total=float(total),
                count=self.counts[0],
                origins=self.counts[1],
                steps=self.steps,
            )
            for member, off, total in zip(self.members, *self.sums, strict=True)
            if self.counts[0]
        }

    def shares(self) -> list[tuple[str, float]]:
        """Each member's weight."""
        weights = self._weights(self._active).tolist()
        return [(member.name, weight) for member, weight in zip(self.members, weights, strict=True)]

    def begin(self, values: Array) -> None:
        """Show the members what came before anything is judged."""
        for member in self.members:
            member.see(values)

    def keep(self, wanted: Sequence[bool]) -> None:
        """Drop the other members and their record."""
        kept = np.flatnonzero(wanted)
        self.members = [self.members[i] for i in kept]
        self.losses, self.issued, self.sums = self.losses[kept], self.issued[:, kept], self.sums[:, kept]
        self.held, self.silent = [], []

    def continue_with(self, again: Ensemble) -> None:
        """Take over the members of one that has seen the same, and keep the record."""
        self.members, self.held, self.run, self.silent = again.members, again.held, again.run, again.silent
        self._known = np.empty((0, 0))

    def see(self, values: Array) -> None:
        for value in values.tolist():
            self._see(value)

    def ahead(self, steps: int) -> Array:
        """The weighted forecast of the next `steps` steps; a spike stays as long as earlier ones did."""
        result = self._mean(self._active, steps)
        if self._active is self.held:
            longer = [length for length in self.outcomes if length >= self.run]
            stays = min(int(np.median(longer)) - self.run, steps)
            result[:stays] = self._mean(self.members, steps)[:stays]
        return result

    def _mean(self, version: Sequence[Candidate], steps: int) -> Array:
        if version is self._active:
            ahead = self._outlook(steps)
        else:
            ahead = np.stack([member.ahead(steps) for member in version])
        # Around one of them: where all agree, so does the mean, to the last digit.
        result: Array = ahead[0] + (self._weights(version)[:, None] * (ahead - ahead[0])).sum(axis=0)
        return result

    def _outlook(self, steps: int) -> Array:
        """The forecasts of the members in charge (members, steps), kept until the next value."""
        if self._known.shape[1] < steps:
            self._known = np.stack([member.ahead(steps) for member in self._active])
        return self._known[:, :steps]

    @property
    def _active(self) -> list[Candidate]:
        """The version that forecasts."""
        if not self.held:
            return self.members
        stayed = PRIOR + sum(length == 0 for length in self.outcomes)
        return self.members if stayed >= sum(length >= self.run for length in self.outcomes) else self.held

    def _see(self, y: float) -> None:
        value = np.array([y])
        self.at += 1
        if y == y and len(self.issued):
            self._score(y)
            self._judge(y)
        for member in self.members:
            member.see(value)
        for member in self.held:
            member.see(np.array([math.nan]))
        self._known = np.empty((0, 0))
        if self.held and y == y:
            limit = self._limit(y, grown=self._grown(y))
            self.silent = [abs(y - float(member.ahead(1)[0])) > limit for member in self.members]
        elif not self.held:
            self.silent = []
        if self.at % self.stride == 0:
            steps = self.leads * self.stride
            ahead = self._outlook(steps)[:, self.stride - 1 :: self.stride]
            self.issued = np.concatenate((np.maximum(ahead, 0.0)[None], self.issued[: self.leads - 1]))

    def _score(self, y: float) -> None:
        count = len(self.issued)
        if self.at % self.stride:
            return
        lead = np.arange(count)
        off = np.abs(y - self.issued[lead, :, lead])
        loss = off.mean(axis=0)
        keep = 0.5 ** (1.0 / max(2 * self.leads, USUAL_HALF_LIFE))
        self.scored = keep * self.scored + 1.0
        self.losses += (loss - self.losses) / self.scored
        scale = max(float(loss.min()), SMALLEST * float(self.losses.min()), PRECISE * y, TINY)
        self.log_scale += (math.log(scale) - self.log_scale) / self.scored
        self.sums += np.stack((off.sum(axis=0), np.full(len(loss), count * y)))
        self.counts = [self.counts[0] + count, self.counts[1] + 1]

    def _judge(self, y: float) -> None:
        """Begin or end an excursion, and keep the usual error."""
        moved = abs(y - self._next(self.members))
        limit = self._limit(y, grown=1.0)
        if self.held:
            back = abs(y - self._next(self.held))
            if back <= limit and back < moved:
                self.members, self.held = self.held, []
                self.outcomes = [*self.outcomes[1 - REMEMBERED :], self.run]
                moved = back
            elif self.run >= LONGEST:
                self.held = []
                self.outcomes = [*self.outcomes[1 - REMEMBERED :], 0]
        elif self.seen >= FEWEST and moved > limit:
            self.held, self.run = copy.deepcopy(self.members), 0
        if self.held:
            self.run += 1
            self._known = np.empty((0, 0))  # another version may be in charge from here on
            limit = self._limit(y, grown=self._grown(y))
            for member in self.members:
                if abs(y - float(member.ahead(1)[0])) > limit:
                    member.restart()
        self.seen = min(self.seen + 1.0, USUAL_HALF_LIFE / math.log(2.0))
        clipped = min(moved, CLIPPED * self.usual + TINY) if self.seen > FEWEST else moved
        self.usual += (clipped - self.usual) / self.seen

    def _limit(self, y: float, *, grown: float) -> float:
        """How far a value may lie from its forecast, with errors that have grown so many times."""
        return max(FAR * self.usual * grown, INVISIBLE * y) + TINY

    def _grown(self, y: float) -> float:
        """Noise mostly grows with the rate, so it has by a jump up."""
        return min(max(1.0, y / max(self._next(self.held), TINY)), MOST_GROWN)

    def _next(self, version: Sequence[Candidate]) -> float:
        return float(self._mean(version, 1)[0])

    def _weights(self, version: Sequence[Candidate]) -> Array:
        silent = (
            np.array(self.silent) if version is self.members and self.silent else np.zeros(len(version), bool)
        )
        losses = np.where(silent, np.inf, self.losses)
        best = float(losses.min())
        if math.isinf(best):
            losses, best = self.losses, float(self.losses.min())
        weights = np.exp(-SHARPNESS * (losses - best) / math.exp(self.log_scale))
        result: Array = weights / weights.sum()
        return result

    def to_json(self) -> dict[str, Any]:
        own = {name: codec.to_json(value) for name, value in vars(self).items() if name[0] != "_"}
        return {"kind": self.kind, **own}

    @classmethod
    def from_json(cls, data: Json) -> Ensemble:
        result = cls([], steps=int(data["steps"]))
        for name, value in data.items():
            if name in ("members", "held"):
                value = [codec.from_json(KINDS[each["kind"]], each, name="member") for each in value]
            elif isinstance(getattr(result, name), np.ndarray):
                value = np.array(value, dtype=np.float64)
            if name != "kind":
                setattr(result, name, value)
        result.issued = result.issued.reshape(-1, len(result.members), result.leads)
        return result
