"""Exploration: the slots and memory to measure next, to plan for a target rate.

First the four corners of the space. Then, of all points, the one whose measurement most reduces the variance
of the predicted rate where the target is expected, summed over memory profiles. The variance is that of a
linear model with all three shapes of Π side by side, so that it also holds the doubt about the shape:

    λ = θᵀ z(M, Π),  z = (1, M, Π, √Π, ln(1 + Π)) scaled to 1,  θ ~ N(0, τ²),  noise σ
    Σ = (ZᵀZ / σ² + 1 / τ²)⁻¹;   measuring z takes (z*ᵀ Σ z)² / (σ² + zᵀ Σ z) off the variance at z*

A point may come again: where noise dominates, a repeat is worth most. Until three slot counts lie in the
lower half (the form cannot be chosen with fewer), only new ones there are asked for, `APART` if possible.
It ends when every profile's answer is within `TOLERANCE`, when no point would still take `WORTH` off the
variance, or after `MOST_RUNS` runs.
The state is frozen between runs: a crash costs only the run in progress.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from ..arguments import Array, number, whole
from ..quantities import Interval, Misuse, Unknown
from .surface import DISTINCT_BELOW, MARGIN, Plan, SlotMeasurement

MOST_RUNS = 20  # StreamBed §5
AFTER_CORNERS = 3  # StreamBed §5: at least three runs beyond the corners
TOLERANCE = 0.15  # judgement: half the interval over its middle; the margin is 0.10
WORTH = 0.02  # judgement: a run that takes less than 2 % off the variance is not worth its half hour
RETRIES = 2  # judgement: a point whose probe was invalid twice is not asked for again
NOISE = 0.03  # relative, at least; judgement: no rate is measured better
APART = 0.1  # of the range; judgement: neighbours among the slot counts show noise, not shape
FURTHEST = 10.0  # times the largest slots; further out all points look alike
GRID = 64  # slot counts considered; more cost time and change nothing


@dataclass(frozen=True)
class Probe:
    """Measure the sustainable rate here, because of `reason`."""

    task_slots: int
    memory_mb: float
    reason: str


@dataclass(frozen=True)
class Stop:
    """Nothing more to measure, because of `reason`."""

    reason: str


@dataclass(frozen=True)
class Explorer:
    """The state of an exploration: the space, the target, and every run so far (None: an invalid probe)."""

    schema: ClassVar[int] = 1
    slots: tuple[int, int]
    memory_mb: tuple[float, ...]
    target_rps: float
    margin: float = MARGIN
    most_runs: int = MOST_RUNS
    runs: tuple[tuple[int, float, float | None], ...] = ()

    def __post_init__(self) -> None:
        low, high = (whole("slots", s) for s in self.slots)
        if high <= low:
            raise Misuse("slots", f"must be (fewest, most) with fewest < most, got {self.slots}")
        if not self.memory_mb or len(set(self.memory_mb)) < len(self.memory_mb):
            raise Misuse("memory_mb", f"must be distinct memory profiles, at least one, got {self.memory_mb}")
        for m in self.memory_mb:
            number("memory_mb", m, above=0.0)
        number("target_rps", self.target_rps, above=0.0)
        number("margin", self.margin, at_least=0.0)
        whole("most_runs", self.most_runs)

    def ask(self) -> Probe | Stop:
        """The next run, or the end."""
        failed = Counter((s, m) for s, m, rate in self.runs if rate is None)
        measured = {(s, m) for s, m, rate in self.runs if rate is not None}
        if len(self.runs) >= self.most_runs:
            return Stop(f"{len(self.runs)} runs were made, the most that are allowed")
        corners = self._corners()
        for corner in corners:
            if corner not in measured and failed[corner] < RETRIES:
                return Probe(*corner, reason="a corner of the space")
        points = [p for p in self._grid() if failed[p] < RETRIES]
        if not measured or not points:
            return Stop("no probe was valid: see why probes fail before exploring further")
        half = self.slots[1] / 2
        lower = {s for s, _ in measured if s < half}
        fresh = [p for p in points if p[0] < half and p[0] not in lower]
        room = APART * (self.slots[1] - self.slots[0])
        fresh = [p for p in fresh if all(abs(p[0] - s) >= room for s in lower)] or fresh
        if len(lower) < DISTINCT_BELOW and fresh:
            gain, best = self._best(fresh)
            return Probe(
                *best, reason=f"a form needs {DISTINCT_BELOW} slot counts below {half:g} to be chosen"
            )
        valid = sum(rate is not None for _, _, rate in self.runs)
        gain, best = self._best(points)
        if valid >= len(corners) + AFTER_CORNERS:
            if self._settled():
                return Stop(f"every memory profile's slots are known to ± {TOLERANCE:.0%}")
            if gain < WORTH:
                return Stop(f"no run would take {WORTH:.0%} off the variance at the target any more")
        again = "again, " if best in measured else ""
        return Probe(
            *best, reason=f"{again}takes {gain:.0%} off the variance at {self.target_rps:.4g} records/s"
        )

    def tell(self, *, task_slots: int, memory_mb: float, sustained_rps: float | None) -> Self:
        """The state after this run; `sustained_rps` is None when the probe was invalid."""
        s, m = whole("task_slots", task_slots), number("memory_mb", memory_mb, above=0.0)
        if not self.slots[0] <= s <= self.slots[1]:
            raise Misuse("task_slots", f"must be within {self.slots}, got {s}")
        if m not in self.memory_mb:
            raise Misuse("memory_mb", f"must be one of {self.memory_mb}, got {m:g}")
        rate = None if sustained_rps is None else number("sustained_rps", sustained_rps, at_least=0.0)
        return replace(self, runs=(*self.runs, (s, m, rate)))

    def plan(self) -> Plan:
        return Plan.fit(SlotMeasurement(s, m, rate) for s, m, rate in self.runs if rate is not None)

    def _corners(self) -> list[tuple[int, float]]:
        ends = sorted({min(self.memory_mb), max(self.memory_mb)})
        return [(s, m) for m in ends for s in self.slots]

    def _grid(self) -> list[tuple[int, float]]:
        low, high = self.slots
        counts = sorted({round(s) for s in np.linspace(low, high, min(GRID, high - low + 1))})
        return [(s, m) for s in counts for m in self.memory_mb]

    def _best(self, points: list[tuple[int, float]]) -> tuple[float, tuple[int, float]]:
        """(share of the variance at the target that it removes, the point); ties to fewer slots."""
        valid = [(s, m, rate) for s, m, rate in self.runs if rate is not None]
        measured = self._features((s, m) for s, m, _ in valid)
        rates = np.array([rate for _, _, rate in valid])
        scale = max(float(rates.max()), 1e-9)
        precision = measured.T @ measured / self._noise() ** 2 + np.eye(
            measured.shape[1]
        )  # rates over scale: τ = 1
        spread = np.linalg.inv(precision)
        goal = self._features((s, m) for m, s in self._expected())
        offered = self._features(points)
        taken = ((goal @ spread @ offered.T) ** 2).sum(axis=0) / (
            self._noise() ** 2 + np.einsum("ij,jk,ik->i", offered, spread, offered)
        )
        share = taken / max(float(np.einsum("ij,jk,ik->", goal, spread, goal)), 1e-300 * scale)
        best = int(np.argmax(np.round(share, 9)))
        return float(share[best]), points[best]

    def _noise(self) -> float:
        repeats: dict[tuple[int, float], list[float]] = {}
        for s, m, rate in self.runs:
            if rate:
                repeats.setdefault((s, m), []).append(math.log(rate))
        several = [np.array(v) for v in repeats.values() if len(v) > 1]
        if not several:
            return NOISE
        squares = sum(float(((v - v.mean()) ** 2).sum()) for v in several)
        return max(NOISE, math.sqrt(squares / sum(len(v) - 1 for v in several)))

    def _expected(self) -> list[tuple[float, float]]:
        """Where each profile will probably meet the target: the middle of the candidates' answers."""
        found = {a.memory_mb: a for a in self.plan().answers(target_rps=self.target_rps, margin=self.margin)}
        furthest = FURTHEST * self.slots[1]
        middle = []
        for m in self.memory_mb:
            answers = found[m].candidates.values() if m in found else ()
            known = [a.mid for a in answers if isinstance(a, Interval)]
            middle.append((m, min(float(np.median(known)) if known else furthest, furthest)))
        return middle

    def _settled(self) -> bool:
        answers = self.plan().answers(target_rps=self.target_rps, margin=self.margin)
        return all(
            not isinstance(a.slots, Unknown)
            and isinstance(a.interval, Interval)
            and (a.interval.high - a.interval.low) / 2 <= TOLERANCE * a.interval.mid
            for a in answers
        )

    def _features(self, points: Iterable[tuple[float, float]]) -> Array:
        given = np.array(list(points), dtype=float).reshape(-1, 2)
        s, m = given[:, 0], given[:, 1]
        most, largest = float(self.slots[1]), max(self.memory_mb)
        memory = m / largest if len(self.memory_mb) > 1 else np.zeros(len(m))
        shapes = (s / most, np.sqrt(s / most), np.log1p(s) / math.log1p(most))
        return np.column_stack([np.ones(len(s)), memory, *shapes])
