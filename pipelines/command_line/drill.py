"""`headroom drill`: cause a failure on purpose, and measure how long the job takes to come back."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from models.errors import Misconfigured, Unsafe
from models.quantities import FAILURE_KINDS, counted

from ..server import drills
from ..settings.schema import JobSettings
from . import server_orders, stored_job

OPTIONS = {
    "drill.kinds": "--kind",
    "drill.scale_outs": "--scale-out",
    "drill.rates_rps": "--rate-rps",
    "drill.repeats": "--repeats",
    "drill.budget_executor_s": "--budget-executor-s",
}
"""Setting of an order -> option of this command."""


@click.command("drill")
@click.argument("job")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(FAILURE_KINDS),
    help="Which failure; may be repeated. Default: the job's failure_kinds.",
)
@click.option(
    "--on-copy/--on-live",
    default=True,
    help="On a profiling copy (default), or on the live job, which `headroom serve` must be running.",
)
@click.option(
    "--scale-out",
    "scale_outs",
    multiple=True,
    type=click.IntRange(1),
    help="Of the copy. Default: the job's scale_out.",
)
@click.option(
    "--rate-rps",
    "rates",
    multiple=True,
    type=click.FloatRange(0, min_open=True),
    help="Of the copy, records/s. Default: half and three quarters of the profiled capacity.",
)
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(1), help="Of every combination.")
@click.option(
    "--budget-executor-s",
    "budget",
    type=click.FloatRange(0, min_open=True),
    help="Executor-seconds that drills on a copy may cost. Default: the job's profile_budget_executor_s.",
)
@click.option("--yes", is_flag=True, help="Do not ask before the live job is hurt.")
@stored_job.options
@click.option("--json", "as_json", is_flag=True, help="Print the drills as JSON.")
def command(
    job: str,
    kinds: tuple[str, ...],
    on_copy: bool,
    scale_outs: tuple[int, ...],
    rates: tuple[float, ...],
    repeats: int,
    budget: float | None,
    yes: bool,
    file: Path,
    folder: Path,
    as_json: bool,
) -> None:
    """Cause failures and measure downtime and recovery, beside what the models predict.

    `headroom serve` carries them out; without it a copy is run and drilled by this command. Ctrl-C cancels
    them. Every result is kept and teaches the models; the failure is cleared in every case. A drill on the
    live job asks first.

    \b
    Exit code 0: every drill recovered within the job's target.
    Exit code 1: some drill did not, or showed nothing.
    Exit code 2: it could not run.
    """
    settings = server_orders.checked("drill", job, file=file, live=not on_copy)
    if not on_copy:
        drills.refuse_live(job, settings.jobs[job], now_s=time.time())
        server_orders.need_server(folder)
        _ask(job, settings.jobs[job], kinds, yes=yes)
    details: dict[str, Any] = {
        "kinds": list(kinds),
        "scale_outs": list(scale_outs),
        "rates_rps": list(rates),
        "repeats": repeats,
        "live": None if on_copy else True,
        "budget_executor_s": budget,
    }
    try:
        found, _ = server_orders.in_a_run(
            "drill",
            job,
            asset="failure_drills",
            details=details,
            settings=settings,
            own=on_copy,
            file=file,
            folder=folder,
            cancelled="what was injected is cleared, and the copies are stopped",
        )
    except Misconfigured as wrong:
        if wrong.setting not in OPTIONS:
            raise
        problem = str(wrong).removeprefix(f"{wrong.setting}: ")
        raise Misconfigured(OPTIONS[wrong.setting], problem) from wrong
    # On a terminal that shows both, every drill has its line already.
    lines = [] if sys.stdout.isatty() and sys.stderr.isatty() else [one["said"] for one in found["drills"]]
    kept, target_s = sum(one["kept"] for one in found["drills"]), settings.jobs[job].recovery_target_s
    lines.append(f"{kept} of {counted(len(found['drills']), 'drill')} recovered within {target_s:g} s")
    server_orders.results(job, found, lines, as_json=as_json)
    if not found["kept"]:
        raise click.exceptions.Exit(1)


def _ask(job: str, settings: JobSettings, kinds: Sequence[str], *, yes: bool) -> None:
    """Whether the live job may really be hurt now."""
    if yes:
        return
    said = f"{', '.join(kinds or settings.failure_kinds)} will hit the live job {job}, which falls behind."
    if beyond := [kind for kind in kinds if kind not in settings.failure_kinds]:
        said += (
            f"\n{', '.join(beyond)} is not covered by its promise (failure_kinds = "
            f"{', '.join(settings.failure_kinds)}): no size was chosen for it."
        )
    if not sys.stdin.isatty():
        raise Unsafe(
            f"{said} There is no terminal to ask on: add --yes, or leave --on-live out to drill a copy"
        )
    click.echo(said, err=True)
    if not click.confirm("Go on?", err=True):
        raise Unsafe(f"the live job {job} was left alone: leave --on-live out to drill a copy")
