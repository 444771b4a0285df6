"""`headroom drill`: cause a failure on purpose, and measure how long the job takes to come back."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path

import click

from models.quantities import FAILURE_KINDS, Misuse, Unknown
from pipelines import config, job_plans, owner, timetable, world
from pipelines.drills import SHARES, as_data, kept, known_models
from pipelines.settings import JobSettings, Settings
from pipelines.world import World
from profiling_jobs.drills import drilling
from profiling_jobs.drills.drill import Outcome, Subject
from profiling_jobs.drills.drill import run as run_drill
from profiling_jobs.drills.drill_prediction import Models
from profiling_jobs.drills.drilling import Drilling, DrillPlan, planned
from profiling_jobs.errors import Misconfigured, NotReady, Unsafe
from profiling_jobs.signals.watching import Watch


@click.command("drill")
@click.argument("job")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(FAILURE_KINDS),
    help="Which failure; may be repeated. Default: the job's failure_kinds.",
)
@click.option("--on-copy/--on-live", default=True, help="On a profiling copy (default), or on the live job.")
@click.option(
    "--scale-out", "scale_outs", multiple=True, type=click.IntRange(1), help="Default: the job's scale_out."
)
@click.option(
    "--rate-rps",
    "rates",
    multiple=True,
    type=click.FloatRange(0, min_open=True),
    help="Records/s. Default: half and three quarters of the profiled capacity.",
)
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(1), help="Of every combination.")
@click.option(
    "--budget-executor-s", default=math.inf, type=float, help="Executor-seconds that the drills may cost."
)
@click.option(
    "--file",
    default=Path("headroom.toml"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="The settings.",
)
@click.option(
    "--folder",
    default=Path(".headroom"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where everything is kept.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the drills as JSON.")
def command(
    job: str,
    kinds: tuple[str, ...],
    on_copy: bool,
    scale_outs: tuple[int, ...],
    rates: tuple[float, ...],
    repeats: int,
    budget_executor_s: float,
    file: Path,
    folder: Path,
    as_json: bool,
) -> None:
    """Cause failures and measure downtime and recovery, beside what the models predict.

    Every result is kept and teaches the models; what was injected is cleared in every case.

    \b
    Exit code 0: every drill recovered within the job's target.
    Exit code 1: some drill did not, or showed nothing.
    Exit code 2: it could not run.
    """
    settings = config.load(file, environment=os.environ)
    if job not in settings.jobs:
        known = ", ".join(sorted(settings.jobs)) or "none"
        raise Misconfigured(f"job.{job}", f"is not in {file}; there is {known}")
    wanted = settings.jobs[job]
    if not on_copy and not wanted.allow_live_drills:
        raise Unsafe(
            f"job.{job}.allow_live_drills is false: the live job is not hurt. Leave --on-live out to drill a "
            "copy, or set it to true"
        )
    if not on_copy and (window := timetable.blackout(wanted, time.time())) is not None:
        raise Unsafe(
            f"{job} is in the blackout {window.why}: the live job is not hurt. Leave --on-live out to drill "
            "a copy, or wait"
        )
    living = owner.holder(folder)
    if living is not None and settings.deployment.kind != "simulated":  # a simulated world is one's own
        who = f"process {living.process.pid} ({living.process.command[0]})"
        raise Unsafe(
            f"{folder} is owned by {who}, which alone runs copies in it: launch `drill` for the partition "
            f"{job} on Dagster's page, or stop that process first"
        )
    owner.exit_on_signals()
    say = _say if sys.stderr.isatty() else (lambda text: None)
    with world.opened(settings, folder, say=say) as there:
        if on_copy:
            outcomes = _on_copy(
                there, settings, job, kinds=kinds, scale_outs=scale_outs, rates=rates, repeats=repeats,
                budget=budget_executor_s, folder=folder, say=say,
            )  # fmt: skip
        else:
            outcomes = _on_live(there, settings, job, kinds=kinds, repeats=repeats)
    if as_json:
        rows = [as_data(one, target_s=wanted.recovery_target_s) for one in outcomes]
        click.echo(json.dumps({"schema": 1, "job": job, "drills": rows}, indent=1))
    else:
        for one in outcomes:
            click.echo(drilling.described(one))
    if not outcomes or not all(kept(one, target_s=wanted.recovery_target_s) for one in outcomes):
        raise click.exceptions.Exit(1)


def _on_copy(
    there: World,
    settings: Settings,
    name: str,
    *,
    kinds: tuple[str, ...],
    scale_outs: tuple[int, ...],
    rates: tuple[float, ...],
    repeats: int,
    budget: float,
    folder: Path,
    say: world.Say,
) -> tuple[Outcome, ...]:
    job = settings.jobs[name]
    template = job_plans.live_plan(name, job, folder=folder)
    models = known_models(there.store, name, job)
    sizes = scale_outs or (job.scale_out,)
    plan = _plan(name, job, models, kinds=kinds, sizes=sizes, rates=rates, repeats=repeats, budget=budget)
    if plan.left_out:
        say(f"{plan.left_out} drills are left out: the budget has no room for them")
    return Drilling(
        template,
        there.around(name, job),
        failures=there.failures,
        partitions=there.partitions(template),
        rules=job_plans.rules(job),
        settings=job_plans.drill_settings(job, settings.spark),
        batch_began_s=there.batch_began_s,
        say=say,
    ).run(plan, models=models, budget_executor_seconds=budget)


def _plan(
    name: str,
    job: JobSettings,
    models: Models | None,
    *,
    kinds: tuple[str, ...],
    sizes: tuple[int, ...],
    rates: tuple[float, ...],
    repeats: int,
    budget: float,
) -> DrillPlan:
    by_size: dict[int, tuple[float, ...]] = {}
    for size in sizes:
        if rates:
            by_size[size] = rates
            continue
        capacity = Unknown(f"{name} was never profiled") if models is None else models.capacity.predict(size)
        if isinstance(capacity, Unknown):
            raise Misconfigured("--rate-rps", f"is needed, for the capacity is unknown: {capacity.reason}")
        by_size[size] = tuple(share * capacity.mid for share in SHARES)
    try:
        plan = planned(
            kinds=kinds or job.failure_kinds,
            rates_rps=by_size,
            repeats=repeats,
            budget_executor_seconds=budget,
        )
    except Misuse as wrong:
        raise Misconfigured("--budget-executor-s", str(wrong)) from wrong
    if not plan.cells:
        raise Misconfigured("--budget-executor-s", f"{budget:g} is not enough for one drill")
    return plan


def _on_live(
    there: World, settings: Settings, name: str, *, kinds: tuple[str, ...], repeats: int
) -> tuple[Outcome, ...]:
    job = settings.jobs[name]
    if name not in there.deployments.names():
        raise NotReady(f"{name} does not run here: start it first, or leave --on-live out to drill a copy")
    scale_out = there.deployments.status(name).declared_scale_out
    models = known_models(there.store, name, job)
    around = there.around(name, job)
    outcomes = []
    for kind in (kinds or job.failure_kinds) * repeats:
        watch = Watch(name, scale_out=scale_out, metrics=there.metrics, deployments=there.deployments)
        subject = Subject(name, watch, "live", batch_began_s=lambda batch: there.batch_began_s(name, batch))
        outcome = run_drill(
            subject,
            kind,
            failures=there.failures,
            clock=there.clock,
            settings=job_plans.drill_settings(job, settings.spark),
        )
        outcome = drilling.with_prediction(outcome, models)
        drilling.keep(around, name, outcome)
        outcomes.append(outcome)
    return tuple(outcomes)


def _say(text: str) -> None:
    click.echo(text, err=True)
