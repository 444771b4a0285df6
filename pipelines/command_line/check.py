"""`headroom check`: every mistake in headroom.toml, a line each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from models.errors import Misconfigured
from models.quantities import counted

from ..notify.channels import configured
from ..settings import loading
from ..settings.concerns import concerns
from ..settings.loading import Mistake, WrongSettings
from . import options


@click.command("check")
@options.file
@options.as_json("Print the result as JSON.")
def command(file: Path, as_json: bool) -> None:
    """Check headroom.toml, and print a line for everything that is wrong with it.

    \b
    Exit code 0: it is right; there may be warnings.
    Exit code 1: it is wrong.
    """
    mistakes, warnings, jobs = _read(file)
    if as_json:
        found = {
            key: [{"path": one.path, "line": one.line, "problem": one.problem} for one in ones]
            for key, ones in (("mistakes", mistakes), ("warnings", warnings))
        }
        options.print_json(right=not mistakes, jobs=jobs, **found)
    else:
        for one in mistakes:
            click.echo(f"{file}: {one}")
        for one in warnings:
            click.echo(f"{file}: warning: {one}")
        if not mistakes:
            also = f", with {counted(len(warnings), 'warning')}" if warnings else ""
            click.echo(f"{file} is right{also}: {', '.join(jobs) or 'no job yet'}")
    options.answer_no(mistakes)


def _read(file: Path) -> tuple[Sequence[Mistake], Sequence[Mistake], list[str]]:
    """Mistakes, warnings and the names of the jobs."""
    try:
        settings = loading.load(file, environment=os.environ)
    except WrongSettings as wrong:
        return wrong.mistakes, (), []
    lines = loading.lines(file.read_text(encoding="utf-8-sig"))
    found: dict[bool, list[Mistake]] = {True: [], False: []}

    def add(path: str, problem: str, *, serious: bool) -> None:
        line = lines.get(path) or lines.get(path.rpartition(".")[0])
        found[serious].append(Mistake(path, line, problem))

    for channel in configured(settings.notify, os.environ).values():
        if isinstance(channel, Misconfigured):
            add(channel.setting, channel.problem, serious=True)
    for name in settings.jobs:
        for one in concerns(name, settings, folder=file.resolve().parent):
            add(one.path, f"{one.problem} → {one.fix}", serious=one.serious)
    return found[True], found[False], sorted(settings.jobs)
