"""`headroom cleanup`: end everything that was ever started in this folder's name."""

from __future__ import annotations

import json
from pathlib import Path

import click

from models.errors import Unsafe
from profiling_jobs.driver.launch_file import read_json

from ..environments.local.records import Records
from ..processes import owner
from ..processes.processes import Ended


@click.command("cleanup")
@click.option(
    "--folder",
    default=Path(".headroom"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Whose processes.",
)
@click.option("--end-owner", is_flag=True, help="Also end the command that owns the folder now, if one runs.")
@click.option("--dry-run", is_flag=True, help="Only say what would be ended.")
@click.option("--json", "as_json", is_flag=True, help="Print what was ended as JSON.")
def command(folder: Path, end_owner: bool, dry_run: bool, as_json: bool) -> None:
    """End every process that was started in this folder's name, by this or an earlier run.

    Found by the mark in their environment and by the notes in the folder; frozen ones are woken first.
    Drivers are not started again. Topics, checkpoints, recordings and everything learnt stay.

    \b
    Exit code 0: nothing is left.
    Exit code 1: something could not be ended.
    Exit code 2: it could not run, for example because a living command owns the folder.
    """
    if dry_run:
        _would_end(folder, end_owner=end_owner, as_json=as_json)
        return
    ended = owner.cleanup(folder, end_owner=end_owner)
    stopped = _stop_records(folder)
    left = [one for one in ended if one.how == "survived"]
    failures = [] if left else _forget_failures(folder)
    if as_json:
        rows = [_row(one) for one in ended]
        click.echo(json.dumps({"schema": 1, "ended": rows, "deployments": stopped, "failures": failures}))
    else:
        for one in ended:
            click.echo(f"{one.process.role or 'unknown'}, process {one.process.pid}: {one.how}")
        for name in stopped:
            click.echo(f"{name}: will not be started again")
        for failure in failures:
            click.echo(f"{failure}: over, what it hit has ended")
        click.echo("nothing was running" if not ended else f"{len(ended) - len(left)} processes ended")
    if left:
        raise click.exceptions.Exit(1)


def _would_end(folder: Path, *, end_owner: bool, as_json: bool) -> None:
    living = owner.holder(folder)
    if living is not None and not end_owner:
        raise Unsafe(
            f"{folder} is owned by process {living.process.pid} ({living.process.command[0]}): stop that one "
            "first, or add --end-owner"
        )
    found = [*([living.process] if living else []), *owner.Owner(folder).everything()]
    again = [record.name for record in Records(folder / "deployments").all() if record.wanted == "running"]
    if as_json:
        rows = [{"role": one.role, "pid": one.pid} for one in found]
        click.echo(json.dumps({"schema": 1, "would_end": rows, "deployments": again}))
        return
    for one in found:
        click.echo(f"{one.role or 'unknown'}, process {one.pid}: would be ended")
    for name in again:
        click.echo(f"{name}: would not be started again")
    if not found and not again:
        click.echo("nothing is running")


def _stop_records(folder: Path) -> list[str]:
    """Otherwise the next owner of the folder would start these again."""
    records = Records(folder / "deployments")
    found = [record.name for record in records.all() if record.wanted == "running"]
    for name in found:
        records.change(name, wanted="stopped", reason="headroom cleanup")
    return found


def _forget_failures(folder: Path) -> list[str]:
    """Of failures that were never cleared; nothing is left that could be woken."""
    found = []
    for path in sorted((folder / "failures").glob("*.json")):
        injection = (read_json(path) or {}).get("injection", {})
        found.append(f"{injection.get('kind')} of {injection.get('deployment')}")
        path.unlink()
    return found


def _row(one: Ended) -> dict[str, object]:
    return {"role": one.process.role, "pid": one.process.pid, "how": one.how}
