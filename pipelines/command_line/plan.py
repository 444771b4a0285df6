"""`headroom plan`: task slots that a rate will need, from measurements at smaller ones."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from models.errors import Misconfigured
from models.planning import FORMS, MARGIN, UNDETERMINED, Answer, Plan, SlotMeasurement
from models.quantities import Interval, Misuse, Unknown

from . import options, page

COLUMNS = ("task_slots", "memory_mb", "sustained_rps")


@click.command("plan")
@click.option(
    "--measurements",
    "path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help=f"CSV with the columns {', '.join(COLUMNS)}, one line per run; '-' reads standard input.",
)
@click.option(
    "--target-rps",
    metavar="RATE",
    required=True,
    type=click.FloatRange(0, min_open=True),
    help="The rate to plan for, records/s.",
)
@click.option(
    "--margin",
    metavar="SHARE",
    default=MARGIN,
    show_default=True,
    type=click.FloatRange(0),
    help="Plan for this share more than the target.",
)
@options.as_json("Print the answer as JSON.")
def command(path: Path, target_rps: float, margin: float, as_json: bool) -> None:
    """Predict the task slots that a rate needs, per memory profile and candidate model.

    Three models of the sustained rate over slots and memory are fitted: linear, log1p, sqrt. One is chosen
    only when the measurements can tell them apart; otherwise the choice is "undetermined", the interval spans
    all of them, and the reason says what to measure.

    \b
    Exit code 0: answered, also when the choice is undetermined.
    Exit code 1: no number of slots reaches the rate, by no model.
    """
    plan = Plan.fit(read(path))
    try:
        answers = plan.answers(target_rps=target_rps, margin=margin)
    except Misuse as wrong:
        raise Misconfigured(f"--{wrong.argument.replace('_', '-')}", wrong.problem) from wrong
    reached = any(isinstance(i, Interval) for a in answers for i in a.candidates.values())
    if as_json:
        options.print_json(indent=1, **as_data(plan, answers, target_rps=target_rps, margin=margin))
    else:
        show(plan, answers, target_rps=target_rps, margin=margin)
    options.answer_no(not reached)


def read(path: Path) -> list[SlotMeasurement]:
    """The measurements of a CSV file; the first thing wrong with it is said with its line and column."""
    try:
        with click.open_file(str(path), encoding="utf-8-sig") as file:
            rows = csv.DictReader(io.StringIO(file.read(), newline=""))
        rows.fieldnames = header = [name.strip() for name in rows.fieldnames or ()]
        if missing := [name for name in COLUMNS if name not in header]:
            raise Misconfigured(
                str(path),
                f"line 1: column {missing[0]} is missing (it has {', '.join(header) or 'nothing'}); the "
                f"first line must name the columns {','.join(COLUMNS)}, separated by commas",
            )
        # A line without any value is skipped.
        found = [_measurement(row, path, rows.line_num) for row in rows if any(map(_stripped, row.values()))]
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or problem
        columns = ", ".join(COLUMNS)
        raise Misconfigured(
            str(path), f"cannot be read ({why}); name a CSV file with the columns {columns}"
        ) from problem
    except csv.Error as problem:
        raise Misconfigured(str(path), f"line {rows.line_num}: not CSV ({problem})") from problem
    if not found:
        raise Misconfigured(str(path), "no measurements below the first line; add one line per run")
    return found


def _measurement(row: Mapping[str, str], path: Path, line: int) -> SlotMeasurement:
    values = []
    for name in COLUMNS:
        cell = _stripped(row[name])
        try:
            values.append(float(cell))
        except ValueError:
            wrong = f"{cell!r} is not a number" if cell else "is empty"
            said = f"line {line}: column {name}: {wrong}; write a plain number such as 4096"
            raise Misconfigured(str(path), said) from None
    slots, memory, rate = values
    try:
        return SlotMeasurement(int(slots) if slots.is_integer() else slots, memory, rate)  # type: ignore[arg-type]
    except Misuse as wrong:
        raise Misconfigured(str(path), f"line {line}: column {wrong.argument}: {wrong.problem}") from wrong


def _stripped(cell: Any) -> str:
    """A short line has None in its last columns, a long one a list of what is too much."""
    return cell.strip() if isinstance(cell, str) else ""


def as_data(plan: Plan, answers: tuple[Answer, ...], *, target_rps: float, margin: float) -> dict[str, Any]:
    """The answer as JSON: an open end of an interval is null, and what is unknown too, beside its reason."""
    choice, why = plan.choice
    errors = plan.split_errors_rps
    return {
        "target_rps": target_rps,
        "margin": margin,
        "asked_rps": target_rps * (1 + margin),
        "measurements": len(plan.measurements),
        "largest_task_slots": max(m.task_slots for m in plan.measurements),
        "choice": choice,
        "why": why,
        "split_errors_rps": None if isinstance(errors, Unknown) else dict(errors),
        "profiles": [
            {
                "memory_mb": a.memory_mb,
                "candidates": {form: _slots(a.candidates[form]) for form in FORMS},
                "task_slots": None if isinstance(a.slots, Unknown) else a.slots,
                "interval": _slots(a.interval),
            }
            for a in answers
        ],
    }


def _slots(answer: Interval | Unknown) -> dict[str, Any]:
    if isinstance(answer, Unknown):
        return {"task_slots": None, "low": None, "high": None, "reason": answer.reason}
    return {
        "task_slots": int(answer.mid),
        "low": int(answer.low),
        "high": int(answer.high) if math.isfinite(answer.high) else None,
        "confidence": answer.confidence,
    }


def show(plan: Plan, answers: tuple[Answer, ...], *, target_rps: float, margin: float) -> None:
    """The answer as a table, one line per memory profile."""
    choice, why = plan.choice
    largest = max(m.task_slots for m in plan.measurements)
    asked = target_rps * (1 + margin)
    click.echo(
        f"task slots for {target_rps:,.0f} records/s, asked with a margin of {margin:.0%}: {asked:,.0f}"
    )
    lines = []
    for a in answers:
        cells = [_number(a.candidates[form]) for form in FORMS]
        chosen = choice if isinstance(a.slots, Unknown) else f"{a.slots} ({choice})"
        lines.append((f"{a.memory_mb:g}", *cells, chosen, _range(a.interval)))
    header = ("memory_mb", *FORMS, "choice", "90 % interval")
    page.show(page.columns(header, lines, right="r" * len(header)))
    page.paragraph(f"{choice}: {why}", indent=0)
    for reason in dict.fromkeys(
        i.reason for a in answers for i in a.candidates.values() if isinstance(i, Unknown)
    ):
        click.echo(f"no answer (–): {reason}")
    far = max((a.slots / largest for a in answers if isinstance(a.slots, int)), default=0.0)
    if far > 2:
        click.echo(
            f"this is {far:.1f} times the largest slots measured ({largest}): verify before you rely on it"
        )
    if choice == UNDETERMINED:
        click.echo("the interval is from the lowest to the highest of all candidates")


def _number(answer: Interval | Unknown) -> str:
    return "–" if isinstance(answer, Unknown) else f"{answer.mid:.0f}"


def _range(answer: Interval | Unknown) -> str:
    if isinstance(answer, Unknown):
        return "–"
    return f"{answer.low:.0f} … {'open' if math.isinf(answer.high) else f'{answer.high:.0f}'}"
