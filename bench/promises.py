"""How often a decision promises too much: random situations, judged by an independent simulator.

Each situation is put to `by_optimise`, as the control loop does it, with a forecast whose paths are the
truth, capacities with the error that their intervals say, and downtimes learnt from simulated drills. The
chosen size and the next smaller one are then judged batch by batch (`_truths_promises`): the share of
failures, at the worst moment until the next decision can act, that are recovered within the target.

    too small    the chosen size keeps less than is asked, by more than the error of the simulation
    too large    the next smaller size would have kept it, with as much certainty
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import ndtri

from bench._truths_optimise import Paths
from models.control.state import Models, Settings, Situation, by_optimise
from models.downtime import DowntimeModel
from models.promise import Promise
from models.quantities import Interval, RecoveryEvent, Unknown
from profiling_jobs.telemetry.batch_costs import BareCapacity, EngineInputs
from profiling_jobs.training.training_data import downtimes

from . import Figure
from ._truths_promises import Engine, Futures, least_kept, recoveries

SITUATIONS = 24  # per family
DRAWS = 3000  # of a judgement: 0.4 points where 95 % are kept
DRAWS_IN_DOUBT = 20_000  # before a size counts as too small: one that keeps 95 % looks so once in forty times
PATHS = 200
DRILLS = 80
SIZES = tuple(range(1, 49))
ERRORS = 2.0  # standard errors of the simulation
KIND = "driver_kill"


@dataclass(frozen=True)
class Job:
    """The truth about one job."""

    engine: Engine
    per_executor_rps: float
    power: float
    error: float
    """Of the capacity: half a 90 % interval, relative."""
    start_s: float
    """Median from a failure to the start of the first batch."""
    spread: float

    def capacity_rps(self, size: int) -> float:
        return self.per_executor_rps * size**self.power

    def starts_s(self, levels: Any) -> Any:
        """Log-normal in d + 1 s."""
        return np.maximum(0.0, (self.start_s + 1.0) * np.exp(self.spread * ndtri(levels)) - 1.0)

    def sustained_rps(self, size: int) -> float:
        bare, engine = self.capacity_rps(size), self.engine
        if np.isinf(engine.limit):
            return bare
        return float(engine.limit / max(engine.overhead_s + engine.limit / bare, engine.trigger_s))


@dataclass(frozen=True)
class Profile:
    """What profiling says about it: the rate that full batches sustain, and its interval."""

    job: Job

    def predict(self, scale_out: int) -> Interval | Unknown:
        engine, bare = self.job.engine, self.job.capacity_rps(scale_out)
        ends = [bare / (1.0 + self.job.error), bare, bare * (1.0 + self.job.error)]
        if np.isfinite(engine.limit):
            ends = [engine.limit / (engine.overhead_s + engine.limit / end) for end in ends]
        return Interval(*ends, 0.9)


@dataclass(frozen=True)
class Case:
    """One situation."""

    job: Job
    target_s: float
    moments_s: float
    rates: Any
    before_rps: float
    lag: float
    drilled_at: float
    """Utilisation of the drills from which the downtime is learnt."""


@dataclass(frozen=True)
class Judged:
    """One decision: points short of what was asked, and executors more than needed."""

    short: float
    excess: int
    chosen: int


def drilled(job: Job, *, used: float, target_s: float, rng: Any) -> DowntimeModel:
    """The downtimes learnt from drills at this utilisation, as training learns them."""
    size = 4
    capacity = job.capacity_rps(size)
    rate = used * job.sustained_rps(size)
    lanes = np.arange(DRILLS)
    futures = Futures(np.full((1, 4000), rate), 0.0, rate)
    start = rng.permutation(job.starts_s((lanes + 0.5) / DRILLS))
    cycle, batch = job.engine.cycle_s(np.array(rate / capacity))
    phase = rng.permutation((lanes + 0.5) / DRILLS)
    waiting = _healthy(rate, phase, cycle, batch)
    band = float(min(max(1.25 * (cycle + batch) + 0.5, 2.0 * job.engine.trigger_s), target_s / 2.0))
    taken, first_commit = recoveries(
        futures,
        job.engine,
        np.zeros(DRILLS, dtype=int),
        capacity=np.full(DRILLS, capacity),
        failed_s=np.full(DRILLS, 100.0),
        waiting=waiting,
        start_s=start,
        band_s=np.full(DRILLS, band),
        longest_s=3000.0,
    )
    details = {
        "rate_rps": rate,
        "lag_before_records": float(waiting.mean()),
        "band_s": band,
        "longest_s": 3000.0,
        "batch_s": float(batch),
    }
    inputs = EngineInputs({1: job.engine.overhead_s}, job.engine.limit, job.engine.trigger_s)
    events = [
        (RecoveryEvent(KIND, size, 1e9 + i, float(first_commit[i]), float(taken[i])), details) for i in lanes
    ]
    change = [RecoveryEvent(kind, size, 1e9, 1.0, 1.0) for kind in ("live_out", "live_in")] * DRILLS
    learnt = downtimes(events, capacity=Profile(job), engine=inputs)  # type: ignore[arg-type]
    return DowntimeModel.fit([*learnt, *change])


def _healthy(rate: float, phase: Any, cycle: Any, batch: Any) -> Any:
    into = phase * cycle
    return rate * np.where(into < batch, cycle + into, into)


def judged(case: Case, *, seed: int) -> Judged | None:
    """What is decided, against the truth; None where no size keeps the promise."""
    rng, job = np.random.default_rng(seed), case.job
    inputs = EngineInputs({1: job.engine.overhead_s}, job.engine.limit, job.engine.trigger_s)
    settings = Settings(
        promise=Promise(case.target_s),
        max_scale_out=SIZES[-1],
        interval_s=case.moments_s - 30.0,
        effect_s=30.0,
        failure_kinds=(KIND,),
        models=Models(
            BareCapacity(Profile(job), inputs),
            drilled(job, used=case.drilled_at, target_s=case.target_s, rng=rng),
            Unknown("the latency is not judged"),
            inputs.engine(),
            "1",
        ),
        seed=seed,
    )
    steps = int(np.ceil(case.moments_s + case.target_s))
    seen: Any = SimpleNamespace(
        forecast=Paths(case.rates[:PATHS, :steps]), arrival_rps=case.before_rps, lag_records=case.lag
    )
    decision = by_optimise(
        Situation(settings=settings, observation=seen, current=SIZES[-1], candidates=SIZES)
    )
    chosen = decision.smallest_feasible  # type: ignore[attr-defined]
    if isinstance(chosen, Unknown):
        return None
    asked = settings.promise.confidence
    # evenly, and before the ends of the batches that a lag makes at first
    moments = np.unique(np.concatenate([np.linspace(0.0, case.moments_s - 1.0, 16), np.arange(1.0, 12.0)]))

    def draws(count: int) -> Callable[[int], tuple[float, float]]:
        """The share of so many futures in which a size keeps the promise, and its standard error."""
        futures = Futures(case.rates[np.arange(count) % PATHS], case.lag, case.before_rps)
        z = rng.standard_normal(count) / 1.6449
        start, phase = job.starts_s(rng.uniform(size=count)), rng.uniform(size=count)

        def kept(size: int) -> tuple[float, float]:
            at = moments
            if case.lag:
                first = job.engine.overhead_s + min(case.lag, job.engine.limit) / job.capacity_rps(size)
                late = first * np.array([0.8, 0.9, 0.95, 1.0, 1.05, 1.1])
                at = np.unique(np.append(moments, late[late < case.moments_s]))
            share, error, _ = least_kept(
                futures,
                job.engine,
                capacity=job.capacity_rps(size) * (1.0 + job.error) ** z,
                start_s=start,
                phase=phase,
                moments=at,
                target_s=case.target_s,
            )
            return share, error

        return kept

    kept = draws(DRAWS)
    share, error = kept(chosen)
    if share < asked - ERRORS * error:
        share, error = draws(DRAWS_IN_DOUBT)(chosen)
    short = 100.0 * max(0.0, asked - share) if share < asked - ERRORS * error else 0.0
    needed = chosen
    while needed > 1 and not short:
        share, error = kept(needed - 1)
        if share < asked + ERRORS * error:
            break
        needed -= 1
    return Judged(short, chosen - needed, chosen)


def cases(family: str, *, count: int, seed: int = 7) -> Iterator[Case]:
    """Random situations of one family."""
    rng = np.random.default_rng([seed, *family.encode()])
    while count:
        target = float(rng.uniform(60.0, 300.0))
        moments = float(rng.choice([60.0, 90.0, 150.0, 330.0]))
        start = float(rng.uniform(3.0, 0.3 * target))
        trigger = float(rng.choice([0.0, 0.0, rng.uniform(1.0, 30.0)]))
        trigger = min(trigger, target / 8.0)
        needed = float(np.exp(rng.uniform(0.0, np.log(40.0))))
        power, error = float(rng.uniform(0.75, 1.0)), float(rng.uniform(0.02, 0.15))
        overhead, per = float(rng.uniform(0.2, 2.0)), float(rng.uniform(500.0, 5000.0))
        most = per * needed**power  # about the capacity that the load will need
        rate = most * 0.75 * max(0.05, 1.0 - 1.4 * (start + trigger) / target)
        limit = float("inf")
        if rng.uniform() < 0.5:  # room to catch up, in batches of some seconds or more than the trigger's
            limit = max(rng.uniform(3.0, 30.0) * most, 2.5 * rate * trigger)
        job = Job(Engine(overhead, limit, trigger), per, power, error, start, float(rng.uniform(0.1, 0.4)))
        lag = rng.uniform(20.0, 120.0) * rate if "backlog" in family else 0.0
        drilled_at = {"drills at u = 0.02": 0.02, "drills at u = 0.8": 0.8}.get(family, 0.4)
        steps = int(np.ceil(moments + target)) + 120
        shape = _shape(family, steps, PATHS, rng)
        noise = rng.uniform(0.0, 0.1)
        rates = rate * shape * rng.lognormal(0.0, noise, shape.shape)
        rates = rates * rng.lognormal(0.0, 0.03, (PATHS, 1))
        if not lag:
            cycle, batch = job.engine.cycle_s(np.array(rate / most))
            lag = float(rate * 0.5 * (cycle + batch))
        case = Case(job, target, moments, rates, rate, lag, drilled_at)
        yield case
        count -= 1


def _shape(family: str, steps: int, paths: int, rng: Any) -> Any:
    t = np.arange(steps) / 600.0
    if "rising" in family:
        return np.tile(1.0 + rng.uniform(0.2, 1.0) * t, (paths, 1))
    if "falling" in family:
        return np.tile(np.maximum(0.3, 1.0 - rng.uniform(0.2, 1.0) * t), (paths, 1))
    if "jumping" in family:
        at = rng.uniform(0.0, steps, (paths, 1))
        return np.where(np.arange(steps) >= at, rng.choice([0.5, 1.5, 2.0]), 1.0)
    return np.ones((paths, steps))


FAMILIES = (
    "calm",
    "backlog",
    "drills at u = 0.02",
    "drills at u = 0.8",
    "rising",
    "falling",
    "jumping",
    "rising, backlog",
)


def measure() -> Iterable[Figure]:
    yield from figures(SITUATIONS)


def figures(count: int, say: Callable[[str], None] = lambda text: None) -> Iterator[Figure]:
    for family in FAMILIES:
        found = [judged(case, seed=i) for i, case in enumerate(cases(family, count=count))]
        done = [one for one in found if one is not None]
        short = [one.short for one in done]
        n = len(done)
        yield Figure(f"{family}: situations that some size is said to keep", n, "situations")
        yield Figure(f"{family}: too small", 100.0 * sum(s > 0 for s in short) / n, "%", at_most=2.0)
        yield Figure(f"{family}: too small by at most", max(short), "points", at_most=3.0)
        large = sum(one.excess > 0 for one in done)
        yield Figure(f"{family}: too large", 100.0 * large / n, "%", at_most=15.0)
        excess = 100.0 * fmean(one.excess / (one.chosen - one.excess) for one in done)
        yield Figure(f"{family}: executors more than needed, mean", excess, "%", at_most=3.0)
