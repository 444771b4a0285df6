"""`headroom onboard`: from a job that runs to models in charge, with an estimate before it begins."""

from __future__ import annotations

import contextlib
import io
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from models.quantities import counted, executors, lasting
from profiling_jobs.experiments import drilling, expected_cost

from ..integrations.stores.opening import find_store, open_store
from ..processes import owner
from ..server.client import START_IT
from ..settings import job_plans, times
from ..settings.schema import JobSettings, Settings
from . import options, orders, page, stages

NAMES = tuple(stages.STEPS)
DOCUMENT = "onboarding"
GOES_ON_S = 86_400.0  # judgement: by the next day the load that was recorded may be another one
STARTING_S = 30.0  # judgement: until what records the input has started, and has read the last slice
FITTING_S = 60.0  # judgement: four fits with their checks, each in a run of its own


@dataclass(frozen=True)
class Step:
    """One step and what it is expected to take."""

    step: str
    does: str
    seconds: float
    executor_seconds: float = 0.0
    """Of profiling copies."""
    most_executor_seconds: float = 0.0
    """What it may not exceed."""


def planned(name: str, job: JobSettings, settings: Settings, *, recorded_s: float) -> tuple[Step, ...]:
    """The four steps of a job, estimated from its settings alone."""
    budget = job.profile_budget_executor_s
    spark = None if settings.deployment.kind == "kubernetes" else settings.spark
    search = job_plans.search(name, job, spark)
    profile = expected_cost.of_profile(search, longest_window_s=job.longest_window_s)
    drills = drilling.planned(
        kinds=job.failure_kinds,
        rates_rps={job.scale_out: (1.0,)},  # the rate does not matter to what it takes
        repeats=1,
        budget_executor_seconds=budget,
    )
    drill = expected_cost.of_drills(
        drills.cells,
        ready_s=search.warm_up_s,
        trigger_s=job.trigger_s,
        silence_s=settings.spark.network_timeout_s,
        longest_s=job_plans.drill_settings(job, settings.spark).longest_s,
    )
    sizes = ", ".join(map(str, search.scale_outs))
    probes = f"some {counted(profile.number, 'probe')} of copies with {sizes} executors"
    caused = f"{', '.join(job.failure_kinds)} on a copy with {executors(job.scale_out)}"
    if drills.left_out:
        caused += f"; the budget has no room for {counted(drills.left_out, 'drill')} of them"
    return (
        Step("record", f"{lasting(recorded_s)} of {', '.join(job.inputs.values())}", recorded_s + STARTING_S),
        Step("profile", probes, round(profile.seconds), round(profile.executor_seconds), budget),
        Step("drill", caused, round(drill.seconds), round(drill.executor_seconds), budget),
        Step("model", "fit and check the models of load, capacity, latency and recovery", FITTING_S),
    )


@click.command("onboard")
@options.job
@stages.recorded_for
@click.option(
    "--from",
    "first",
    type=click.Choice(NAMES),
    help="Begin with this step. Default: record, or where it was interrupted.",
)
@click.option("--dry-run", is_flag=True, help="Print the steps and what they will take, and do nothing.")
@click.option("--yes", is_flag=True, help="Begin without a question.")
@options.as_json("Print what each step has found as JSON; asks nothing.")
@click.pass_context
def command(
    ctx: click.Context,
    job: str,
    for_: str | None,
    first: str | None,
    dry_run: bool,
    yes: bool,
    file: Path,
    folder: Path,
    as_json: bool,
) -> None:
    """Record, profile, drill (on copies) and model a job, one after the other. Ends where a step fails.

    It prints what each step will take, and asks on a terminal before it begins. One that was interrupted goes
    on with the step that was not over, within a day.

    \b
    Exit code 0: its models are in charge.
    Exit code 1: a step answered no, and says why; or you did.
    """
    settings = orders.checked("profile", job, file=file)
    with options.value_of("--for"):
        recorded_s = job_plans.recorded_s(settings.jobs[job]) if for_ is None else times.duration_s(for_)
    done = _done(job, settings, folder, now_s=time.time()) if first is None else ()
    left = NAMES[len(done) if first is None else NAMES.index(first) :]
    every = planned(job, settings.jobs[job], settings, recorded_s=recorded_s)
    steps = [one for one in every if one.step in left]
    shown: dict[str, Any] = {"done_before": list(done), "steps": [asdict(one) for one in steps]}
    if dry_run and as_json:
        return options.print_json(job=job, **shown)
    if not as_json:
        _show(job, steps, done, err=not dry_run)
        if "record" in left and owner.holder(folder) is None:
            told = f"No server runs for {folder}, and record needs one: {START_IT}."
            page.paragraph(told, indent=0, colour="yellow", err=not dry_run)
    if dry_run:
        return None
    if not (yes or as_json) and options.on_terminal() and not click.confirm("Begin?", default=True, err=True):
        click.echo("nothing was begun", err=True)
        options.answer_no()
    given = {} if for_ is None else {"record": ["--for", for_]}
    found, ended_at = _run(ctx, job, steps, settings, given, file=file, folder=folder, as_json=as_json)
    if as_json:
        options.print_json(indent=1, job=job, **shown, found=found, ended_at=ended_at or None)
    return options.answer_no(ended_at)


