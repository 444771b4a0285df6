"""Runs of Dagster's jobs in this process, instead of in a process of their own.

They use the definitions, the instance and the server of every other run, and Dagster's pages show them under
their job like any other. What goes wrong is raised as one sentence.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterInstance
from dagster._core.remote_origin import (
    GrpcServerCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from models.errors import HeadroomError, NotReady, error_from_json
from profiling_jobs.orders import POLL_S, Json, Say, Seen, Server

from .pages import LOCATION, addresses, dagster_home, environment

CONFIG = "in_process.yaml"
NOT_CAPTURED = """
# What a run here prints is for the terminal. Capturing takes two processes more, which Ctrl-C kills noisily.
compute_logs:
  module: dagster._core.storage.noop_compute_log_manager
  class: NoOpComputeLogManager
"""
SKIPPED = "dagster._core.execution.plan.active"  # it logs each check that had too little data
NOISY = ("dagster", "mlflow", "alembic", "matplotlib", SKIPPED)
LONGEST = 600  # of a sentence; what a check says of a model may be long
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def quiet() -> None:
    """Silence what Dagster and MLflow say about their own interfaces to developers."""
    warnings.simplefilter("ignore")
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")


class Runs:
    """Runs in this process."""

    def __init__(self, file: Path, folder: Path) -> None:
        """For the jobs of `file`. Where the pages of this folder are served, they list these runs, too."""
        file, folder = file.resolve(), folder.resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        home, served = dagster_home(folder), addresses(folder)
        os.environ.update(environment(folder, file=file, mlflow=served.get("mlflow", "")))
        from ..definitions import built

        (home / CONFIG).write_text((home / "dagster.yaml").read_text() + NOT_CAPTURED)
        self._instance = DagsterInstance.from_config(str(home), config_filename=CONFIG)
        self._definitions = built(file, folder, environment=os.environ)
        self._code_socket = served.get("code_socket")

    def close(self) -> None:
        self._instance.dispose()

    def job(
        self,
        name: str,
        job: str,
        *,
        config: Mapping[str, Any] | None = None,
        server: Server | None = None,
    ) -> Mapping[str, Any]:
        """Run one of `pipelines.orchestration.jobs` for a job of headroom.toml; asset -> its metadata.

        `server`: instead of the client of the folder's server.
        """
        found, problem = self.attempt(name, job, config=config, server=server)
        if problem:
            raise NotReady(problem)
        return found

    def attempt(
        self,
        name: str,
        job: str,
        *,
        config: Mapping[str, Any] | None = None,
        assets: Sequence[str] = (),
        server: Server | None = None,
        run_id: str | None = None,
    ) -> tuple[Mapping[str, Any], str]:
        """The same, and why the run failed, if it did. `assets`: these of the job only."""
        if self._code_socket is not None:
            # execute_in_process gives a run no origin, and Dagster's pages then list it under no job.
            location = GrpcServerCodeLocationOrigin(
                "localhost", socket=self._code_socket, location_name=LOCATION
            )
            origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), name)
            create = partial(DagsterInstance.create_run_for_job, self._instance, remote_job_origin=origin)
            self._instance.create_run_for_job = create  # type: ignore[method-assign]
        with signals_kept():
            done = self._definitions.resolve_job_def(name).execute_in_process(
                instance=self._instance,
                partition_key=job,
                run_config={**QUIET, **(config or {})},
                asset_selection=[dg.AssetKey(one) for one in assets] or None,
                resources=None if server is None else {"server": server},
                run_id=run_id,
                raise_on_error=False,
            )
        found: dict[str, Any] = {}
        for event in done.get_asset_materialization_events():
            key = event.asset_key
            if key is not None:
                metadata = event.step_materialization_data.materialization.metadata
                found["/".join(key.path)] = {name: value.value for name, value in metadata.items()}
        for event in done.filter_events(lambda event: event.event_type_value == "ASSET_OBSERVATION"):
            seen = event.asset_observation_data.asset_observation  # why nothing was made of it
            said = {name: value.value for name, value in seen.metadata.items()}
            found.setdefault("/".join(seen.asset_key.path), said)
        return found, "" if done.success else _why(done)

    def observe(self, events: Sequence[dg.AssetObservation]) -> None:
        """Report points on the timelines, without a run."""
        for event in events:
            self._instance.report_runless_asset_event(event)


class Watched:
    """A server for a Dagster run of this process: who started the run is shown the progress of its order.

    `sleep`: by the clock that the order works by. The second look at an order waits for its end then: the run
    itself would wait by the wall clock.
    """

    def __init__(
        self, server: Server, *, say: Say, seen: Seen, sleep: Callable[[float], None] | None = None
    ) -> None:
        self._server, self._say, self._seen, self._sleep = server, say, seen, sleep
        self.order_id = ""
        self.newest: Json = {}
        """The state of the order, as `Server.order` describes it; empty before it was begun."""
        self.problem: HeadroomError | None = None

    def evaluate(self, job: str) -> Json:
        return self._server.evaluate(job)

    def status(self) -> Json:
        return self._server.status()

    def metrics(self) -> str:
        return self._server.metrics()

    def cancel(self, id: str) -> None:
        self._server.cancel(id)

    def begin(self, what: str, job: str, /, **details: Any) -> str:
        try:
            self.order_id = self._server.begin(what, job, **details)
        except HeadroomError as error:
            self.problem = error
            raise
        return self.order_id

    def order(self, id: str, *, since: int = 0) -> Json:
        before, now = self.newest, self._look(id, since)
        while self._sleep is not None and before and now["state"] == "running":
            self._sleep(POLL_S)
            after = self._look(id, now["next"])
            now = {**after, "lines": [*now["lines"], *after["lines"]]}
        return now

    def _look(self, id: str, since: int) -> Json:
        now = self._server.order(id, since=since)
        for line in now["lines"]:
            self._say(line)
        self._seen(now)
        self.newest = now
        if now["error"] is not None:
            self.problem = error_from_json(now["error"])
        return now


@contextmanager
def signals_kept() -> Iterator[None]:
    """SIGTERM does afterwards what it did before.

    Dagster lets it do what Ctrl-C does for as long as the process lives: nothing at all, where a shell has
    started the command in the background.
    """
    if threading.current_thread() is not threading.main_thread():  # no signal can be set there
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _why(done: dg.ExecuteInProcessResult) -> str:
    for event in done.all_events:
        if event.is_step_failure:
            if "Interrupted" in str(event.step_failure_data.error and event.step_failure_data.error.cls_name):
                raise KeyboardInterrupt  # Dagster has taken Ctrl-C for itself
            failure = event.step_failure_data.user_failure_data
            if failure is not None and failure.description:
                return str(failure.description)
            error = event.step_failure_data.error
            while error is not None and error.cause is not None:
                error = error.cause
            if error is not None:
                return " ".join(error.message.split()).removeprefix(f"{error.cls_name}: ")[:LONGEST]
    return f"{done.job_def.name} failed: see its run on Dagster's pages"
