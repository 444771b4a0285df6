"""`headroom serve`: everything that runs while Headroom runs, until Ctrl-C."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import click

from models.errors import HeadroomError
from profiling_jobs.orders import run_order

from ..operating import stored_job
from ..processes import owner
from ..serving import Say, Service, open_service
from ..settings import loading
from ..web.access import with_token
from . import options

PAGES = "Dagster's and MLflow's pages, and Dagster's daemon. Without the daemon nothing is evaluated."
LOOK_S = 1.0  # how often it is looked whether everything still runs


@click.command("serve")
@options.file
@options.folder
@click.option("--launch", "wanted", multiple=True, metavar="JOB", help="Start this job; may be repeated.")
@click.option("--launch-all", is_flag=True, help="Start every job that this machine or cluster runs.")
@click.option("--pages/--no-pages", default=True, help=PAGES)
@click.option("--read-only", is_flag=True, help="Nothing can be changed on the pages; commands still can.")
@click.option("--print-url", is_flag=True, help="Print the address with its token, as on a terminal.")
@options.as_json("Print the addresses as one line of JSON.")
def command(
    file: Path,
    folder: Path,
    wanted: tuple[str, ...],
    launch_all: bool,
    pages: bool,
    read_only: bool,
    print_url: bool,
    as_json: bool,
) -> None:
    """Run Headroom: watch the jobs, evaluate and rescale them, and serve the pages of Dagster and MLflow.

    The pages have one address, which needs a token: `headroom open` opens it with the token. Kafka and Spark
    are started on this machine where the settings name no others. Ctrl-C ends everything that was started;
    measurements and models are kept.

    \b
    Exit code 130, 143, 129: ended by Ctrl-C, SIGTERM, a closed terminal.
    """
    settings = loading.load(file, environment=os.environ)
    jobs = [name for name, job in settings.jobs.items() if not job.elsewhere] if launch_all else list(wanted)
    for name in jobs:
        if name not in settings.jobs:
            raise stored_job.no_job(name, tuple(settings.jobs), file)
    owner.exit_on_signals()

    def say(line: str) -> None:
        _printed(line, err=as_json)

    with owner.interruptible(say), ExitStack() as stack:
        command_line = "headroom serve" if pages else stored_job.SILENT
        service = stack.enter_context(
            open_service(
                settings, file=file, folder=folder, say=say, command=command_line, read_only=read_only
            )
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
        shown = print_url or (sys.stdout.isatty() and not as_json)  # a log is read by others too
        _tell(service, pages=pages, url=shown, as_json=as_json, say=say)
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


def _tell(service: Service, *, pages: bool, url: bool, as_json: bool, say: Say) -> None:
    found: dict[str, str] = {}
    if pages:
        try:
            found = service.pages.wait()
        except HeadroomError as error:  # the jobs run, and it is looked after
            say(f"{error}; jobs run, Dagster is tried again, without it nothing is evaluated or decided")
    opened = with_token(f"{found['pages']}/", service.folder) if url and found else ""
    own_kafka = service.environment.brokers and service.environment.own_topics
    login = str(service.folder / "kafka" / "client.properties") if own_kafka else ""
    if as_json:
        found |= {"url": opened} if opened else {}
        addresses = {"kafka": service.environment.brokers} if service.environment.brokers else {}
        addresses |= ({"kafka_login": login} if login else {}) | found
        _printed(json.dumps({"schema": 1, "folder": str(service.folder), "pid": os.getpid(), **addresses}))
        return
    if service.environment.brokers:
        say(f"Kafka:   {service.environment.brokers}")
        if login:
            say(f"         your own producers log in with {login}; your script needs no login")
    if found:
        say(f"Pages:   {opened or found['pages']}, which `headroom open` opens in a browser")
    for name, title in (("dagster", "Dagster:"), ("mlflow", "MLflow: ")):
        if name in found:
            say(f"{title} {found[name]}")
    say(f"serving {', '.join(sorted(service.settings.jobs)) or 'no job yet'}; Ctrl-C ends everything")


def _printed(line: str, *, err: bool = False) -> None:
    """A terminal that has gone, or a disk that is full where this is kept, ends no job."""
    with suppress(OSError, ValueError):  # ValueError: the stream was closed
        click.echo(line, err=err)
