"""Deletes what nobody needs any more, after as long as `[retention]` says.

The owner itself deletes recordings, and logs of what has ended. Runs and points on Dagster's pages and
versions of models are deleted by a process of its own, four times a day: Dagster and MLflow take seconds and
much memory to import. Evaluations and live measurements go at the first tick of a day
(profiling_jobs/control_loop/memory.py).

What is in charge or in use stays, and so does the newest of each. A turn deletes so much and no more, in
small steps: nobody waits long for a database.

    python -m pipelines.orchestration.retention        with HEADROOM_FILE and HEADROOM_FOLDER
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from models.errors import HeadroomError
from models.quantities import Unknown, counted
from profiling_jobs.training import champions, workload_history

from ..integrations.mlflow_store import DATABASE
from ..processes.owner import Owner
from ..processes.processes import Process
from ..settings import loading
from ..settings.schema import Settings
from .pages import HEADROOM_FILE, HEADROOM_FOLDER, HOME

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from ..integrations.mlflow_registry import MlflowRegistry

ROLE = "retention"
DAY_S = 86_400.0
FIRST_S = 600.0  # judgement: who only has a look at the pages does not wait for this
EVERY_S = 6 * 3600.0  # judgement: between two turns a hundredth of a month is added
LOOK_S = 60.0
MOST_RUNS = 1_000  # of a turn; judgement: a minute
MOST_POINTS = 100_000  # of a turn; judgement: three days of ten jobs
MOST_VERSIONS = 200  # of a turn, of all models; judgement: half a minute
AT_ONCE = 1_000  # points in one transaction, some 50 ms
PAUSE_S = 0.05  # between two, for others who write
Say = Callable[[str], None]


class Retention:
    """The turns of one owner.

    `busy`: jobs whose recordings an order may be using. `now_s`: the clock of the environment, by which
    recordings are named.
    """

    def __init__(
        self,
        owner: Owner,
        settings: Settings,
        *,
        environment: Mapping[str, str],
        busy: Callable[[], Collection[str]],
        now_s: Callable[[], float],
        say: Say,
        uptime_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner, self._settings, self._environment = owner, settings, environment
        self._busy, self._now_s, self._say, self._uptime_s = busy, now_s, say, uptime_s
        self._root = Path(environment[HEADROOM_FILE]).parent
        self._next_s = uptime_s() + FIRST_S
        self._process: Process | None = None

    def look(self) -> None:
        """Begin a turn when it is time; to be called every LOOK_S."""
        if self._process is not None and not self._process.alive:
            if self._owner.exit_code(self._process):
                self._say(f"what is too old could not all be deleted: see {self._owner.log(ROLE)}")
            self._process = None
        if self._process is not None or self._uptime_s() < self._next_s:
            return
        self._next_s = self._uptime_s() + EVERY_S
        kept_s = self._settings.retention.days * DAY_S
        self._owner.forget_logs(before_s=time.time() - kept_s)
        self._forget_recordings(before_s=self._now_s() - kept_s)
        try:
            self._process = self._owner.start(
                ROLE,
                [sys.executable, "-m", __name__],
                environment=self._environment,
                directory=self._root,
            )
        except HeadroomError as error:
            self._say(f"what is too old on the pages was not deleted: {error}")

    def _forget_recordings(self, *, before_s: float) -> None:
        named = [job.events for job in self._settings.jobs.values() if job.events is not None]
        wanted = [(self._root / events).resolve() for events in named if not events.startswith("generator:")]
        recordings, busy = self._owner.folder / "recordings", self._busy()
        for folder in recordings.glob("*/"):
            if champions.NAME.fullmatch(folder.name) and folder.name not in busy:
                workload_history.forget(recordings, folder.name, before_s=before_s, wanted=wanted)


def forget_runs(instance: DagsterInstance, *, before_s: float, most: int) -> int:
    """Delete runs that have ended, with their events, files and checks; how many.

    Those that were begun before, and all but the newest `most`. The run that has last done something for a
    partition of an asset stays: without it the asset would count as missing, and would be made again.
    """
    from dagster import RunsFilter
    from dagster._core.storage.dagster_run import FINISHED_STATUSES
    from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable as Checks
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as Events

    before = datetime.fromtimestamp(before_s, UTC)
    newest_first = instance.get_run_ids(RunsFilter(statuses=FINISHED_STATUSES))
    old = set(instance.get_run_ids(RunsFilter(statuses=FINISHED_STATUSES, created_before=before)))
    with _index(instance) as index:
        needed = _runs_of(index, Events, _newest(Events, "asset_key", "dagster_event_type", "partition"))
        needed |= _runs_of(index, Checks, _newest(Checks, "asset_key", "check_name", "partition"))
    gone = [
        run_id
        for place, run_id in enumerate(newest_first)
        if (place >= most or run_id in old) and run_id not in needed
    ][-MOST_RUNS:]
    for run_id in reversed(gone):
        instance.compute_log_manager.delete_logs(prefix=[run_id])
        with _index(instance) as index:
            index.execute(Checks.delete().where(Checks.c.run_id == run_id))
        instance.delete_run(run_id)
        # Its events had a database of their own, which is left empty.
        database = _storage(instance).path_for_shard(run_id)
        for ending in ("", "-wal", "-shm"):
            Path(f"{database}{ending}").unlink(missing_ok=True)
    return len(gone)


def forget_points(instance: DagsterInstance, *, before_s: float) -> int:
    """Delete points on the timelines of assets that no run has made, but the newest of each; how many.

    Dagster keeps each twice, and deletes none itself: it knows how to delete the events of a run only.
    """
    from dagster._core.instance import RUNLESS_RUN_ID

    storage = _storage(instance)
    _forget_points(lambda: storage.run_connection(RUNLESS_RUN_ID), before_s)
    return _forget_points(lambda: _index(instance), before_s)


def _forget_points(connect: Callable[[], AbstractContextManager[Any]], before_s: float) -> int:
    from dagster._core.instance import RUNLESS_RUN_ID
    from dagster._core.storage.event_log.schema import AssetEventTagsTable as Tags
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as Events
    from sqlalchemy import select

    with connect() as connection:
        newest = _newest(Events, "asset_key", "dagster_event_type", "partition")
        kept = {number for (number,) in connection.execute(newest)}
    before = datetime.fromtimestamp(before_s, UTC).replace(tzinfo=None)
    points = select(Events.c.id, Events.c.timestamp).where(Events.c.run_id == RUNLESS_RUN_ID)
    forgotten = after = 0
    while forgotten < MOST_POINTS:  # the oldest first, and no further than they are old
        with connect() as connection:
            some = points.where(Events.c.id > after).order_by(Events.c.id).limit(AT_ONCE)
            rows = connection.execute(some).fetchall()
            gone = [number for number, at in rows if at < before and number not in kept]
            connection.execute(Tags.delete().where(Tags.c.event_id.in_(gone)))
            connection.execute(Events.delete().where(Events.c.id.in_(gone)))
        forgotten += len(gone)
        if not rows or rows[-1].timestamp >= before:
            break
        after = rows[-1].id
        time.sleep(PAUSE_S)
    return forgotten


def _newest(table: Any, *groups: str) -> Any:
    """Query for the number of the newest row of each group, of those about an asset."""
    from sqlalchemy import func, select

    columns = [table.c[name] for name in groups]
    return select(func.max(table.c.id)).where(table.c.asset_key.is_not(None)).group_by(*columns)


def _runs_of(connection: Any, table: Any, numbers: Any) -> set[str]:
    from sqlalchemy import select

    rows = connection.execute(select(table.c.run_id).where(table.c.id.in_(numbers)))
    return {str(run_id) for (run_id,) in rows}


def _storage(instance: DagsterInstance) -> Any:
    """Its events, which are in SQLite: the project's dagster.yaml names no other place."""
    from dagster._core.storage.event_log.sqlite import SqliteEventLogStorage

    storage = instance.event_log_storage
    assert isinstance(storage, SqliteEventLogStorage)
    return storage


