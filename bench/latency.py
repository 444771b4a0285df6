"""Accuracy and cost of predicting abnormal latency at points that were not measured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import numpy as np

from bench import Figure
from bench._truths_latency import (
    SCENARIOS,
    SPARSE,
    KnownCapacity,
    profile,
    rates,
    rule_of_thumb,
    sparse_profile,
    wrong_on_new_points,
)
from models.capacity import CapacityModel
from models.latency import LatencyModel

SEEDS = 3
NEW = 20  # profiles of each sparse kind


def new_points(seeds: int = NEW) -> Iterable[Figure]:
    """Points that nobody measured, after profiles that show little, against the one-line rule."""
    never = 0
    for points in SPARSE:
        for noise in (0.03, 0.1):
            ours, rule = [], []
            for seed in range(seeds):
                given = sparse_profile(points, noise=noise, seed=seed)
                model = LatencyModel.fit(given, CapacityModel.fit(given))
                a, b, over = wrong_on_new_points(model, points[1], seed)
                ours.append(a)
                rule.append(b)
                never += over
            label = f"latency, {points[0]}, noise {noise:.0%}"
            peer = float(np.mean(rule))
            yield Figure(f"{label}: share wrong", float(np.mean(ours)), "", at_most=peer + 0.005)
            yield Figure(f"{label}: share wrong by the rule rate > 0.95·T_max", peer, "")
    yield Figure('latency: called "normal" above the upper end of the capacity', never, "", at_most=0)


def measure() -> Iterable[Figure]:
    yield from new_points()
    for noise in (0.03, 0.1):
        worst = [1.0, 1.0]
        ours: Counter[str] = Counter()
        rule: Counter[str] = Counter()
        for _, truth, how in SCENARIOS:
            here: Counter[str] = Counter()
            for seed in range(SEEDS):
                points = profile(truth, noise=noise, seed=1_000 + seed, **how)
                model = LatencyModel.fit(points, CapacityModel.fit(points))
                here.update(model.leave_one_out())
                rule.update(rule_of_thumb(model))
            ours.update(here)
            worst = [min(a, b) for a, b in zip(worst, rates(here), strict=True)]
        for what, limit, i in (("recall", 0.85, 0), ("specificity", 0.9, 1)):
            label = f"abnormal latency, leave one out, noise {noise:.0%}: {what}"
            yield Figure(label, rates(ours)[i], "", at_least=limit)
            yield Figure(f"{label}, worst of {len(SCENARIOS)} jobs", worst[i], "", at_least=limit)
            yield Figure(f"{label}, by the rule rate > 0.95·T_max instead", rates(rule)[i], "")
    truth = SCENARIOS[0][1]
    for copies in (1, 2):
        points = [m for seed in range(copies) for m in profile(truth, noise=0.03, seed=seed)]
        started = time.perf_counter()
        LatencyModel.fit(points, KnownCapacity(truth))
        yield Figure(
            f"latency model, fit on {len(points)} points", (time.perf_counter() - started) * 1e3, "ms"
        )
