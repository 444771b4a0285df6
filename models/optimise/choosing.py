"""Choice of the smallest size that keeps the promise, with a verdict on every other size.

There are few sizes and every one must be explained, so all are judged (`.judging`), and the smallest feasible
one is chosen, with four further rules:

* while the job works off a lag, the current size is kept;
* fewer executors only where that saves more than the change costs (`.question.change_cost`);
* where no size is feasible, but some only cannot be judged, the current size is kept if it is one of them,
  else the smallest larger one is taken; otherwise the largest of known capacity, and never one smaller than
  the current. An alarm says by how much the promise is missed and which measurements would decide the open
  sizes;
* without forecast, rate, lag or engine the answer is Unknown.

For micro-batches the integral form is far off in either direction, so its verdicts only say where to begin:
sizes are stepped batch by batch there, then up or down, until the smallest one is found that keeps the
promise at the worst moment of the integral form, at evenly spaced moments and late in the batch that takes
a lag, and that recovers from its own rescale. Larger sizes keep the promise wherever smaller ones do, so few
sizes have to be stepped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..arguments import Array
from ..quantities import Interval, Unknown, executors, percent
from .judging import FIGURES_REACH, Judge, unmeasured
from .question import (
    ChangeCost,
    Condition,
    Decision,
    Question,
    Recoveries,
    Verdict,
    against_promise,
    change_cost,
    rate,
    span,
)

STEPPED: tuple[Condition, ...] = ("recovery", "rescale")
CHECK_REACH = 1.5  # targets; leaves room for the stretch that a recovery must hold
CHECKED_MOMENTS = 8  # judgement: beside the worst moment of the scan
DOUBTFUL = 4  # judgement: moments that get more draws, as the fewest draws were in time there
CLEARLY = 0.04  # judgement: two and a half times the error of the draws


def first_true(holds: Callable[[int], bool], count: int, *, near: int) -> int:
    """The smallest index at which a monotone condition holds, else `count`; few tries if it is `near`."""
    fails, does = -1, count
    probe, stride = min(near, count - 1), max(1, count // 32)
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
    """The verdicts, with recovery and rescale stepped in batches wherever that can change the choice."""
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
    """Whether no other condition failed and the inputs of stepping are known."""
    open_ = any(e.measure and e.condition in STEPPED for e in verdict.excuses)
    return not open_ and not any(e.measure is None for e in verdict.excuses_beside(*STEPPED))


def _stepped(judge: Judge, verdict: Verdict) -> Verdict:
    question = judge.question
    scanned, scanned_kind = verdict.worst_moment_s, verdict.worst_kind
    assert not isinstance(scanned, Unknown)
    assert not isinstance(scanned_kind, Unknown)
    late = judge.losing_moments_s(verdict.scale_out)
    worst = _least_kept(judge, verdict.scale_out, [scanned_kind], np.append(late[:1], scanned), few=True)
    if worst[0] > question.promise.confidence - CLEARLY:  # otherwise these moments alone decide
        last = max(0.0, question.moments_s - judge.input.grid_s)
        evenly = np.linspace(0.0, last, CHECKED_MOMENTS)
        moments = np.unique(np.concatenate([evenly, late, [scanned]]))
        worst = _least_kept(judge, verdict.scale_out, question.kinds, moments)
    change: float | Unknown = 1.0
    if verdict.scale_out != question.current and question.promise.keeps(worst[0]):
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


def _least_kept(
    judge: Judge, scale_out: int, kinds: Sequence[str], moments_s: Array, *, few: bool = False
) -> tuple[float, float, float, str]:
    """The smallest share in time, the time within which the promised share ends, the moment, the kind."""
    promise, found = judge.question.promise, []

    def look(kind: str, at: Array, *, more: bool = False) -> None:
        for moment, taken in zip(
            at, judge.recoveries(scale_out, kind, at, reach=CHECK_REACH, more=more), strict=True
        ):
            share = float(np.mean(taken <= promise.target_s))
            found.append((share, -promise.within_s(taken), float(moment), kind))

    for kind in kinds:
        look(kind, moments_s)
    doubtful = [one for one in sorted(found)[:DOUBTFUL] if one[0] <= promise.confidence + CLEARLY]
    if doubtful and doubtful[0][0] >= promise.confidence - CLEARLY and not few:
        found.clear()
        for kind in {one[3] for one in doubtful}:
            look(kind, np.array([one[2] for one in doubtful if one[3] == kind]), more=True)
    # of several with the same probability the longest recovery is shown
    share, within, moment, kind = min(found)
    return share, -within, moment, kind


def _no_better_than(larger_misses: Verdict, verdict: Verdict) -> Verdict:
    """The verdict on a size smaller than one that misses the promise in batches."""
    if verdict.fails(*STEPPED):
        return verdict
    excuse = replace(
        larger_misses.failed(*STEPPED)[0],
        sentence=f"stepped in batches, {executors(larger_misses.scale_out, 'are')} too few already: "
        + larger_misses.failed(*STEPPED)[0].sentence,
    )
    return replace(verdict, excuses=(excuse, *verdict.excuses), probability=larger_misses.probability)


def _no_worse_than(smaller_keeps: Verdict, verdict: Verdict) -> Verdict:
    """The verdict on a size larger than one that keeps the promise in batches; its rescale is its own."""
    if not verdict.fails("recovery"):
        return verdict
    excuses = verdict.excuses_beside("recovery")
    return replace(verdict, excuses=excuses, probability=smaller_keeps.probability)


MEASUREMENTS_SHOWN = 3  # judgement: an alarm is read by a person


def decide(question: Question) -> Decision:
    """The size to take now, with the excuses of every other size."""
    engine, observed, lag = question.engine, question.observed_rps, question.lag_records
    if isinstance(engine, Unknown) or isinstance(observed, Unknown) or isinstance(lag, Unknown):
        return _cannot_tell(question, "; ".join(m.reason for m in question.missing))
    if isinstance(question.forecast, Unknown):
        return _cannot_tell(question, question.forecast.reason)
    judge = Judge(question, engine=engine, observed_rps=float(observed), lag_records=float(lag))
    if not judge.known:
        return _nothing_measured(question)
    verdicts = judge.verdicts()
    if engine.in_batches:
        verdicts = confirmed(judge, verdicts)
    allowed = question.allowed
    feasible = [v.scale_out for v in verdicts.values() if v.status == "feasible" and v.scale_out in allowed]
    if not feasible:
        return _best_effort(judge, verdicts)
    smallest, current = min(feasible), question.current
    chosen, kept_because = smallest, ""
    behind = _behind(judge) if smallest < current else ""
    if behind:
        chosen, kept_because = current, f"while {behind} is worked off; {smallest} would do"
    elif smallest < current and current in feasible:
        cost = _cost(judge, smallest)
        if not cost.worth:
            chosen = current
            kept_because = (
                f"although {smallest} would do: the change costs {cost.idle + cost.lag:.0f} executor-seconds"
                f" and saves {cost.saved:.0f}"
            )
    verdicts = _with_figures(judge, verdicts, chosen)
    return Decision(
        current=current,
        scale_out=chosen,
        feasible=chosen in feasible,
        reason=_reason(judge, verdicts[chosen], kept_because),
        alarm=None,
        verdicts=tuple(verdicts.values()),
        smallest_feasible=smallest,
    )


def _best_effort(judge: Judge, verdicts: dict[int, Verdict]) -> Decision:
    """The closest size where none is known to be feasible, with an alarm."""
    question, now, allowed = judge.question, judge.question.current, judge.question.allowed
    able = [s for s in judge.known if s in allowed]
    open_ = [s for s in able if verdicts[s].status == "unknown"]
    if open_:
        chosen = min(open_, key=lambda s: (s != now, s < now, s))
    else:
        chosen = max([*able, now] if now in allowed or not able else able)
    verdicts = _with_figures(judge, verdicts, chosen)
    verdict, promise = verdicts[chosen], question.promise
    parts = [f"no size is known to keep the promise; {executors(chosen, 'come')} closest"]
    if isinstance(verdict.recovery_s, Recoveries) and not isinstance(verdict.probability, Unknown):
        sure = f"{100 * promise.confidence:g} %"
        parts.append(
            f"there {sure} of recoveries take {_up_to(judge, verdict.recovery_s)} where"
            f" {promise.target_s:g} s are promised, and {percent(verdict.probability)} are in time where"
            f" {sure} are promised"
        )
    parts += [e.sentence for e in verdict.excuses if e.condition != "recovery" or e.measure]
    if _lasts_too_long(judge):
        parts.append(f"the downtime alone may last longer than {promise.target_s:g} s")
    measures = list(dict.fromkeys(e.measure for v in verdicts.values() for e in v.excuses if e.measure))
    if measures:
        more = len(measures) - MEASUREMENTS_SHOWN
        rest = f" (and {more} more)" if more > 0 else ""
        parts.append(f"to settle what is open: {', '.join(measures[:MEASUREMENTS_SHOWN])}{rest}")
    return Decision(
        current=now,
        scale_out=chosen,
        feasible=False,
        reason=_reason(judge, verdict, "although no size is known to keep the promise"),
        alarm="; ".join(parts),
        verdicts=tuple(verdicts.values()),
        smallest_feasible=Unknown("no size is known to keep the promise"),
    )


def _behind(judge: Judge) -> str:
    """The lag that the job works off, in words; empty if there is none."""
    now_rps = judge.observed_rps or judge.projected_rps
    if not judge.behind(min(judge.known, key=lambda s: abs(s - judge.question.current))):
        return ""
    seconds_of_input = f" ({judge.lag_records / now_rps:.0f} s of input)" if now_rps > 0 else ""
    return f"a lag of {rate(judge.lag_records)} records{seconds_of_input}"


def _cost(judge: Judge, to: int) -> ChangeCost:
    """Cost of the change to a smaller, feasible size, at its median downtime and recovery."""
    kind = judge.change_kind(to)
    downtime = judge.downtime[kind]
    assert not isinstance(downtime, Unknown)  # otherwise `to` would not be feasible
    taken = judge.figures(to, kind, 0.0)
    assert isinstance(taken, Interval)
    return change_cost(
        current=judge.question.current,
        to=to,
        downtime_s=float(np.median(downtime)),
        recovery_s=taken.mid,
        target_s=judge.question.promise.target_s,
        stay_s=judge.question.stay_s,
    )


def _with_figures(judge: Judge, verdicts: dict[int, Verdict], chosen: int) -> dict[int, Verdict]:
    """The verdicts with recovery figures for the chosen size, its neighbours and the current size."""
    at = bisect_left(judge.known, chosen)
    shown = {*judge.known[max(0, at - 1) : at + 2], judge.question.current} & set(judge.known)
    return verdicts | {s: replace(verdicts[s], recovery_s=_figures(judge, verdicts[s])) for s in shown}


def _figures(judge: Judge, verdict: Verdict) -> Recoveries | Unknown:
    return judge.figures(verdict.scale_out, verdict.worst_kind, verdict.worst_moment_s)


def _lasts_too_long(judge: Judge) -> bool:
    """Whether the downtime alone, at the promised confidence, is longer than the target for a known kind."""
    promise = judge.question.promise
    downtimes = [judge.downtime[kind] for kind in judge.question.kinds]
    return any(
        np.quantile(one, promise.confidence, method="inverted_cdf") > promise.target_s
        for one in downtimes
        if not isinstance(one, Unknown)
    )


def _reason(judge: Judge, verdict: Verdict, because: str) -> str:
    """`hold 6 executors: forecast 31–36k rps fits 42k, 95 % of recoveries within 112 s ≤ 120 s`."""
    current, chosen = judge.question.current, verdict.scale_out
    verb = f"hold {executors(chosen)}"
    if chosen != current:
        verb = f"scale {'out' if chosen > current else 'in'} from {current} to {executors(chosen)}"
    parts = [f"forecast {span(*judge.peak_in_words)} rps"]
    if chosen in judge.sustained:
        fits = "exceeds" if verdict.fails("forecast", "observed") else "fits"
        parts[0] += f" {fits} {rate(float(np.median(judge.sustained[chosen])))}"
    if isinstance(verdict.recovery_s, Recoveries) and not isinstance(verdict.probability, Unknown):
        parts.append(against_promise(verdict.recovery_s, verdict.probability, judge.question.promise))
    return f"{verb}{' ' + because if because else ''}: {', '.join(parts)}"


def _up_to(judge: Judge, taken: Recoveries) -> str:
    reach = FIGURES_REACH[-1] * judge.question.promise.target_s
    return f"up to {taken.promised:.0f} s" if np.isfinite(taken.promised) else f"more than {reach:.0f} s"


def _nothing_measured(question: Question) -> Decision:
    unknown = {s: c for s in question.sizes if isinstance(c := question.capacity_of(s), Unknown)}
    verdicts = tuple(unmeasured(s, why) for s, why in unknown.items())
    first = verdicts[0].excuses[0]
    answer = _cannot_tell(question, f"no capacity is known; {first.sentence}")
    return replace(answer, verdicts=verdicts, alarm=f"nothing can be decided: {first.measure}")


def _cannot_tell(question: Question, why: str) -> Decision:
    unknown = Unknown(why)
    return Decision(
        current=question.current,
        scale_out=unknown,
        feasible=False,
        reason=f"cannot tell: {why}",
        alarm=None,
        verdicts=(),
        smallest_feasible=unknown,
    )
