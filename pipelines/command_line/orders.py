"""Give an order to the server that owns the jobs; `headroom start` and `headroom stop`.

Orders of hours are given by a run of Dagster's in this process, which the pages show like any other.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from models.errors import HeadroomError, NotReady
from models.quantities import executors
from profiling_jobs.orders import POLL_S, Json, Server, run_order

from ..environments.local.records import Records
from ..operating import stored_job
from ..processes import owner
from ..server.client import NO_SERVER, Client
from ..settings import job_plans, loading
from ..settings.schema import Settings
from . import options, page

if TYPE_CHECKING:
    from ..orchestration.runs import Runs

CANCELLED_WITHIN_S = 15.0  # judgement: until a copy has stopped between two batches


class _Long(NamedTuple):
    """An order that a run of Dagster's gives."""

    asset: str
    """Whose config the details are."""
    cancelled: str
    """What Ctrl-C leaves of it."""


LONG = {
    "record": _Long("recording", "what was recorded stays, and the same command goes on with it"),
    "profile": _Long(
        "search", "what was measured stays, the next profile goes on from there; the copies are stopped"
    ),
    "drill": _Long("failure_drills", "what was injected is cleared, and the copies are stopped"),
}


@click.command("start")
@options.job
@options.as_json("Print what it runs with as JSON.")
def start(job: str, file: Path, folder: Path, as_json: bool) -> None:
    """Start a job with the scale_out of its settings, also one that was stopped or has failed.

    `headroom serve` must be running: it starts the job, with the settings that it read at its own start. A
    job that is running is left alone.
    """
    checked("launch", job, file=file)
    found = run_order(Client(folder), "launch", job, say=_say)
    size = found["scale_out"]
    said = f"{job} runs with {executors(size)}" if found["launched"] else f"{job} was {found['state']} before"
    results(job, found, [said], as_json=as_json)


@click.command("stop")
@options.job
@options.as_json("Print whether it ran as JSON.")
def stop(job: str, file: Path, folder: Path, as_json: bool) -> None:
    """Stop a job between two batches. Its checkpoint stays: `headroom start` continues from there.

    `headroom serve` must be running: it stops the job, and does not start it again by itself. A batch that
    takes longer than a minute is cut short. A job that was removed from headroom.toml can be stopped, too.
    """
    settings = loading.load(file, environment=os.environ)
    if job not in settings.jobs and _removed(job, folder):
        owner.exit_on_signals()
    else:
        checked("stop", job, file=file)
    found = run_order(Client(folder), "stop", job, say=_say)
    said = f"{job} is stopped" if found["stopped"] else f"{job} did not run"
    results(job, found, [said], as_json=as_json)


# ------------------------------------------------------------------------------------------- how it is given


def checked(what: str, job: str, *, file: Path, live: bool = False) -> Settings:
    """The settings, if this may be asked of the job at all."""
    settings = stored_job.settings_with(job, file)
    job_plans.check_order(job, settings.jobs[job], what, live=live)
    owner.exit_on_signals()
    return settings


def _removed(job: str, folder: Path) -> bool:
    """Whether it was launched here, and taken out of the settings since."""
    record = Records(folder / "deployments").find(job)
    if record is not None:
        return record.plan.role == "live"
    try:
        status = Client(folder).status()
        return job in status["removed"] or job in status["jobs"]
    except HeadroomError:
        return False


def results(job: str, found: Mapping[str, Any], lines: Sequence[str], *, as_json: bool) -> None:
    """What a command prints at its end; a line that begins with blanks, a path, is not wrapped."""
    if as_json:
        options.print_json(job=job, **found)
        return
    for line in lines:
        if line.startswith(" "):
            click.echo(line)
        else:
            page.paragraph(line, indent=0)


def in_a_run(
    what: str,
    job: str,
    details: Mapping[str, Any],
    *,
    settings: Settings,
    own: bool,
    file: Path,
    folder: Path,
) -> tuple[Json, str]:
    """Run the job of Dagster's that gives this order: the result of the order, and why the run failed, if so.

    `own`: without a server, carry it out in this process. Ctrl-C cancels the order with the run.
    """
    from ..orchestration.pages import addresses
    from ..orchestration.runs import Watched

    given = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in details.items()
        if value not in (None, ())
    }
    run_id, dagster = str(uuid.uuid4()), addresses(folder).get("dagster")
    with (
        shown(what) as show,
        open_server(settings, folder, say=show.say, own=own) as server,
        runs(file, folder) as there,
    ):
        watched = Watched(
            server, say=show.say, seen=lambda order: show.at(order["share"] or 0.0, str(order["stage"]))
        )
        show.say(f"{what} of {job}: run {f'{dagster}/runs/{run_id}' if dagster else run_id}")
        config = {"ops": {LONG[what].asset: {"config": given}}}
        try:
            _, problem = there.attempt(what, job, config=config, server=watched, run_id=run_id)
        except (KeyboardInterrupt, SystemExit):
            show.say(_interrupted(server, watched.order_id, what))
            raise
    if watched.problem is not None:
        if watched.order_id and not own and owner.holder(folder) is None:
            raise NotReady(
                f"the server has ended during the {what}: start `headroom serve`, and run this again"
            )
        raise watched.problem
    if watched.newest.get("result") is None:
        raise NotReady(problem or f"the {what} has no result: see its run")
    return watched.newest["result"], problem


def _interrupted(server: Server, order_id: str, what: str) -> str:
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
    return f"the {what} is cancelled: {LONG[what].cancelled}"


def _say(line: str) -> None:
    click.echo(line, err=True)


class Show:
    """Lines, which stand above a progress bar on a terminal."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task, self._said = progress, task, ""

    def say(self, line: str) -> None:
        """Print a line, unless it is the last one again."""
        if line and line != self._said:
            self._said = line
            console = self._progress.console
            if "://" in line or not console.is_terminal:  # an address is not broken, nor a line of a log
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                text = line.lstrip()
                console.print(Padding(Text(text), (0, 0, 0, len(line) - len(text))))

    def at(self, share: float | None, what: str) -> None:
        """Show the progress, if it is known, and what is being done."""
        self._progress.update(self._task, total=None if share is None else 1.0, what=what)
        if share is not None:
            self._progress.update(self._task, completed=share)


@contextmanager
def shown(name: str, *, err: bool = True) -> Iterator[Show]:
    """Progress of one thing, on standard error or with `err=False` on standard output."""
    console = Console(stderr=err, emoji=False)
    newest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}", markup=False, table_column=newest),
    )
    with Progress(
        *columns, console=console, transient=True, expand=True, disable=not console.is_terminal
    ) as progress:
        yield Show(progress, progress.add_task(name, total=1.0, what=""))


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
        opened(settings, folder, say=say) as environment,
        closing(InProcessServer(environment, settings, folder)) as here,
    ):
        yield here


@contextmanager
def runs(file: Path, folder: Path) -> Iterator[Runs]:
    """Runs of Dagster's in this process, which the pages of this folder show like any other."""
    from ..orchestration.runs import Runs, quiet

    before = dict(os.environ)
    try:
        quiet()
        with closing(Runs(file, folder)) as there:
            yield there
    finally:
        os.environ.clear()
        os.environ.update(before)
