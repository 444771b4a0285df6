"""Directives of a person (`pause`, `pin`, `resume`): stored, and in force from the first tick that obeys."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click

from models.errors import HeadroomError, Misconfigured
from models.ports import Directive
from models.quantities import executors, lasting

from ..processes import owner
from ..server.client import Client
from ..settings import times
from . import page, stored_job
from .stored_job import LATE_TICKS, StoredJob

LOOK_S = 0.2  # judgement: a tick takes a tenth of a second
ANSWER_S = 30.0  # judgement: a tick on a machine that is busy with a profile
sleep = time.sleep

why_option = click.option(
    "--why",
    required=True,
    help="The reason, for those who read it at night. It is kept, with your login name.",
)
for_option = click.option(
    "--for",
    "for_",
    help="For so long: 30m, 2h, 1d12h, 10min, or 600 for seconds. Default: until `headroom resume`.",
)
wait_option = click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait for the evaluation that obeys it (default), or only store it.",
)
until_option = click.option("--until", help="Until this moment: 18:00, '2026-11-18 18:00'.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print what was stored as JSON.")


def options(command: stored_job.Command) -> stored_job.Command:
    """Those of a pause and of a pin."""
    for option in (json_option, stored_job.options, wait_option, until_option, for_option, why_option):
        command = option(command)
    return command


def until_s(for_: str | None, until: str | None, *, now_s: float) -> float | None:
    """When the directive ends by itself; None: never."""
    if for_ is not None and until is not None:
        raise Misconfigured("--for", "and --until say the same thing: give one of them")
    try:
        if for_ is not None:
            return now_s + times.duration_s(for_)
        return None if until is None else times.moment_s(until, now_s=now_s, toward="future")
    except ValueError as wrong:
        raise Misconfigured("--for" if for_ is not None else "--until", str(wrong)) from wrong


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


def give(
    kind: Literal["pause", "pin"],
    *,
    job: str,
    why: str,
    for_: str | None,
    until: str | None,
    value: int | None = None,
    file: Path,
    folder: Path,
    wait: bool,
    as_json: bool,
) -> None:
    """Pause or pin a job."""
    with stored_job.opened(job, file=file, folder=folder, create=True) as there:
        ends_s = until_s(for_, until, now_s=there.now_s)
        warnings = () if value is None else _doubts(there, value)
        given = Directive(
            job=job,
            kind=kind,
            who=stored_job.who(),
            why=stored_job.said_why(why),
            since_s=there.now_s,
            until_s=ends_s,
            value=value,
        )
        before = there.store.directives(job, now_s=there.now_s)
        there.store.direct(given)
        replaced = [one for one in before if one.kind == kind]
        beside = [one for one in before if one.kind != kind]
        sentences = [f"By {given.who}: “{given.why}”."]
        sentences += [f"It replaces {in_words(one)}." for one in replaced]
        sentences += [f"Also in force: {in_words(one)}." for one in beside]
        sentences += _outranked(there, kind, beside)
        lasts = "until `headroom resume`"
        if ends_s is not None:
            lasts = f"until {times.shown(ends_s)} ({lasting(ends_s - there.now_s)})"

        def obeyed(evaluation: Mapping[str, Any]) -> bool:
            found = (evaluation.get("orders") or {}).get(kind) or {}
            return (found.get("who"), found.get("why")) == (given.who, given.why)

        answer(
            there,
            folder=folder,
            wait=wait,
            as_json=as_json,
            since_s=given.since_s,
            ends_s=ends_s,
            obeyed=obeyed,
            data={
                "directive": asdict(given),
                "replaced": [asdict(one) for one in replaced],
                "beside": [asdict(one) for one in beside],
            },
            what=f"the {kind} of {job}" if value is None else f"the pin of {job} to {executors(value)}",
            headline=f"{job} is {'paused' if value is None else f'pinned to {executors(value)}'} {lasts}",
            sentences=sentences,
            warnings=warnings,
        )


def answer(
    there: StoredJob,
    *,
    folder: Path,
    wait: bool,
    as_json: bool,
    since_s: float,
    ends_s: float | None = None,
    obeyed: Callable[[Mapping[str, Any]], bool],
    data: Mapping[str, Any],
    what: str,
    headline: str,
    sentences: Sequence[str],
    warnings: Sequence[str] = (),
) -> None:
    """Wait for the first evaluation that obeys, and say so; exit code 1 and the reason where none comes."""
    if not as_json:
        for sentence in sentences:
            page.paragraph(sentence, indent=0)
        for warning in warnings:
            page.paragraph(warning, indent=0, mark="!", colour="yellow")
        if wait and (due_s := there.next_tick_s) is not None and there.owner:
            page.paragraph(f"Waiting for the evaluation of {times.clock(due_s)} …", indent=0)
    in_force_s, trouble = None, ""
    if wait:
        try:
            in_force_s, trouble = _awaited(there, folder, since_s=since_s, ends_s=ends_s, obeyed=obeyed)
        except KeyboardInterrupt:
            click.echo(err=True)
            page.paragraph(f"No longer waiting: {what} is stored. {there.next_tick()}", indent=0, err=True)
            raise click.exceptions.Exit(130) from None
    if as_json:
        waited = {"in_force_since_s": in_force_s, "problem": trouble, "next_tick_s": there.next_tick_s}
        found = {"schema": 1, "job": there.name, **data, **waited, "warnings": list(warnings)}
        click.echo(json.dumps(found, ensure_ascii=False))
    elif in_force_s is not None:
        click.secho(f"{headline}; in force since {times.clock(in_force_s)}", bold=True)
    elif trouble:
        page.paragraph(f"{what} is stored and not in force: {trouble}.", indent=0, colour="red", err=True)
    else:
        page.paragraph(f"Stored: {headline}. {there.next_tick()}", indent=0)
    if trouble:
        raise click.exceptions.Exit(1)


def _awaited(
    there: StoredJob,
    folder: Path,
    *,
    since_s: float,
    ends_s: float | None,
    obeyed: Callable[[Mapping[str, Any]], bool],
) -> tuple[float | None, str]:
    """When the evaluation was made that obeyed; else None, and why there is none and what to do."""
    if trouble := _unevaluated(there, folder):
        return None, trouble
    patience_s = LATE_TICKS * there.interval_s + ANSWER_S
    for _ in range(math.ceil(patience_s / LOOK_S)):
        later = there.store.evaluations(there.name, since_s=math.nextafter(since_s, math.inf))
        for at_s, evaluation in later:
            if obeyed(evaluation):
                return at_s, ""
            if ends_s is not None and at_s >= ends_s:
                return None, f"it ended at {times.clock(ends_s)}, before any tick: give a longer --for"
        if len(later) >= LATE_TICKS:  # the first may have been under way already
            newest = later[-1][1].get("instruction", {}).get("reason", "")
            return None, (
                f"{LATE_TICKS} ticks since then have not obeyed it, the last one says “{newest}”: "
                "another directive may have replaced it, see `headroom explain`"
            )
        if owner.holder(folder) is None:
            return None, "the server has ended meanwhile: start `headroom serve`"
        sleep(LOOK_S)
    waited = lasting(patience_s)
    return None, f"{there.name} was not evaluated for {waited}: {there.remedy}, or `headroom doctor`"


def _unevaluated(there: StoredJob, folder: Path) -> str:
    """Why no evaluation can come at all; empty where one should."""
    if not there.owner or there.owner == stored_job.SILENT:
        return f"nothing is running that evaluates; it takes effect when there is: {there.remedy}"
    try:
        jobs = Client(folder).status()["jobs"]
    except HeadroomError:  # it may be starting, or busy
        return ""
    if there.name not in jobs:
        return (
            f"`{there.owner}` does not know {there.name}, it was started with other settings: "
            "restart it, and look whether --folder is right"
        )
    return ""


def _outranked(there: StoredJob, kind: str, beside: Sequence[Directive]) -> list[str]:
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


def _doubts(there: StoredJob, value: int) -> tuple[str, ...]:
    """What a pin will not do."""
    job = there.settings
    if job is None:
        return ("The bounds of the job could not be read: a pin outside of them is not carried out.",)
    if not job.scale_out_min <= value <= job.scale_out_max:
        raise Misconfigured(
            "N",
            f"{value} is outside of job.{there.name}'s bounds, {job.scale_out_min} to {job.scale_out_max}: "
            "pin it within them, or change scale_out_min or scale_out_max",
        )
    if job.attach:
        return ("It runs outside Headroom: the pin is only shown as a recommendation.",)
    if job.mode != "apply":
        return (
            f"Its mode is {job.mode}: the pin is shown as a recommendation, and nothing is changed. "
            f'job.{there.name}.mode = "apply" carries it out.',
        )
    return ()
