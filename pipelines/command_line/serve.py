"""`headroom serve`: everything that runs while Headroom runs, until Ctrl-C."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import click

from models.errors import HeadroomError
from models.quantities import Unknown
from profiling_jobs.orders import run_order

from ..processes import owner
from ..serving import Say, Service, open_service
from ..settings import loading
from . import stored_job

PAGES = "Dagster's and MLflow's pages, and Dagster's daemon, without which nothing is evaluated."
LOOK_S = 1.0  # how often it is looked whether everything still runs


@click.command("serve")
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
@click.option("--launch", "wanted", multiple=True, metavar="JOB", help="Start this job too; may be repeated.")
@click.option("--launch-all", is_flag=True, help="Start every job of the settings that is not attached.")
@click.option("--pages/--no-pages", default=True, help=PAGES)
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as one line of JSON.")
def command(
    file: Path, folder: Path, wanted: tuple[str, ...], launch_all: bool, pages: bool, as_json: bool
) -> None:
    """Own the folder: watch the jobs, carry out what is asked, and show Dagster's and MLflow's pages.

    Kafka and Spark of this machine run with it, where the settings name no others. Ctrl-C ends everything
    that was started; nothing of what was learnt is lost.

    \b
    Exit code 2: it could not run.
    Exit code 130, 143, 129: it was stopped by Ctrl-C, SIGTERM or a closed terminal.
    """
    settings = loading.load(file, environment=os.environ)
    jobs = [name for name, job in settings.jobs.items() if not job.attach] if launch_all else list(wanted)
    for name in jobs:
        if name not in settings.jobs:
            raise stored_job.no_job(name, tuple(settings.jobs), file)
    owner.exit_on_signals()

    def say(line: str) -> None:
        _printed(line, err=as_json)

    with owner.interruptible(say), ExitStack() as stack:
        command_line = "headroom serve" if pages else stored_job.SILENT
        service = stack.enter_context(
            open_service(settings, file=file, folder=folder, say=say, command=command_line)
        )
        if pages:
            service.pages.start()
        else:
            say("without Dagster's daemon nothing is evaluated or decided: jobs only run, and are measured")
        if service.environment.flow is not None:
            from ..environments.simulated.environment import simulated_load

            say("the input is made up: a wave of an hour around 800 records/s in every topic")
            stack.enter_context(simulated_load(service.environment, settings))
        for name in jobs:
            _launch(service, name, say=say)
        _tell(service, pages=pages, as_json=as_json, say=say)
        while True:
            time.sleep(LOOK_S)
            service.server.context.file.refresh()
            if pages:
                service.pages.watch()


def _launch(service: Service, name: str, *, say: Say) -> None:
    try:
        run_order(service.server, "launch", name, say=say)
    except HeadroomError as error:  # the others, and the pages that show what is wrong, are still wanted
        say(f"{name} was not started: {error}")


def _tell(service: Service, *, pages: bool, as_json: bool, say: Say) -> None:
    found = None
    if pages:
        try:
            found = service.pages.wait()
        except HeadroomError as error:  # the jobs run, and it is looked after
            say(f"{error}; jobs run, Dagster is tried again, without it nothing is evaluated or decided")
    if as_json:
        addresses = {"kafka": service.environment.brokers} if service.environment.brokers else {}
        addresses |= {} if found is None else found.to_json()
        _printed(json.dumps({"schema": 1, "folder": str(service.folder), "pid": os.getpid(), **addresses}))
        return
    if service.environment.brokers:
        say(f"Kafka:   {service.environment.brokers}")
    if found is not None:
        say(f"Dagster: {found.dagster}")
        if not isinstance(found.mlflow, Unknown):
            say(f"MLflow:  {found.mlflow}")
    say(f"serving {', '.join(sorted(service.settings.jobs)) or 'no job yet'}; Ctrl-C ends everything")


def _printed(line: str, *, err: bool = False) -> None:
    """A terminal that has gone, or a disk that is full where this is kept, ends no job."""
    with suppress(OSError, ValueError):  # ValueError: the stream was closed
        click.echo(line, err=err)
