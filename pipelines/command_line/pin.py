"""`headroom pin`: keep a job at exactly this many executors."""

from __future__ import annotations

from pathlib import Path

import click

from . import directives, stored_job


@click.command("pin")
@click.argument("job")
@click.argument("executors", metavar="N", type=click.IntRange(1))
@directives.why_option
@directives.for_option
@directives.until_option
@directives.wait_option
@stored_job.options
@click.option("--json", "as_json", is_flag=True, help="Print what was ordered and replaced as JSON.")
def command(
    job: str,
    executors: int,
    why: str,
    for_: str | None,
    until: str | None,
    file: Path,
    folder: Path,
    wait: bool,
    as_json: bool,
) -> None:
    """Keep a job at exactly N executors, from its next tick on, whatever the models say.

    \b
    Exit code 0: it is pinned: a tick has obeyed it; with --no-wait: it is stored.
    Exit code 1: it is stored, and no tick has obeyed it yet; the reason says what to do.
    Exit code 2: it could not run, for example because N is outside of the job's bounds.
    """
    directives.give(
        job,
        "pin",
        why=why,
        for_=for_,
        until=until,
        value=executors,
        file=file,
        folder=folder,
        wait=wait,
        as_json=as_json,
    )
