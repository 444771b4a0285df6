"""How much can this job sustain at each scale-out, as far as profiling has shown?

Every form (`forms`) is fitted to all measurements (`brackets`, `curves`), scored on how it foretold the
larger sizes from the smaller ones (`folds`), and either one is named or several are kept (`choice`):

    log T̂(s) = Σ_f p_f log T̂_f(s),     interval(s) = from the lowest to the highest of the intervals that
                                        the spanned forms give, 90 %

Outside the measured sizes nothing is said where the plausible forms differ by more than a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from .. import codec
from ..arguments import Array, whole
from ..quantities import Interval, Json, Measurement, Misuse, Unknown
from ..student_t import quantile_95
from .brackets import CONTRADICTION, FORMS, Evidence, checked, effective_slots, gather
from .choice import UNDETERMINED, choose
from .curves import Curve, Noise, curve, noise_of

CONFIDENCE = 0.9
DISAGREEMENT = 2.0
"""Plausible forms may differ by this factor outside the measured sizes. Judgement: within it the interval
still tells where to probe; beyond it a decision would rest on the form that happened to be assumed."""
_USELESS = 10.0  # high/low; judgement: an interval this wide is a guess with a number on it


@dataclass(frozen=True)
class Candidate:
    """What one form says, and how it did on sizes it had not seen."""

    form: str
    fold_error: float | Unknown
    interval_error: float | Unknown
    plausibility: float
    _evidence: Evidence = field(repr=False, compare=False)
    _tasks: int | None = field(repr=False, compare=False)
    _noise: Noise | None = field(repr=False, compare=False)  # shared; None: its own

    def predict(self, scale_out: int) -> Interval | Unknown:
        """How much does this form expect to be sustained there (90 %)?"""
        slots = np.array([effective_slots(whole("scale_out", scale_out), self._tasks)])
        if len(self._evidence.sizes) < 2:
            return Unknown(f"one saturated size cannot show how a {self.form} curve rises")
        low, mid, high = self._curve.log_rates(slots)
        return _interval(low[0], mid[0], high[0])

    @cached_property
    def _curve(self) -> Curve:
        return curve(self.form, self._evidence, noise=self._noise)


@dataclass(frozen=True)
class CapacityModel:
    """Capacity over scale-outs, fitted on probes and on live measurements."""

    form: str
    """The form's name, or "undetermined"."""
    candidates: Mapping[str, Candidate]
    measurements: tuple[Measurement, ...]
    tasks: int | None
    _evidence: Evidence = field(repr=False, compare=False)
    _spanned: tuple[str, ...] = field(repr=False, compare=False)
    _answers: dict[float, Interval | Unknown] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def fit(
        cls,
        measurements: Iterable[Measurement],
        forms: Iterable[str] | None = None,
        *,
        tasks: int | None = None,
    ) -> Self:
        """Which curves do these measurements allow? `tasks`: Kafka or state partitions, when waves matter."""
        chosen = _chosen(forms)
        tasks = None if tasks is None else whole("tasks", tasks)
        measurements = checked(measurements)
        evidence = gather(measurements, tasks=tasks)
        if len(evidence.sizes) < 2:
            none = Unknown("a form shows only over several sizes at which the job was saturated")
            unfitted = {f: Candidate(f, none, none, 0.0, evidence, tasks, None) for f in chosen}
            return cls(UNDETERMINED, MappingProxyType(unfitted), measurements, tasks, evidence, ())
        choice = choose(chosen, evidence)
        candidates = {
            f: Candidate(
                f, s.fold_error, s.interval_error, choice.weights.get(f, 0.0), evidence, tasks, choice.noise
            )
            for f, s in choice.scores.items()
        }
        return cls(choice.form, MappingProxyType(candidates), measurements, tasks, evidence, choice.spanned)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_json, (self.to_json(),)

    @property
    def saturated_at(self) -> tuple[int, ...]:
        """At which scale-outs was capacity itself measured?"""
        return self._evidence.scale_outs

    def predict(self, scale_out: int | Unknown) -> Interval | Unknown:
        """How much can be sustained at this scale-out (90 %), or why can nobody tell?"""
        return self.predict_many([scale_out])[0]

    def predict_many(self, scale_outs: Sequence[int | Unknown]) -> tuple[Interval | Unknown, ...]:
        """The same for many scale-outs at once, for the price of one."""
        given = [s if isinstance(s, Unknown) else whole("scale_out", s) for s in scale_outs]
        wanted = {s: effective_slots(s, self.tasks) for s in given if isinstance(s, int)}
        new = sorted({x for x in wanted.values() if x not in self._answers})
        if new:
            self._answers.update(zip(new, self._answered(np.array(new)), strict=True))
        return tuple(s if isinstance(s, Unknown) else self._answers[wanted[s]] for s in given)

    def _answered(self, slots: Array) -> list[Interval | Unknown]:
        count = len(self._evidence.sizes)
        if count == 0:
            reason = self._nothing_saturated()
            return [Unknown(reason) for _ in slots]
        if count == 1:
            return [self._at_one_size(float(x)) for x in slots]
        counted = [self.candidates[f] for f in self._spanned]
        logs = np.array([c._curve.log_rates(slots) for c in counted])
        shares = np.array([c.plausibility for c in counted])
        mid = (shares[:, None] * logs[:, 1]).sum(
            axis=0
        )  # a product's sums would depend on how many are asked
        low, high = logs[:, 0].min(axis=0), logs[:, 2].max(axis=0)
        answers: list[Interval | Unknown] = []
        for i, x in enumerate(slots):
            refused = self._refused(counted, float(x), logs[:, 1, i], float(high[i] - low[i]))
            answers.append(_interval(low[i], mid[i], high[i]) if refused is None else refused)
        return answers

    def _refused(self, counted: list[Candidate], slots: float, mids: Array, width: float) -> Unknown | None:
        smallest, largest = float(self._evidence.sizes[0]), float(self._evidence.sizes[-1])
        if smallest <= slots <= largest:
            if width <= math.log(_USELESS):
                return None
            return Unknown(
                f"no form fits the measurements at {', '.join(map(str, self._evidence.scale_outs))}: at "
                f"{slots:.3g} they allow rates a factor of {math.exp(width):.2g} apart; look for a broken "
                "probe among them and repeat it"
            )
        measured = f"measured at {', '.join(map(str, self._evidence.scale_outs))}"
        remedy = f"probe at or near {slots:.3g} {'executors' if self.tasks is None else 'busy slots'}"
        if float(np.ptp(mids)) > math.log(DISAGREEMENT):
            rates = ", ".join(f"{c.form} {math.exp(mid):.4g}" for c, mid in zip(counted, mids, strict=True))
            return Unknown(
                f"capacity at {slots:.3g} is open: {measured}, and beyond it the forms that fit differ by "
                f"more than a factor of {DISAGREEMENT:g} (records/s: {rates}); {remedy}"
            )
        if width > math.log(_USELESS):
            return Unknown(
                f"capacity at {slots:.3g} is open: {measured}, which allows values a factor of "
                f"{math.exp(width):.2g} apart; {remedy}"
            )
        return None

    def _at_one_size(self, slots: float) -> Interval | Unknown:
        evidence = self._evidence
        size, rate = float(evidence.sizes[0]), float(evidence.log_rates[0])
        where = ", ".join(map(str, evidence.scale_outs))
        if slots != size:
            return Unknown(
                f"saturated only at scale-out {where}, where about {math.exp(rate):.4g} records/s came "
                "through; one size does not show how capacity rises: probe a second one"
            )
        for x, bound in zip(evidence.bound_sizes, evidence.bound_logs, strict=True):
            if x <= size and bound > rate + math.log1p(CONTRADICTION):
                return Unknown(
                    f"at {x:.3g} slots {math.exp(bound):.4g} records/s were sustained, at {where} the job "
                    f"was saturated at {math.exp(rate):.4g}: more carried less, probe both again"
                )
        noise = noise_of(evidence, evidence.scatter, parameters=1, prior=float(evidence.runs[0] < 3))
        half = quantile_95(noise.degrees) * math.sqrt(noise.variance / float(evidence.weights[0]))
        return _interval(rate - half, rate, rate + half)

    def _nothing_saturated(self) -> str:
        if not self._evidence.bounded:
            return "nothing was measured yet: profile the job, or wait until live stretches are learnt"
        bounds = ", ".join(f"{rate:.4g} at {scale_out}" for scale_out, rate in self._evidence.bounded)
        return (
            f"the job was never saturated, capacity is only known to be at least (records/s) {bounds}: "
            "probe at higher rates"
        )

    def to_json(self) -> dict[str, Any]:
        """The measurements and the choices made, as plain JSON; the curves follow from them."""
        return {
            "schema": 1,
            "model": "capacity",
            "forms": list(self.candidates),
            "tasks": self.tasks,
            "form": self.form,
            "measurements": codec.to_json(self.measurements),
        }

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """The same model again, fitted anew from its measurements: milliseconds, numpy alone."""
        if data.get("schema") != 1 or data.get("model") != "capacity":
            raise Misuse(
                "data", f"is not a capacity model of schema 1: {data.get('model')!r}, {data.get('schema')!r}"
            )
        return cls.fit(
            codec.from_json(tuple[Measurement, ...], data["measurements"], name="measurements"),
            data["forms"],
            tasks=data["tasks"],
        )


def _interval(low: float, mid: float, high: float) -> Interval:
    return Interval(math.exp(low), math.exp(mid), math.exp(high), CONFIDENCE)


def _chosen(forms: Iterable[str] | None) -> tuple[str, ...]:
    if forms is None:
        return FORMS
    given = [forms] if isinstance(forms, str) else list(forms)
    unknown = [f for f in given if f not in FORMS]
    if unknown or not given:
        raise Misuse("forms", f"must be some of {', '.join(FORMS)}, got {given!r}")
    return tuple(f for f in FORMS if f in given)
