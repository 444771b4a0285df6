"""Orders to the server that owns the jobs, given directly or by a run of Dagster's in this process."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from models.errors import HeadroomError, NotReady
from profiling_jobs import orders
from profiling_jobs.orders import POLL_S, Json, Server

from ..environments.local.records import Records
from ..processes import owner
from ..server.client import NO_SERVER, Client
from ..settings import job_plans, loading
from ..settings.schema import Settings
from . import page, stored_job

if TYPE_CHECKING:
    from ..orchestration.runs import Runs

CANCELLED_WITHIN_S = 15.0  # judgement: until a copy has stopped between two batches


def checked(what: str, job: str, *, file: Path, live: bool = False) -> Settings:
    """The settings, if this may be asked of the job at all."""
    settings = loading.load(file, environment=os.environ)
    if job not in settings.jobs:
        raise stored_job.no_job(job, tuple(settings.jobs), file)
    job_plans.check_order(job, settings.jobs[job], what, live=live)
    owner.exit_on_signals()
    return settings


def run_order(what: str, job: str, *, file: Path, folder: Path) -> Mapping[str, Any]:
    """Give the order, print on standard error how it gets on, and wait for its end. Ctrl-C cancels it."""
    if what == "stop" and _was_launched(job, folder):
        loading.load(file, environment=os.environ)
        owner.exit_on_signals()
    else:
        checked(what, job, file=file)
    return orders.run_order(Client(folder), what, job, say=lambda line: click.echo(line, err=True))


def _was_launched(job: str, folder: Path) -> bool:
    """A job that was taken out of headroom.toml while it ran can still be stopped."""
    record = Records(folder / "deployments").find(job)
    return record is not None and record.plan.role == "live"


def answer(job: str, found: Mapping[str, Any], *, said: str, as_json: bool) -> None:
    """The result of an order."""
    click.echo(json.dumps({"schema": 1, "job": job, **found}) if as_json else said)


# ---------------------------------------------------------------------- orders given by a run of Dagster's


class Show:
    """A bar on a terminal, which the lines stand above; elsewhere the lines alone."""

    def __init__(
        self,
        echo: Callable[[str], None] = lambda line: click.echo(line, err=True),
        update: Callable[[float, str], None] = lambda share, stage: None,
    ) -> None:
        self._echo, self._update, self._said = echo, update, ""

    def say(self, line: str) -> None:
        if line and line != self._said:
            self._said = line
            self._echo(line)

    def seen(self, order: Json) -> None:
        self._update(order["share"] or 0.0, str(order["stage"]))

    def at(self, share: float, stage: str) -> None:
        self._update(share, stage)


@contextmanager
def shown(name: str) -> Iterator[Show]:
    """How far it is, on standard error."""
    if not sys.stderr.isatty():
        yield Show()
        return
    from rich.console import Console
    from rich.progress import Progress

    from ..demo.show import columns

    with Progress(*columns(), console=Console(stderr=True), transient=True, expand=True) as progress:
        task = progress.add_task(name, total=1.0, what="")
        yield Show(
            lambda line: progress.console.print(line, markup=False, highlight=False, soft_wrap="://" in line),
            lambda share, stage: progress.update(task, completed=share, what=stage),
        )


def need_server(folder: Path) -> None:
    """NotReady where no server owns the folder."""
    if owner.holder(folder) is None:
        raise NotReady(NO_SERVER.format(folder))


@contextmanager
def open_server(
    settings: Settings, folder: Path, *, say: Callable[[str], None], own: bool
) -> Iterator[Server]:
    """The server that owns the folder. Where none runs: one of our own with `own`, otherwise NotReady."""
    if owner.holder(folder) is not None:
        yield Client(folder)
        return
    if not own:
        need_server(folder)
    from ..environments.base import opened
    from ..server.in_process import InProcessServer

    with (
        opened(settings, folder, say=say) as world,
        closing(InProcessServer(world, settings, folder)) as here,
    ):
        yield here


@contextmanager
def runs(file: Path, folder: Path) -> Iterator[Runs]:
    """Runs of Dagster's in this process, which the pages of this folder show like any other."""
    from ..orchestration.pages import addresses, dagster_home, environment
    from ..orchestration.runs import Runs, quiet

    before = dict(os.environ)
    try:
        quiet()
        folder = folder.resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        pages, file = addresses(folder), file.resolve()
        there = Runs(
            dagster_home(folder),
            file=file,
            folder=folder,
            environment=environment(folder, file=file, mlflow=pages.get("mlflow", "")),
            code_port=pages.get("code_port"),
        )
        with closing(there):
            yield there
    finally:
        os.environ.clear()
        os.environ.update(before)


def page_of(folder: Path, run_id: str) -> str:
    """Where Dagster shows this run; its id where no pages are served."""
    from ..orchestration.pages import addresses

    dagster = addresses(folder).get("dagster")
    return f"{dagster}/runs/{run_id}" if dagster else run_id


def in_a_run(
    what: str,
    job: str,
    *,
    asset: str,
    details: Mapping[str, Any],
    settings: Settings,
    own: bool,
    file: Path,
    folder: Path,
    cancelled: str,
) -> tuple[Json, str]:
    """Run the job of Dagster's that gives this order: the result of the order, and why the run failed, if so.

    `asset`: whose config the details are. `own`: without a server, carry it out in this process.
    `cancelled`: what Ctrl-C leaves of the order, which is cancelled with the run.
    """
    from ..orchestration.resources import Watched

    given = {name: value for name, value in details.items() if value not in (None, [], ())}
    run_id = str(uuid.uuid4())
    with (
        shown(what) as show,
        open_server(settings, folder, say=show.say, own=own) as server,
        runs(file, folder) as there,
    ):
        watched = Watched(server, say=show.say, seen=show.seen)
        show.say(f"{what} of {job}: run {page_of(folder, run_id)}")
        config = {"ops": {asset: {"config": given}}}
        try:
            _, problem = there.attempt(what, job, config=config, resources={"server": watched}, run_id=run_id)
        except (KeyboardInterrupt, SystemExit):
            show.say(_interrupted(server, watched.order_id, what, cancelled))
            raise
    if watched.problem is not None:
        if watched.order_id and not own and owner.holder(folder) is None:
            raise NotReady(
                f"the server has ended during the {what}: start `headroom serve`, and run this again"
            )
        raise watched.problem
    if watched.result is None:
        raise NotReady(problem or f"the {what} has no result: see its run")
    return watched.result, problem


def _interrupted(server: Server, order_id: str, what: str, cancelled: str) -> str:
    """Whether the order of a command that was interrupted goes on."""
    if not order_id:
        return f"interrupted before the {what} was begun"
    until_s = time.monotonic() + CANCELLED_WITHIN_S
    try:
        while server.order(order_id)["state"] == "running":
            if time.monotonic() > until_s:
                return f"the {what} is cancelled; the server is still putting things away"
            time.sleep(POLL_S)
    except HeadroomError as error:
        return f"whether the {what} was cancelled is not known ({error}): `headroom status` shows it"
    return f"the {what} is cancelled: {cancelled}"


def results(job: str, found: Mapping[str, Any], lines: Sequence[str], *, as_json: bool) -> None:
    """What a command prints at its end; a line that begins with blanks, a path, is not wrapped."""
    if as_json:
        click.echo(json.dumps({"schema": 1, "job": job, **found}, indent=1, ensure_ascii=False))
        return
    for line in lines:
        if line.startswith(" "):
            click.echo(line)
        else:
            page.paragraph(line, indent=0)
