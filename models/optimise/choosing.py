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
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import numpy as np

from ..quantities import Interval, Unknown, executors, percent
from .judging import FIGURES_REACH, Judge, judged, unmeasured
from .question import (
    ChangeCost,
    Decision,
    Question,
    Recoveries,
    Verdict,
    against_promise,
    change_cost,
    rate,
    span,
)

MEASUREMENTS_SHOWN = 3  # judgement: an alarm is read by a person


def decide(question: Question) -> Decision:
    """The size to take now, with the excuses of every other size."""
    if question.missing:
        return _cannot_tell(question, "; ".join(missing.reason for missing in question.missing))
    judge = Judge(question)
    if not judge.known:
        return _nothing_measured(question)
    verdicts = judged(judge)
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
