"""Observation of one job over one evaluation interval.

Every field may be `Unknown`: a signal that was not read is not a zero, and nothing is scaled down on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .quantities import Unknown

if TYPE_CHECKING:
    from .workload import Forecast

NOT_OBSERVED = Unknown("not observed")


@dataclass(frozen=True)
class OperatorRates:
    """One operator's rates over the evaluation interval, each per subtask, records/s; true = while busy."""

    input_rps: Mapping[int, float]
    output_rps: Mapping[int, float]
    true_processing_rps: Mapping[int, float]
    true_output_rps: Mapping[int, float]


@dataclass(frozen=True)
class ExecutorLoss:
    """An executor that was lost while its query went on."""

    at_s: float
    """When its driver gave it up."""
    silent_s: float | Unknown = NOT_OBSERVED
    """How long it had not answered before, as its driver says; 0 where its connection broke."""


@dataclass(frozen=True)
class DriverLoss:
    """A driver that died, or that was ended after a silence."""

    at_s: float
    """When it stopped answering."""
    run_id: str
    """The run that ended with it."""
    silent_s: float
    """How long its process was there and did not answer."""


@dataclass(frozen=True)
class Symptoms:
    """What the samples between two observations show of failures. Times are epoch seconds."""

    watched_since_s: float
    """Since when it was read without a pause of ours; the brokers' silence is none."""
    executors_lost: tuple[ExecutorLoss, ...] = ()
    drivers_lost: tuple[DriverLoss, ...] = ()
    brokers_silent_s: tuple[tuple[float, float], ...] = ()
    """Begin and end of each silence that is over."""


@dataclass(frozen=True)
class Observation:
    """One evaluation interval of one job, as far as it could be read. Times are epoch seconds."""

    at_s: float
    scale_out: int | Unknown = NOT_OBSERVED
    arrival_rps: float | Unknown = NOT_OBSERVED
    throughput_rps: float | Unknown = NOT_OBSERVED
    lag_records: float | Unknown = NOT_OBSERVED
    lag_readings: Sequence[tuple[float, float]] | Unknown = NOT_OBSERVED
    """Time and lag of every reading since the observation before, where known: a recovery is over between two
    of them."""
    latency_ms: float | Unknown = NOT_OBSERVED
    cpu: Mapping[str, float] | Unknown = NOT_OBSERVED
    """Per worker, 0…1: the mean share of its CPU (or of its busy time) over the interval."""
    limited_by: Literal["cpu", "waiting"] | Unknown = NOT_OBSERVED
    """What the workers will run out of first: processors, or time while they wait for something else."""
    worker_rps: Mapping[str, float] | Unknown = NOT_OBSERVED
    """Per worker: its part of the throughput over the interval, in records of the input."""
    operators: Mapping[str, OperatorRates] | Unknown = NOT_OBSERVED
    forecast: Forecast | Unknown = field(default=NOT_OBSERVED)
    run_id: str | Unknown = NOT_OBSERVED
    """Changes with every restart of the query."""
    executors_alive: int | Unknown = NOT_OBSERVED
    last_commit_at_s: float | Unknown = NOT_OBSERVED
    commits_at_s: Sequence[float] | Unknown = NOT_OBSERVED
    """Every commit since the observation before, where known: they place a downtime by the second."""
    symptoms: Symptoms | Unknown = NOT_OBSERVED
