"""`headroom history`: what was evaluated and done, a line each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import RenderableType

from models.errors import Misconfigured
from models.quantities import Misuse, counted
from profiling_jobs.control_loop.evaluation_record import Evaluation
from profiling_jobs.explain.explanation import Line, in_short

from ..settings import times
from . import page, stored_job

LIMIT = 20
Dated = tuple[float, Line | None]
HEADER = ("time", "records/s", "lag s", "size", "done", "why")


@click.command("history")
@click.argument("job")
@click.option(
    "--since",
    help="From this moment on: 2h for two hours ago, 03:10, '2026-11-18 03:10'. Default: the newest ones.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    help=f"So many at most, the newest. Default: {LIMIT}, or all with --since.",
)
@click.option(
    "--changes", is_flag=True, help="Only the ticks that ordered or recommended a change, or alarmed."
)
@click.option("--every", is_flag=True, help="A line for every evaluation, also where one is like the next.")
@stored_job.options
@click.option(
    "--json", "as_json", is_flag=True, help="Print the evaluations as JSON, in short and as stored."
)
def command(
    job: str,
    since: str | None,
    limit: int | None,
    changes: bool,
    every: bool,
    file: Path,
    folder: Path,
    as_json: bool,
) -> None:
    """What was evaluated: time, load, lag, size, what was done, and why in short. The newest stand last.

    Neighbours that did the same for the same reason share a line, with their number.

    `headroom explain JOB --at TIME` says all about one of them.

    \b
    Exit code 0: there they are.
    Exit code 1: there is none.
    Exit code 2: it could not run.
    """
    with stored_job.opened(job, file=file, folder=folder) as there:
        since_s = 0.0
        if since is not None:
            try:
                since_s = times.moment_s(since, now_s=there.now_s, toward="past")
            except ValueError as wrong:
                raise Misconfigured("--since", str(wrong)) from wrong
        most = limit or (LIMIT if since is None else 100_000)
        found = there.store.evaluations(job, since_s=since_s, limit=100_000 if changes else most)
    lines = [(at_s, document, _line(document)) for at_s, document in found]
    if changes:
        lines = [one for one in lines if one[2] is not None and _is_change(one[2])][-most:]
    if as_json:
        rows = [_row(at_s, document, line) for at_s, document, line in lines]
        click.echo(json.dumps({"schema": 1, "job": job, "evaluations": rows}, ensure_ascii=False))
    elif lines:
        _show(job, [(at_s, line) for at_s, _, line in lines], every=every)
    else:
        remedy = f": {there.remedy}" if there.newest_at_s is None else ""
        page.paragraph(f"{job}: {_nothing(since_s if since else None, changes=changes)}{remedy}", indent=0)
    if not lines:
        raise click.exceptions.Exit(1)


def _line(document: Mapping[str, Any]) -> Line | None:
    """None where another version of Headroom has written it."""
    try:
        return in_short(Evaluation.from_json(document))
    except (Misuse, KeyError, TypeError):
        return None


def _is_change(line: Line) -> bool:
    return "→" in line.done or bool(line.alarms)


def _row(at_s: float, document: Mapping[str, Any], line: Line | None) -> dict[str, Any]:
    short = None if line is None else line.to_json()
    return {"at_s": at_s, "at": times.shown(at_s), "short": short, "evaluation": document}


def _nothing(since_s: float | None, *, changes: bool) -> str:
    what = "nothing was changed, recommended or alarmed" if changes else "nothing was evaluated"
    return f"{what} since {times.shown(since_s)}" if since_s is not None else f"{what} yet"


def _show(job: str, lines: Sequence[Dated], *, every: bool) -> None:
    first_s, last_s = lines[0][0], lines[-1][0]
    days = times.day(first_s)
    if times.day(last_s) != days:
        days += f" – {times.day(last_s)}"
    zones = " and ".join(dict.fromkeys(times.zone(at_s) for at_s, _ in lines))
    count = counted(len(lines), "evaluation")
    click.echo(f"{click.style(job, bold=True)}: {count}, {days}, times in {zones}")
    rows: list[tuple[RenderableType, ...]] = []
    colours: list[str | None] = []
    today = ""
    for alike in _alike(lines, every=every):
        at_s, line = alike[0]
        day = times.day(at_s)
        if today and day != today:
            rows.append(("", "", "", "", "", f"── {day} ──"))
            colours.append(None)
        today = day
        if line is None:
            rows.append((times.clock(at_s), "?", "?", "?", "?", "written by another version of Headroom"))
            colours.append("yellow")
            continue
        changed = "→" in line.done
        times_ = f" ×{len(alike)}" if len(alike) > 1 else ""
        why = alike[-1][1].why if alike[-1][1] else line.why
        cells = (times.clock(at_s), _span(alike, "load"), _span(alike, "lag"), line.scale_out)
        rows.append((*cells, f"{line.done}{times_}", why if changed else page.one_line(why)))
        colours.append("green" if changed else None)
        for alarm in line.alarms:
            rows.append(("", "", "", "", "ALARM", alarm))
            colours.append("red")
    page.show(page.columns(HEADER, rows, right="rrrrll", colours=colours))


def _alike(lines: Sequence[Dated], *, every: bool) -> list[list[Dated]]:
    """Neighbours that did the same for the same reason, numbers aside, as one group. `every`: each alone."""
    groups: list[list[Dated]] = []
    for at_s, line in lines:
        before = groups[-1][-1] if groups else None
        same = before is not None and times.day(before[0]) == times.day(at_s) and not every
        if same and before is not None and _sort(before[1]) == _sort(line) is not None:
            groups[-1].append((at_s, line))
        else:
            groups.append([(at_s, line)])
    return groups


def _sort(line: Line | None) -> tuple[str, str, str] | None:
    if line is None or line.alarms or "→" in line.done:
        return None
    return line.scale_out, line.done, re.sub(r"[\d.,]+k?", "#", line.why)


def _span(alike: Sequence[Dated], name: str) -> str:
    """From the least to the largest of a column, as it is written."""
    cells = [str(getattr(line, name)) for _, line in alike]
    known = sorted({one for one in cells if one != "?"}, key=lambda one: float(one.replace(",", "")))
    return known[0] if len(known) == 1 else f"{known[0]}–{known[-1]}" if known else "?"
