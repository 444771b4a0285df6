"""`headroom profile`: search what a job sustains at several sizes, on copies of it."""

from __future__ import annotations

from pathlib import Path

import click

from models.quantities import counted, executors

from . import subject, to_owner

KEPT = "what was measured stays, the next profile goes on from there; the copies are stopped"


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
@subject.options
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
    settings = to_owner.checked("profile", job, file=file)
    with (
        to_owner.shown("profile") as show,
        to_owner.server(settings, folder, say=show.say, own=True) as server,
    ):
        ran = to_owner.in_a_run(
            "profile",
            job,
            asset="search",
            details={"scale_outs": list(scale_outs), "budget_executor_s": budget},
            server=server,
            show=show,
            file=file,
            folder=folder,
            kept=KEPT,
        )
    found = ran.result
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
    to_owner.results(job, found, lines, as_json=as_json)
    if not known:
        raise click.exceptions.Exit(1)
