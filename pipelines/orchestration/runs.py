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
from collections.abc import Iterator, Mapping, Sequence
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

from models.errors import NotReady

from ..integrations.ports import HOST
from .pages import LOCATION

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
    """What Dagster and MLflow say about their own interfaces is not for the user of a command."""
    warnings.simplefilter("ignore")
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")


class Runs:
    """Runs in this process."""

    def __init__(
        self,
        home: Path,
        *,
        file: Path,
        folder: Path,
        environment: Mapping[str, str],
        code_port: int | None,
    ) -> None:
        """`home`: DAGSTER_HOME; `environment`: what the definitions are to know.

        `code_port`: of the code server that shows these jobs on Dagster's pages; None without pages.
        """
        os.environ.update(environment)
        from ..definitions import built

        usual = home / "dagster.yaml"
        (home / CONFIG).write_text((usual.read_text() if usual.exists() else "") + NOT_CAPTURED)
        self._instance = DagsterInstance.from_config(str(home), config_filename=CONFIG)
        self._definitions = built(file, folder, environment=os.environ)
        self._code_port = code_port

    def close(self) -> None:
        self._instance.dispose()

    def job(self, name: str, job: str, *, config: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Run one of `pipelines.orchestration.jobs` for a job of headroom.toml; asset -> its metadata."""
        found, problem = self.attempt(name, job, config=config)
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
        resources: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> tuple[Mapping[str, Any], str]:
        """The same, and why the run failed, if it did. `assets`: these of the job only."""
        if self._code_port is not None:
            # execute_in_process gives a run no origin, and Dagster's pages then list it under no job.
            location = GrpcServerCodeLocationOrigin(HOST, self._code_port, location_name=LOCATION)
            origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), name)
            create = partial(DagsterInstance.create_run_for_job, self._instance, remote_job_origin=origin)
            self._instance.create_run_for_job = create  # type: ignore[method-assign]
        with signals_kept():
            done = self._definitions.resolve_job_def(name).execute_in_process(
                instance=self._instance,
                partition_key=job,
                run_config={**QUIET, **(config or {})},
                asset_selection=[dg.AssetKey(one) for one in assets] or None,
                resources=resources,
                run_id=run_id,
                raise_on_error=False,
            )
        found: dict[str, Any] = {}
        for event in done.get_asset_materialization_events():
            key = event.asset_key
            if key is not None:
                metadata = event.step_materialization_data.materialization.metadata
                found["/".join(key.path)] = {name: value.value for name, value in metadata.items()}
        return found, "" if done.success else _why(done)

    def observe(self, events: Sequence[dg.AssetObservation]) -> None:
        """Points on the timelines, without a run."""
        for event in events:
            self._instance.report_runless_asset_event(event)


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
