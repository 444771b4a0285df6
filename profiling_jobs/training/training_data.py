"""From which data are the models of a job made?

    workload    arrivals: recordings, and what the loop has seen since (workload_history)
    capacity    the profile: of each size the newest search and the points since (profiling_record), without
                what they have contradicted themselves, and live stretches
    latency     the same measurements, where a latency was measured
    recovery    every failure and change of the scale-out that was lived through, drills first of all; a
                drill teaches the standstill that it amounts to (standstill), which needs the capacity

Live stretches that overlap a recovery are left out: a job that works off a backlog, or is down, shows
something else than what it can sustain. So are live stretches that contradict the profile, and how many is
written down. Where they go on contradicting it, the job has become slower: then the profile is taken at what
is left of it (slowdown), so that the smaller capacity is believed, and a check of the model says so.

Can the live job do less than it was profiled at?

A new release, or a machine that others use too, may cost every size a part of its capacity, and no later
profile says so. With T the profile's capacity at one size, the mean of its saturated runs there or else the
highest rate sustained, the newest five live stretches count that came after it and tell something:

    against the profile   saturated at less than T / (1 + CONTRADICTION)
    for it                saturated at more, or sustained at as much

Three against it are believed, so that a bad stretch or two change nothing. What has slowed one size down has
slowed the others, too: were the results dropped at this size alone, the rest of the profile would refute the
new ones. So the profile keeps its shape, and all of it is taken at the share that is left at this size,

    share = median of the stretches against it / T

and of several sizes the smallest share counts. What was seen live before the first stretch against it is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from models.capacity import CapacityModel
from models.capacity.brackets import CONTRADICTION
from models.downtime import DowntimeModel
from models.ports import Store
from models.quantities import Measurement, RecoveryEvent, Unknown
from models.series import Grid

from ..experiments import drill_figures, profiling_record
from ..experiments.drill_prediction import Models, at_its_pace
from ..telemetry.batch_costs import EngineInputs
from . import workload_history

NEWEST = 5  # judgement: two hours and a half of a job that stays saturated
AGAINST = 3  # the majority of them

Timed = tuple[float, Measurement]


@dataclass(frozen=True)
class Slowdown:
    """Since when it can do only this share of what was profiled, and at which size that was seen."""

    scale_out: int
    share: float
    since_s: float

    def taken(self, one: Measurement) -> Measurement:
        """A result of the profile as it would be now."""
        return replace(
            one, offered_rps=self.share * one.offered_rps, throughput_rps=self.share * one.throughput_rps
        )


def slowdown(probed: Sequence[Timed], lived: Sequence[Timed]) -> Slowdown | None:
    """None: the live job speaks for the profile, or too little against it."""
    found = [_at(size, probed, lived) for size in sorted({one.scale_out for _, one in probed})]
    return min((one for one in found if one is not None), key=lambda one: one.share, default=None)


def _at(size: int, probed: Sequence[Timed], lived: Sequence[Timed]) -> Slowdown | None:
    here = [(at_s, one) for at_s, one in probed if one.scale_out == size]
    profiled_s = max(at_s for at_s, _ in here)
    saturated = [one.throughput_rps for _, one in here if not one.sustained]
    capacity_rps = fmean(saturated) if saturated else max(one.throughput_rps for _, one in here)
    after = [(at_s, one) for at_s, one in lived if one.scale_out == size and at_s > profiled_s]
    telling = [
        (at_s, one)
        for at_s, one in sorted(after, key=lambda timed: timed[0])
        if not (one.sustained and _below(one, capacity_rps))
    ]
    against = [timed for timed in telling[-NEWEST:] if _below(timed[1], capacity_rps)]
    if len(against) < AGAINST:
        return None
    left_rps = median(one.throughput_rps for _, one in against)
    return Slowdown(size, left_rps / capacity_rps, against[0][0])


def _below(one: Measurement, capacity_rps: float) -> bool:
    return one.throughput_rps * (1.0 + CONTRADICTION) < capacity_rps


GIVEN_UP_S = 900.0  # of a recovery that never ended: when control gives it up

Event = tuple[RecoveryEvent, Mapping[str, Any]]


@dataclass(frozen=True)
class Measured:
    """The measurements that models are fitted to."""

    measurements: tuple[Measurement, ...]
    overheads_s: Mapping[int, float] | Unknown
    profile: str | None
    """The newest search; None: there was none."""
    from_s: float | None
    to_s: float | None
    in_recovery: int = 0
    """Live stretches left out because the job was recovering."""
    contradicting: int = 0
    """Live stretches left out because the profile says otherwise, or because the job was faster then."""
    slower: Slowdown | None = None
    """Than it was profiled; the profile's measurements are those that are left of them."""


