"""`headroom record`: copy the live input of a job for a while, for profiling copies to read."""

from __future__ import annotations

from pathlib import Path

import click

from models.errors import Misconfigured
from models.quantities import counted

from ..settings import times
from . import server_orders, stored_job

DEFAULT = "5m"


@click.command("record")
@click.argument("job")
@click.option("--for", "for_", default=DEFAULT, show_default=True, help="For so long: 90s, 10m, 1h.")
@click.option(
    "--max-bytes", type=click.IntRange(1), help="End before the time at this size of a topic, on disk."
)
@stored_job.options
@click.option("--json", "as_json", is_flag=True, help="Print the recordings as JSON.")
def command(job: str, for_: str, max_bytes: int | None, file: Path, folder: Path, as_json: bool) -> None:
    """Record the live input of a job, under the `headroom serve` that runs. Ctrl-C cancels it.

    \b
    Exit code 0: it is recorded, and its history is known.
    Exit code 1: nothing arrived, or the history cannot be read from it.
    Exit code 2: it could not run.
    """
    try:
        seconds = times.duration_s(for_)
    except ValueError as wrong:
        raise Misconfigured("--for", str(wrong)) from wrong
    settings = server_orders.checked("record", job, file=file)
    result, problem = server_orders.in_a_run(
        "record",
        job,
        asset="recording",
        details={"seconds": seconds, "max_bytes": max_bytes},
        settings=settings,
        own=False,
        file=file,
        folder=folder,
        cancelled="what was recorded stays, and the same command goes on with it",
    )
    recordings = result["recordings"]
    lines = [
        f"{own}: {counted(one['records'], 'record')} of {one['topic']}, {one['mean_rps']:,.0f} records/s, "
        f"{one['bytes'] / 1e6:,.1f} MB in\n  {one['folder']}"
        for own, one in recordings.items()
    ]
    server_orders.results(
        job, result, [*"\n".join(lines).splitlines(), *([problem] if problem else [])], as_json=as_json
    )
    if problem or not all(one["records"] for one in recordings.values()):
        raise click.exceptions.Exit(1)
