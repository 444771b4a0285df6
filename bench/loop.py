"""Cost of a tick, also the first after a restart and with many jobs, and what a day of them stores.

Real SQLite, real champions from their files, the real optimiser on 24 sizes, metrics of a job with 12
partitions and as many workers as it has executors; only the job itself is a stub that answers at once. Over
the day the optimiser is asked once in REAL_EVERY ticks and its answer repeated, which is as large.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from models.capacity import CapacityModel
from models.control import Decider, Decision, Settings, Situation
from models.control.state import by_optimise
from models.downtime import DowntimeModel
from models.ports import Commit, ExecutorSample, Rescaled, Sample, Status
from models.promise import Promise
from models.quantities import Measurement
from models.workload import Forecaster, fit_forecast
from pipelines.integrations.stores.sqlite import SqliteStore
from profiling_jobs.control_loop.context import InCharge, Loop
from profiling_jobs.control_loop.evaluation import evaluate
from profiling_jobs.telemetry.batch_costs import EngineInputs
from profiling_jobs.telemetry.timeline import Timeline
from profiling_jobs.training.champions import Champions, document, export, training

from . import Figure

INTERVAL_S = 30.0
TICKS = 2880
SIZES = 24
JOBS = 20
RUNNING = 12
PARTITIONS = 12
SAMPLE_S = 5.0
REAL_EVERY = 48
START_S = 1_700_000_010.0
ROOT = Path(__file__).parent.parent
FIRST = "import sys; from bench.loop import first_tick; print(*first_tick(sys.argv[1], int(sys.argv[2])))"


def rate(at_s: float) -> float:
    """A day's wave with noise, records/s."""
    noise = math.sin(at_s * 12.9898) * 43758.5453
    return 9_000.0 * (1.0 + 0.4 * math.sin(2.0 * math.pi * at_s / 86_400.0)) * (0.98 + 0.04 * (noise % 1.0))


class Job:
    """Metrics and deployments of jobs that keep up, a sample every SAMPLE_S seconds."""

    def __init__(self) -> None:
        self.now_s = START_S
        self.size = RUNNING
        self.timelines: dict[str, Timeline] = {}
        self.arrived = 0.0

    def status(self, name: str) -> Status:
        return Status("running", self.size, self.size, "run-1")

    def scale(self, name: str, scale_out: int, *, epoch: int) -> Rescaled:
        raise AssertionError("a bench recommends only")

    def now(self) -> float:
        return self.now_s

    def advance(self, seconds: float, jobs: Iterable[str]) -> None:
        """Let time pass, and sample."""
        until = self.now_s + seconds
        while self.now_s < until - 1e-6:
            self.now_s += SAMPLE_S
            self.arrived += rate(self.now_s) * SAMPLE_S
            each = int(self.arrived / PARTITIONS)
            head = {("events", p): each for p in range(PARTITIONS)}
            behind = {("events", p): max(0, each - 1_500) for p in range(PARTITIONS)}
            share = rate(self.now_s) / (1_400.0 * self.size)
            workers = tuple(
                ExecutorSample(str(n), "running", share * (0.9 + 0.2 * n / self.size), share, 1_400.0 * share)
                for n in range(self.size)
            )
            batch = int(self.now_s / SAMPLE_S)
            sample = Sample(
                at_s=self.now_s,
                head=head,
                committed=behind,
                committed_source="checkpoint",
                log_start=dict.fromkeys(head, 0),
                lag_records=1_500.0 * PARTITIONS,
                last_batch=batch,
                last_commit_at_s=self.now_s - 1.0,
                run_id="run-1",
                executors=workers,
                latency_p95_ms=1_900.0,
                commits=(Commit(batch, self.now_s - 1.0, behind),),
            )
            for job in jobs:
                self.timelines.setdefault(job, Timeline()).add(sample)

    @contextmanager
    def reading(self, name: str) -> Iterator[Timeline]:
        yield self.timelines.setdefault(name, Timeline())


@dataclass(frozen=True)
class Clock:
    job: Job

    def now_s(self) -> float:
        return self.job.now_s

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a tick does not wait")


class Repeated:
    """The optimiser's answer, worked out anew once in REAL_EVERY times."""

    def __init__(self) -> None:
        self.asked, self.answer = 0, None

    def __call__(self, situation: Situation) -> Decision:
        if self.answer is None or self.asked % REAL_EVERY == 0:
            self.answer = by_optimise(situation)
        self.asked += 1
        return self.answer


def settings(sizes: int = SIZES, decide: Decider = by_optimise) -> Settings:
    promise = Promise(180.0)
    return Settings(
        promise=promise, max_scale_out=sizes, interval_s=INTERVAL_S, mode="recommend", decide=decide
    )


