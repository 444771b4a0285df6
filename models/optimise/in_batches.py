"""Which is the smallest size that keeps its promise when its batches are really stepped?

The integral form scans every size, but on micro-batches it is far off, either way. So the scan only says
where to begin: sizes are tried there, then up or down, until the smallest is found that keeps the promise in
the batch form, at the scan's worst moment and at evenly spaced ones, and is recovered from its own rescale.
More executors are taken to keep the promise wherever fewer do, so few sizes have to be stepped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..arguments import Array
from ..quantities import Unknown
from ..wording import executors
from .judging import Judge
from .verdict import Condition, Verdict

STEPPED: tuple[Condition, ...] = ("recovery", "rescale")
CHECK_REACH = 1.5  # targets; leaves room for the stretch that a recovery must hold
CHECKED_MOMENTS = 8  # judgement: beside the worst moment of the scan


def first_true(holds: Callable[[int], bool], count: int, *, near: int) -> int:
    """The smallest index at which a rising condition holds, `count` if nowhere; few tries if it is `near`."""
    fails, does = -1, count
    probe, stride = min(near, count - 1), 1
    while does - fails > 1:
        if holds(probe):
            does = probe
            probe = max(fails + 1, probe - stride) if fails < 0 else (fails + does) // 2
        else:
            fails = probe
            probe = min(does - 1, probe + stride) if does == count else (fails + does) // 2
        stride *= 2
    return does


def confirmed(judge: Judge, verdicts: dict[int, Verdict]) -> dict[int, Verdict]:
    """The verdicts with recovery and rescale judged in batches wherever that can change the choice."""
    able = [v for v in verdicts.values() if v.scale_out in judge.known and _only_recovery_matters(v)]
    if not able:
        return verdicts
    near = next((i for i, v in enumerate(able) if not v.fails(*STEPPED)), len(able) - 1)
    stepped: dict[int, Verdict] = {}

    def holds(i: int) -> bool:
        if i not in stepped:
            stepped[i] = _stepped(judge, able[i])
        return not stepped[i].fails(*STEPPED)

    first = first_true(holds, len(able), near=near)
    found = dict(verdicts)
    for i, verdict in enumerate(able):
        if i in stepped:
            judged = stepped[i]
        elif i < first:
            judged = _no_better_than(stepped[first - 1], verdict)
        else:
            judged = _no_worse_than(stepped[first], verdict)
        found[verdict.scale_out] = judged
    return found


def _only_recovery_matters(verdict: Verdict) -> bool:
    """Nothing else has failed, and what stepping needs is known."""
    open_ = any(e.measure and e.condition in STEPPED for e in verdict.excuses)
    return not open_ and not any(e.measure is None for e in verdict.excuses_beside(*STEPPED))


def _stepped(judge: Judge, verdict: Verdict) -> Verdict:
    question = judge.question
    scanned, scanned_kind = verdict.worst_moment_s, verdict.worst_kind
    assert not isinstance(scanned, Unknown)
    assert not isinstance(scanned_kind, Unknown)
    worst = _least_kept(judge, verdict.scale_out, scanned_kind, np.array([scanned]))
    if question.promise.keeps(worst[0]):  # else one moment has settled it
        evenly = np.linspace(0.0, question.moments_s, CHECKED_MOMENTS, endpoint=False)
        moments = np.unique(np.append(evenly, scanned))
        found = [_least_kept(judge, verdict.scale_out, kind, moments) for kind in question.kinds]
        # where several are equally likely kept, the one with the longest recovery is shown
        worst = min(worst, *found, key=lambda w: (w[0], -w[1]))
    change: float | Unknown = 1.0
    if verdict.scale_out != question.current:
        kind = judge.change_kind(verdict.scale_out)
        taken = judge.recoveries(verdict.scale_out, kind, np.zeros(1), reach=CHECK_REACH)
        change = float(np.mean(taken <= question.promise.target_s))
    probability, _, moment, kind = worst
    return replace(
        verdict,
        excuses=(
            *judge.recovery_excuses(probability, moment, kind),
            *verdict.excuses_beside(*STEPPED),
            *judge.rescale_excuses(verdict.scale_out, change),
        ),
        probability=probability,
        worst_moment_s=moment,
        worst_kind=kind,
        rescale_probability=change,
    )


def _least_kept(judge: Judge, scale_out: int, kind: str, moments_s: Array) -> tuple[float, float, float, str]:
    """The smallest share of draws back in time, by when enough of them are, the moment and the kind."""
    promise = judge.question.promise
    taken = judge.recoveries(scale_out, kind, moments_s, reach=CHECK_REACH)
    shares = np.mean(taken <= promise.target_s, axis=1)
    long_s = np.array([promise.within_s(at_once) for at_once in taken])
    at = np.lexsort((-long_s, shares))[0]
    return float(shares[at]), float(long_s[at]), float(moments_s[at]), kind


def _no_better_than(larger_misses: Verdict, verdict: Verdict) -> Verdict:
    """A smaller size than one that misses its promise in batches misses it too."""
    if verdict.fails(*STEPPED):
        return verdict
    excuse = replace(
        larger_misses.failed(*STEPPED)[0],
        sentence=f"stepped in batches, {executors(larger_misses.scale_out, 'are')} too few already: "
        + larger_misses.failed(*STEPPED)[0].sentence,
    )
    return replace(verdict, excuses=(excuse, *verdict.excuses), probability=larger_misses.probability)


def _no_worse_than(smaller_keeps: Verdict, verdict: Verdict) -> Verdict:
    """A larger size than one that keeps its promise in batches keeps it too; its own change is its own."""
    if not verdict.fails("recovery"):
        return verdict
    excuses = verdict.excuses_beside("recovery")
    return replace(verdict, excuses=excuses, probability=smaller_keeps.probability)
