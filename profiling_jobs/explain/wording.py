"""Numbers, durations, failures and verdicts in words.

Rates in whole records/s with thousands apart, never "36k"; durations in at most two units; failures as what
happens, not as they are spelled in settings. What is not known says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from models.quantities import executors, lasting, percent

from ..control_loop.memory import Evaluation

KINDS = {
    "executor_kill": "the loss of an executor",
    "executor_freeze": "a frozen executor",
    "driver_kill": "the loss of the driver",
    "driver_freeze": "a frozen driver",
    "broker_restart": "a restart of the broker",
    "node_loss": "the loss of a node",
    "straggler": "a slow executor",
    "pod_failure": "the loss of a pod",
    "network_partition": "a network that is cut",
    "network_delay": "a slow network",
    "network_loss": "a lossy network",
    "cpu_stress": "a busy processor",
    "memory_stress": "scarce memory",
    "live_out": "adding executors while it runs",
    "live_in": "removing executors while it runs",
    "restart_out": "a restart with more executors",
    "restart_in": "a restart with fewer executors",
    "standstill": "a standstill",
}

KIND = re.compile("|".join(rf"\b{name}\b" for name in KINDS if "_" in name))


def brief_s(seconds: float) -> str:
    """Seconds as people compare them with a target: `0.4`, `7.2`, `74`."""
    return f"{seconds:.1f}" if abs(seconds) < 9.95 else f"{seconds:,.0f}"


def count(value: float) -> str:
    """`1,180`; small ones keep a digit: `4.2`."""
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.1f}"


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def kind(name: str) -> str:
    """What happens in a failure of this kind."""
    return KINDS.get(name, name.replace("_", " "))


def in_plain_words(text: str) -> str:
    """A sentence of control's or the optimiser's, with failures as what happens."""
    return KIND.sub(lambda match: KINDS[match[0]], text).replace(" rps", " records/s")


def is_known(value: Any) -> bool:
    """Whether a value of a stored document is neither missing nor unknown."""
    return value is not None and not (isinstance(value, Mapping) and "unknown" in value)


def why_unknown(value: Any) -> str:
    """Why a value of a stored document is not known."""
    return str(value["unknown"]) if isinstance(value, Mapping) and "unknown" in value else "it was not read"


def known_or_why(value: Any, words: Callable[[Any], str]) -> str:
    """The value in words, or that it is unknown and why."""
    return words(value) if is_known(value) else f"unknown: {why_unknown(value)}"


def between(value: Mapping[str, Any], words: Callable[[float], str]) -> str:
    """`3,860 – 4,110`; an open end is said to be so."""
    low, high = value["low"], value["high"]
    if low is None:
        return "longer than was looked at"
    if high is None:
        return f"{words(low)} – longer than was looked at"
    return words(low) if words(low) == words(high) else f"{words(low)} – {words(high)}"


AGAINST = {
    "capacity": "its capacity is not known",
    "recovery": "too slow after a failure",
    "observed": "below the load",
    "forecast": "below the load",
    "latency": "latency",
    "rescale": "the change takes too long",
}
HAIR = 1e-9  # what is stored has five digits
ANSWERS = {"feasible": "keeps it", "infeasible": "does not", "unknown": "not known"}


@dataclass(frozen=True)
class Size:
    """One line of the table of sizes."""

    scale_out: int
    answer: str
    """keeps it, does not, not known."""
    capacity: str
    in_time: str
    """In how many of the cases looked at a failure at the worst moment is recovered in time."""
    recovery: str
    """By when the promised share of recoveries has ended."""
    against: str


def keeps(e: Evaluation, chosen: int | None) -> list[str]:
    """How the size stands to the promise, in numbers."""
    verdict = verdict_on(e, chosen)
    if verdict is None or chosen is None:
        return []
    found = []
    capacity, peak = verdict["capacity"], e.forecast.get("peak")
    if is_known(capacity):
        load = f"; the load is expected to peak at {count(peak['mid'])}" if isinstance(peak, Mapping) else ""
        found.append(
            f"{capital(executors(chosen))} can process {count(capacity['mid'])} records/s "
            f"({between(capacity, count)}){load}."
        )
    found += recovers(e, verdict)
    return found


def recovers(e: Evaluation, verdict: Mapping[str, Any]) -> list[str]:
    """What a failure at the worst moment would cost there."""
    probability, target = verdict["probability"], e.promise["target_s"]
    if not is_known(probability):
        return []
    moment, sure = verdict["worst_moment_s"], confidence(e)
    then = "at once" if not is_known(moment) or moment < 1 else f"in {lasting(moment)}"
    when = f" ({then})" if is_known(moment) else ""
    taken = promised_s(e, verdict)
    compared = (
        f"it would be back within the promised {target:g} s in {percent(probability)} of the cases looked at"
        if taken is None
        else f"{sure} of the cases looked at are back within {brief_s(taken)} s, and {percent(probability)} "
        f"within the promised {target:g} s"
    )
    return [f"After {kind(verdict['worst_kind'])} at the worst moment{when} {compared}; {sure} are promised."]


def confidence(e: Evaluation) -> str:
    """`95 %`: the share of recoveries that is promised to be in time."""
    return f"{100 * e.promise['confidence']:g} %"


def promised_s(e: Evaluation, verdict: Mapping[str, Any]) -> float | None:
    """By when the promised share of recoveries has ended: what was compared with the target.

    None where it was not worked out, not within what was looked at, or not what the verdict rests on: a size
    may have been judged by a neighbour that was looked at more closely.
    """
    taken, share, promise = verdict["recovery_s"], verdict["probability"], e.promise
    if not is_known(taken) or not is_known(share):
        return None
    found = taken["promised"]
    kept = share >= promise["confidence"] - HAIR
    return None if found is None or (found <= promise["target_s"]) != kept else float(found)


def spoken(excuse: Mapping[str, Any]) -> str:
    """One condition that is not met, and what would settle an open one."""
    text = capital(in_plain_words(str(excuse["sentence"]))).replace("of the draws", "of the cases looked at")
    return f"{text} ({excuse['measure']} to know)." if excuse["measure"] else f"{text}."


def line(e: Evaluation, verdict: Mapping[str, Any]) -> Size:
    """Its line in the table."""
    against = [
        AGAINST.get(x["condition"], x["condition"]) + (" (not known)" if x["measure"] else "")
        for x in verdict["excuses"]
    ]
    return Size(
        scale_out=int(verdict["scale_out"]),
        answer=ANSWERS[verdict["status"]],
        capacity=count(verdict["capacity"]["mid"]) if is_known(verdict["capacity"]) else "?",
        in_time=percent(verdict["probability"]) if is_known(verdict["probability"]) else "?",
        recovery=_promised(e, verdict),
        against=", ".join(dict.fromkeys(against)).replace("not known (not known)", "not known"),
    )


def lower_though_larger(e: Evaluation) -> tuple[str, ...]:
    """Why a size recovers in time less often than a smaller one, where that is so."""
    known = [v for v in e.decision.get("verdicts", ()) if is_known(v["probability"])]
    for smaller, larger in pairwise(sorted(known, key=lambda v: int(v["scale_out"]))):
        if larger["probability"] >= smaller["probability"] - HAIR:
            continue
        pair = f"{capital(executors(larger['scale_out']))} come out lower than {smaller['scale_out']}"
        closer, rough = is_known(larger["recovery_s"]), not is_known(smaller["recovery_s"])
        if closer and rough:
            return (
                f"{pair} because only the size that is chosen and its neighbours are worked out batch by "
                "batch; the estimate for the others is quicker and a little too hopeful.",
            )
        if is_known(larger["capacity"]) and larger["capacity"]["low"] < smaller["capacity"]["low"]:
            return (
                f"{pair} because the capacity of {larger['scale_out']} is less certain "
                f"({between(larger['capacity'], count)} records/s): a profile of that size makes it surer.",
            )
    return ()


def verdict_on(e: Evaluation, size: int | None) -> Mapping[str, Any] | None:
    """The verdict on this size, if it was looked at."""
    return next((v for v in e.decision.get("verdicts", ()) if v["scale_out"] == size), None)


def _promised(e: Evaluation, verdict: Mapping[str, Any]) -> str:
    if (taken := promised_s(e, verdict)) is not None:
        return f"{brief_s(taken)} s"
    found = verdict["recovery_s"]
    return "longer" if is_known(found) and found["promised"] is None else ""
