"""Predicted recovery at each scale-out, at one load, for plots and summaries.

 the batch form at a constant rate (drill_prediction), a healthy lag before the
failure, downtimes as they were learnt. Decisions ask the same of every moment to come (models.optimise).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.quantities import Interval, Unknown
from models.workload import Forecaster

from ..experiments import drill_prediction
from ..telemetry.batch_costs import EngineInputs
from ..training.training_data import prediction_models

MOST_SIZES = 14  # judgement: more marks overlap, and each costs some ten milliseconds
LEAST_BAND_S = 3.0  # judgement: lag of a healthy job whose batches are short
BUSY = 0.6  # of the capacity in the middle, where nothing is known of the load; judgement
LEAST_CONFIDENCE = 0.02  # an interval ends beside its middle: promises of less than that are drawn as of it
LONGEST_TARGETS = 3.0
LEAST_LONGEST_S = 300.0


def rate_rps(
    forecaster: Forecaster | Unknown, capacity: CapacityModel | Unknown, sizes: Sequence[int]
) -> float | Unknown:
    """The load to show it at: the highest that is forecast, else a usual share of the capacity."""
    if not isinstance(forecaster, Unknown):
        return forecaster.predict().peak.high
    if isinstance(capacity, Unknown):
        return capacity
    known = [found.mid for size in sizes if isinstance(found := capacity.predict(size), Interval)]
    if not known:
        return Unknown("the capacity of no candidate is known")
    return BUSY * known[len(known) // 2]


def recoveries(
    kinds: Sequence[str],
    sizes: Sequence[int],
    *,
    capacity: CapacityModel | Unknown,
    engine: EngineInputs | Unknown,
    downtime: DowntimeModel,
    load_rps: float,
    target_s: float,
    promised: float,
) -> dict[str, dict[int, Interval | Unknown]] | Unknown:
    """Failure kind -> scale-out -> seconds until caught up; the promised share ends by `high`."""
    for needed in (capacity, engine):
        if isinstance(needed, Unknown):
            return needed
    assert isinstance(capacity, CapacityModel)
    assert isinstance(engine, EngineInputs)
    models = prediction_models(capacity, engine, downtime)
    batch_s = max(engine.trigger_s, *engine.overhead_s.values())

    def one(kind: str, size: int) -> Interval | Unknown:
        return drill_prediction.recovery_s(
            models,
            kind,
            scale_out=size,
            rate_rps=load_rps,
            lag_records=load_rps * batch_s,
            band_s=max(2.0 * batch_s, LEAST_BAND_S),
            horizon_s=max(LONGEST_TARGETS * target_s, LEAST_LONGEST_S),
            confidence=max(2.0 * promised - 1.0, LEAST_CONFIDENCE),
        )

    shown = spread(sizes)
    return {kind: {size: one(kind, size) for size in shown} for kind in kinds}


def spread(sizes: Sequence[int]) -> tuple[int, ...]:
    """At most MOST_SIZES of them, evenly spread."""
    if len(sizes) <= MOST_SIZES:
        return tuple(sizes)
    return tuple(sizes[i] for i in np.linspace(0, len(sizes) - 1, MOST_SIZES).round().astype(int))
