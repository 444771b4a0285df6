"""What would make a job do something else than it does? Orders, limits, waits, load, promise, knowledge."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from models.wording import executors

from ..loop.evaluation_record import Evaluation
from .in_words import capital, is_known, why_unknown
from .turning_points import turning_points

Shown = Callable[[float], str]
"""A moment (epoch seconds) as the reader's zone shows it."""

WANTED = "; wanted: "
"""Between a limit and the decision that it cuts, in control's reasons (models.control.limits)."""


def limited(e: Evaluation) -> str:
    """The limit that keeps a decision from being carried out now; empty without one."""
    limit, cut, _ = e.reason.partition(WANTED)
    return limit if cut else ""


def would_change(e: Evaluation, decided: Evaluation, *, shown: Shown) -> tuple[str, ...]:
    """What ends an order, a limit or a wait, and what would make another size right.

    `decided`: the evaluation with the decision that is in force, mostly the same one.
    """
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
            f"Its owner, who alone can change it: when it has {executors(would)}, set job.{e.job}.executors "
            f"= {would} and start `headroom serve` anew."
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
    wanted = decided.decision.get("scale_out")
    if isinstance(wanted, Mapping):
        found.append(f"What is missing for a decision: {why_unknown(wanted)}.")
    found += turning_points(decided)
    for request in e.requests:
        what = f"Fitting the {request['model']} model anew" if request["do"] == "refit" else "Profiling"
        found.append(f"{what} is asked for: {request['why']}.")
    return tuple(found) or (f"What stands in the way: {e.reason}.",)
