"""`headroom doctor`: what is missing or wrong on this machine, each with its fix."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Column, Table
from rich.text import Text

from models.errors import Misconfigured
from models.quantities import counted

from ...settings import loading
from ...settings.loading import WrongSettings
from ...settings.schema import Settings
from .. import options, page
from . import findings, jobs, kubernetes, machine, services
from . import folder as its_folder
from .findings import Check, Finding, Surroundings, examined

CHECKS: dict[str, Check] = {
    "Java": machine.java_found,
    "jars": machine.jars_there,
    "clock": machine.clock,
    "disk": machine.disk,
    "folder": its_folder.permissions,
    "usage": its_folder.usage,
    "store": its_folder.store,
    "owner": its_folder.lock,
    "leftovers": its_folder.leftovers,
    "brokers": services.brokers,
    "Spark": services.spark,
    "Kubernetes": kubernetes.cluster,
    "MLflow": services.mlflow,
    "notify": services.notify,
    "jobs": jobs.promises,
}
COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command("doctor")
@options.file
@options.folder
@options.as_json("Print the findings as JSON.")
def command(file: Path, folder: Path, as_json: bool) -> None:
    """Check whether everything that Headroom needs is there and right, and print the fix where it is not.

    It takes a few seconds, starts nothing and changes nothing.

    \b
    Exit code 0: no problem; there may be warnings.
    Exit code 1: there is a problem.
    """
    first, settings = _settings(file)
    found = [
        *first,
        *examined(Surroundings(settings, file, folder, time.time()), CHECKS, deadline_s=findings.DEADLINE_S),
    ]
    problems = sum(one.state == "problem" for one in found)
    if as_json:
        options.print_json(well=not problems, findings=[asdict(one) for one in found])
    else:
        _show(found)
    options.answer_no(problems)


def _settings(file: Path) -> tuple[list[Finding], Settings]:
    """The settings, or the defaults and what is wrong: the machine can be looked at in any case."""
    try:
        settings = loading.load(file, environment=os.environ)
    except WrongSettings as wrong:
        return findings.problem(
            "settings", f"{file} is wrong: {wrong.first}", "`headroom check` says it all"
        ), Settings()
    except Misconfigured as missing:
        return findings.refused("settings", str(missing)), Settings()
    jobs = ", ".join(sorted(settings.jobs)) or "no job yet"
    return [Finding("settings", "ok", f"{file}: {jobs}; {settings.deployment.kind}")], settings


def _show(found: Sequence[Finding]) -> None:
    grid = Table.grid(Column(), Column(), Column(), padding=(0, 2))
    for one in found:
        state = Text(one.state, style=f"{'bold ' if one.state == 'problem' else ''}{COLOURS[one.state]}")
        grid.add_row(state, one.what, one.found)
        if one.fix:
            grid.add_row("", "", f"→ {one.fix}")
    page.show(grid)
    count = {state: sum(one.state == state for one in found) for state in COLOURS}
    click.echo()
    if count["problem"]:
        also = counted(count["warning"], "warning")
        click.secho(f"{counted(count['problem'], 'problem')}, {also}", fg="red", bold=True)
    elif count["warning"]:
        click.secho(f"no problem, {counted(count['warning'], 'warning')}", fg="yellow")
    else:
        click.secho("everything is well", fg="green")
