"""`headroom stop`: end one job between two of its batches, and leave the others alone."""

from __future__ import annotations

from pathlib import Path

import click

from . import server_orders, stored_job


@click.command("stop")
@click.argument("job")
@stored_job.options
@click.option("--json", "as_json", is_flag=True, help="Print whether it ran as JSON.")
def command(job: str, file: Path, folder: Path, as_json: bool) -> None:
    """Stop a job between two batches. Its checkpoint stays: `headroom start` goes on from there.

    `headroom serve` stops it, and does not start it again by itself; until then its evaluations hold and say
    so. A batch that takes longer than a minute is cut short. A job that was taken out of headroom.toml while
    it ran can be stopped, too.

    \b
    Exit code 0: it does not run, from now on or from before.
    Exit code 2: it could not be stopped.
    """
    found = server_orders.run_order("stop", job, file=file, folder=folder)
    said = f"{job} is stopped" if found["stopped"] else f"{job} did not run"
    server_orders.answer(job, found, said=said, as_json=as_json)
