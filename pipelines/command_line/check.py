"""`headroom check`: is headroom.toml right?"""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from pipelines import config
from pipelines.config import Mistake, WrongSettings
from pipelines.settings import Settings
from profiling_jobs import triggers


@click.command("check")
@click.option(
    "--file",
    "file",
    default=Path("headroom.toml"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="The file to check.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(file: Path, as_json: bool) -> None:
    """Read headroom.toml as every command does, and say everything that is wrong with it, a line each.

    \b
    Exit code 0: it is right.
    Exit code 1: it is wrong.
    Exit code 2: it could not be read at all.
    """
    try:
        settings = config.load(file, environment=os.environ)
    except WrongSettings as wrong:
        jobs: list[str] = []
        mistakes = wrong.mistakes
    else:
        jobs = sorted(settings.jobs)
        mistakes = _beyond_the_file(settings, file)
    if as_json:
        rows = [{"path": one.path, "line": one.line, "problem": one.problem} for one in mistakes]
        click.echo(json.dumps({"schema": 1, "right": not mistakes, "jobs": jobs, "mistakes": rows}))
    elif mistakes:
        for one in mistakes:
            click.echo(f"{file}: {one}")
    else:
        click.echo(f"{file} is right: {', '.join(jobs) or 'no job yet'}")
    if mistakes:
        raise click.exceptions.Exit(1)


def _beyond_the_file(settings: Settings, file: Path) -> tuple[Mistake, ...]:
    """What only the disk can tell."""
    folder = file.resolve().parent
    found = []
    for name, job in sorted(settings.jobs.items()):
        if job.script is None:
            continue
        if not (script := folder / job.script).is_file():
            found.append(Mistake(f"job.{name}.script", None, f"there is no {job.script}"))
            continue
        intervals_s = triggers.spelt_in(script.read_text(errors="replace"))
        wrong = [triggers.mismatch(job.trigger_s, interval_s) for interval_s in intervals_s]
        if wrong and all(wrong):
            found.append(Mistake(f"job.{name}.trigger_s", None, wrong[0]))
    return tuple(found)
