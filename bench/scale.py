"""What many jobs cost one owner: a day of 20 jobs, and an hour of 20, of 100 and of 200. It takes 80 minutes.

The server in its own process, with its real loop, models and SQLite, on a simulated cluster: samples of all
jobs every few seconds, and an evaluation of each job a minute, whose changes are carried out. Simulated time
passes as fast as it can be computed. The simulation runs in the same process, and its memory is counted.

Memory is the proportional set size. The last hour of the day is compared with the third. The disk is the
store, which is what an owner alone writes; what Dagster and MLflow keep of a tick is in docs/disk.md.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from models.capacity import CapacityModel
from models.downtime import DowntimeModel
from models.errors import HeadroomError
from models.quantities import Measurement
from models.workload import Forecaster, fit_forecast
from pipelines.environments import base
from pipelines.environments.base import Environment
from pipelines.server.in_process import InProcessServer
from pipelines.settings import loading
from profiling_jobs.periodic import Periodic
from profiling_jobs.telemetry.batch_costs import EngineInputs
from profiling_jobs.training.champions import document, export, training

from . import Figure

DAY_JOBS, DAY_H = 20, 24
HOUR_JOBS = (20, 100, 200)
INTERVAL_S = 60.0
MEAN_RPS, SWING = 1_600.0, 0.4
EXECUTOR_RPS = 800.0  # of the simulated job
LARGEST = 8
FLOW_EVERY_S = 30.0
MB = 1e6
STATED_GB = 1.4 / 10.0 / 30.0
"""Of evaluations, a job and day: docs/disk.md."""
TOML = f"""
[deployment]
kind = "simulated"
[spark]
slots = {LARGEST * max(*HOUR_JOBS, DAY_JOBS)}
"""
JOB = f"""
[job.NAME]
build = "profiling_jobs.jobs.enrichment:build"
inputs = {{events = "NAME-events"}}
max_offsets_per_trigger = 2000
scale_out = 4
scale_out_max = {LARGEST}
mode = "apply"
"""


@dataclass
class Cost:
    """What an owner has needed, hour by hour."""

    ticks_s: list[float] = field(default_factory=list)
    """By the clock, of every evaluation."""
    worked_s: float = 0.0
    """Processor time of the evaluations."""
    busy_s: float = 0.0
    """Processor time of everything, the simulation included."""
    memory_mb: list[list[float]] = field(default_factory=list)
    store_mb: list[float] = field(default_factory=list)
    """At the end of each hour."""
    changes: int = 0


def load_rps(number: int, at_s: float) -> float:
    """A day's wave, with its highest point at another hour for each job."""
    return MEAN_RPS * (1.0 + SWING * math.sin(2.0 * math.pi * (at_s / 86_400.0 + number / 7.0)))


def names(jobs: int) -> list[str]:
    return [f"job-{number}" for number in range(jobs)]


def promote(folder: Path, jobs: int, *, until_s: float) -> None:
    """Models in charge as fits leave them: a day of history, and a profile of four sizes."""
    probes = [
        Measurement(n, 1.3 * EXECUTOR_RPS * n, EXECUTOR_RPS * n**0.97, False, duration_s=60.0)
        for n in (1, 2, 4, LARGEST)
    ]
    capacity, downtime = CapacityModel.fit(probes), DowntimeModel()
    assert isinstance(capacity, CapacityModel)
    for number, job in enumerate(names(jobs)):
        history = [load_rps(number % 7, until_s - 60.0 * (1440 - k)) for k in range(1440)]
        forecaster = fit_forecast(np.asarray(history), step_s=60.0, horizon_s=900.0, seed=1)
        assert isinstance(forecaster, Forecaster)
        for kind, model, to_s, engine in (
            ("workload", forecaster, until_s, None),
            ("capacity", capacity, None, EngineInputs({1: 0.3, LARGEST: 0.4}, 2000)),
            ("recovery", downtime, None, None),
        ):
            export(
                folder,
                job,
                kind,
                1,
                document(kind, model, trained_on=training([1], to_s=to_s), engine=engine),
            )


