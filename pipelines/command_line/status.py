"""`headroom status`: each job in a line: size, load, lag, promise, last tick, and what is in force."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from models.quantities import lasting
from profiling_jobs.explain.wording import brief_s

from ..operating import stored_job
from ..operating.status import executors_in_words, going_on, status_of
from . import options, page

EVERY_S = 2.0  # judgement: a tick comes every ten seconds at the most
HEADER = ("job", "size", "records/s", "lag s", "promise", "last tick", "in force")
COLOURS = {"kept": "green", "not kept": "red", "recovering": "yellow"}


@click.command("status")
@click.argument("job", required=False)
@click.option("--watch", is_flag=True, help=f"Refresh every {EVERY_S:g} s, until Ctrl-C.")
@options.file
@options.folder
@options.as_json("Print it as JSON; with --watch a line each time.")
def command(job: str | None, watch: bool, file: Path, folder: Path, as_json: bool) -> None:
    """Show every job, or only JOB: size, load, lag, whether the promise is kept, and what is in force.

    \b
    Exit code 0: the promise of every job is kept now.
    Exit code 1: a promise is not kept, or it is not known.
    """
    live = watch and not as_json and sys.stdout.isatty()
    with (
        Live(console=Console(highlight=False, markup=False), auto_refresh=False)
        if live
        else nullcontext() as on
    ):
        while True:
            found = looked(file, folder, job)
            if as_json:
                options.print_json(**found)
            elif on is not None:
                on.update(shown(found), refresh=True)
            else:
                page.show(shown(found))
            if not watch:
                break
            time.sleep(EVERY_S)
    options.answer_no(any(one["promise"] != "kept" for one in found["jobs"].values()))


def looked(file: Path, folder: Path, only: str | None = None) -> dict[str, Any]:
    """Status of the jobs in headroom.toml, as plain JSON."""
    return status_of(stored_job.settings_with(only, file), folder, only)


def shown(found: Mapping[str, Any]) -> Group:
    """Status of the jobs, as text for a terminal."""
    rows = []
    for name, one in found["jobs"].items():
        state = one["state"] if one["state"] not in (None, "running") else ""
        ago = one["ticked_ago_s"]
        rows.append(
            (
                name,
                executors_in_words(one),
                "?" if one["load_rps"] is None else f"{one['load_rps']:,.0f}",
                "?" if one["lag_s"] is None else brief_s(one["lag_s"]),
                Text(one["promise"], style=COLOURS.get(one["promise"], "yellow")),
                "never" if ago is None else f"{lasting(ago)} ago",
                ", ".join([*([state] if state else []), *one["in_force"]]) or "–",
            )
        )
    lines = [Text(found["problem"], style="yellow")] if found["problem"] else []
    lines += [Text(line) for line in going_on(found)]
    return Group(page.columns(HEADER, rows, right="lrrrlrl"), *lines)
