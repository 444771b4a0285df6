"""Directives of a person (`pause`, `pin`, `resume`), as they are stored: by a command, or from the home page.

What is stored is in force from the first tick that obeys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from models.errors import Misconfigured
from models.ports import Directive
from models.quantities import executors

from ..settings import times
from .stored_job import StoredJob, said_why


@dataclass(frozen=True)
class Given:
    """A pause or a pin that is stored, and the directives that were in force before it."""

    directive: Directive
    before: tuple[Directive, ...]

    @property
    def replaced(self) -> list[Directive]:
        """Those of its kind, whose place it takes."""
        return [one for one in self.before if one.kind == self.directive.kind]

    @property
    def beside(self) -> list[Directive]:
        """Those that stay in force."""
        return [one for one in self.before if one.kind != self.directive.kind]


def give(
    there: StoredJob,
    kind: Literal["pause", "pin"],
    *,
    who: str,
    why: str,
    until_s: float | None,
    value: int | None = None,
) -> Given:
    """Store a pause, or a pin to `value` executors. Misconfigured where it could never be carried out."""
    if value is not None:
        check_bounds(there, value)
    directive = Directive(
        job=there.name,
        kind=kind,
        who=who,
        why=said_why(why),
        since_s=there.now_s,
        until_s=until_s,
        value=value,
    )
    before = there.store.directives(there.name, now_s=there.now_s)
    there.store.direct(directive)
    return Given(directive, before)


@dataclass(frozen=True)
class Resumed:
    """What a resume has ended."""

    who: str
    why: str
    ended: tuple[Directive, ...]
    foreign: Mapping[str, Any] | None
    """The size that was set from outside, and is ours again."""
    barred: tuple[Mapping[str, Any], ...]
    """The sizes that may be chosen again."""


def resume(there: StoredJob, *, who: str, why: str) -> Resumed:
    """End every directive of the job, and the hold after a foreign edit; allow sizes that were barred."""
    reason = said_why(why)
    ended = there.store.directives(there.name, now_s=there.now_s)
    found = Resumed(who, reason, ended, foreign_edit(there), quarantines(there))
    there.store.resume(there.name, who=who, why=reason, now_s=there.now_s)
    return found


def check_bounds(there: StoredJob, value: int) -> None:
    """Misconfigured where the size is outside of the bounds of the job."""
    job = there.settings
    if job is not None and not job.scale_out_min <= value <= job.scale_out_max:
        raise Misconfigured(
            "N",
            f"{value} is outside of job.{there.name}'s bounds, {job.scale_out_min} to {job.scale_out_max}: "
            "pin it within them, or change scale_out_min or scale_out_max",
        )


def held(evaluation: Mapping[str, Any]) -> bool:
    """Whether a pause or a pin was in force at this evaluation."""
    return bool({"pause", "pin"} & set(evaluation.get("orders") or ()))


def in_words(directive: Directive) -> str:
    """`the pin to 4 executors by anna, since …, until …: "why"`."""
    what = (
        f"the pin to {executors(directive.value or 0)}"
        if directive.kind == "pin"
        else f"the {directive.kind}"
    )
    ends = "" if directive.until_s is None else f", until {times.shown(directive.until_s)}"
    return f"{what} by {directive.who}, since {times.shown(directive.since_s)}{ends}: “{directive.why}”"


def foreign_edit(there: StoredJob) -> Mapping[str, Any] | None:
    """A size that was set from outside and is kept, as control remembers it."""
    control = there.store.control(there.name)
    found = None if control is None else control.state.get("control", {}).get("foreign")
    return found if isinstance(found, Mapping) else None


def quarantines(there: StoredJob) -> tuple[Mapping[str, Any], ...]:
    """The sizes that are barred now because they did not work."""
    control = there.store.control(there.name)
    found = () if control is None else control.state.get("control", {}).get("quarantined", ())
    return tuple(one for one in found if there.now_s < float(one.get("until_s", -math.inf)))


def outranked(there: StoredJob, kind: str, beside: Sequence[Directive]) -> list[str]:
    """What a pause leaves alone, or what outranks a pin."""
    if kind == "pause":
        return [
            "The job runs on and is measured; nothing is decided or changed, a change under way is finished."
        ]
    found = []
    if any(one.kind in ("pause", "hold") for one in beside):
        found.append("A pause outranks a pin: the pin counts when the pause is over.")
    if edit := foreign_edit(there):
        found.append(
            f"{executors(int(edit['found']), 'were')} set from outside, which outranks the pin until "
            f"`headroom resume {there.name}`."
        )
    return found


def doubts(there: StoredJob) -> tuple[str, ...]:
    """Warnings about what a pin of this job will not do."""
    job = there.settings
    if job is None:
        return ("The bounds of the job could not be read: a pin outside of them is not carried out.",)
    if job.attach:
        return ("It runs outside Headroom: the pin is only shown as a recommendation.",)
    if job.mode != "apply":
        return (
            f"Its mode is {job.mode}: the pin is shown as a recommendation, and nothing is changed. "
            f'job.{there.name}.mode = "apply" carries it out.',
        )
    return ()
