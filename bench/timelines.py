"""What Dagster stores of a day of ticks of one job, beside our own store.

Each tick leaves an observation of `decision`, now and then of the input and the query, and a line in the
sensor's history, as the daemon writes it. A real instance in a folder of its own; TICKS of them, extrapolated
to the day. Sizes are those of closed databases: SQLite's log of writes is as long after an hour as after a
day.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import dagster as dg
from dagster._core.scheduler.instigation import InstigatorType, TickData, TickStatus

from assets.decide import observations
from profiling_jobs.control_loop.memory import Evaluation

from . import Figure

WARM_UP = 20
TICKS = 100
DAY = 2880  # intervals of 30 s
SAID = "the load to come, 36,400 records/s at most, fits 42,100; a failure is recovered in 74–96 s of 120 s"


def evaluation(number: int) -> dict[str, object]:
    """A tick that holds, with everything known."""
    interval = {"low": 39_100.0 + number, "mid": 42_100.0 + number, "high": 44_900.0, "confidence": 0.9}
    verdict = {
        "scale_out": 6,
        "status": "feasible",
        "excuses": [],
        "capacity": interval,
        "probability": 0.987,
    }
    return Evaluation(
        job="orders",
        at_s=1.7e9 + 30.0 * number,
        interval=number,
        interval_s=30.0,
        mode="apply",
        epoch=number,
        scale_out=6,
        instruction={"do": "hold", "to": None, "would": None, "reason": SAID},
        apply=None,
        observation={
            "arrival_rps": 31_234.5 + number,
            "throughput_rps": 31_230.1,
            "lag_records": 12_345.0,
            "latency_ms": 812.3,
            "executors_alive": 6,
            "hottest_share": 0.71,
        },
        lag_s=0.4,
        decision={
            "scale_out": 6,
            "smallest": 6,
            "verdicts": [{**verdict, "recovery_s": interval}],
        },
        models_version="capacity 3, latency 2, recovery 4, workload 17",
        capacity={"used": interval},
        forecast={"peak": interval},
        promise={"target_s": 120.0, "confidence": 0.95},
    ).to_json()


def measure() -> Iterable[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        ticks(folder, range(WARM_UP))
        before = size(folder)
        began_s = time.process_time()
        ticks(folder, range(WARM_UP, WARM_UP + TICKS))
        took_s = (time.process_time() - began_s) / TICKS
        grown = size(folder) - before
    yield Figure("Dagster keeps of a tick", grown / TICKS / 1e3, "kB")
    yield Figure("Dagster keeps of a day of ticks", grown / TICKS * DAY / 1e6, "MB", at_most=35.0)
    yield Figure("processor time to report a tick", took_s, "s", at_most=0.3)


def ticks(folder: str, numbers: Iterable[int]) -> None:
    with dg.DagsterInstance.from_config(folder) as instance:
        instance.get_runs_count()
        for number in numbers:
            tick(instance, number)


def tick(instance: dg.DagsterInstance, number: int) -> None:
    found = evaluation(number)
    for event in observations(found):
        instance.report_runless_asset_event(event)
    instance.create_tick(
        TickData(
            instigator_origin_id="0" * 40,
            instigator_name="optimization_sensor",
            instigator_type=InstigatorType.SENSOR,
            status=TickStatus.SKIPPED,
            timestamp=1.7e9 + 30.0 * number,
            selector_id="1" * 40,
            skip_reason=f"orders: hold 6 executors: {SAID}",
            cursor='{"schema": 1, "reported": {"orders": 58333333}}',
        )
    )


def size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
