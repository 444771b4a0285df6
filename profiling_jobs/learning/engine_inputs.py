"""How does the job read its input, as far as decisions have to know?

Profiling measures T', the rate that full batches of N records sustain, and o, what a batch costs beside its
records; `models.optimise` steps batches and wants the bare T:

    1/T = 1/T' − o(s)/N

Kept beside the capacity model, because both come from the same probes: N is the limit under which they ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from models.optimise.engine import BatchEngine
from models.quantities import Interval, Json, Misuse, Unknown

from ..signals.batch_costs import bare_capacity_rps


class PredictsCapacity(Protocol):
    """Anything that knows what a scale-out sustains."""

    def predict(self, scale_out: int) -> Interval | Unknown: ...


@dataclass(frozen=True)
class EngineInputs:
    """Overhead of a batch per scale-out, the limit and the trigger under which it was profiled."""

    overhead_s: Mapping[int, float]
    limit_records: float = math.inf
    trigger_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.overhead_s:
            raise Misuse("overhead_s", "must not be empty: profile the job")
        self.engine()  # the engine knows what it accepts

    def engine(self, *, limit_records: float | None = None, trigger_s: float | None = None) -> BatchEngine:
        """The engine as the job runs now, where its settings have changed since."""
        return BatchEngine(
            overhead_s=dict(self.overhead_s),
            limit_records=self.limit_records if limit_records is None else limit_records,
            trigger_s=self.trigger_s if trigger_s is None else trigger_s,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, infinities as models.codec writes them."""
        return {
            "schema": 1,
            "overhead_s": {str(size): float(seconds) for size, seconds in self.overhead_s.items()},
            "limit_records": float(self.limit_records),
            "trigger_s": float(self.trigger_s),
        }

    @classmethod
    def from_json(cls, data: Json) -> EngineInputs:
        """What `to_json` wrote."""
        if data.get("schema") != 1:
            raise Misuse("data", f"must be engine inputs of schema 1, got {data.get('schema')!r}")
        return cls(
            {int(size): float(seconds) for size, seconds in data["overhead_s"].items()},
            float(data["limit_records"]),
            float(data["trigger_s"]),
        )


@dataclass(frozen=True)
class BareCapacity:
    """A capacity model seen without the overhead of batches: T, where the model says T'."""

    sustained: PredictsCapacity
    inputs: EngineInputs

    def predict(self, scale_out: int) -> Interval | Unknown:
        """How fast are the records of a batch worked off there?"""
        found = self.sustained.predict(scale_out)
        if isinstance(found, Unknown):
            return found
        overhead_s = self.inputs.engine().overhead_at(scale_out)
        low, mid, high = (
            bare_capacity_rps(rate, overhead_s=overhead_s, limit_records=self.inputs.limit_records)
            for rate in (found.low, found.mid, found.high)
        )
        if isinstance(mid, Unknown):
            return mid
        if isinstance(low, Unknown):  # never: it is smaller than mid
            return low
        if isinstance(high, Unknown):
            # Beyond what any capacity would sustain with this overhead: as wide as it was measured.
            high = mid * found.high / found.mid
        return Interval(min(low, mid), mid, max(high, mid), found.confidence)
