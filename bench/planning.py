"""Share of plans that hold, and their cost."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from bench import Figure
from bench._truths_planning import JOBS, explored, measured
from models.planning import Plan, bounded_inverse_ds2
from models.planning.surface import UNDETERMINED
from models.quantities import Interval

GRID = [(s, m) for s in (4, 8, 14, 22, 34, 48) for m in (512.0, 4_096.0)]
SEEDS = 100
FAR = 500  # task slots, ten times the largest measured


def measure() -> Iterable[Figure]:
    for noise in (0.03, 0.1):
        inside = wrong = undetermined = plans = 0
        for form, job in JOBS.items():
            target = job.rate_rps(FAR, 512.0)
            for seed in range(SEEDS):
                plan = Plan.fit(measured(job, GRID, noise=noise, seed=seed))
                plans += 1
                own = plan.answers(target_rps=target, margin=0.0)[0].candidates[form]
                inside += isinstance(own, Interval) and own.low <= FAR <= own.high
                wrong += plan.choice[0] not in (form, UNDETERMINED)
                undetermined += plan.choice[0] == UNDETERMINED
        label = f"slot plans from 12 runs, noise {noise:.0%}"
        yield Figure(f"{label}: 90 % interval of the right form holds the truth", inside / plans, "")
        yield Figure(f"{label}: wrong form chosen", wrong / plans, "")
        yield Figure(f"{label}: form undetermined", undetermined / plans, "")
    for noise in (0.03, 0.1):
        runs, inside, answers = [], 0, 0
        for job in JOBS.values():
            target = job.rate_rps(FAR, 2_048.0) / 1.1
            for seed in range(10):
                explorer = explored(job, target_rps=target, noise=noise, seed=seed)
                runs.append(len(explorer.runs))
                for a in explorer.plan().answers(target_rps=target):
                    truth = job.slots(target * 1.1, a.memory_mb)
                    inside += (
                        isinstance(a.interval, Interval)
                        and a.interval.low - 1 <= truth <= a.interval.high + 1
                    )
                    answers += 1
        label = f"explorations for ten times the largest slots, noise {noise:.0%}"
        yield Figure(f"{label}: runs", float(np.mean(runs)), "", at_most=20)
        yield Figure(f"{label}: answered interval holds the truth", inside / answers, "")
    rng = np.random.default_rng(0)
    rates, weights = rng.uniform(10, 1_000, 50), rng.uniform(0.1, 2, 50)
    for slots in (5_000, 10_000):
        took = []
        for _ in range(20):
            started = time.perf_counter()
            bounded_inverse_ds2(rates_per_task=rates, weights=weights, slots=slots)
            took.append(time.perf_counter() - started)
        yield Figure(f"bounded inverse DS2, 50 operators, {slots} slots", float(np.median(took)) * 1e3, "ms")
