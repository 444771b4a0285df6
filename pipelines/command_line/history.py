"""`headroom history`: what was evaluated and done, a line each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import RenderableType

from models.quantities import counted
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.explain.explanation import Line, in_short

from ..operating import stored_job
from ..settings import times
from . import options, page

LIMIT = 20
Dated = tuple[float, Line | None]
AMOUNT = r"[\d.,]+k?(–[\d.,]+k?)?( (d|h|min|s)\b)?"
AMOUNTS = re.compile(rf"{AMOUNT}( {AMOUNT})*")
"""`4`, `1.2k`, `714–1.3k`, `28 min 30 s`."""
HEADER = ("time", "records/s", "lag s", "size", "done", "why")


@click.command("history")
@options.job
@click.option(
    "--since",
    metavar="TIME",
    help="From then on: 2h for two hours ago, 03:10, '2026-11-18 03:10'. Default: the newest ones.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 100_000),
    help=f"The newest N only. Default: {LIMIT}, or all with --since.",
)
@click.option("--changes", is_flag=True, help="Only evaluations with a change or an alarm.")
@click.option("--every", is_flag=True, help="A line for every evaluation.")
@options.as_json("Print the evaluations as JSON, in short and as stored.")
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
    """List the evaluations of a job, the newest last: time, load, lag, size, what was done, and why.

    Successive evaluations that did the same for the same reason share a line, with their number. `headroom
    explain JOB --at TIME` explains one of them.

    \b
    Exit code 1: there is none.
    """
    with stored_job.opened(job, file=file, folder=folder, warn=page.warning) as there:
        since_s = 0.0
        if since is not None:
            with options.value_of("--since"):
                since_s = times.moment_s(since, now_s=there.now_s, toward="past")
        most = limit or (LIMIT if since is None else 100_000)
        found = there.store.evaluations(job, since_s=since_s, limit=100_000 if changes else most)
    lines = []
    for at_s, document in found:
        evaluation = Evaluation.if_readable(document)
        lines.append((at_s, document, None if evaluation is None else in_short(evaluation)))
    if changes:
        lines = [one for one in lines if one[2] and ("→" in one[2].done or one[2].alarms)][-most:]
    if as_json:
        rows = [
            {"at_s": at_s, "at": times.shown(at_s), "short": line and asdict(line), "evaluation": document}
            for at_s, document, line in lines
        ]
        options.print_json(job=job, evaluations=rows)
    elif lines:
        _show(job, [(at_s, line) for at_s, _, line in lines], every=every)
    else:
        what = "nothing was changed, recommended or alarmed" if changes else "nothing was evaluated"
        when = f"since {times.shown(since_s)}" if since else "yet"
        remedy = f": {there.remedy}" if there.newest_at_s is None else ""
        page.paragraph(f"{job}: {what} {when}{remedy}", indent=0)
    options.answer_no(not lines)


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
        newest = alike[-1][1] or line
        cells = (times.clock(at_s), _span(alike, "load"), _span(alike, "lag"), line.scale_out)
        rows.append((*cells, f"{line.done}{times_}", newest.why if changed else page.one_line(newest.why)))
        colours.append("green" if changed else None)
        for alarm in newest.alarms:
            rows.append(("", "", "", "", "ALARM", alarm))
            colours.append("red")
    page.show(page.columns(HEADER, rows, right="rrrrll", colours=colours))


def _alike(lines: Sequence[Dated], *, every: bool) -> list[list[Dated]]:
    """Neighbours that did the same for the same reason, numbers aside, as one group. `every`: each alone."""
    groups: list[list[Dated]] = []
    for at_s, line in lines:
        before = groups[-1][-1] if groups else None
        same = before is not None and times.day(before[0]) == times.day(at_s) and not every
        if same and before is not None and _likeness(before[1]) == _likeness(line) is not None:
            groups[-1].append((at_s, line))
        else:
            groups.append([(at_s, line)])
    return groups


def _likeness(line: Line | None) -> tuple[str, ...] | None:
    """What lines that are alike have in common; None for a line that always stands alone."""
    if line is None or "→" in line.done:
        return None
    return line.scale_out, line.done, *(AMOUNTS.sub("#", one) for one in (line.why, *line.alarms))


def _span(alike: Sequence[Dated], name: str) -> str:
    """From the least to the largest of a column, as it is written."""
    cells = [str(getattr(line, name)) for _, line in alike]
    known = sorted({one for one in cells if one != "?"}, key=lambda one: float(one.replace(",", "")))
    return known[0] if len(known) == 1 else f"{known[0]}–{known[-1]}" if known else "?"