def promote(folder: Path, jobs: Iterable[str]) -> None:
    """Champions as a fit leaves them: a day of history, an ARIMA around its curve."""
    history = [rate(START_S - 60.0 * (1440 - k)) for k in range(1440)]
    forecaster = fit_forecast(np.asarray(history), step_s=60.0, horizon_s=settings().horizon_s, seed=1)
    probes = [Measurement(n, 1_800.0 * n, 1_400.0 * n**0.97, False, duration_s=60.0) for n in (1, 4, 12, 24)]
    engine = EngineInputs({1: 0.3, 12: 0.4})
    for job in jobs:
        for kind, model, to_s, inputs in (
            ("workload", forecaster, START_S, None),
            ("capacity", CapacityModel.fit(probes), None, engine),
            ("recovery", DowntimeModel(), None, None),
        ):
            assert isinstance(model, Forecaster | CapacityModel | DowntimeModel)
            body = document(kind, model, trained_on=training([1], to_s=to_s), engine=inputs)
            export(folder, job, kind, 1, body)


def in_charge(folder: Path, job: str) -> InCharge:
    found = Champions.load(folder, job)
    return InCharge(
        models=found.models(),
        forecaster=found.forecaster,
        forecaster_until_s=found.forecaster_until_s,
        versions=found.versions,
        seed=found.seed,
    )


def loop(store: SqliteStore, job: Job, folder: Path) -> Loop:
    def champions(name: str) -> InCharge:
        return in_charge(folder, name)  # from the files at every tick: as slow as it gets

    return Loop(store, job, job, champions, Clock(job))  # type: ignore[arg-type]


def first_tick(folder: str, hour: int) -> tuple[float, float]:
    """Seconds of the first tick of a process, by the clock and of processor time, imports included."""
    job = Job()
    job.now_s = START_S + 3600.0 * hour
    job.advance(60.0, ["job-0"])
    with SqliteStore(Path(folder) / "store.sqlite") as store:
        started, busy = time.perf_counter(), time.process_time()
        found = evaluate("job-0", settings=settings(), loop=loop(store, job, Path(folder)), now_s=job.now_s)
        took, worked = time.perf_counter() - started, time.process_time() - busy
    assert "verdicts" in found.decision, found.reason
    return took, worked


def size_mb(file: Path) -> float:
    """With its journal."""
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*")) / 1e6


def many(folder: Path) -> tuple[list[float], list[float]]:
    """Seconds of each tick of JOBS jobs, by the clock and of processor time."""
    jobs = [f"job-{n}" for n in range(JOBS)]
    job, taken, worked = Job(), [], []
    with SqliteStore(folder / "store.sqlite") as store:
        ticking = loop(store, job, folder)
        for _ in range(3):
            job.advance(INTERVAL_S, jobs)
            for name in jobs:
                started, busy = time.perf_counter(), time.process_time()
                evaluate(name, settings=settings(), loop=ticking, now_s=job.now_s)
                taken.append(time.perf_counter() - started)
                worked.append(time.process_time() - busy)
    return taken, worked


def day(folder: Path, *, sizes: int) -> tuple[float, float]:
    """MB that a day of one job's ticks adds to an empty store, and the processor time of a tick alone.

    The store is a new one: one that has kept older days deletes them and grows into the space.
    """
    job, file = Job(), folder / f"{sizes}.sqlite"
    agreed = settings(sizes, Repeated())
    with SqliteStore(file):
        pass
    before = size_mb(file)
    with SqliteStore(file) as store:
        ticking = loop(store, job, folder)
        job.advance(INTERVAL_S, ["job-0"])
        evaluate("job-0", settings=agreed, loop=ticking, now_s=job.now_s)
        worked = []
        for _ in range(TICKS):
            job.advance(INTERVAL_S, ["job-0"])
            busy = time.process_time()
            found = evaluate("job-0", settings=agreed, loop=ticking, now_s=job.now_s)
            worked.append(time.process_time() - busy)
        assert len(found.decision["verdicts"]) == sizes, found.reason
    return size_mb(file) - before, statistics.median(worked)


def measure() -> Iterable[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        promote(folder, [f"job-{n}" for n in range(JOBS)])
        command = [sys.executable, "-c", FIRST, name]
        taken, worked = many(folder)
        yield Figure(f"loop: tick, {JOBS} jobs, median", statistics.median(taken), "s", at_most=1.0)
        yield Figure(f"loop: tick, {JOBS} jobs, worst", max(taken), "s", at_most=1.0)
        yield Figure(f"loop: tick, {JOBS} jobs, processor time, median", statistics.median(worked), "s")
        firsts = [
            [
                float(word)
                for word in subprocess.check_output([*command, str(hour)], text=True, cwd=ROOT).split()
            ]
            for hour in (1, 2, 3)
        ]
        first, worked_first = (statistics.median(column) for column in zip(*firsts, strict=True))
        yield Figure("loop: first tick after a restart, median of three", first, "s", at_most=1.0)
        yield Figure("loop: first tick after a restart, processor time", worked_first, "s")
        for sizes in (SIZES, 256):
            grown, median = day(folder, sizes=sizes)
            ticks = f"{TICKS} ticks, {sizes} sizes"
            yield Figure(f"loop: store grown by a day, {ticks}", grown, "MB", at_most=50.0)
            yield Figure(f"loop: tick without its decision, processor time, {ticks}", median, "s")
