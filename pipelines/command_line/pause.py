"""`headroom pause`: stop deciding for a job, not the job itself."""

from __future__ import annotations

from pathlib import Path

import click

from . import directives, stored_job


@click.command("pause")
@click.argument("job")
@directives.why_option
@directives.for_option
@directives.until_option
@directives.wait_option
@stored_job.options
@click.option("--json", "as_json", is_flag=True, help="Print what was ordered and replaced as JSON.")
def command(
    job: str,
    why: str,
    for_: str | None,
    until: str | None,
    file: Path,
    folder: Path,
    wait: bool,
    as_json: bool,
) -> None:
    """Stop deciding for a job, from its next tick on. The job itself runs on, and is measured.

    \b
    Exit code 0: it is paused: a tick has obeyed it; with --no-wait: it is stored.
    Exit code 1: it is stored, and no tick has obeyed it yet; the reason says what to do.
    Exit code 2: it could not run.
    """
    directives.give(
        job,
        "pause",
        why=why,
        for_=for_,
        until=until,
        value=None,
        file=file,
        folder=folder,
        wait=wait,
        as_json=as_json,
    )
