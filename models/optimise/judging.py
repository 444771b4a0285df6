"""What speaks against each size? All sizes are judged on the same draws of path, downtime and capacity.

A size is feasible if, in at least `confidence` of the draws each time,

    recovery   a failure of any kind is recovered in time, at its worst moment        (models.promise)
    observed   the rate it can keep up is at least the mean rate since the last evaluation
    forecast   … and at least the path's largest rate, as far as the promise looks
    rescale    for another size than the present one: the change to it, now, is recovered in time as well

and if, at the projected rate (the largest mean of five equal parts of the forecast), its latency is normal
and its middle estimate, itself a 95th percentile over records, within the bound. With no bound and no latency
model that condition is left out, and the decision says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..promise import Kept, kept_along
from ..quantities import Interval, Unknown, executors
from .engine import sustained as sustained_interval
from .outlook import Outlook
from .verdict import Condition, Excuse, Verdict, percent, rate, span

NO_FIGURES = Unknown("worked out for the chosen size and its neighbours only")


class Judge(Outlook):
    """The draws for one question, and what they say about each size."""

    def verdicts(self) -> dict[int, Verdict]:
        """A verdict on every size, recovery by the integral form; at least one capacity is known."""
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
        """The promise for these sizes and kinds: (kinds, sizes)."""
        if not sizes or not kinds:
            return Kept(np.empty((0, len(sizes))), np.empty((0, len(sizes))))
        return kept_along(
            self.input,
            capacity_rps=np.stack([self.sustained[s] for s in sizes]),
            downtime_s=np.stack([np.asarray(self.downtime[k]) for k in kinds]),
            target_s=self.question.promise.target_s,
            moments_s=moments_s,
            lag_records=self.lag_records,
            replay_s=self.engine.replay_s,
        )

    def _changes(self) -> dict[int, float | Unknown]:
        """Per size: how likely the change to it, now, is recovered in time."""
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
        """The promise itself, and the kinds of failure whose downtime nobody knows."""
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
            "forecast": f"the forecast maximum {span(*self.peak_in_words)} rps",
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
            sentence = f"nobody can tell whether the latency is normal {at}: {normal.reason}"
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
        """The change to this size as a disturbance of its own."""
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
    """The verdict on a size whose capacity nobody knows."""
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
