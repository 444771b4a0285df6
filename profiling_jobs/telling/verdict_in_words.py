"""What does a stored verdict on one size say, in a sentence for a person and in a line of a table?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.wording import executors

from ..loop.evaluation_record import Evaluation
from .in_words import between, brief_s, capital, count, is_known, kind, lasting, percent

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
        load = f"; at most {count(peak['mid'])} are expected" if isinstance(peak, Mapping) else ""
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
    when = f" ({_moment(moment)})" if is_known(moment) else ""
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
    before = taken["high"] if promise["confidence"] == 0.95 else None  # of evaluations that have no other
    found = taken.get("promised", before)
    kept = share >= promise["confidence"] - HAIR
    return None if found is None or (found <= promise["target_s"]) != kept else float(found)


def spoken(excuse: Mapping[str, Any]) -> str:
    """One condition that is not met, and what would settle an open one."""
    text = capital(str(excuse["sentence"])).replace("of the draws", "of the cases looked at")
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


def verdict_on(e: Evaluation, size: int | None) -> Mapping[str, Any] | None:
    """The verdict on this size, if it was looked at."""
    return next((v for v in e.decision.get("verdicts", ()) if v["scale_out"] == size), None)


def _promised(e: Evaluation, verdict: Mapping[str, Any]) -> str:
    if (taken := promised_s(e, verdict)) is not None:
        return f"{brief_s(taken)} s"
    found = verdict["recovery_s"]
    return "longer than was looked at" if is_known(found) and found.get("promised", 0.0) is None else ""


def _moment(seconds: float) -> str:
    return "at once" if seconds < 1 else f"in {lasting(seconds)}"
