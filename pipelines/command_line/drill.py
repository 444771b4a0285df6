"""`headroom drill`: cause a failure on purpose, and measure how long the job takes to come back."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import click

from models.quantities import FAILURE_KINDS
from pipelines import config, drills, job_plans, owner
from pipelines.desk import Desk, Json, carried_out
from pipelines.settings import Settings
from profiling_jobs.errors import Misconfigured, NotReady

from . import subject

OPTIONS = {
    "drill.kinds": "--kind",
    "drill.scale_outs": "--scale-out",
    "drill.rates_rps": "--rate-rps",
    "drill.repeats": "--repeats",
    "drill.budget_executor_s": "--budget-executor-s",
}
"""What an order calls it -> what it is called here."""


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
@subject.options
@click.option("--json", "as_json", is_flag=True, help="Print the drills as JSON.")
def command(
    job: str,
    kinds: tuple[str, ...],
    on_copy: bool,
    scale_outs: tuple[int, ...],
    rates: tuple[float, ...],
    repeats: int,
    budget: float | None,
    file: Path,
    folder: Path,
    as_json: bool,
) -> None:
    """Cause failures and measure downtime and recovery, beside what the models predict.

    While `headroom serve` runs it carries them out, and Ctrl-C here gives them up; without it a copy is run
    and drilled by this command. Every result is kept and teaches the models; what was injected is cleared in
    every case.

    \b
    Exit code 0: every drill recovered within the job's target.
    Exit code 1: some drill did not, or showed nothing.
    Exit code 2: it could not run.
    """
    settings = config.load(file, environment=os.environ)
    if job not in settings.jobs:
        raise subject.no_job(job, tuple(settings.jobs), file)
    wanted: dict[str, Any] = {"kinds": kinds, "scale_outs": scale_outs, "rates_rps": rates}
    details: dict[str, Any] = {name: list(given) for name, given in wanted.items() if given}
    details |= {"repeats": repeats, "live": None if on_copy else True, "budget_executor_s": budget}
    job_plans.check_order(job, settings.jobs[job], "drill", live=not on_copy)  # before anything is started
    owner.exit_on_signals()
    with ExitStack() as stack:
        seen = stack.enter_context(_shown())
        desk = stack.enter_context(_desk(settings, job, folder, on_copy=on_copy))
        found = _carried_out(desk, job, details, seen=seen)
    if as_json:
        click.echo(json.dumps({"schema": 1, "job": job, **found}, indent=1))
    else:
        for one in found["drills"]:
            click.echo(one["said"])
    if not found["kept"]:
        raise click.exceptions.Exit(1)


@contextmanager
def _desk(settings: Settings, job: str, folder: Path, *, on_copy: bool) -> Iterator[Desk]:
    """That of the folder's owner; where there is none, one of our own for as long as the drills last."""
    from pipelines.desk_here import HereDesk
    from pipelines.desk_line import START_IT, DeskClient
    from pipelines.world import opened

    if owner.holder(folder) is not None:
        yield DeskClient(folder)
        return
    if not on_copy:
        drills.refuse_live(job, settings.jobs[job], now_s=time.time())
        raise NotReady(
            f"nobody owns {folder} now, and only its owner, who runs and watches {job}, drills it live: "
            f"{START_IT} --launch {job}, or leave --on-live out to drill a copy"
        )
    with opened(settings, folder, say=_say) as world, closing(HereDesk(world, settings, folder)) as desk:
        yield desk


def _carried_out(
    desk: Desk, job: str, details: Mapping[str, Any], *, seen: Callable[[Json], None]
) -> Mapping[str, Any]:
    given = {name: value for name, value in details.items() if value is not None}
    try:
        return carried_out(desk, "drill", job, say=_say, seen=seen, **given)
    except Misconfigured as wrong:
        if wrong.setting not in OPTIONS:
            raise
        problem = str(wrong).removeprefix(f"{wrong.setting}: ")
        raise Misconfigured(OPTIONS[wrong.setting], problem) from wrong
    except (KeyboardInterrupt, SystemExit):
        _say("given up: what was injected is cleared, and the copies are stopped")
        raise


@contextmanager
def _shown() -> Iterator[Callable[[Json], None]]:
    """A bar on a terminal, which the lines stand above; elsewhere the lines alone."""
    if not sys.stderr.isatty():
        yield lambda order: None
        return
    from rich.console import Console
    from rich.progress import Progress

    from pipelines.demo_show import columns

    with Progress(*columns(), console=Console(stderr=True), transient=True, expand=True) as progress:
        task = progress.add_task("drills", total=1.0, what="")
        yield lambda order: progress.update(task, completed=order["share"] or 0.0, what=order["stage"])


def _say(text: str) -> None:
    click.echo(text, err=True)
