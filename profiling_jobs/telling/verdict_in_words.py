"""What does a stored verdict on one size say, in a sentence for a person and in a line of a table?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..loop.evaluation_record import Evaluation
from .in_words import between, brief_s, capital, count, executors, is_known, kind, lasting, percent

AGAINST = {
    "capacity": "its capacity is not known",
    "recovery": "too slow after a failure",
    "observed": "below the load",
    "forecast": "below the load",
    "latency": "latency",
    "rescale": "the change takes too long",
}
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
    moment = verdict["worst_moment_s"]
    when = f" ({_moment(moment)})" if is_known(moment) else ""
    taken = verdict["recovery_s"]
    lasts = f"in {between(taken, brief_s)} s in 9 cases of 10, and " if is_known(taken) else ""
    return [
        f"After {kind(verdict['worst_kind'])} at the worst moment{when} it would be back {lasts}within the "
        f"promised {target:g} s in {percent(probability)} of the cases looked at; "
        f"{percent(e.promise['confidence'])} are promised."
    ]


def spoken(excuse: Mapping[str, Any]) -> str:
    """One condition that is not met, and what would settle an open one."""
    text = capital(str(excuse["sentence"])).replace("of the draws", "of the cases looked at")
    return f"{text} ({excuse['measure']} to know)." if excuse["measure"] else f"{text}."


def line(verdict: Mapping[str, Any]) -> Size:
    """Its line in the table."""
    against = [
        AGAINST.get(x["condition"], x["condition"]) + (" (not known)" if x["measure"] else "")
        for x in verdict["excuses"]
    ]
    recovery = verdict["recovery_s"]
    return Size(
        scale_out=int(verdict["scale_out"]),
        answer=ANSWERS[verdict["status"]],
        capacity=count(verdict["capacity"]["mid"]) if is_known(verdict["capacity"]) else "?",
        in_time=percent(verdict["probability"]) if is_known(verdict["probability"]) else "?",
        recovery=f"{between(recovery, brief_s)} s" if is_known(recovery) else "",
        against=", ".join(dict.fromkeys(against)).replace("not known (not known)", "not known"),
    )


def verdict_on(e: Evaluation, size: int | None) -> Mapping[str, Any] | None:
    """The verdict on this size, if it was looked at."""
    return next((v for v in e.decision.get("verdicts", ()) if v["scale_out"] == size), None)


def _moment(seconds: float) -> str:
    return "at once" if seconds < 1 else f"in {lasting(seconds)}"
