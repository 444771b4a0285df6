"""Predicted recovery at each scale-out, at one load, for the plot of the recovery model.

What a decision says of a failure now, at a load that stays, without a lag (models.optimise).
"""

from __future__ import annotations

import numpy as np

from models.downtime import DowntimeModel
from models.optimise import recovery_at
from models.promise import Promise
from models.quantities import Interval, Unknown

from ..telemetry.batch_costs import BareCapacity
from ..training.checks import Evidence

MOST_SIZES = 14  # judgement: more marks overlap, and each costs some ten milliseconds
BUSY = 0.6  # of the capacity in the middle, where nothing is known of the load; judgement
LONGEST_TARGET_S = 300.0  # where no promise is known; judgement

Recoveries = dict[str, dict[int, Interval | Unknown]]


def predicted(downtime: DowntimeModel, evidence: Evidence) -> tuple[float, Recoveries] | Unknown:
    """Load, and failure kind -> scale-out -> seconds until caught up; the promised share ends by `high`.

    The load is the highest that is forecast, else a usual share of the capacity.
    """
    capacity, engine, purpose = evidence.capacity, evidence.engine, evidence.purpose
    if isinstance(capacity, Unknown):
        return capacity
    if isinstance(engine, Unknown):
        return engine
    sizes = purpose.candidates
    if not isinstance(evidence.forecaster, Unknown):
        load_rps = evidence.forecaster.predict().peak.high
    else:
        known = [found.mid for size in sizes if isinstance(found := capacity.predict(size), Interval)]
        if not known:
            return Unknown("the capacity of no candidate is known")
        load_rps = BUSY * known[len(known) // 2]
    bare = BareCapacity(capacity, engine)
    promise = Promise(min(purpose.target_s, LONGEST_TARGET_S), purpose.confidence)

    def recovery_s(kind: str, size: int) -> Interval | Unknown:
        found = recovery_at(
            kind,
            scale_out=size,
            rate_rps=load_rps,
            lag_records=0.0,
            capacity=bare.predict(size),
            engine=engine.engine(),
            downtime=downtime,
            promise=promise,
            seed=purpose.seed,
        )
        if isinstance(found, Unknown):
            return found
        high = found.promised
        return Interval(min(found.low, high), min(found.mid, high), high, promise.confidence)

    if len(sizes) > MOST_SIZES:  # evenly spread
        sizes = tuple(sizes[i] for i in np.linspace(0, len(sizes) - 1, MOST_SIZES).round().astype(int))
    return load_rps, {
        kind: {size: recovery_s(kind, size) for size in sizes} for kind in purpose.failure_kinds
    }
