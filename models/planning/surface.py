"""How many task slots, with how much memory each, will a rate need that nobody can test today?

Far beyond the measured slots Π the forms of `plane` differ severalfold: the choice of form *is* the answer.

    choice = argmin over g of RMSE(λ on Π ≥ max Π / 2, fitted on Π < max Π / 2)

and only if the lower half has three distinct Π and the runner-up's error is `CLEARLY` times the winner's.
Else the choice is "undetermined" and every candidate is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from .. import codec
from ..arguments import number
from ..quantities import Interval, Json, Misuse, Unknown
from .plane import CONFIDENCE, FORMS, Plane, SlotMeasurement

UNDETERMINED = "undetermined"
MARGIN = 0.10  # StreamBed §5: the model is asked for 110 % of the rate
DISTINCT_BELOW = 3  # fewer slot counts cannot show a curvature
CLEARLY = 1.5  # bench/planning.py: at 3 % noise wrong in under 2 % of plans and open in under 10 %


@dataclass(frozen=True)
class Answer:
    """What one memory profile needs: per candidate, and by the chosen form."""

    memory_mb: float
    candidates: Mapping[str, Interval | Unknown]
    slots: int | Unknown
    interval: Interval | Unknown
    """Of the chosen form; when undetermined, from the lowest low to the highest high of all candidates."""


@dataclass(frozen=True)
class Plan:
    """The three candidates fitted on all measurements, and which of them extrapolates."""

    measurements: tuple[SlotMeasurement, ...]

    @classmethod
    def fit(cls, measurements: Iterable[SlotMeasurement]) -> Self:
        """What do these measurements say about rates that were not measured?"""
        points = tuple(measurements)
        if not all(isinstance(m, SlotMeasurement) for m in points):
            raise Misuse("measurements", "must all be of models.planning.SlotMeasurement")
        return cls(points)

    @cached_property
    def candidates(self) -> Mapping[str, Plane | Unknown]:
        """Every form, fitted on all measurements."""
        return {form: Plane.fit(form, self.measurements) for form in FORMS}

    @cached_property
    def split_errors_rps(self) -> Mapping[str, float] | Unknown:
        """Root mean square error on the upper half of Π, fitted on the lower: Π below half the largest."""
        half = max((m.task_slots for m in self.measurements), default=0) / 2
        lower = [m for m in self.measurements if m.task_slots < half]
        upper = [m for m in self.measurements if m.task_slots >= half]
        distinct = sorted({m.task_slots for m in lower})
        if len(distinct) < DISTINCT_BELOW:
            return Unknown(
                f"the form shows only with {DISTINCT_BELOW} different task_slots below {half:g}, half the "
                f"largest, and there are {len(distinct)}: measure more between the ends"
            )
        errors = {}
        for form in FORMS:
            plane = Plane.fit(form, lower)
            if isinstance(plane, Unknown):
                return Unknown(f"the lower half of the slots cannot be fitted alone: it {plane.reason}")
            missed = [
                m.sustained_rps - plane.rate_rps(task_slots=m.task_slots, memory_mb=m.memory_mb).mid
                for m in upper
            ]
            errors[form] = math.sqrt(float(np.mean(np.square(missed))))
        return errors

    @cached_property
    def choice(self) -> tuple[str, str]:
        """(the form or "undetermined", why)."""
        errors = self.split_errors_rps
        if isinstance(errors, Unknown):
            return UNDETERMINED, errors.reason
        best, second = sorted(errors, key=lambda form: errors[form])[:2]
        told = f"predicting the upper half from the lower errs by {errors[best]:.4g} records/s with {best}"
        rounding = 1e-9 * max(m.sustained_rps for m in self.measurements)
        if errors[second] <= CLEARLY * max(errors[best], rounding):
            return UNDETERMINED, (
                f"{told} and by {errors[second]:.4g} with {second}, which is not {CLEARLY:g} times as much: "
                "measure more slot counts, or the same ones again"
            )
        return best, f"{told}, by {errors[second]:.4g} with the next best, {second}"

    def answers(self, *, target_rps: float, margin: float = MARGIN) -> tuple[Answer, ...]:
        """How many slots does each measured memory profile need for (1 + margin) times the target?"""
        asked = number("target_rps", target_rps, above=0.0) * (1 + number("margin", margin, at_least=0.0))
        return tuple(self._answer(m, asked) for m in sorted({float(m.memory_mb) for m in self.measurements}))

    def _answer(self, memory_mb: float, asked_rps: float) -> Answer:
        found: dict[str, Interval | Unknown] = {
            form: plane
            if isinstance(plane, Unknown)
            else plane.slots(target_rps=asked_rps, memory_mb=memory_mb)
            for form, plane in self.candidates.items()
        }
        form, why = self.choice
        if form != UNDETERMINED:
            chosen = found[form]
            slots = chosen if isinstance(chosen, Unknown) else int(chosen.mid)
            return Answer(memory_mb, MappingProxyType(found), slots, chosen)
        known = sorted((i for i in found.values() if isinstance(i, Interval)), key=lambda i: i.mid)
        span: Interval | Unknown = next((i for i in found.values() if isinstance(i, Unknown)), Unknown(why))
        if known:
            low, high = min(i.low for i in known), max(i.high for i in known)
            # A form by which the rate is never reached leaves the upper end open.
            high = high if len(known) == len(found) else math.inf
            span = Interval(low, known[len(known) // 2].mid, high, CONFIDENCE)
        return Answer(memory_mb, MappingProxyType(found), Unknown(why), span)

    def to_json(self) -> dict[str, Any]:
        """The measurements as plain JSON; everything else follows from them."""
        return {"schema": 1, "model": "slots", "measurements": codec.to_json(self.measurements)}

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """The plan that `to_json` wrote."""
        if data.get("schema") != 1 or data.get("model") != "slots":
            raise Misuse(
                "data", f"must be a slot plan of schema 1, got {data.get('model')!r}, {data.get('schema')!r}"
            )
        return cls.fit(codec.from_json(tuple[SlotMeasurement, ...], data["measurements"]))
