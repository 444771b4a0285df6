"""What would change a decision: the end of a directive, a limit or a wait; more or less load.

A promise depends on load and capacity through their ratio: at f times the load, n executors stand where
executors of capacity T(n)/f stand now. So, with m the smallest size that keeps the promise and i the largest
one below it that does not,

    i executors would do    at the latest when the load falls to    T(i)/T(m) of the one expected
    m executors would not   at the latest when it grows to          T(m)/T(i) of it, and for sure beyond T(m)

which is about right where a batch has a fixed cost, too. Only conditions that depend on the load are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from models.quantities import executors

from ..control_loop.memory import Evaluation
from .wording import brief_s, capital, count, is_known, promised_s, why_unknown

LOAD = ("recovery", "observed", "forecast", "rescale")
SHOWN = 3  # judgement: measurements and requests that one answer names

Verdicts = Sequence[Mapping[str, Any]]


def turning_points(evaluation: Evaluation) -> tuple[str, ...]:
    """The sentences: more load, less load, another promise, what has to be measured."""
    decision = evaluation.decision
    verdicts: Verdicts = decision.get("verdicts", ())
    if not verdicts:
        return ()
    found = [*_load(evaluation, verdicts), *_promise(evaluation, verdicts)]
    measures = dict.fromkeys(e["measure"] for v in verdicts for e in v["excuses"] if e["measure"])
    for measure in list(measures)[:SHOWN]:
        found.append(f"To know more: {measure}.")
    if len(measures) > SHOWN:
        found.append(f"{len(measures) - SHOWN} more measurements would help: see --json.")
    return tuple(found)


def _load(evaluation: Evaluation, verdicts: Verdicts) -> list[str]:
    peak = _peak_rps(evaluation)
    known = [v for v in verdicts if is_known(v["capacity"])]
    enough = [v for v in known if v["status"] == "feasible"]
    if math.isnan(peak) or not known:
        return []
    if not enough:
        return _never_enough(known, peak)
    right = min(enough, key=_size)
    below = [v for v in known if _size(v) < _size(right) and _by_load(v)]
    limit = _mid(right)
    found = []
    if below:
        next_ = max(below, key=_size)
        ratio = _mid(next_) / _mid(right)
        limit = min(limit, peak / ratio) if ratio > 0 else limit
        found.append(
            f"Less load: {executors(_size(next_))} would do at the latest when the expected peak falls to "
            f"about {count(peak * ratio)} records/s (now {count(peak)})."
        )
    bigger = [v for v in known if _size(v) > _size(right)]
    then = f"{executors(_size(min(bigger, key=_size)))} would be next" if bigger else (
        f"{_size(right)} is the largest size that was looked at: raise scale_out_max"
    )  # fmt: skip
    found.append(
        f"More load: {executors(_size(right))} would no longer do, at the latest when the expected peak "
        f"reaches about {count(limit)} records/s; {then}."
    )
    return found


def _never_enough(known: Verdicts, peak: float) -> list[str]:
    largest = max(known, key=_size)
    said = (
        f"No size that was looked at is known to keep the promise; the largest, {executors(_size(largest))}, "
    )
    if _only_recovery(largest) and peak < float(largest["capacity"]["low"]):
        # Most of the time goes by while the job is down, which no executor shortens.
        return [
            f"{said}is large enough for the load, and still too slow after a failure: promise a longer "
            "recovery, or raise scale_out_max, which helps less and less."
        ]
    return [
        f"{said}processes about {count(_mid(largest))} records/s where a peak of {count(peak)} is expected: "
        "raise scale_out_max, or promise a longer recovery."
    ]


def _promise(evaluation: Evaluation, verdicts: Verdicts) -> list[str]:
    target = float(evaluation.promise.get("target_s", math.nan))
    enough = [v for v in verdicts if v["status"] == "feasible"]
    right = min(enough, key=_size) if enough else None
    found = []
    within = {_size(v): s for v in verdicts if (s := promised_s(evaluation, v)) is not None}
    slower = [v for v in verdicts if (right is None or _size(v) < _size(right)) and _only_recovery(v)]
    if known := [_size(v) for v in slower if _size(v) in within]:
        needed = math.ceil(within[max(known)])
        if needed > target:
            found.append(
                f"A longer promise: with recovery_target_s = {needed} instead of {target:g}, "
                f"{executors(max(known))} would keep it."
            )
    if right is not None and within.get(_size(right), target) < target:
        spare = brief_s(target - within[_size(right)])
        found.append(
            f"A shorter promise: {executors(_size(right))} have {spare} s to spare of the {target:g} s "
            "promised."
        )
    return found


def _by_load(verdict: Mapping[str, Any]) -> bool:
    """Whether only the load is against this size."""
    excuses = verdict["excuses"]
    return bool(excuses) and all(e["condition"] in LOAD and not e["measure"] for e in excuses)


def _only_recovery(verdict: Mapping[str, Any]) -> bool:
    excuses = verdict["excuses"]
    return bool(excuses) and all(e["condition"] == "recovery" and not e["measure"] for e in excuses)


def _size(verdict: Mapping[str, Any]) -> int:
    return int(verdict["scale_out"])


def _mid(verdict: Mapping[str, Any]) -> float:
    return float(verdict["capacity"]["mid"])


def _peak_rps(evaluation: Evaluation) -> float:
    """The largest rate that is expected; NaN without a forecast."""
    peak = evaluation.forecast.get("peak")
    return float(peak["mid"]) if isinstance(peak, Mapping) and is_known(peak) else math.nan


Shown = Callable[[float], str]
"""A moment (epoch seconds) as the reader's zone shows it."""

