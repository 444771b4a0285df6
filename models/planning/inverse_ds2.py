"""Bounded inverse DS2: task slots shared among operators, and the rate that the job sustains then.

With rᵢ the rate one slot of operator i processes and wᵢ the records it receives per record of the sources,

    maximise λ = min over i of πᵢ · rᵢ / wᵢ,   πᵢ ≥ 1 whole,  Σ πᵢ = slots

(StreamBed's bounded inverse DS2). Giving one slot at a time to the operator with the smallest πᵢ rᵢ / wᵢ is
exact: the rate can only rise through the operator that limits it.
"""

from __future__ import annotations

import heapq

import numpy as np

from ..arguments import numbers, whole
from ..quantities import Misuse, Unknown


def bounded_inverse_ds2(
    *, rates_per_task: object, weights: object, slots: int
) -> tuple[tuple[int, ...], float] | Unknown:
    """Parallelism per operator with the highest source rate for exactly this many slots.

    Aligned sequences in topological order, sources left out. Ties go to the earliest; an operator of weight 0
    keeps one slot.
    """
    rates = numbers("rates_per_task", rates_per_task, at_least=0.0)
    weight = numbers("weights", weights, at_least=0.0)
    budget = whole("slots", slots, at_least=0)
    if rates.ndim != 1 or len(rates) == 0:
        raise Misuse("rates_per_task", f"must be one rate per operator, got shape {rates.shape}")
    if weight.shape != rates.shape:
        raise Misuse("weights", f"must be aligned with the {len(rates)} rates_per_task, got {weight.size}")
    if budget < len(rates):
        return Unknown(
            f"{len(rates)} operators need at least one slot each and there are {budget}: "
            f"add {len(rates) - budget} slots"
        )
    if not (weight > 0).any():
        return Unknown(
            "no operator receives anything (every weight is 0): measure the input ratios under load"
        )
    idle = [i for i in range(len(rates)) if weight[i] > 0 and rates[i] == 0]
    if idle:
        return Unknown(
            f"operator {idle[0]} (counted from 0) receives records and its measured rate per slot is 0, so "
            "no number of slots carries any load: measure it again under load"
        )
    loaded = np.flatnonzero(weight > 0)
    # Steps below the rate that fractional slots would reach are certain; the heap takes the few others.
    with np.errstate(over="ignore"):
        load = weight[loaded] / rates[loaded]
        certain = (budget - len(rates)) * (1 - 1e-9) * (load / load.sum())
    taken = np.ones(len(rates), dtype=np.int64)
    if np.isfinite(certain).all():
        taken[loaded] = np.maximum(1, np.floor(certain).astype(np.int64))
    vector = taken.tolist()
    limits = [(vector[i] * rates[i] / weight[i], i) for i in loaded.tolist()]
    heapq.heapify(limits)
    for _ in range(budget - sum(vector)):
        _, i = limits[0]
        vector[i] += 1
        heapq.heapreplace(limits, (vector[i] * rates[i] / weight[i], i))
    return tuple(vector), float(limits[0][0])
