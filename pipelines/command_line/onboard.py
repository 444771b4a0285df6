"""`headroom onboard`: record, profile, drill and model a job, one after the other."""

from __future__ import annotations

from pathlib import Path

import click

from . import drill, model, profile, record, stored_job

STEPS = {"record": record.command, "profile": profile.command, "drill": drill.command, "model": model.command}


@click.command("onboard")
@click.argument("job")
@click.option(
    "--for", "for_", default=record.DEFAULT, show_default=True, help="How long its input is recorded."
)
@click.option(
    "--from", "first", type=click.Choice(tuple(STEPS)), default="record", help="Begin with this step."
)
@stored_job.options
@click.pass_context
def command(ctx: click.Context, job: str, for_: str, first: str, file: Path, folder: Path) -> None:
    """From a job that runs to its models: record, profile, drill copies, model. Ends where a step fails.

    \b
    Exit code 0: its models are in charge.
    Exit code 1: a step answered no, and says why.
    Exit code 2: a step could not run.
    """
    names = list(STEPS)
    for number, name in enumerate(names, 1):
        if names.index(name) < names.index(first):
            continue
        click.echo(f"[{number}/{len(names)}] headroom {name} {job}", err=True)
        given = [
            job,
            "--file",
            str(file),
            "--folder",
            str(folder),
            *(["--for", for_] if name == "record" else []),
        ]
        try:
            with STEPS[name].make_context(name, given, parent=ctx) as step:
                STEPS[name].invoke(step)
        except click.exceptions.Exit as ended:
            # A drill that takes too long is a result: the models learn from it.
            if ended.exit_code and name != "drill":
                click.echo(f"ended at {name}; go on with: headroom onboard {job} --from {name}", err=True)
                raise