WANTED = "; wanted: "
"""Between a limit and the decision that it cuts, in control's reasons (models.control.step)."""


def limited(e: Evaluation) -> str:
    """The limit that keeps a decision from being carried out now; empty without one."""
    limit, cut, _ = e.reason.partition(WANTED)
    return limit if cut else ""


def would_change(e: Evaluation, *, shown: Shown) -> tuple[str, ...]:
    """What ends an order, a limit or a wait, and what would make another size right."""
    found = []
    ends = f"`headroom resume {e.job} --why …`"
    for what in ("pause", "pin"):
        if order := e.orders.get(what):
            by_itself = f", or by itself at {shown(order['until_s'])}" if is_known(order["until_s"]) else ""
            found.append(f"The {what} ends with {ends}{by_itself}.")
    if e.foreign:
        found.append(f"The size is ours again after {ends}.")
    if e.orders.get("drill"):
        found.append("The end of the drill.")
    if e.orders.get("blackout"):
        found.append("The end of the blackout window.")
    would = e.instruction.get("would")
    if e.attached and would is not None:
        found.append(
            f"It runs outside Headroom: give it {executors(would)} there, then set "
            f"job.{e.job}.executors = {would} and restart `headroom serve`."
        )
    elif e.mode != "apply" and would is not None:
        found.append(f'Mode apply: with job.{e.job}.mode = "apply" the change is made at the next tick.')
    if e.mode == "observe":
        found.append(f'Mode recommend: job.{e.job}.mode = "recommend" decides, and still touches nothing.')
    if limit := limited(e):
        found.append(f"Time: {limit}.")
    if e.recovering and e.change is None:
        found.append("The end of the recovery: then it is decided again.")
    if e.change and e.change["problem"]:
        found.append(
            f"What made the change fail ({e.change['problem']}) put right; then {ends} tries it again."
        )
    elif e.change:
        found.append("The change being verified, or rolled back: then it is decided again.")
    for barred in e.quarantined:
        more = "more" if barred["direction"] == "out" else "fewer"
        found.append(
            f"{capital(executors(barred['scale_out']))} and {more} are not taken before "
            f"{shown(barred['until_s'])} ({barred['why']}); {ends} allows it now."
        )
    wanted = e.decision.get("scale_out")
    if isinstance(wanted, Mapping):
        found.append(f"What is missing for a decision: {why_unknown(wanted)}.")
    found += turning_points(e)
    for request in e.requests:
        what = f"Fitting the {request['model']} model anew" if request["do"] == "refit" else "Profiling"
        found.append(f"{what} is asked for: {request['why']}.")
    if (again_at_s := e.instruction.get("again_at_s")) is not None:
        found.append(
            f"It is looked at again at {shown(again_at_s)}; it is held until {e.instruction['ends']}."
        )
    return tuple(found) or (f"What stands in the way: {e.reason}.",)