def _index(instance: DagsterInstance) -> AbstractContextManager[Any]:
    """The database with what concerns assets, and the beginning and end of runs."""
    connection: AbstractContextManager[Any] = _storage(instance).index_connection()
    return connection


def forget_versions(registry: MlflowRegistry, folder: Path, *, keep: int) -> int:
    """Delete versions of all models but the newest `keep` of each, and those in charge; how many."""
    forgotten = 0
    for name in registry.names():
        found = champions.exported(folder, *champions.job_and_kind(name))
        in_charge = [] if isinstance(found, Unknown) else [found.version]
        forgotten += registry.forget(name, keep=keep, in_charge=in_charge, most=MOST_VERSIONS - forgotten)
    return forgotten


def of_dagster(settings: Settings, folder: Path, *, now_s: float) -> Iterator[str]:
    """A turn on what Dagster keeps; a line for what was deleted."""
    home, kept = folder / HOME, settings.retention
    if not (home / "history").exists():  # it was never started
        return
    from dagster import DagsterInstance

    with DagsterInstance.from_config(str(home)) as instance:
        runs = forget_runs(instance, before_s=now_s - kept.days * DAY_S, most=kept.runs)
        points = forget_points(instance, before_s=now_s - kept.point_days * DAY_S)
    if runs or points:
        yield f"{counted(runs, 'run')} and {counted(points, 'point')} on Dagster's pages were deleted"


def of_mlflow(settings: Settings, folder: Path, *, now_s: float) -> Iterator[str]:
    """The same of what MLflow keeps here. An MLflow server of the user's own is left alone."""
    if settings.mlflow.tracking_uri is not None or not (folder / DATABASE).exists():
        return
    from ..integrations.mlflow_registry import MlflowRegistry

    registry = MlflowRegistry.of(settings.mlflow, folder)
    versions = forget_versions(registry, folder, keep=settings.retention.model_versions)
    if versions:
        yield f"{counted(versions, 'version')} of models were deleted from MLflow"


def main() -> None:
    """One turn."""
    from sqlalchemy.exc import SQLAlchemyError

    os.nice(10)  # it can wait
    settings = loading.in_force(Path(os.environ[HEADROOM_FILE]), environment=os.environ)
    folder, failed = Path(os.environ[HEADROOM_FOLDER]), False
    for part in (of_dagster, of_mlflow):
        try:
            for line in part(settings, folder, now_s=time.time()):
                click.echo(f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}")
        except (HeadroomError, SQLAlchemyError, OSError) as error:
            click.echo(f"{datetime.now():%Y-%m-%d %H:%M:%S} {part.__name__}: {error}")
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
