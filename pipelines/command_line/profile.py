"""`headroom profile`: search what a job sustains at several sizes, on copies of it."""

from __future__ import annotations

from pathlib import Path

import click

from models.quantities import counted, executors

from . import server_orders, stored_job


@click.command("profile")
@click.argument("job")
@click.option(
    "--scale-out",
    "scale_outs",
    multiple=True,
    type=click.IntRange(1),
    help="A size to search; may be repeated. Default: the job's profile_scale_outs.",
)
@click.option(
    "--budget-executor-s",
    "budget",
    type=click.FloatRange(0, min_open=True),
    help="Executor-seconds that the search may cost. Default: the job's profile_budget_executor_s.",
)
@stored_job.options
@click.option("--json", "as_json", is_flag=True, help="Print the capacities as JSON.")
def command(
    job: str, scale_outs: tuple[int, ...], budget: float | None, file: Path, folder: Path, as_json: bool
) -> None:
    """Search the capacity of a job, on copies that read what was recorded. Ctrl-C cancels it.

    `headroom serve` runs the copies; without it this command does. A search that was interrupted goes on
    where it stopped.

    \b
    Exit code 0: the capacity of at least one size is known.
    Exit code 1: of none.
    Exit code 2: it could not run.
    """
    settings = server_orders.checked("profile", job, file=file)
    found, _ = server_orders.in_a_run(
        "profile",
        job,
        asset="search",
        details={"scale_outs": list(scale_outs), "budget_executor_s": budget},
        settings=settings,
        own=True,
        file=file,
        folder=folder,
        cancelled="what was measured stays, the next profile goes on from there; the copies are stopped",
    )
    known = {int(size): one for size, one in found["capacity_rps"].items() if "mid" in one}
    lines = [
        f"{executors(size, 'sustain')} {one['mid']:,.0f} records/s ({one['low']:,.0f} to {one['high']:,.0f})"
        for size, one in sorted(known.items())
    ]
    lines += [
        f"{executors(int(size))}: not known, {one['unknown']}"
        for size, one in found["capacity_rps"].items()
        if "unknown" in one
    ]
    lines.append(
        f"{counted(found['probes'], 'probe')}, {found['spent_executor_s']:,.0f} executor-seconds: "
        f"{found['why_done']}"
    )
    server_orders.results(job, found, lines, as_json=as_json)
    if not known:
        raise click.exceptions.Exit(1)
