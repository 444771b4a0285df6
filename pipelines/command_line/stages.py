"""`headroom record`, `profile`, `drill`, `model`: the stages up to the models."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from models.errors import Misconfigured, Unsafe
from models.quantities import FAILURE_KINDS, counted, executors
from profiling_jobs.training import champions
from profiling_jobs.training.champions import KINDS

from ..server import drills
from ..settings import times
from ..settings.schema import JobSettings, Settings
from . import options, orders, page

recorded_for = click.option(
    "--for",
    "for_",
    metavar="TIME",
    help="How long to record: 90s, 10m, 1h. Default: 2m, or the longest window of the job if that is longer.",
)
scale_outs = click.option(
    "--scale-out",
    "scale_outs",
    metavar="N",
    multiple=True,
    type=click.IntRange(1),
    help="Executors of a copy; may be repeated. Default: the sizes of the settings.",
)
budget = click.option(
    "--budget-executor-s",
    metavar="SECONDS",
    type=click.FloatRange(0, min_open=True),
    help="Executor-seconds that copies may cost. Default: profile_budget_executor_s of the job.",
)


@click.command("record")
@options.job
@recorded_for
@click.option(
    "--max-bytes",
    metavar="BYTES",
    type=click.IntRange(1),
    help="Stop early when the recording of a topic has this size on disk.",
)
@options.as_json("Print the recordings as JSON.")
def record(
    job: str, for_: str | None, max_bytes: int | None, file: Path, folder: Path, as_json: bool
) -> None:
    """Record the live input of a job. `headroom serve` must be running. Ctrl-C cancels it.

    \b
    Exit code 0: it is recorded, and the arrival rates are known.
    Exit code 1: nothing arrived, or no rates can be read from the recording.
    """
    with options.value_of("--for"):
        details = {"seconds": None if for_ is None else times.duration_s(for_), "max_bytes": max_bytes}
    settings = orders.checked("record", job, file=file)
    found, problem = orders.in_a_run(
        "record", job, details, settings=settings, own=False, file=file, folder=folder
    )
    lines = []
    for own, one in found["recordings"].items():
        arrived = f"{counted(one['records'], 'record')} of {one['topic']}, {one['mean_rps']:,.0f} records/s"
        lines += [f"{own}: {arrived}, {one['bytes'] / 1e6:,.1f} MB in", f"  {one['folder']}"]
    orders.results(job, found, [*lines, *filter(None, [problem])], as_json=as_json)
    options.answer_no(problem or not all(one["records"] for one in found["recordings"].values()))


@click.command("profile")
@options.job
@scale_outs
@budget
@options.as_json("Print the capacities as JSON.")
def profile(job: str, file: Path, folder: Path, as_json: bool, **details: Any) -> None:
    """Measure the capacity of a job, on copies that read what was recorded. Ctrl-C cancels it.

    `headroom serve` runs the copies; if it is not running, this command does. A profile that was interrupted
    continues where it stopped.

    \b
    Exit code 0: the capacity of at least one size is known.
    Exit code 1: no capacity is known.
    """
    settings = orders.checked("profile", job, file=file)
    found, _ = orders.in_a_run("profile", job, details, settings=settings, own=True, file=file, folder=folder)
    capacities = {int(size): one for size, one in found["capacity_rps"].items()}
    lines = [_sustained(size, one) for size, one in sorted(capacities.items())]
    probes, spent_s = counted(found["probes"], "probe"), found["spent_executor_s"]
    lines.append(f"{probes}, {spent_s:,.0f} executor-seconds: {found['why_done']}")
    orders.results(job, found, lines, as_json=as_json)
    options.answer_no(all("unknown" in one for one in capacities.values()))


def _sustained(size: int, capacity: Mapping[str, Any]) -> str:
    """What a profile has found out about one size."""
    if "unknown" in capacity:
        return f"{executors(size)}: not known, {capacity['unknown']}"
    sustain = executors(size, "sustain")
    if "at_least" in capacity:
        return f"{sustain} {capacity['at_least']:,.0f} records/s or more: nothing higher was offered"
    return f"{sustain} {capacity['mid']:,.0f} records/s ({capacity['low']:,.0f} to {capacity['high']:,.0f})"


@click.command("drill")
@options.job
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    type=click.Choice(FAILURE_KINDS),
    help=f"Which failure; may be repeated: {', '.join(FAILURE_KINDS)}. Default: failure_kinds of the job.",
)
@click.option(
    "--on-copy/--on-live",
    default=True,
    help="On a profiling copy (default), or on the live job; this needs `headroom serve`.",
)
@scale_outs
@click.option(
    "--rate-rps",
    "rates_rps",
    metavar="RATE",
    multiple=True,
    type=click.FloatRange(0, min_open=True),
    help="Load of the copy, records/s; may be repeated. Default: 0.6 of the profiled capacity.",
)
@click.option(
    "--repeats",
    metavar="N",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Drills of each combination.",
)
@budget
@click.option("--yes", is_flag=True, help="Drill the live job without a question.")
@options.as_json("Print the drills as JSON.")
def drill(
    job: str,
    kinds: tuple[str, ...],
    on_copy: bool,
    yes: bool,
    file: Path,
    folder: Path,
    as_json: bool,
    **details: Any,
) -> None:
    """Cause failures, and compare downtime and recovery with what the models predict.

    `headroom serve` carries the drills out; if it is not running, this command runs and drills a copy. Ctrl-C
    cancels them. The models learn from every result, and the failure is cleared in every case. A drill on the
    live job asks first.

    \b
    Exit code 0: every drill recovered within the target of the job.
    Exit code 1: a drill did not, or was invalid.
    """
    settings = orders.checked("drill", job, file=file, live=not on_copy)
    if not on_copy:
        drills.refuse_live(job, settings.jobs[job], now_s=time.time())
        orders.need_server(folder)
        _ask(job, settings.jobs[job], kinds, yes=yes)
    details |= {"kinds": kinds, "live": None if on_copy else True}
    try:
        found, _ = orders.in_a_run(
            "drill", job, details, settings=settings, own=on_copy, file=file, folder=folder
        )
    except Misconfigured as wrong:
        given = {f"drill.{option.name}": option.opts[0] for option in drill.params}
        raise Misconfigured(given.get(wrong.setting, wrong.setting), wrong.problem) from wrong
    # On a terminal that shows both, every drill has its line already.
    lines = [] if sys.stdout.isatty() and sys.stderr.isatty() else [one["said"] for one in found["drills"]]
    kept, target_s = sum(one["kept"] for one in found["drills"]), settings.jobs[job].recovery_target_s
    lines.append(f"{kept} of {counted(len(found['drills']), 'drill')} recovered within {target_s:g} s")
    orders.results(job, found, lines, as_json=as_json)
    options.answer_no(not found["kept"])


def _ask(job: str, settings: JobSettings, kinds: Sequence[str], *, yes: bool) -> None:
    """Ask before failures hit the live job; Unsafe unless the answer is yes."""
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


@click.command("model")
@options.job
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    type=click.Choice(tuple(KINDS)),
    help=f"Which model; may be repeated: {', '.join(KINDS)}. Default: all.",
)
@click.option(
    "--sign",
    "version",
    type=click.IntRange(min=1),
    metavar="VERSION",
    help="Fit nothing: sign this version of one --kind, which others or an earlier Headroom registered.",
)
@options.as_json("Print what became of each model as JSON.")
def model(
    job: str, kinds: tuple[str, ...], version: int | None, file: Path, folder: Path, as_json: bool
) -> None:
    """Fit, check and register the models of a job. A model that passes its checks takes charge.

    Needs no server. If `headroom serve` is running, its decisions use the new models from the next tick on.

    \b
    Exit code 0: each of these models is in charge. Without latency_bound_ms
    the latency needs none.
    Exit code 1: one of them is not, and its line says why.
    """
    settings = orders.checked("model", job, file=file)
    if version is not None:
        if len(kinds) != 1:
            raise click.UsageError("--sign needs one --kind: each kind has versions of its own")
        said = _signed(job, kinds[0], version, settings=settings, folder=folder)
        return options.print_json(indent=1, job=job, said=said) if as_json else click.echo("\n".join(said))
    kinds, found = kinds or tuple(KINDS), {}
    with orders.shown("model") as show, orders.runs(file, folder) as runs:
        for number, kind in enumerate(kinds):
            show.at(number / len(kinds), f"the {kind} model")
            show.say(f"fitting the {kind} model of {job}")
            # A run of its own: a kind that cannot be fitted does not keep the others from it.
            made, problem = runs.attempt("model", job, assets=[f"{kind}_model"])
            metadata = made.get(f"{kind}_model", {})
            found[kind] = {
                "said": metadata.get("said", problem),
                "promoted": bool(metadata.get("promoted", False)),
                "in_charge": metadata.get("champion_version"),
            }
    if as_json:
        options.print_json(indent=1, job=job, models=found)
    else:
        page.pairs([(kind, str(one["said"])) for kind, one in found.items()], indent=0)
    optional = () if settings.jobs[job].latency_bound_ms is not None else ("latency",)
    options.answer_no(not all(one["in_charge"] or kind in optional for kind, one in found.items()))


def _signed(job: str, kind: str, version: int, *, settings: Settings, folder: Path) -> list[str]:
    """Sign a version that a person has looked at; what was signed, and whether it is in charge now."""
    from ..integrations import mlflow_model
    from ..integrations.mlflow_registry import MlflowRegistry

    registry, name = MlflowRegistry.of(settings.mlflow, folder), champions.model_name(job, kind)
    document = registry.sign(name, version)
    taken = champions.refresh(registry, folder, job)
    said = [f"{name} version {version} is signed. {mlflow_model.trained(document)}"]
    said += [f"check {one['name']} {one['outcome']}: {one['said']}" for one in document.get("checks", ())]
    return [*said, "It is in charge now." if kind in taken else "The champion has not changed."]


STEPS = {"record": record, "profile": profile, "drill": drill, "model": model}
