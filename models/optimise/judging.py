"""Verdict on every size, all judged on the same draws of arrivals, capacity and downtime.

One draw is a path of the forecast with a capacity for every size and a downtime for every kind of event;
sizes that are judged on the same draws differ by their properties and not by chance. A size is feasible if,
in at least `confidence` of the draws each time,

    recovery   a failure of any kind is recovered in time, at its worst moment        (models.promise)
    observed   its sustained rate is at least the mean rate since the last evaluation
    forecast   … and at least the path's largest mean rate over a stretch as long as the target: less, and a
               lag of that age is left without any failure
    rescale    the change to it, now, is itself recovered in time (not for the current size)

and if, at the projected rate (the largest mean of five equal parts of the forecast), its latency is normal
and the middle of the predicted p95 latency within the bound. Without a bound and a latency model this
condition is left out, and the decision says so.

**In batches.** For micro-batches the integral form is far off in either direction, so its verdicts only say
where to begin: sizes are stepped batch by batch there, then up or down, until the smallest one is found that
keeps the promise at the worst moment of the integral form, at evenly spaced moments and late in the batch
that takes a lag, and that recovers from its own rescale. Larger sizes keep the promise wherever smaller ones
do, so few sizes have to be stepped.

**Capacity draws.** An interval (low, mid, high) at confidence c becomes a split log-normal with these
quantiles,

    T_p = mid · (high / mid)^{z_p / z_c}  for z_p ≥ 0,     mid · (low / mid)^{−z_p / z_c}  for z_p < 0

where z_c is the normal quantile of (1 + c)/2 and z_p are evenly spaced normal quantiles in a fixed shuffled
order. All sizes share z: where the model is wrong, it is wrong in the same direction everywhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from ..arguments import Array, whole
from ..promise import Input, Kept, Promise, kept
from ..quantities import Interval, Unknown, executors, percent
from ..recovery import Index
from .question import (
    BatchEngine,
    Condition,
    Engine,
    Events,
    Excuse,
    KnowsDowntime,
    Question,
    Recoveries,
    Verdict,
    largest_bin_mean,
    rate,
    span,
)
from .question import sustained as sustained_interval

SUREST = 0.9999  # judgement: an interval of confidence 1 is read as this


def normal_draws(count: int, *, seed: int) -> Array:
    """Evenly spaced quantiles of the normal distribution, in an order shuffled by the seed."""
    n = whole("count", count)
    quantile = NormalDist().inv_cdf
    z = np.array([quantile((i + 0.5) / n) for i in range(n)])
    # A stream of its own, because downtimes are drawn with the plain seed.
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


FIGURES_REACH = (1.5, 5.0)
"""Multiples of the target; judgement: far enough to say by how much a promise is missed."""
FINER = 1000  # judgement: an error of half a point where 95 % are kept, for the moments that decide
PHASES = 2  # number of the random stream for the phase within a batch


NO_FIGURES = Unknown("computed for the chosen size and its neighbours only")


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of everything but the downtime: path, standard normal of the capacity, phase within a batch."""

    path: Index
    z: Array
    phase: Array

    @classmethod
    def of(cls, count: int, *, paths: int, seed: int) -> Draws:
        shuffle = np.random.default_rng([seed, PHASES])
        phase = shuffle.permutation((np.arange(count) + 0.5) / count)
        return cls(np.arange(count) % paths, normal_draws(count, seed=seed), phase)


