"""Error and cost of the adaptive search, against a fifth of the grid's cost."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from bench import Figure
from bench._truths_probing import FAMILIES, SIZES, Outcome, search

SEEDS = 100


def searches(family: str, seeds: int = SEEDS, **how: object) -> list[Outcome]:
    return [search(family, seed, **how) for seed in range(seeds)]  # type: ignore[arg-type]


def figures(name: str, outcomes: list[Outcome], *, held: bool = True) -> Iterable[Figure]:
    """Unknown scale-outs are counted apart: they have no error."""
    mean = float(np.mean([np.mean(list(o.errors.values())) for o in outcomes if o.errors]))
    worst = float(np.percentile([max(o.errors.values()) for o in outcomes if o.errors], 95))
    sizes = sum(len(o.errors) for o in outcomes)
    yield Figure(f"{name}: mean error of T_max", 100 * mean, "%", at_most=3.0 if held else None)
    yield Figure(f"{name}: 95th percentile of the worst scale-out", 100 * worst, "%")
    share = max(o.cost_share for o in outcomes)
    yield Figure(f"{name}: dearest search, share of the grid", share, "", at_most=0.2 if held else None)
    covered = sum(o.covered for o in outcomes) / sizes
    yield Figure(f"{name}: coverage of the 90 % intervals", covered, "", at_least=0.85)
    unknown = sum(o.unknown for o in outcomes)
    yield Figure(f"{name}: scale-outs left unknown in {len(outcomes)} searches", unknown, "")


def noisier_than_told(seeds: int = 40) -> Iterable[Figure]:
    """The search is told of 3 % noise where there is 8 %, and of none of the lies."""
    for family in ("linear", "power", "usl", "cliff"):
        yield from figures(f"{family}, 8 % noise", searches(family, seeds, noise=0.08), held=False)
    for sizes in (SIZES, (1, 2, 4)):
        for lie in (-0.4, 0.4):
            outcomes = [
                o
                for family in ("linear", "power", "usl")
                for o in searches(family, seeds, lies_once=lie, sizes=sizes)
            ]
            name = f"{len(sizes)} sizes, one probe off by {lie:+.0%}"
            yield from figures(name, outcomes, held=False)
            off = [max(o.errors.values()) > 0.2 for o in outcomes]
            yield Figure(
                f"{name}: share of searches that end more than 20 % off",
                float(np.mean(off)),
                "",
                at_most=0.02,
            )


def measure() -> Iterable[Figure]:
    yield from noisier_than_told()
    began, probes = time.perf_counter(), 0
    for family in FAMILIES:
        outcomes = searches(family)
        probes += sum(len(o.state.results) for o in outcomes)
        yield from figures(family, outcomes)
    spent = time.perf_counter() - began
    yield Figure("time per probe, all included", 1000 * spent / probes, "ms")
    yield from figures("staircase, partitions known", searches("staircase", tell_tasks=True))
    yield from figures("usl, 1 % noise", searches("usl", 40, noise=0.01))
    yield from figures("usl, 6 % noise", searches("usl", 40, noise=0.06), held=False)
    yield from figures("usl, verdicts free of noise", searches("usl", 40, exact_verdict=True))
    lying = [o for family in ("power", "staircase") for o in searches(family, 40, lying=0.1)]
    yield from figures("one probe in ten lies", lying, held=False)
    unseen = searches("usl", 40, unseen=0.03)
    yield from figures("3 % of throughputs halved, unseen", unseen, held=False)
    yield from figures("half that budget", searches("power", 40, budget_share=0.1), held=False)
    yield from figures("a guess 40 % too high", searches("log", 40, guess=1.4))
