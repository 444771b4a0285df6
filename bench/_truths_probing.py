"""Generated capacity curves, and a simulated job whose probes are noisy and sometimes wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.probing import (
    Facts,
    Probe,
    Result,
    Settings,
    State,
    estimates,
    grid_executor_seconds,
    judge,
    run,
    start,
)
from models.quantities import Interval

SIZES = (3, 6, 9, 12, 15, 18, 21, 24)
WARM_UP_S, PROBE_S = 300.0, 120.0  # of Phoebe's grid
Draw = Callable[[np.random.Generator], Callable[[float], float]]


def _usl(random: np.random.Generator) -> Callable[[float], float]:
    contention, coherence = random.uniform(0.0, 0.08), random.uniform(0.0, 0.003)
    return lambda s: s / (1.0 + contention * (s - 1.0) + coherence * s * (s - 1.0))


def _power(random: np.random.Generator) -> Callable[[float], float]:
    exponent = random.uniform(0.5, 1.0)
    return lambda s: s**exponent


def _staircase(random: np.random.Generator) -> Callable[[float], float]:
    tasks = int(random.integers(12, 61))
    return lambda s: tasks / math.ceil(tasks / s)


FAMILIES: dict[str, Draw] = {
    "linear": lambda random: float,
    "sqrt": lambda random: math.sqrt,
    "log": lambda random: math.log1p,
    "power": _power,
    "usl": _usl,
    "staircase": _staircase,
    # In no family: a cliff where the state no longer fits, and one scale-out with a bad neighbour.
    "cliff": lambda random: lambda s: s**0.9 * (0.6 if s > 14 else 1.0),
    "wiggly": lambda random: lambda s: s**0.8 * (1.0 + 0.12 * math.sin(1.7 * s)),
}


def capacities(family: str, seed: int, sizes: Sequence[int] = SIZES) -> dict[int, float]:
    """The noise-free truth: one curve of the family, in a unit that the search does not know."""
    random = np.random.default_rng([seed, sorted(FAMILIES).index(family)])
    curve = FAMILIES[family](random)
    unit = 10.0 ** random.uniform(3.0, 5.0)
    return {s: unit * curve(s) for s in sizes}


@dataclass
class Job:
    """Answers a probe as a real one would be seen: offered, processed and lag, every few seconds.

    The capacity of one probe is T (1 + noise ε); `exact_verdict` lets noise act on the throughput alone.
    """

    truth: Mapping[int, float]
    noise: float
    seed: int
    lying: float = 0.0
    exact_verdict: bool = False
    unseen: float = 0.0
    """Share of probes that see half the throughput, with facts that add up, so that it does not show."""
    lies_once: float = 0.0
    """By how much the first probe of one scale-out, drawn by the seed, is off; nothing shows it."""
    source_limit_rps: float = math.inf
    asked: list[Probe] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng([self.seed, 77])

    @property
    def liar(self) -> int:
        return sorted(self.truth)[self.seed % len(self.truth)]

    def facts(self, probe: Probe) -> Facts:
        self.asked.append(probe)
        truth = self.truth[probe.scale_out]
        capacity = truth * max(0.2, 1.0 + self.noise * self.random.standard_normal())
        lie = int(self.random.integers(3)) if self.random.uniform() < self.lying else -1
        offered = min(probe.rate_rps, self.source_limit_rps) * (0.3 if lie == 0 else 1.0)
        if self.unseen and self.random.uniform() < self.unseen:
            capacity = 0.5 * capacity
        if self.lies_once and probe.scale_out == self.liar:
            capacity, self.lies_once = capacity * (1.0 + self.lies_once), 0.0
        processed = min(offered, capacity)
        if self.exact_verdict:
            processed = offered if offered <= truth else min(capacity, 0.985 * offered)
        times = np.arange(0.0, probe.probe_s + 1e-9, 5.0)
        lag = 0.5 * offered + (offered - processed) * times
        lag = lag + 0.05 * offered * self.random.uniform(-1.0, 1.0, times.size)
        return Facts(
            achieved_rps=offered,
            processed_rps=processed,
            lag_times_s=times,
            lag_records=np.maximum(lag, 0.0),
            warm_up_over=lie != 1,
            restarted=lie == 2,
            latency_ms=800.0 if processed >= offered else 30_000.0,
        )

    def measure(self, probe: Probe) -> Result:
        return judge(probe, self.facts(probe))


@dataclass(frozen=True)
class Outcome:
    """One search against one truth."""

    state: State
    errors: Mapping[int, float]
    """Relative error of the estimate; a scale-out left unknown is not among them."""
    covered: int
    """Intervals that hold the truth."""
    unknown: int
    cost_share: float
    """Of the grid's executor-seconds."""
    job: Job


def grid_cost(truth: Mapping[int, float]) -> float:
    return grid_executor_seconds(
        truth, increment_rps=max(truth.values()) / 11.0, probe_s=PROBE_S, warm_up_s=WARM_UP_S
    )


def search(
    family: str,
    seed: int,
    *,
    noise: float = 0.03,
    lying: float = 0.0,
    exact_verdict: bool = False,
    unseen: float = 0.0,
    lies_once: float = 0.0,
    budget_share: float | None = None,
    tell_tasks: bool = False,
    guess: float | None = None,
    sizes: Sequence[int] = SIZES,
) -> Outcome:
    truth = capacities(family, seed, sizes)
    job = Job(
        truth,
        noise=noise,
        seed=seed,
        lying=lying,
        exact_verdict=exact_verdict,
        unseen=unseen,
        lies_once=lies_once,
    )
    grid = grid_cost(truth)
    top = truth[sizes[-1]]
    tasks = None
    if tell_tasks:
        tasks = int(np.random.default_rng([seed, sorted(FAMILIES).index(family)]).integers(12, 61))
    settings = Settings(
        scale_outs=sizes,
        warm_up_s=WARM_UP_S,
        probe_s=PROBE_S,
        first_rate_rps=None if guess else 0.05 * top,
        first_guess=guess * truth[sizes[0]] / sizes[0] if guess else None,
        budget_executor_seconds=None if budget_share is None else budget_share * grid,
        tasks=tasks,
    )
    state = run(start(settings), job.measure)
    found = {s: e.capacity for s, e in estimates(state).items()}
    known = {s: c for s, c in found.items() if isinstance(c, Interval)}
    return Outcome(
        state=state,
        errors={s: abs(c.mid / truth[s] - 1.0) for s, c in known.items()},
        covered=sum(c.low <= truth[s] <= c.high for s, c in known.items()),
        unknown=len(found) - len(known),
        cost_share=state.spent / grid,
        job=job,
    )