def _run(
    ctx: click.Context,
    job: str,
    steps: Sequence[Step],
    settings: Settings,
    given: Mapping[str, Sequence[str]],
    *,
    file: Path,
    folder: Path,
    as_json: bool,
) -> tuple[dict[str, Any], str]:
    """What each step has found, with `as_json`, and the one that answered no. `given`: further options."""
    found: dict[str, Any] = {}
    for number, one in enumerate(steps):
        name, left_s = one.step, sum(each.seconds for each in steps[number:])
        at = f"[{NAMES.index(name) + 1}/{len(NAMES)}] headroom {name} {job}"
        click.echo(f"{at}: about {_about(one.seconds)}, {_about(left_s)} to the end", err=True)
        words = [job, "--file", str(file), "--folder", str(folder), *given.get(name, ())]
        words += ["--json"] if as_json else []
        ended = f"ended at {name}; go on with: headroom onboard {job} --from {name}"
        out = io.StringIO()
        try:
            with (
                contextlib.redirect_stdout(out) if as_json else contextlib.nullcontext(),
                stages.STEPS[name].make_context(name, words, parent=ctx) as step,
            ):
                stages.STEPS[name].invoke(step)
            no = False
        except click.exceptions.Exit as answer:
            # A drill that takes too long is a result: the models learn from it.
            no = answer.exit_code != 0 and name != "drill"
        except BaseException:
            click.echo(ended, err=True)
            raise
        found[name] = json.loads(out.getvalue() or "{}")
        if no:
            click.echo(ended, err=True)
            return found, name
        _remember(job, settings, folder, NAMES[: NAMES.index(name) + 1], now_s=time.time())
    return found, ""


def _show(job: str, steps: Sequence[Step], done: Sequence[str], *, err: bool) -> None:
    if done:
        went = f"{job} goes on where it was interrupted, after {' and '.join(done)}"
        page.paragraph(f"{went}; --from record begins anew.", indent=0, err=err)
    rows = [(one.step, _about(one.seconds), _cost(one.executor_seconds), one.does) for one in steps]
    seconds, cost = sum(one.seconds for one in steps), sum(one.executor_seconds for one in steps)
    most = sum(one.most_executor_seconds for one in steps)
    rows.append(
        ("in all", _about(seconds), _cost(cost), f"at most {most:,.0f} executor-seconds" if most else "")
    )
    page.show(page.columns(("step", "about", "executor-seconds", "what"), rows, right="lrrl"), err=err)


def _about(seconds: float) -> str:
    """In whole minutes, rounded up: it is an estimate."""
    return lasting(60.0 * math.ceil(seconds / 60.0))


def _cost(executor_seconds: float) -> str:
    return f"{round(executor_seconds, -1):,.0f}" if executor_seconds else "–"


def _done(job: str, settings: Settings, folder: Path, *, now_s: float) -> tuple[str, ...]:
    """The steps that an onboarding has ended which was interrupted within GOES_ON_S."""
    store = find_store(settings.store, folder)
    if store is None:
        return ()
    with store:
        kept = store.document(job, DOCUMENT)
    if kept is None or kept["schema"] != 1 or not 0.0 <= now_s - kept["at_s"] < GOES_ON_S:
        return ()
    return tuple(kept["done"])


def _remember(job: str, settings: Settings, folder: Path, done: Sequence[str], *, now_s: float) -> None:
    over = len(done) == len(NAMES)
    with open_store(settings.store, folder) as store:
        store.save_document(job, DOCUMENT, {"schema": 1, "done": [] if over else list(done), "at_s": now_s})
