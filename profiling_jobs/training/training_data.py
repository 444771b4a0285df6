"""The data that the models of a job are fitted to.

    workload    arrivals: recordings, and what the control loop has observed since (workload_history)
    capacity    the profile: of each size the newest search and single probes since (profiling_record); and
                live measurements
    latency     the same measurements, where they have a latency
    recovery    every failure and change of size, with the first batch at its load and, from a drill, the
                downtime that explains its recovery (experiments.drill_prediction.lesson)

Live measurements that overlap a recovery, or contradict the profile, are left out and counted.

A new release, or a machine that others use too, may slow every size down. With T the profile's capacity at
one size (the mean of its saturated probes there, or else the highest rate sustained), the newest five later
live measurements count that say something:

    against the profile   saturated at less than T / (1 + CONTRADICTION)
    for it                saturated at more, or sustained at as much

With three against it, all of the profile is scaled to the share that is left at this size,

    share = median of the measurements against it / T

and the smallest share of all sizes is taken. Scaling one size alone would not do: the others would contradict
it. Live measurements from before the first one against the profile are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from models.capacity import CapacityModel
from models.capacity.curves import CONTRADICTION
from models.downtime import DowntimeModel
from models.ports import Store
from models.quantities import Measurement, RecoveryEvent, Unknown
from models.series import Grid

from ..experiments import profiling_record
from ..experiments.drill_prediction import Models, as_reported, lesson
from ..telemetry.batch_costs import EngineInputs
from . import workload_history

NEWEST = 5  # judgement: two hours and a half of a job that stays saturated
AGAINST = 3  # the majority of them
GIVEN_UP_S = 900.0  # of a recovery that never ended: when control gives it up
NEEDED = ("rate_rps", "lag_before_records", "longest_s")
"""Details of a drill without which its recovery cannot be predicted."""

Timed = tuple[float, Measurement]
Event = tuple[RecoveryEvent, Mapping[str, Any]]


@dataclass(frozen=True)
class Purpose:
    """What decisions will ask of the models of one job."""

    job: str
    horizon_s: float
    """How far a decision looks: models.control.Settings.horizon_s."""
    candidates: tuple[int, ...]
    failure_kinds: tuple[str, ...] = ()
    target_s: float = math.inf
    confidence: float = 0.95
    limit_records: float = math.inf
    trigger_s: float = 0.0
    tasks: int | None = None
    """Of a batch, where capacity moves in waves."""
    latency_bound_ms: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Slowdown:
    """The live job sustains only this share of the profile, as seen at this size since then."""

    scale_out: int
    share: float
    since_s: float

    def scaled(self, one: Measurement) -> Measurement:
        """A measurement of the profile as it would be now."""
        return replace(
            one, offered_rps=self.share * one.offered_rps, throughput_rps=self.share * one.throughput_rps
        )


@dataclass(frozen=True)
class Measured:
    """The measurements that models are fitted to."""

    measurements: tuple[Measurement, ...]
    overheads_s: Mapping[int, float] | Unknown
    profile: str | None
    """The newest search; None without one."""
    from_s: float | None
    to_s: float | None
    in_recovery: int = 0
    """Live measurements left out because the job was recovering."""
    contradicting: int = 0
    """Live measurements left out because the profile says otherwise, or because the job was faster then."""
    slower: Slowdown | None = None
    """The measurements of the profile are scaled by it."""


def measured(store: Store, job: str) -> Measured:
    """What profiling and the live job have shown so far."""
    document = store.document(job, profiling_record.DOCUMENT)
    found = profiling_record.in_force(store, job)
    probed = () if isinstance(found, Unknown) else found
    events = store.events(job)
    live = [(at_s, one) for _, at_s, one in store.measurements(job) if one.origin == "live"]
    calm = [(at_s, one) for at_s, one in live if not _recovering(at_s, one, events)]
    slower = slowdown(probed, calm)
    profile = tuple(one if slower is None else slower.scaled(one) for _, one in probed)
    now = [(at_s, one) for at_s, one in calm if slower is None or at_s >= slower.since_s]
    agreed = [(at_s, one) for at_s, one in now if not _contradicts(one, profile)]
    times = [at_s for at_s, _ in (*probed, *agreed)]
    return Measured(
        measurements=(*profile, *(one for _, one in agreed)),
        overheads_s=profiling_record.overheads_s(store, job),
        profile=None if document is None else str(document["session"]),
        from_s=min(times, default=None),
        to_s=max(times, default=None),
        in_recovery=len(live) - len(calm),
        contradicting=len(calm) - len(agreed),
        slower=slower,
    )


def slowdown(probed: Sequence[Timed], live: Sequence[Timed]) -> Slowdown | None:
    """None: the live measurements agree with the profile, or too few contradict it."""
    found = [_slowdown_at(size, probed, live) for size in sorted({one.scale_out for _, one in probed})]
    return min((one for one in found if one is not None), key=lambda one: one.share, default=None)


def _slowdown_at(size: int, probed: Sequence[Timed], live: Sequence[Timed]) -> Slowdown | None:
    here = [(at_s, one) for at_s, one in probed if one.scale_out == size]
    profiled_s = max(at_s for at_s, _ in here)
    saturated = [one.throughput_rps for _, one in here if not one.sustained]
    capacity_rps = fmean(saturated) if saturated else max(one.throughput_rps for _, one in here)

    def below(one: Measurement) -> bool:
        return one.throughput_rps * (1.0 + CONTRADICTION) < capacity_rps

    after = sorted(
        ((at_s, one) for at_s, one in live if one.scale_out == size and at_s > profiled_s),
        key=lambda timed: timed[0],
    )
    conclusive = [(at_s, one) for at_s, one in after if not (one.sustained and below(one))]
    against = [(at_s, one) for at_s, one in conclusive[-NEWEST:] if below(one)]
    if len(against) < AGAINST:
        return None
    left_rps = median(one.throughput_rps for _, one in against)
    return Slowdown(size, left_rps / capacity_rps, against[0][0])


def _recovering(at_s: float, one: Measurement, events: Sequence[Event]) -> bool:
    """Whether a recovery overlaps this measurement, which ended at `at_s`."""
    return any(
        event.failed_at_s < at_s
        and at_s - one.duration_s < event.failed_at_s + min(event.recovery_s, GIVEN_UP_S)
        for event, _ in events
    )


def _contradicts(one: Measurement, profile: Sequence[Measurement]) -> bool:
    here = [other for other in profile if other.scale_out == one.scale_out]
    if one.sustained:
        saturated = [other.throughput_rps for other in here if not other.sustained]
        return bool(saturated) and one.throughput_rps > (1.0 + CONTRADICTION) * max(saturated)
    sustained = [other.throughput_rps for other in here if other.sustained]
    return bool(sustained) and max(sustained) > (1.0 + CONTRADICTION) * one.throughput_rps


def predictable(events: Sequence[Event]) -> tuple[Event, ...]:
    """The events whose recovery can be predicted: load and lag before the failure are known."""
    return tuple(
        (event, details)
        for event, details in events
        if all(isinstance(details.get(name), int | float) for name in NEEDED)
    )


def downtimes(
    events: Sequence[Event], *, capacity: CapacityModel | Unknown, engine: EngineInputs | Unknown
) -> tuple[RecoveryEvent, ...]:
    """Each event with its first batch and the downtime that explains its recovery, if its load is known.

    Of a capacity that is only a lower bound too much of a recovery would count as work, and too little as
    downtime: there the first batch is taken as it was reported, or as its overhead.
    """
    if isinstance(capacity, Unknown) or isinstance(engine, Unknown):
        return tuple(event for event, _ in events)
    models = Models(capacity, DowntimeModel(), engine)
    found = []
    for event, details in events:
        if isinstance(details.get("rate_rps"), int | float):
            explain = as_reported if models.is_bound(event.scale_out) else lesson
            explained = explain(event, details, models)
            event = event if isinstance(explained, Unknown) else explained
        found.append(event)
    return tuple(found)


def arrivals(store: Store, job: str) -> Grid | Unknown:
    """The job's arrival rate, with what the control loop has observed since the last call."""
    workload_history.remember_live(store, job)
    return workload_history.history(store, job)
