"""Plan for a rate that cannot be tested yet: task slots and memory per slot.

Far beyond the measured slots Π the forms below differ severalfold, so the choice of form decides the answer.

    choice = argmin over g of RMSE(λ on Π ≥ max Π / 2, fitted on Π < max Π / 2)

and only if the lower half has three distinct Π and the runner-up's error is `CLEARLY` times the winner's.
Else the choice is "undetermined" and every candidate is shown.

**One form.** Sustained rate over memory per slot M and slots Π, for g = linear, log1p, sqrt (StreamBed §5,
equations 6–8):

    λ = a · g(M) + b · g(Π) + c

by least squares. A larger job has the larger noise, so the covariance is the one that does not assume it
equal (HC3), with e the residuals and h the leverages, and Student's t has n − 3 degrees of freedom:

    V = (XᵀX)⁻¹ Xᵀ diag(e² / (1 − h)²) X (XᵀX)⁻¹

The inverse query solves for Π. Its interval is Fieller's: all Π for which the target Y is inside the band,

    (a g(M) + b g(Π) + c − Y)² ≤ t² · xᵀ V x,    x = (g(M), g(Π), 1)

which has no upper end when b could be zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from .. import codec
from ..arguments import Array, number, whole
from ..quantities import Interval, Json, Misuse, Unknown, quantile_95

Shape = Callable[[Any], Any]
FORMS: Mapping[str, tuple[Shape, Shape]] = MappingProxyType(
    {
        "linear": (lambda x: x, lambda y: y),
        "log1p": (np.log1p, np.expm1),
        "sqrt": (np.sqrt, lambda y: max(y, 0.0) ** 2),
    }
)
"""Name → (g, its inverse)."""
CONFIDENCE = 0.9
MOST_SLOTS = 1_000_000  # judgement: more is no answer


@dataclass(frozen=True)
class SlotMeasurement:
    """The rate a job sustained with this many task slots of this much memory each."""

    task_slots: int
    memory_mb: float
    sustained_rps: float

    def __post_init__(self) -> None:
        whole("task_slots", self.task_slots)
        number("memory_mb", self.memory_mb, above=0.0)
        number("sustained_rps", self.sustained_rps, at_least=0.0)


@dataclass(frozen=True)
class Plane:
    """One candidate: λ = a g(M) + b g(Π) + c; with a single memory profile a is 0."""

    form: str
    coefficients: tuple[float, float, float]
    covariance: tuple[tuple[float, float, float], ...]
    degrees: int

    @classmethod
    def fit(cls, form: str, measurements: Iterable[SlotMeasurement]) -> Self | Unknown:
        points = list(measurements)
        design, rates, used = _design(form, points)
        if len({m.task_slots for m in points}) < 2:
            return Unknown("needs measurements at two different task_slots at least")
        if len(points) <= sum(used):
            return Unknown(f"needs {sum(used) + 1} measurements at least, got {len(points)}")
        size = np.abs(design).max(axis=0)
        scaled = design / size
        if np.linalg.matrix_rank(scaled) < sum(used):
            return Unknown("memory and slots changed together: measure one slot count at two memory sizes")
        solved = np.linalg.lstsq(scaled, rates, rcond=None)[0]
        left = rates - scaled @ solved
        degrees = len(points) - sum(used)
        inverse = np.linalg.inv(scaled.T @ scaled)
        free = 1 - np.einsum("ij,jk,ik->i", scaled, inverse, scaled)
        # A point that alone fixes a coefficient leaves no residual; it is as noisy as the others together.
        alone = free < 1e-6
        noise = np.where(alone, float(left @ left) / degrees, (left / np.where(alone, 1.0, free)) ** 2)
        errors = inverse @ (scaled.T * noise) @ scaled @ inverse / np.outer(size, size)
        where = np.flatnonzero(used)
        coefficients, covariance = np.zeros(3), np.zeros((3, 3))
        coefficients[where] = solved / size
        covariance[np.ix_(where, where)] = errors
        a, b, c = coefficients.tolist()
        rows = tuple((float(x), float(y), float(z)) for x, y, z in covariance)
        return cls(form, (a, b, c), rows, degrees)

    def rate_rps(self, *, task_slots: float, memory_mb: float) -> Interval:
        x = self._point(task_slots, memory_mb)
        mid = float(x @ np.array(self.coefficients))
        half = quantile_95(self.degrees) * math.sqrt(max(0.0, float(x @ np.array(self.covariance) @ x)))
        return Interval(mid - half, mid, mid + half, CONFIDENCE)

    def slots(self, *, target_rps: float, memory_mb: float) -> Interval | Unknown:
        """Slots of this memory that sustain the target, in whole numbers; `high` may be infinite."""
        a, b, c = self.coefficients
        m = float(FORMS[self.form][0](memory_mb))
        rest = a * m + c - target_rps
        if b <= 0:
            return Unknown(f"by {self.form} more slots do not raise the rate: measure more slot counts")
        mid = self._whole(-rest / b)
        if mid > MOST_SLOTS:
            return Unknown(f"by {self.form} {target_rps:.4g} records/s need more than {MOST_SLOTS:,} slots")
        low, high = self._fieller(m, rest)
        return Interval(min(self._whole(low), mid), mid, max(self._whole(high), mid), CONFIDENCE)

    def _fieller(self, m: float, rest: float) -> tuple[float, float]:
        """The ends of the set of g(Π) that the band allows."""
        b = self.coefficients[1]
        (aa, ab, ac), (_, bb, bc), (_, _, cc) = self.covariance
        t2 = quantile_95(self.degrees) ** 2
        square = b * b - t2 * bb
        linear = b * rest - t2 * (ab * m + bc)
        constant = rest * rest - t2 * (m * m * aa + 2 * m * ac + cc)
        inside = linear * linear - square * constant
        if square > 0:
            root = math.sqrt(max(0.0, inside))
            return (-linear - root) / square, (-linear + root) / square
        if inside <= 0 or square == 0:
            return -math.inf, math.inf
        start = max((-linear + root) / square for root in (math.sqrt(inside), -math.sqrt(inside)))
        return (start if -rest / b >= start else -math.inf), math.inf

    def _whole(self, value: float) -> float:
        """The slots from which on g(Π) is at least `value`; a rounding error does not cost a slot."""
        g, inverse = FORMS[self.form]
        if value <= float(g(1.0)):
            return 1.0
        if value >= float(g(10.0 * MOST_SLOTS)):
            return math.inf
        slots = float(inverse(value))
        return float(math.ceil(slots - 1e-9 * max(1.0, slots)))

    def _point(self, task_slots: float, memory_mb: float) -> Array:
        g = FORMS[self.form][0]
        return np.array([float(g(memory_mb)), float(g(task_slots)), 1.0])


def _design(form: str, points: list[SlotMeasurement]) -> tuple[Array, Array, tuple[bool, bool, bool]]:
    """The columns that can be told apart, the rates, and which of (a, b, c) the columns belong to."""
    g = FORMS[form][0]
    memory, slots, rates = (
        np.array([getattr(m, name) for m in points], dtype=float)
        for name in ("memory_mb", "task_slots", "sustained_rps")
    )
    used = (bool(len(set(memory.tolist())) > 1), True, True)
    columns = np.column_stack([g(memory), g(slots), np.ones(len(points))])
    return columns[:, np.array(used)], rates, used


UNDETERMINED = "undetermined"
MARGIN = 0.10  # StreamBed §5: the model is asked for 110 % of the rate
DISTINCT_BELOW = 3  # fewer slot counts cannot show a curvature
CLEARLY = 1.5  # bench/planning.py: at 3 % noise wrong in under 2 % of plans and open in under 10 %


@dataclass(frozen=True)
class Answer:
    """Slots that one memory profile needs: per candidate, and by the chosen form."""

    memory_mb: float
    candidates: Mapping[str, Interval | Unknown]
    slots: int | Unknown
    interval: Interval | Unknown
    """Of the chosen form; when undetermined, from the lowest low to the highest high of all candidates."""


@dataclass(frozen=True)
class Plan:
    """The three candidates fitted to all measurements, and the one that extrapolates."""

    measurements: tuple[SlotMeasurement, ...]

    @classmethod
    def fit(cls, measurements: Iterable[SlotMeasurement]) -> Self:
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
        """Slots that each measured memory profile needs for (1 + margin) times the target."""
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
        if data.get("schema") != 1 or data.get("model") != "slots":
            raise Misuse(
                "data", f"must be a slot plan of schema 1, got {data.get('model')!r}, {data.get('schema')!r}"
            )
        return cls.fit(codec.from_json(tuple[SlotMeasurement, ...], data["measurements"]))
