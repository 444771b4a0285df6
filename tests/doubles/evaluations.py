"""Evaluations of a job with four executors, as ticks write them into the store."""

from __future__ import annotations

from typing import Any

from models.ports import Store
from profiling_jobs.control_loop.memory import Evaluation

TWO_JOBS = """
[job.orders]
build = "some.module:build"
inputs = {events = "orders"}
scale_out_max = 8
mode = "apply"

[job.clicks]
build = "some.module:build"
inputs = {events = "clicks"}
"""


def evaluation(at_s: float, *, job: str = "orders", **changes: Any) -> Evaluation:
    """One that holds the size, with nothing seen or decided but what is given."""
    given: dict[str, Any] = {
        "job": job,
        "at_s": at_s,
        "interval": int(at_s // 60),
        "interval_s": 60.0,
        "mode": "apply",
        "epoch": 1,
        "scale_out": 4,
        "instruction": instruction(),
        "apply": None,
    }
    return Evaluation(**given | changes)


def instruction(
    do: str = "hold", *, to: int | None = None, would: int | None = None, reason: str = "fits"
) -> dict[str, Any]:
    """What was decided to do."""
    return {"do": do, "to": to, "would": would, "reason": reason}


def record(store: Store, *many: Evaluation) -> None:
    """Write them down; each must be the first of its interval."""
    for one in many:
        assert store.record_evaluation(
            one.job, interval=one.interval, at_s=one.at_s, evaluation=one.to_json()
        )


def verdict(size: int, status: str = "feasible", **changes: Any) -> dict[str, Any]:
    """What the optimiser has answered of a size."""
    excuse = {
        "condition": "recovery",
        "sentence": "driver_kill in 79 s is recovered within 60 s in 71 % of the draws, 95 % are promised",
        "measure": None,
    }
    return {
        "scale_out": size,
        "status": status,
        "excuses": [] if status == "feasible" else [excuse],
        "capacity": {"low": 970.0 * size, "mid": 1000.0 * size, "high": 1030.0 * size, "confidence": 0.9},
        "probability": 0.985 if status == "feasible" else 0.71,
        "worst_moment_s": 79.0,
        "worst_kind": "driver_kill",
        "load_probability": 1.0,
        "rescale_probability": 1.0,
        "latency_ms": {"unknown": "no model"},
        "recovery_s": {"unknown": "worked out for the chosen size and its neighbours only"},
        **changes,
    }


def forecast(at_s: float) -> dict[str, Any]:
    """Of the champion: 2,000 records/s."""
    return {
        "by": "champion",
        "model": "arima",
        "from_s": at_s,
        "step_s": 60.0,
        "horizon_s": 270.0,
        "mean_rps": 2000.0,
        "peak": {"low": 1900.0, "mid": 2000.0, "high": 2100.0, "confidence": 0.9},
        "misses_in_row": 0,
        "instead": None,
        "scored": [],
    }