def measured(store: Store, job: str) -> Measured:
    """What profiling and the live job have shown so far."""
    kept = store.measurements(job)
    document = store.document(job, profiling_record.DOCUMENT)
    session = None if document is None else str(document["session"])
    found = profiling_record.in_force(store, job)
    probed = () if isinstance(found, Unknown) else found
    lived = [(at_s, one) for _, at_s, one in kept if one.origin == "live"]
    calm = [(at_s, one) for at_s, one in lived if not _recovering(at_s, one, store.events(job))]
    slower = slowdown(probed, calm)
    profile = tuple(one if slower is None else slower.taken(one) for _, one in probed)
    now = [(at_s, one) for at_s, one in calm if slower is None or at_s >= slower.since_s]
    agreed = [(at_s, one) for at_s, one in now if not _contradicts(one, profile)]
    times = [at_s for at_s, _ in (*probed, *agreed)]
    return Measured(
        measurements=(*profile, *(one for _, one in agreed)),
        overheads_s=profiling_record.overheads_s(store, job),
        profile=session,
        from_s=min(times, default=None),
        to_s=max(times, default=None),
        in_recovery=len(lived) - len(calm),
        contradicting=len(calm) - len(agreed),
        slower=slower,
    )


def events(store: Store, job: str) -> tuple[Event, ...]:
    """What was lived through, by time, with its details."""
    return store.events(job)


def drills(found: Sequence[Event]) -> tuple[Event, ...]:
    """Those of them that can be predicted: the load and the lag before the failure are known."""
    return tuple(
        (event, details)
        for event, details in found
        if all(isinstance(details.get(name), int | float) for name in _NEEDED)
    )


def lessons(
    found: Sequence[Event], *, capacity: CapacityModel | Unknown, engine: EngineInputs | Unknown
) -> tuple[RecoveryEvent, ...]:
    """What each event teaches of downtime: a standstill where that can be said, else what was measured."""
    if isinstance(capacity, Unknown) or isinstance(engine, Unknown):
        return tuple(event for event, _ in found)
    models = foretelling(capacity, engine, DowntimeModel())
    known = {id(event) for event, _ in drills(found)}

    def one(event: RecoveryEvent, details: Mapping[str, Any]) -> RecoveryEvent:
        if id(event) not in known:
            return event
        told = drill_figures.lesson(event, details, at_its_pace(models, event.scale_out, details))
        return event if isinstance(told, Unknown) else told

    return tuple(one(event, details) for event, details in found)


def foretelling(capacity: CapacityModel, engine: EngineInputs, downtime: DowntimeModel) -> Models:
    """What recoveries are foretold with."""
    return Models(
        capacity=capacity,
        downtime=downtime,
        overhead_s=engine.overhead_s,
        limit_records=engine.limit_records,
        trigger_s=engine.trigger_s,
    )


_NEEDED = ("rate_rps", "lag_before_records", "band_s", "longest_s")


def arrivals(store: Store, job: str) -> Grid | Unknown:
    """The job's arrival rate, with what the loop has seen since the last time."""
    workload_history.remember_live(store, job)
    return workload_history.history(store, job)


def _recovering(at_s: float, one: Measurement, lived: Sequence[Event]) -> bool:
    """Was some failure or change being worked off while this stretch was measured? `at_s` is its end."""
    return any(
        event.failed_at_s < at_s
        and at_s - one.duration_s < event.failed_at_s + min(event.recovery_s, GIVEN_UP_S)
        for event, _ in lived
    )


def _contradicts(one: Measurement, profile: Sequence[Measurement]) -> bool:
    """Does the profile say that this cannot be?"""
    here = [other for other in profile if other.scale_out == one.scale_out]
    if one.sustained:
        saturated = [other.throughput_rps for other in here if not other.sustained]
        return bool(saturated) and one.throughput_rps > (1.0 + CONTRADICTION) * max(saturated)
    sustained = [other.throughput_rps for other in here if other.sustained]
    return bool(sustained) and max(sustained) > (1.0 + CONTRADICTION) * one.throughput_rps