def owned(folder: Path, *, jobs: int, hours: int = 1, minutes: int = 60) -> Cost:
    """What so many jobs have cost for so long. `minutes`: of each hour, fewer for a try."""
    text = TOML + "".join(JOB.replace("NAME", name) for name in names(jobs))
    settings = loading.parse(text, environment={})
    promote(folder, jobs, until_s=time.time())  # when simulated time begins
    found = Cost()
    with base.opened(settings, folder) as here, InProcessServer(here, settings, folder) as server:
        for name in names(jobs):
            here.broker.create(f"{name}-events", partitions=12)
        flowing = Periodic(
            lambda: _flow(here, jobs),
            every_s=FLOW_EVERY_S,
            name="load",
            clock=here.clock,
            taking_part=here.taking_part,
        )
        with flowing, here.taking_part():
            orders = [server.begin("launch", name) for name in names(jobs)]
            while any(server.order(order)["state"] == "running" for order in orders):
                here.clock.sleep(1.0)
            began_s = time.process_time()
            for _ in range(hours):
                found.memory_mb.append([])
                for _ in range(minutes):
                    here.clock.sleep(INTERVAL_S - here.clock.now_s() % INTERVAL_S)
                    _tick(server, names(jobs), found)
                    found.memory_mb[-1].append(psutil.Process().memory_full_info().pss / MB)
                found.store_mb.append(
                    sum(file.stat().st_size for file in folder.glob("headroom.sqlite*")) / MB
                )
            found.busy_s = time.process_time() - began_s
    return found


def _flow(here: Environment, jobs: int) -> None:
    assert here.flow is not None
    for number, name in enumerate(names(jobs)):
        here.flow(f"{name}-events", load_rps(number % 7, here.clock.now_s()))


def _tick(server: InProcessServer, jobs: Sequence[str], found: Cost) -> None:
    """Evaluate every job once, as the sensor does, and carry out what was decided."""
    for name in jobs:
        began_s, busy_s = time.perf_counter(), time.thread_time()
        evaluation = server.evaluate(name)
        found.ticks_s.append(time.perf_counter() - began_s)
        found.worked_s += time.thread_time() - busy_s
        if change := evaluation.get("apply"):
            found.changes += 1
            with suppress(HeadroomError):  # the next tick asks again
                server.begin("apply", name, epoch=change["epoch"], to=change["to"])


def measure() -> Iterable[Figure]:
    with tempfile.TemporaryDirectory(prefix="headroom-bench-") as name:
        costs = {jobs: owned(Path(name) / str(jobs), jobs=jobs, hours=1) for jobs in HOUR_JOBS}
        day = owned(Path(name) / "day", jobs=DAY_JOBS, hours=DAY_H)
    for jobs, cost in costs.items():
        ticks = len(cost.ticks_s)
        yield Figure(f"hour of {jobs} jobs: tick, processor time", cost.worked_s / ticks, "s")
        yield Figure(f"hour of {jobs} jobs: memory", max(cost.memory_mb[-1]), "MB")
        yield Figure(f"hour of {jobs} jobs: processor, with the simulation", cost.busy_s / jobs, "s a job")
    few, many = costs[HOUR_JOBS[0]], costs[HOUR_JOBS[-1]]
    growth = (many.worked_s / len(many.ticks_s)) / (few.worked_s / len(few.ticks_s))
    times = HOUR_JOBS[-1] / HOUR_JOBS[0]
    yield Figure(f"cost of a tick with {times:.0f} times the jobs, beside few", growth, "×", at_most=1.25)
    second, last = (statistics.mean(day.memory_mb[hour]) for hour in (2, -1))
    name = f"day of {DAY_JOBS} jobs"
    yield Figure(f"{name}: memory in its last hour beside its third", last / second, "×", at_most=1.05)
    yield Figure(f"{name}: memory at most", max(map(max, day.memory_mb)), "MB")
    stated = STATED_GB * 1e3 * DAY_JOBS
    yield Figure(f"{name}: growth of the store", day.store_mb[-1], "MB", at_most=stated)
    yield Figure(f"{name}: tick, median", statistics.median(day.ticks_s), "s", at_most=0.1)
    yield Figure(f"{name}: tick, 99th percentile", float(np.quantile(day.ticks_s, 0.99)), "s")
    yield Figure(f"{name}: changes of size", day.changes, "")
