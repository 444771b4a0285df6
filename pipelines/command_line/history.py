"""`headroom history`: what was evaluated and done?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from models.errors import Misconfigured
from models.quantities import Misuse
from profiling_jobs.control_loop.evaluation_record import Evaluation
from profiling_jobs.explain.explanation import Line, in_short

from ..settings import times
from . import page, subject

LIMIT = 20
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
@subject.options
@click.option(
    "--json", "as_json", is_flag=True, help="Print the evaluations as JSON, in short and as stored."
)
def command(
    job: str, since: str | None, limit: int | None, changes: bool, file: Path, folder: Path, as_json: bool
) -> None:
    """What was evaluated: time, load, lag, size, what was done, and why in short. The newest stand last.

    `headroom explain JOB --at TIME` says all about one of them.

    \b
    Exit code 0: there they are.
    Exit code 1: there is none.
    Exit code 2: it could not run.
    """
    with subject.opened(job, file=file, folder=folder) as there:
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
        _show(job, [(at_s, line) for at_s, _, line in lines])
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


def _show(job: str, lines: Sequence[tuple[float, Line | None]]) -> None:
    first_s, last_s = lines[0][0], lines[-1][0]
    days = times.day(first_s)
    if times.day(last_s) != days:
        days += f" – {times.day(last_s)}"
    zones = " and ".join(dict.fromkeys(times.zone(at_s) for at_s, _ in lines))
    count = f"{len(lines)} evaluation{'' if len(lines) == 1 else 's'}"
    click.echo(f"{click.style(job, bold=True)}: {count}, {days}, times in {zones}")
    rows: list[tuple[str, ...]] = []
    colours: list[str | None] = []
    whole: list[int] = []
    today = ""
    for at_s, line in lines:
        day = times.day(at_s)
        if today and day != today:
            rows.append(("", "", "", "", "", f"── {day} ──"))
            colours.append(None)
        today = day
        if line is None:
            rows.append((times.clock(at_s), "?", "?", "?", "?", "written by another version of Headroom"))
            colours.append("yellow")
            continue
        rows.append((times.clock(at_s), line.load, line.lag, line.scale_out, line.done, line.why))
        colours.append("green" if "→" in line.done else None)
        if "→" in line.done:
            whole.append(len(rows) - 1)
        for alarm in line.alarms:
            whole.append(len(rows))
            rows.append(("", "", "", "", "ALARM", alarm))
            colours.append("red")
    page.table(HEADER, rows, right="rrrrll", colours=colours, wrapped=whole)
