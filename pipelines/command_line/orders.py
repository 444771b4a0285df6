"""How does a person's order to a job get into the store, and what do they hear? For pause, pin and resume."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from models.wording import executors
from pipelines import times
from profiling_jobs.errors import Misconfigured
from profiling_jobs.ports import Directive
from profiling_jobs.telling.in_words import lasting

from . import page, subject
from .subject import Subject

why_option = click.option(
    "--why",
    required=True,
    help="The reason, for whoever reads it at night. It is kept, with your login name.",
)
for_option = click.option(
    "--for",
    "for_",
    help="For so long: 30m, 2h, 1d12h, 10min, or 600 for seconds. Default: until `headroom resume`.",
)
until_option = click.option("--until", help="Until this moment: 18:00, '2026-11-18 18:00'.")


def until_s(for_: str | None, until: str | None, *, now_s: float) -> float | None:
    """When the order ends by itself; None: never."""
    if for_ is not None and until is not None:
        raise Misconfigured("--for", "and --until say the same thing: give one of them")
    try:
        if for_ is not None:
            return now_s + times.duration_s(for_)
        return None if until is None else times.moment_s(until, now_s=now_s, toward="future")
    except ValueError as wrong:
        raise Misconfigured("--for" if for_ is not None else "--until", str(wrong)) from wrong


def order(
    there: Subject, kind: str, *, why: str, until: float | None, value: int | None = None
) -> tuple[Directive, tuple[Directive, ...]]:
    """Write it down; the order, and those that are in force beside it or were replaced by it."""
    given = Directive(
        job=there.name,
        kind=kind,  # type: ignore[arg-type]
        who=subject.who(),
        why=subject.said_why(why),
        since_s=there.now_s,
        until_s=until,
        value=value,
    )
    before = there.store.directives(there.name, now_s=there.now_s)
    there.store.direct(given)
    return given, before


def in_words(directive: Directive) -> str:
    """`the pin to 4 executors by anna, since …, until …: "why"`."""
    what = (
        f"the pin to {executors(directive.value or 0)}"
        if directive.kind == "pin"
        else f"the {directive.kind}"
    )
    ends = "" if directive.until_s is None else f", until {times.shown(directive.until_s)}"
    return f"{what} by {directive.who}, since {times.shown(directive.since_s)}{ends}: “{directive.why}”"


def foreign_edit(there: Subject) -> Mapping[str, Any] | None:
    """A size that somebody else has set and that is left to them, as control remembers it."""
    control = there.store.control(there.name)
    found = None if control is None else control.state.get("control", {}).get("foreign")
    return found if isinstance(found, Mapping) else None


def quarantines(there: Subject) -> tuple[Mapping[str, Any], ...]:
    """The sizes that are barred now because they did not work."""
    control = there.store.control(there.name)
    found = () if control is None else control.state.get("control", {}).get("quarantined", ())
    return tuple(one for one in found if there.now_s < float(one.get("until_s", -math.inf)))


def answer(
    there: Subject,
    *,
    as_json: bool,
    data: Mapping[str, Any],
    headline: str,
    sentences: Sequence[str],
    warnings: Sequence[str] = (),
) -> None:
    """What the person hears."""
    if as_json:
        tick = {"next_tick_s": there.next_tick_s, "warnings": list(warnings)}
        click.echo(json.dumps({"schema": 1, "job": there.name, **data, **tick}, ensure_ascii=False))
        return
    click.secho(headline, bold=True)
    for sentence in sentences:
        page.paragraph(sentence)
    for warning in warnings:
        page.paragraph(warning, mark="!", colour="yellow")
    page.paragraph(there.next_tick())


def give(
    job: str,
    kind: str,
    *,
    why: str,
    for_: str | None,
    until: str | None,
    value: int | None,
    file: Path,
    folder: Path,
    as_json: bool,
) -> None:
    """Pause or pin a job."""
    with subject.opened(job, file=file, folder=folder, create=True) as there:
        ends_s = until_s(for_, until, now_s=there.now_s)
        warnings = () if value is None else _doubts(there, value)
        given, before = order(there, kind, why=why, until=ends_s, value=value)
        replaced = [one for one in before if one.kind == kind]
        beside = [one for one in before if one.kind != kind]
        lasts = "until `headroom resume`"
        if ends_s is not None:
            lasts = f"until {times.shown(ends_s)} ({lasting(ends_s - there.now_s)})"
        what = "paused" if value is None else f"pinned to {executors(value)}"
        sentences = [f"By {given.who}: “{given.why}”."]
        sentences += [f"It replaces {in_words(one)}." for one in replaced]
        sentences += [f"Also in force: {in_words(one)}." for one in beside]
        sentences += _outranked(there, kind, beside)
        answer(
            there,
            as_json=as_json,
            data={
                "order": asdict(given),
                "replaced": [asdict(one) for one in replaced],
                "beside": [asdict(one) for one in beside],
            },
            headline=f"{job} is {what} {lasts}",
            sentences=sentences,
            warnings=warnings,
        )


def _outranked(there: Subject, kind: str, beside: Sequence[Directive]) -> list[str]:
    if kind == "pause":
        return [
            "The job runs on and is measured; nothing is decided or changed, a change under way is finished."
        ]
    found = []
    if any(one.kind in ("pause", "hold") for one in beside):
        found.append("A pause outranks a pin: the pin counts when the pause is over.")
    if edit := foreign_edit(there):
        found.append(
            f"Somebody else has set {executors(int(edit['found']))}, which outranks the pin until "
            f"`headroom resume {there.name}`."
        )
    return found


def _doubts(there: Subject, value: int) -> tuple[str, ...]:
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
        return ("Somebody else runs it: the pin is shown as a recommendation to its owner.",)
    if job.mode != "apply":
        return (
            f"Its mode is {job.mode}: the pin is shown as a recommendation, and nothing is changed. "
            f'job.{there.name}.mode = "apply" carries it out.',
        )
    return ()
