"""What a day of ticks writes into the store, and how long a tick waits for it."""

from __future__ import annotations

import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from models.ports import Control, Lease
from models.quantities import RecoveryEvent
from pipelines.integrations.stores.sqlite import SqliteStore

from . import Figure

TICKS = 2880  # a day at E = 30 s


def evaluation(rng: random.Random, tick: int, *, sizes: int) -> dict[str, object]:
    """As a decision should write it: one verdict per candidate, its excuse, figures to five digits.

    With all seventeen digits the day takes 10 MB at 24 candidates and 65 MB at 256: noise does not compress.
    """
    rate = 30_000.0 * (1.0 + 0.3 * math.sin(tick / 400.0)) * rng.uniform(0.98, 1.02)
    verdicts = []
    for size in range(1, sizes + 1):
        capacity = 1400.0 * size * rng.uniform(0.99, 1.01)
        worst = rng.uniform(60.0, 300.0) if capacity > rate else math.inf
        status = "feasible" if worst <= 180.0 else "infeasible"
        verdicts.append(
            {
                "scale_out": size,
                "status": status,
                "excuses": [f"recovery {worst:.0f} s > 180 s after driver_kill"] * (status != "feasible"),
                "capacity_rps": [short(capacity * factor) for factor in (0.95, 1.0, 1.05)],
                "probability": short(rng.random()),
                "worst_moment_s": float(rng.randrange(900)),
                "worst_kind": "driver_kill",
                "recovery_s": [short(worst * factor) for factor in (0.8, 1.0, 1.3)],
            }
        )
    return {
        "decision": {"scale_out": sizes, "reason": f"hold {sizes} executors: forecast {rate:.0f} rps fits"},
        "observation": {"arrival_rps": rate, "lag_records": rng.uniform(0, 1e5), "latency_ms": rng.random()},
        "models": {"capacity": 14, "recovery": 9, "workload": 120, "latency": 3},
        "seed": tick,
        "verdicts": verdicts,
    }


def short(value: float) -> float:
    return float(f"{value:.5g}")


def day(folder: Path, *, sizes: int) -> tuple[float, list[float], float]:
    """Growth of the file in MB, seconds of each tick's writes, seconds to open it again and read on."""
    rng = random.Random(1)
    path = folder / f"{sizes}.db"
    taken = []
    with SqliteStore(path) as store:
        control = Control("orders", 0, {})
        store.save_control(control, expected_epoch=None)
        empty = size_mb(path)
        for tick in range(TICKS):
            what = evaluation(rng, tick, sizes=sizes)
            now = 30.0 * tick
            state = {"window": [rng.randrange(1, sizes + 1) for _ in range(60)], "last_s": now}
            after = Control("orders", control.epoch + (tick % 40 == 0), state)
            started = time.perf_counter()
            store.directives("orders", now_s=now)
            assert store.record_evaluation("orders", interval=tick, at_s=now, evaluation=what)
            assert store.save_control(after, expected_epoch=control.epoch)
            taken.append(time.perf_counter() - started)
            if after.epoch > control.epoch:
                lease = Lease("orders", after.epoch, f"run-{tick}", until_s=now + 120.0)
                assert store.claim(lease, now_s=now)
                store.release(lease)
                event = RecoveryEvent("live_out", sizes, now, 2.0, 30.0)
                store.add_event("orders", event, details={"path": "live"})
            control = after
        grown = size_mb(path) - empty
    started = time.perf_counter()
    with SqliteStore(path) as store:
        store.control("orders")
        store.evaluations("orders", limit=20)
    return grown, taken, time.perf_counter() - started


def size_mb(path: Path) -> float:
    return sum(each.stat().st_size for each in path.parent.glob(path.name + "*")) / 1e6


def measure() -> Iterable[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        for sizes in (24, 256):
            grown, taken, opened = day(Path(folder), sizes=sizes)
            ticks = f"{TICKS} ticks, {sizes} candidates each"
            yield Figure(f"store: growth in a day, {ticks}", grown, "MB", at_most=50.0)
            yield Figure(f"store: writes of one tick, median, {ticks}", 1e3 * statistics.median(taken), "ms")
            yield Figure(f"store: writes of one tick, worst, {ticks}", 1e3 * max(taken), "ms")
            yield Figure(f"store: open again and read the newest 20, {ticks}", 1e3 * opened, "ms")
