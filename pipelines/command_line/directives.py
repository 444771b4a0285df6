"""Directives of a person (`pause`, `pin`, `resume`): stored, and in force from the first tick that obeys."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click

from models.errors import HeadroomError, Misconfigured
from models.ports import LATE_TICKS
from models.quantities import executors, lasting

from ..operating import directives, stored_job
from ..operating.directives import held, in_words
from ..operating.stored_job import StoredJob
from ..processes import owner
from ..server.client import Client
from ..settings import times
from . import options, page

LOOK_S = 0.2  # judgement: a tick takes a tenth of a second
ANSWER_S = 30.0  # judgement: a tick on a machine that is busy with a profile
sleep = time.sleep

why_option = click.option(
    "--why",
    required=True,
    metavar="TEXT",
    help="The reason, for whoever reads it at night. It is stored with your login name.",
)
wait_option = click.option(
    "--wait/--no-wait", default=True, help="Wait for an evaluation that obeys it (default), or only store it."
)


def _options(command: options.Command) -> options.Command:
    """Options of `pause` and of `pin`."""
    for option in (
        options.as_json("Print what was stored as JSON."),
        wait_option,
        click.option("--until", metavar="TIME", help="Until then: 18:00, '2026-11-18 18:00'."),
        click.option(
            "--for",
            "for_",
            metavar="TIME",
            help="For so long: 30m, 2h, 1d12h, or 600 for seconds. Default: until `headroom resume`.",
        ),
        why_option,
    ):
        command = option(command)
    return command


@click.command("pause")
@options.job
@_options
def pause(**given: Any) -> None:
    """Stop deciding for a job, from its next evaluation on. The job itself runs on, and is measured.

    \b
    Exit code 0: it is paused; with --no-wait: it is stored.
    Exit code 1: it is stored, but no evaluation has obeyed it yet.
    """
    give("pause", **given)


@click.command("pin")
@options.job
@click.argument("value", metavar="N", type=click.IntRange(1))
@_options
def pin(**given: Any) -> None:
    """Keep a job at exactly N executors, from its next evaluation on, whatever the models say.

    \b
    Exit code 0: it is pinned; with --no-wait: it is stored.
    Exit code 1: it is stored, but no evaluation has obeyed it yet.
    """
    give("pin", **given)


@click.command("resume")
@options.job
@why_option
@wait_option
@options.as_json("Print what was ended as JSON.")
def resume(job: str, why: str, file: Path, folder: Path, wait: bool, as_json: bool) -> None:
    """Decide for a job again: end its pause, its pin, and the hold after its size was set from outside.

    Sizes that were barred because they did not work may be chosen again, too.

    \b
    Exit code 0: an evaluation has decided; with --no-wait: it is stored.
    Exit code 1: it is stored, but no evaluation has obeyed it yet.
    """
    with stored_job.opened(job, file=file, folder=folder, warn=page.warning, create=True) as there:
        done = directives.resume(there, who=stored_job.who(), why=why)
        ended, foreign, barred = done.ended, done.foreign, done.barred
        sentences = [f"By {done.who}: “{done.why}”."]
        # The hold is the loop's own note of the foreign edit, which is printed below.
        others = [one for one in ended if one.kind != "hold" or not foreign]
        sentences += [f"Ended: {in_words(one)}." for one in others]
        if foreign:
            sentences.append(
                f"Ours again: the {executors(int(foreign['found']))} that were set from outside at "
                f"{times.shown(float(foreign['since_s']))}, where we had set {foreign['ours']}; the next "
                "decision may change them."
            )
        for one in barred:
            more = "more" if one.get("direction") == "out" else "fewer"
            sentences.append(
                f"Allowed again: {executors(int(one['scale_out']))} and {more}, barred until "
                f"{times.shown(float(one['until_s']))} ({one['why']})."
            )
        nothing = not ended and not foreign and not barred
        if nothing:
            sentences.append("Nothing was in force: there was nothing to end.")
        answer(
            there,
            folder=folder,
            wait=wait and (not nothing or held(there.newest)),
            as_json=as_json,
            since_s=there.now_s,
            obeyed=lambda evaluation: not held(evaluation),
            what=f"the resume of {job}",
            data={
                "who": done.who,
                "why": done.why,
                "ended": [asdict(one) for one in ended],
                "foreign_edit": foreign,
                "allowed_again": [dict(one) for one in barred],
            },
            headline=f"{job} is decided for {'as before' if nothing else 'again'}",
            sentences=sentences,
        )


def until_s(for_: str | None, until: str | None, *, now_s: float) -> float | None:
    """When the directive ends by itself; None: never."""
    if for_ is not None and until is not None:
        raise Misconfigured("--for", "and --until say the same thing: give one of them")
    if for_ is not None:
        with options.value_of("--for"):
            return now_s + times.duration_s(for_)
    with options.value_of("--until"):
        return None if until is None else times.moment_s(until, now_s=now_s, toward="future")


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
    with stored_job.opened(job, file=file, folder=folder, warn=page.warning, create=True) as there:
        ends_s = until_s(for_, until, now_s=there.now_s)
        done = directives.give(there, kind, who=stored_job.who(), why=why, until_s=ends_s, value=value)
        given = done.directive
        sentences = [f"By {given.who}: “{given.why}”."]
        sentences += [f"It replaces {in_words(one)}." for one in done.replaced]
        sentences += [f"Also in force: {in_words(one)}." for one in done.beside]
        sentences += directives.outranked(there, kind, done.beside)
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
                "replaced": [asdict(one) for one in done.replaced],
                "beside": [asdict(one) for one in done.beside],
            },
            what=f"the {kind} of {job}" if value is None else f"the pin of {job} to {executors(value)}",
            headline=f"{job} is {'paused' if value is None else f'pinned to {executors(value)}'} {lasts}",
            sentences=sentences,
            warnings=() if value is None else directives.doubts(there),
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
        options.print_json(job=there.name, **data, **waited, warnings=list(warnings))
    elif in_force_s is not None:
        click.secho(f"{headline}; in force since {times.clock(in_force_s)}", bold=True)
    elif trouble:
        page.paragraph(f"{what} is stored and not in force: {trouble}.", indent=0, colour="red", err=True)
    else:
        page.paragraph(f"Stored: {headline}. {there.next_tick()}", indent=0)
    options.answer_no(trouble)


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
        return f"no server evaluates jobs now; it takes effect when one does: {there.remedy}"
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
