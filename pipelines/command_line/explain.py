"""`headroom explain`: why this scale-out, why not one less, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from models.errors import Unsafe
from models.ports import LATE_TICKS
from models.quantities import lasting
from profiling_jobs.control_loop.memory import Evaluation
from profiling_jobs.explain.explanation import Explanation, near

from ..operating import stored_job
from ..operating.stored_job import LOOKED_BACK
from ..settings import times
from . import options, page

COLOURS = {"keeps it": "green", "does not": "red", "not known": "yellow"}


@click.command("explain")
@options.job
@click.option(
    "--at",
    "at",
    metavar="TIME",
    help="The evaluation in force then: 03:10, '2026-11-18 03:10', or 2h for two hours ago. Default: now.",
)
@click.option("--all-sizes", is_flag=True, help="Show every size, not only those near the chosen one.")
@options.as_json("Print the answers and the whole evaluation as JSON.")
def command(job: str, at: str | None, all_sizes: bool, file: Path, folder: Path, as_json: bool) -> None:
    """Explain the size of a job: why this one, why not one less, and what would change it.

    \b
    Exit code 1: nothing was evaluated by then.
    """
    with stored_job.opened(job, file=file, folder=folder, warn=page.warning) as there:
        with options.value_of("--at"):
            at_s = there.now_s if at is None else times.moment_s(at, now_s=there.now_s, toward="past")
        found = there.store.evaluations(there.name, until_s=at_s, limit=LOOKED_BACK)
        oldest, remedy = there.newest_at_s, there.remedy
    if not found:
        why = f"nothing was evaluated yet: {remedy}" if oldest is None else (
            f"nothing was evaluated up to {times.shown(at_s)}: see `headroom history {job}`"
        )  # fmt: skip
        if as_json:
            options.print_json(job=job, why_not=why)
        else:
            page.paragraph(f"{job}: {why}", indent=0)
        options.answer_no()
    if (answered := stored_job.explained(found)) is None:
        raise Unsafe(
            f"the evaluation of {times.shown(found[-1][0])} was written by another version of Headroom: "
            "read it with that one"
        )
    evaluation, answers = answered
    if as_json:
        data = {"job": job, "at": times.shown(evaluation.at_s), **asdict(answers)}
        options.print_json(indent=1, **data | {"evaluation": found[-1][1]})
    else:
        _show(evaluation, answers, asked_s=at_s, newest=at is None, all_sizes=all_sizes)


def _show(e: Evaluation, answers: Explanation, *, asked_s: float, newest: bool, all_sizes: bool) -> None:
    click.echo(f"{click.style(e.job, bold=True)} {click.style(answers.done, bold=True)}")
    page.paragraph(answers.reason)
    old_s = asked_s - e.at_s
    ago = f"{lasting(old_s)} {'ago' if newest else 'before the moment asked for'}"
    page.paragraph(f"evaluated {times.shown(e.at_s)}, {ago}; every {lasting(e.interval_s)}; mode {e.mode}")
    if old_s > LATE_TICKS * e.interval_s:
        click.secho(f"  Nothing was evaluated for {lasting(old_s)}: this may be out of date.", fg="yellow")
    for alarm in answers.alarms:
        page.paragraph(alarm, mark="!", colour="red")
    page.heading("What was seen")
    page.pairs(answers.seen)
    size = "this size" if answers.chosen is None else f"{answers.chosen}"
    page.heading(f"Why {size}")
    for sentence in answers.why:
        page.paragraph(sentence)
    page.heading("Why not one less")
    for sentence in answers.why_not_less or ("The size is not known.",):
        page.paragraph(sentence)
    page.heading("What would change it")
    for sentence in answers.would_change:
        page.paragraph(sentence, mark="·")
    if answers.failures:
        page.heading("If it failed now")
        page.pairs(answers.failures)
    if answers.sizes:
        _table(answers, all_sizes=all_sizes, promise=e.promise)
    versions = [
        f"{kind} {number}{' (provisional)' if kind in e.provisional else ''}"
        for kind, number in sorted(e.models.items())
    ]
    click.echo()
    page.paragraph(f"models: {', '.join(versions) or 'none'}; seed {e.seed}", indent=0)
    for kind, needs in sorted(e.provisional.items()):
        page.paragraph(f"to make the {kind} model firm: {needs}", mark="·")


def _table(answers: Explanation, *, all_sizes: bool, promise: Mapping[str, Any]) -> None:
    sizes = answers.sizes if all_sizes else near(answers)
    page.heading("The sizes that were looked at")
    rows = [
        (
            f"{'→' if one.scale_out == answers.chosen else ' '} {one.scale_out}",
            one.answer,
            one.capacity,
            one.in_time,
            one.recovery,
            one.against,
        )
        for one in sizes
    ]
    page.show(
        page.columns(
            (
                "size",
                "promise",
                "records/s",
                f"in {promise['target_s']:g} s",
                f"{100 * promise['confidence']:g} % in",
                "why not",
            ),
            rows,
            right="rlrrrl",
            indent=2,
            colours=[COLOURS.get(one.answer) for one in sizes],
        )
    )
    for note in answers.notes:
        page.paragraph(note)
    if len(sizes) < len(answers.sizes):
        click.echo(f"  and {len(answers.sizes) - len(sizes)} more: --all-sizes")
