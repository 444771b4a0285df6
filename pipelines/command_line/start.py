"""`headroom start`: run one job, under the `headroom serve` that is going to keep it running."""

from __future__ import annotations

from pathlib import Path

import click

from models.quantities import executors

from . import server_orders, stored_job


@click.command("start")
@click.argument("job")
@stored_job.options
@click.option("--json", "as_json", is_flag=True, help="Print what it runs with as JSON.")
def command(job: str, file: Path, folder: Path, as_json: bool) -> None:
    """Start a job with the scale_out of its settings; also one that was stopped, or has failed.

    `headroom serve` starts it, with the settings that it has read at its own start. Jobs that run are left
    alone.

    \b
    Exit code 0: it runs, from now on or from before.
    Exit code 2: it could not be started.
    """
    found = server_orders.run_order("launch", job, file=file, folder=folder)
    size = found["scale_out"]
    said = f"{job} runs with {executors(size)}" if found["launched"] else f"{job} was {found['state']} before"
    server_orders.answer(job, found, said=said, as_json=as_json)
