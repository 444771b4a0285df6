"""The overhead of a batch: what it costs beside the time for its records.

    seconds = o + n / T        over batches that came back to back, small ones and full ones

Fitted by least squares twice, the second time without the batches that are far off (executors that warmed up,
a pause of the machine). Probes measure T', the rate that full batches of N records sustain; models.optimise
steps batches with the bare T:

    T' = N / (o + N / T)       1/T = 1/T' − o/N

`EngineInputs` are kept beside the capacity model, because both come from the same probes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from models.optimise.question import BatchEngine
from models.quantities import Interval, Misuse, Unknown

FEWEST = 6  # judgement
SPREAD = 1.5  # judgement: largest over smallest batch, below which the overhead does not show
ALIKE = 0.6  # largest over smallest quarter of the batches, in seconds; measured: 0.78, as a JVM warms up
OVERHEAD_ERROR = 0.2  # judgement: batches that are all overhead scatter by a tenth
LEAST_SHARE = 0.05  # of a full batch that its records take; judgement
FAR = 3.0  # robust standard deviations
SCATTER = (
    0.02  # judgement: of a usual batch; the least that counts as scatter, however alike the full ones are
)


@dataclass(frozen=True)
class Cost:
    """A batch of n records takes `overhead_s` + n / `capacity_rps`; inf: no cost of a record was seen."""

    overhead_s: float
    capacity_rps: float


def fit(batches: Sequence[Sequence[float]]) -> Cost | Unknown:
    """Overhead and bare capacity from (records, seconds) of batches."""
    pairs = np.asarray([(n, s) for n, s in batches if n > 0 and s > 0.0], dtype=float).reshape(-1, 2)
    if len(pairs) < FEWEST:
        return Unknown(f"only {len(pairs)} batches were seen; {FEWEST} are needed to know their overhead")
    for _ in range(2):
        records, seconds = pairs.T
        if records.max() < SPREAD * records.min():
            return Unknown("all batches were of about the same size, so that their overhead does not show")
        slope, overhead = np.polyfit(records, seconds, 1)
        rest = seconds - overhead - slope * records
        spread = 1.4826 * float(np.median(np.abs(rest - np.median(rest))))
        near = np.abs(rest - np.median(rest)) <= FAR * max(spread, SCATTER * float(np.median(seconds)))
        left = records[near]
        # Never without the few small batches: only they show the overhead.
        if near.sum() >= FEWEST and left.max() >= SPREAD * left.min():
            pairs = pairs[near]
    if slope <= 0.0:
        # Where batches of every size take as long, all of it is overhead, to within what they scatter.
        by_size, quarter = seconds[np.argsort(records)], max(1, len(seconds) // 4)
        small, large = float(np.median(by_size[:quarter])), float(np.median(by_size[-quarter:]))
        if large < ALIKE * small:
            return Unknown("larger batches were quicker: the batches seen are too small, or too few")
        return Cost(max(small, large), math.inf)
    return Cost(max(0.0, float(overhead)), 1.0 / float(slope))


def bare_capacity_rps(sustained_rps: float, *, overhead_s: float, limit_records: float) -> float | Unknown:
    """T, from the rate T' that full batches sustain: 1/T = 1/T' - o/N, and 20 T' at most.

    Where batches are nearly all overhead, its error decides about the rest: it may come out negative.
    """
    if math.isinf(limit_records):
        return sustained_rps
    share = overhead_s * sustained_rps / limit_records
    if share > 1.0 + OVERHEAD_ERROR:
        return Unknown(
            f"batches of {limit_records:,.0f} records with {overhead_s:.2f} s of overhead cannot sustain "
            f"{sustained_rps:,.0f} records/s"
        )
    return sustained_rps / max(1.0 - share, LEAST_SHARE)


class PredictsCapacity(Protocol):
    """A capacity model."""

    def predict(self, scale_out: int) -> Interval | Unknown: ...


@dataclass(frozen=True)
class EngineInputs:
    """Overhead of a batch per scale-out, the limit and the trigger under which it was profiled."""

    schema: ClassVar[int] = 1
    overhead_s: Mapping[int, float]
    limit_records: float = math.inf
    trigger_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.overhead_s:
            raise Misuse("overhead_s", "must not be empty: profile the job")
        self.engine()  # the engine knows what it accepts

    def overhead_at(self, scale_out: int) -> float:
        return self.engine().overhead_at(scale_out)

    def engine(self, *, limit_records: float | None = None, trigger_s: float | None = None) -> BatchEngine:
        """The engine as the job runs now, where its settings have changed since."""
        return BatchEngine(
            overhead_s=dict(self.overhead_s),
            limit_records=self.limit_records if limit_records is None else limit_records,
            trigger_s=self.trigger_s if trigger_s is None else trigger_s,
        )


@dataclass(frozen=True)
class BareCapacity:
    """A capacity model without the overhead of batches: T, where the model has T'."""

    sustained: PredictsCapacity
    inputs: EngineInputs

    def predict(self, scale_out: int) -> Interval | Unknown:
        """The bare rate of the records in a batch."""
        found = self.sustained.predict(scale_out)
        if isinstance(found, Unknown):
            return found
        overhead_s = self.inputs.overhead_at(scale_out)
        low, mid, high = (
            bare_capacity_rps(rate, overhead_s=overhead_s, limit_records=self.inputs.limit_records)
            for rate in (found.low, found.mid, found.high)
        )
        if isinstance(mid, Unknown):
            return Unknown(f"{mid.reason}: profile again")
        if isinstance(low, Unknown):  # never: it is smaller than mid
            return low
        if isinstance(high, Unknown):
            # Beyond what any capacity would sustain with this overhead: as wide as it was measured.
            high = mid * found.high / found.mid
        return Interval(min(low, mid), mid, max(high, mid), found.confidence)