class Judge:
    """The draws for one question, and the verdicts that follow from them."""

    def __init__(self, question: Question) -> None:
        """For a question of which nothing is `missing`."""
        forecast, engine = question.forecast, question.engine
        observed, lag = question.observed_rps, question.lag_records
        assert not isinstance(forecast, Unknown)
        assert not isinstance(engine, Unknown)
        assert not isinstance(observed, Unknown)
        assert not isinstance(lag, Unknown)
        self.question, self.engine = question, engine
        self.observed_rps, self.lag_records = float(observed), float(lag)
        self.arrivals = question.arrivals
        past = np.full(len(self.arrivals), self.observed_rps)
        self.input = Input(self.arrivals, step_s=float(forecast.step_s), past_rps=past)
        self.peaks = self.input.largest_mean_rps(question.promise.target_s)
        mid = np.asarray(forecast.mid, dtype=np.float64)[: self.arrivals.shape[1]]
        self.projected_rps = float(largest_bin_mean(mid))
        paths = len(self.arrivals)
        self.draws = Draws.of(paths, paths=paths, seed=question.seed)
        self.more_draws = Draws.of(paths * -(-FINER // paths), paths=paths, seed=question.seed)
        given = {s: c for s in question.sizes if isinstance(c := question.capacity_of(s), Interval)}
        self.known = tuple(given)
        drawn = capacity_draws(list(given.values()), self.draws.z) if given else ()
        self.capacity = dict(zip(self.known, drawn, strict=True))
        self.sustained = {s: engine.sustained_rps(self.capacity[s], scale_out=s) for s in self.known}
        kinds = [*question.kinds, *(f"{question.rescale}_{way}" for way in ("out", "in"))]
        self.downtime = {kind: self._downtime(kind, paths) for kind in kinds}
        self._recoveries: dict[tuple[Any, ...], Array] = {}

    def _downtime(self, kind: str, count: int) -> Array | Unknown:
        """Per draw: seconds from the event until processing continues."""
        model = self.question.downtime
        if isinstance(model, Unknown):
            return model
        return model.samples(kind, paths=count, seed=self.question.seed)

    @cached_property
    def peak_in_words(self) -> tuple[str, str]:
        low, high = np.quantile(self.peaks, [0.05, 0.95])
        return rate(low), rate(high)

    def change_kind(self, scale_out: int) -> str:
        """Kind of event of a change to this size: live_out, restart_in, …"""
        return f"{self.question.rescale}_{'out' if scale_out > self.question.current else 'in'}"

    def recoveries(
        self, scale_out: int, kind: str, moments_s: Array, *, reach: float, more: bool = False
    ) -> Array:
        """Recovery of every draw after an event of this kind at these moments: (moments, draws).

        By the form that the engine really follows, up to `reach` times the target after the event; beyond the
        forecast its last rate continues. `more` draws are a better estimate of a small share.
        """
        keys = [(scale_out, kind, float(moment), reach, more) for moment in moments_s]
        new = np.array([key not in self._recoveries for key in keys])
        if new.any():
            taken = self._recover(scale_out, kind, moments_s[new], reach=reach, more=more)
            self._recoveries |= zip(itertools.compress(keys, new), taken, strict=True)
        return np.stack([self._recoveries[key] for key in keys])

    def _recover(self, scale_out: int, kind: str, moments_s: Array, *, reach: float, more: bool) -> Array:
        draws, capacity, downtime = self.draws, self.capacity[scale_out], self.downtime[kind]
        if more:
            interval = self.question.capacity_of(scale_out)
            assert isinstance(interval, Interval)
            draws, downtime = self.more_draws, self._downtime(kind, len(self.more_draws.z))
            capacity = capacity_draws([interval], draws.z)[0]
        assert not isinstance(downtime, Unknown)
        target = self.question.promise.target_s
        events = Events(
            self.input,
            path=draws.path,
            capacity_rps=capacity,
            sustained_rps=self.engine.sustained_rps(capacity, scale_out=scale_out),
            downtime_s=downtime,
            phase=draws.phase,
            lag_records=self.lag_records,
            moments_s=moments_s,
        )
        return self.engine.recoveries_s(events, scale_out=scale_out, target_s=target, reach_s=reach * target)

    def behind(self, scale_out: int) -> bool:
        """Whether the lag now is more than batches of this size cause by themselves."""
        usual_s = self.engine.usual_lag_s(
            self._now_rps,
            scale_out=scale_out,
            capacity_rps=float(np.median(self.capacity[scale_out])),
            target_s=self.question.promise.target_s,
        )
        return self.lag_records > usual_s * self._now_rps

    @property
    def _now_rps(self) -> float:
        return self.observed_rps or self.projected_rps

    def losing_moments_s(self, scale_out: int) -> Array:
        """Moments until the next decision at which a failure in batches loses most of the lag."""
        if not isinstance(self.engine, BatchEngine):
            return np.empty(0)
        late = self.engine.losing_moments_s(
            float(np.median(self.capacity[scale_out])),
            scale_out=scale_out,
            rate_rps=self._now_rps,
            lag_records=self.lag_records,
        )
        result: Array = late[late < self.question.moments_s]
        return result

    def figures(self, scale_out: int, kind: str | Unknown, moment_s: float | Unknown) -> Recoveries | Unknown:
        """Recovery after a failure of this kind at this moment, as quantiles."""
        if isinstance(kind, Unknown) or isinstance(moment_s, Unknown):
            return Unknown("the worst moment is not known")
        for reach in FIGURES_REACH:
            drawn = self.recoveries(
                scale_out, kind, np.array([moment_s]), reach=reach, more=self.engine.in_batches
            )
            low, mid, high = np.quantile(drawn, [0.05, 0.5, 0.95], method="inverted_cdf")  # never inf − inf
            within = self.question.promise.within_s(drawn[0])
            if np.isfinite(max(high, within)):
                break
        return Recoveries(float(low), float(mid), float(high), 0.9, within)

    def verdicts(self) -> dict[int, Verdict]:
        """A verdict on every size, by the integral form; at least one capacity must be known."""
        kinds = [k for k in self.question.kinds if not isinstance(self.downtime[k], Unknown)]
        promise = self._kept(self.known, kinds, moments_s=self.question.moments_s)
        worst = promise.probability.argmin(axis=0) if kinds else np.zeros(len(self.known), dtype=np.intp)
        change = self._changes()
        sustained = np.array([self.sustained[s] for s in self.known])
        covers_now = np.mean(sustained >= self.observed_rps, axis=1)
        covers = np.mean(sustained >= self.peaks, axis=1)
        low, mid = np.quantile(sustained, [1 - self.question.promise.confidence, 0.5], axis=1)
        at = {s: i for i, s in enumerate(self.known)}
        found = {}
        for s in self.question.sizes:
            capacity = self.question.capacity_of(s)
            if isinstance(capacity, Unknown):
                found[s] = unmeasured(s, capacity)
                continue
            i = at[s]
            k = worst[i]
            latency = self._latency(s)
            never = Unknown("no downtime is known for any kind of failure")
            probability = float(promise.probability[k, i]) if kinds else never
            moment = float(promise.worst_moment_s[k, i]) if kinds else never
            kind = kinds[k] if kinds else never
            found[s] = Verdict(
                scale_out=s,
                excuses=(
                    *self.recovery_excuses(probability, moment, kind),
                    *self._load_excuses(
                        {"observed": float(covers_now[i]), "forecast": float(covers[i])},
                        low=low[i],
                        mid=mid[i],
                    ),
                    *self._latency_excuses(s, latency),
                    *self.rescale_excuses(s, change[s]),
                ),
                capacity=sustained_interval(capacity, self.engine, scale_out=s),
                probability=probability,
                worst_moment_s=moment,
                worst_kind=kind,
                load_probability=float(covers[i]),
                rescale_probability=change[s],
                latency_ms=latency,
                recovery_s=NO_FIGURES,
            )
        return found

    def _kept(self, sizes: tuple[int, ...], kinds: list[str], *, moments_s: float) -> Kept:
        """Probability that the promise is kept, for these kinds and sizes: (kinds, sizes)."""
        if not sizes or not kinds:
            return Kept(np.empty((0, len(sizes))), np.empty((0, len(sizes))))
        return kept(
            self.input,
            capacity_rps=np.stack([self.sustained[s] for s in sizes]),
            downtime_s=np.stack([np.asarray(self.downtime[k]) for k in kinds]),
            target_s=self.question.promise.target_s,
            moments_s=moments_s,
            lag_records=self.lag_records,
            replay_s=self.engine.replay_s,
        )

    def _changes(self) -> dict[int, float | Unknown]:
        """Per size: the probability that the change to it, now, is recovered in time."""
        result: dict[int, float | Unknown] = {self.question.current: 1.0}
        for way in ("out", "in"):
            kind = f"{self.question.rescale}_{way}"
            sizes = tuple(s for s in self.known if s != self.question.current and self.change_kind(s) == kind)
            downtime = self.downtime[kind]
            if isinstance(downtime, Unknown):
                result |= dict.fromkeys(sizes, downtime)
            else:
                shares = self._kept(sizes, [kind], moments_s=0.0).probability
                result |= {s: float(p) for s, p in zip(sizes, shares.reshape(-1), strict=True)}
        return result

    def _misses(self, share: float) -> bool:
        return not self.question.promise.keeps(share)

    def recovery_excuses(
        self, probability: float | Unknown, moment_s: float | Unknown, kind: str | Unknown
    ) -> list[Excuse]:
        """Excuses about the promise itself, and about failure kinds of unknown downtime."""
        found = []
        target, confidence = self.question.promise.target_s, self.question.promise.confidence
        if not isinstance(probability, Unknown) and self._misses(probability):
            found.append(
                Excuse(
                    "recovery",
                    f"{kind} in {moment_s:.0f} s is recovered within {target:g} s in {percent(probability)}"
                    f" of the draws, {percent(confidence)} are promised",
                )
            )
        for other in self.question.kinds:
            downtime = self.downtime[other]
            if isinstance(downtime, Unknown):
                sentence = f"the downtime of {other} is unknown: {downtime.reason}"
                found.append(Excuse("recovery", sentence, measure=f"run a drill of {other}"))
        return found

    def _load_excuses(self, shares: Mapping[Condition, float], *, low: float, mid: float) -> list[Excuse]:
        if not any(self._misses(share) for share in shares.values()):
            return []
        what = {
            "observed": f"the observed {rate(self.observed_rps)} rps",
            "forecast": f"the busiest {self.question.promise.target_s:g} s of the forecast,"
            f" {span(*self.peak_in_words)} rps,",
        }
        needed = percent(self.question.promise.confidence)
        return [
            Excuse(
                condition,
                f"the capacity {rate(mid)} (low end {rate(low)}) covers {what[condition]}"
                f" in {percent(share)} of the draws, {needed} are needed",
            )
            for condition, share in shares.items()
            if self._misses(share)
        ]

    def _latency(self, scale_out: int) -> Interval | Unknown:
        model = self.question.latency
        return model if isinstance(model, Unknown) else model.predict(scale_out, self.projected_rps)

    def _latency_excuses(self, scale_out: int, expected: Interval | Unknown) -> list[Excuse]:
        model, bound = self.question.latency, self.question.latency_bound_ms
        at = f"at {rate(self.projected_rps)} rps on {executors(scale_out)}"
        measure = f"measure the latency {at}"
        if isinstance(model, Unknown):
            if bound is None:
                return []
            open_ = Excuse("latency", f"the bound of {bound:g} ms cannot be judged: {model.reason}", measure)
            return [open_]
        found = []
        normal = model.is_normal(scale_out, self.projected_rps)
        if isinstance(normal, Unknown):
            sentence = f"it cannot be told whether the latency is normal {at}: {normal.reason}"
            found.append(Excuse("latency", sentence, measure))
        elif not normal:
            found.append(Excuse("latency", f"the latency is not normal {at}"))
        if bound is not None:
            if isinstance(expected, Unknown):
                sentence = f"the bound of {bound:g} ms cannot be judged: {expected.reason}"
                found.append(Excuse("latency", sentence, measure))
            elif expected.mid > bound:
                found.append(
                    Excuse("latency", f"{expected.mid:.0f} ms {at} is above the bound of {bound:g} ms")
                )
        return found

    def rescale_excuses(self, scale_out: int, probability: float | Unknown) -> list[Excuse]:
        """Excuses about the recovery from the change to this size."""
        kind, target = self.change_kind(scale_out), self.question.promise.target_s
        if isinstance(probability, Unknown):
            sentence = f"the downtime of {kind} is unknown: {probability.reason}"
            return [Excuse("rescale", sentence, measure=f"measure one change of kind {kind}")]
        if not self._misses(probability):
            return []
        needed = percent(self.question.promise.confidence)
        return [
            Excuse(
                "rescale",
                f"the change itself ({kind}) is recovered within {target:g} s in {percent(probability)}"
                f" of the draws, {needed} are needed",
            )
        ]


def unmeasured(scale_out: int, why: Unknown) -> Verdict:
    """The verdict on a size of unknown capacity."""
    sentence = f"the capacity of {executors(scale_out)} is unknown: {why.reason}"
    return Verdict(
        scale_out=scale_out,
        excuses=(Excuse("capacity", sentence, measure=f"measure the capacity of {executors(scale_out)}"),),
        capacity=why,
        probability=why,
        worst_moment_s=why,
        worst_kind=why,
        load_probability=why,
        rescale_probability=why,
        latency_ms=why,
        recovery_s=why,
    )


STEPPED: tuple[Condition, ...] = ("recovery", "rescale")
CHECK_REACH = 1.5  # targets; leaves room for the stretch that a recovery must hold
CHECKED_MOMENTS = 8  # judgement: beside the worst moment of the scan
DOUBTFUL = 4  # judgement: moments that get more draws, as the fewest draws were in time there
CLEARLY = 0.04  # judgement: two and a half times the error of the draws


def judged(judge: Judge) -> dict[int, Verdict]:
    """A verdict on every size, by the form that the engine really follows."""
    verdicts = judge.verdicts()
    return _confirmed(judge, verdicts) if judge.engine.in_batches else verdicts


def first_true(holds: Callable[[int], bool], count: int, *, near: int) -> int:
    """The smallest index at which a monotone condition holds, else `count`; few tries if it is `near`."""
    fails, does = -1, count
    probe, stride = min(near, count - 1), max(1, count // 32)
    while does - fails > 1:
        if holds(probe):
            does = probe
            probe = max(fails + 1, probe - stride) if fails < 0 else (fails + does) // 2
        else:
            fails = probe
            probe = min(does - 1, probe + stride) if does == count else (fails + does) // 2
        stride *= 2
    return does


def _confirmed(judge: Judge, verdicts: dict[int, Verdict]) -> dict[int, Verdict]:
    """The verdicts, with recovery and rescale stepped in batches wherever that can change the choice."""
    able = [v for v in verdicts.values() if v.scale_out in judge.known and _only_recovery_matters(v)]
    if not able:
        return verdicts
    near = next((i for i, v in enumerate(able) if not v.fails(*STEPPED)), len(able) - 1)
    near = next((i for i, v in enumerate(able) if v.scale_out == judge.question.likely), near)
    stepped: dict[int, Verdict] = {}

    def holds(i: int) -> bool:
        if i not in stepped:
            stepped[i] = _stepped(judge, able[i])
        return not stepped[i].fails(*STEPPED)

    first = first_true(holds, len(able), near=near)
    found = dict(verdicts)
    for i, verdict in enumerate(able):
        if i in stepped:
            found[verdict.scale_out] = stepped[i]
        elif i < first:
            found[verdict.scale_out] = _no_better_than(stepped[first - 1], verdict)
        else:
            found[verdict.scale_out] = _no_worse_than(stepped[first], verdict)
    return found


def _only_recovery_matters(verdict: Verdict) -> bool:
    """Whether no other condition failed and the inputs of stepping are known."""
    open_ = any(e.measure and e.condition in STEPPED for e in verdict.excuses)
    return not open_ and not any(e.measure is None for e in verdict.excuses_beside(*STEPPED))


def _stepped(judge: Judge, verdict: Verdict) -> Verdict:
    question = judge.question
    scanned, scanned_kind = verdict.worst_moment_s, verdict.worst_kind
    assert not isinstance(scanned, Unknown)
    assert not isinstance(scanned_kind, Unknown)
    late = judge.losing_moments_s(verdict.scale_out)
    worst = _least_kept(judge, verdict.scale_out, [scanned_kind], np.append(late[:1], scanned), few=True)
    if worst[0] > question.promise.confidence - CLEARLY:  # otherwise these moments alone decide
        last = max(0.0, question.moments_s - judge.input.grid_s)
        evenly = np.linspace(0.0, last, CHECKED_MOMENTS)
        moments = np.unique(np.concatenate([evenly, late, [scanned]]))
        worst = _least_kept(judge, verdict.scale_out, question.kinds, moments)
    change: float | Unknown = 1.0
    if verdict.scale_out != question.current and question.promise.keeps(worst[0]):
        kind = judge.change_kind(verdict.scale_out)
        taken = judge.recoveries(verdict.scale_out, kind, np.zeros(1), reach=CHECK_REACH)
        change = float(np.mean(taken <= question.promise.target_s))
    probability, _, moment, kind = worst
    return replace(
        verdict,
        excuses=(
            *judge.recovery_excuses(probability, moment, kind),
            *verdict.excuses_beside(*STEPPED),
            *judge.rescale_excuses(verdict.scale_out, change),
        ),
        probability=probability,
        worst_moment_s=moment,
        worst_kind=kind,
        rescale_probability=change,
    )


def _least_kept(
    judge: Judge, scale_out: int, kinds: Sequence[str], moments_s: Array, *, few: bool = False
) -> tuple[float, float, float, str]:
    """The smallest share in time, the time within which the promised share ends, the moment, the kind."""
    promise, found = judge.question.promise, []

    def look(kind: str, at: Array, *, more: bool = False) -> None:
        for moment, taken in zip(
            at, judge.recoveries(scale_out, kind, at, reach=CHECK_REACH, more=more), strict=True
        ):
            share = float(np.mean(taken <= promise.target_s))
            found.append((share, -promise.within_s(taken), float(moment), kind))

    for kind in kinds:
        look(kind, moments_s)
    doubtful = [one for one in sorted(found)[:DOUBTFUL] if one[0] <= promise.confidence + CLEARLY]
    if doubtful and doubtful[0][0] >= promise.confidence - CLEARLY and not few:
        found.clear()
        for kind in {one[3] for one in doubtful}:
            look(kind, np.array([one[2] for one in doubtful if one[3] == kind]), more=True)
    # of several with the same probability the longest recovery is shown
    share, within, moment, kind = min(found)
    return share, -within, moment, kind


def _no_better_than(larger_misses: Verdict, verdict: Verdict) -> Verdict:
    """The verdict on a size smaller than one that misses the promise in batches."""
    if verdict.fails(*STEPPED):
        return verdict
    excuse = replace(
        larger_misses.failed(*STEPPED)[0],
        sentence=f"stepped in batches, {executors(larger_misses.scale_out, 'are')} too few already: "
        + larger_misses.failed(*STEPPED)[0].sentence,
    )
    return replace(verdict, excuses=(excuse, *verdict.excuses), probability=larger_misses.probability)


def _no_worse_than(smaller_keeps: Verdict, verdict: Verdict) -> Verdict:
    """The verdict on a size larger than one that keeps the promise in batches; its rescale is its own."""
    if not verdict.fails("recovery"):
        return verdict
    excuses = verdict.excuses_beside("recovery")
    return replace(verdict, excuses=excuses, probability=smaller_keeps.probability)


@dataclass(frozen=True)
class Steady:
    """A forecast that is certain: this rate, and no other."""

    paths: Array
    step_s: float = 1.0

    @property
    def mid(self) -> Array:
        result: Array = self.paths[0]
        return result


@dataclass(frozen=True)
class Prediction(Recoveries):
    """The recovery from a failure that happens now."""

    probability: float
    """Of a recovery within the target."""


def predictions(question: Question) -> dict[str, Prediction | Unknown]:
    """Per kind of failure: the recovery if it happened now, at the current size, whatever is decided.

    Without a forecast the load stays as it was observed.
    """
    scale_out, promise = question.current, question.promise
    for unknown in (
        question.engine,
        question.observed_rps,
        question.lag_records,
        question.capacity_of(scale_out),
    ):
        if isinstance(unknown, Unknown):
            return dict.fromkeys(question.kinds, unknown)
    if isinstance(question.forecast, Unknown):
        steps = math.ceil(question.moments_s + promise.target_s)
        question = replace(question, forecast=Steady(np.full((1, steps), question.observed_rps)))  # type: ignore[arg-type]
    judge = Judge(replace(question, candidates=(scale_out,)))

    def of(kind: str) -> Prediction | Unknown:
        down = judge.downtime[kind]
        if isinstance(down, Unknown):
            return down
        found = judge.figures(scale_out, kind, 0.0)
        assert isinstance(found, Recoveries)
        taken = judge.recoveries(
            scale_out, kind, np.zeros(1), reach=FIGURES_REACH[0], more=judge.engine.in_batches
        )
        return Prediction(**vars(found), probability=float(np.mean(taken <= promise.target_s)))

    return {kind: of(kind) for kind in question.kinds}


def recovery_at(
    kind: str,
    *,
    scale_out: int,
    rate_rps: float,
    lag_records: float,
    capacity: Interval | Unknown,
    engine: Engine,
    downtime: KnowsDowntime,
    promise: Promise,
    seed: int = 0,
) -> Recoveries | Unknown:
    """What a decision says of a failure now, where the load stays as it is."""
    question = Question(
        candidates=(scale_out,),
        current=scale_out,
        promise=promise,
        forecast=Unknown("the load stays as it is"),
        observed_rps=rate_rps,
        lag_records=lag_records,
        capacity={scale_out: capacity},
        downtime=downtime,
        kinds=(kind,),
        moments_s=1.0,
        engine=engine,
        seed=seed,
    )
    return predictions(question)[kind]
