"""How is a run of Dagster's carried out here and now, instead of in a process of its own?

The same definitions, the same instance and the same desk as for every other run: whoever looks at the pages
sees it as any other one. What goes wrong comes back as one sentence.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from profiling_jobs.errors import NotReady

LONGEST = 600  # of a sentence; what a check says of a model may be long
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class Runs:
    """Runs in this process."""

    def __init__(self, home: Path, *, file: Path, folder: Path, environment: Mapping[str, str]) -> None:
        """`home`: DAGSTER_HOME; `environment`: what the definitions are to know."""
        os.environ.update(environment)
        from .definitions import built

        self._instance = dg.DagsterInstance.from_config(str(home))
        self._definitions = built(file, folder, environment=os.environ)

    def close(self) -> None:
        self._instance.dispose()

    def job(self, name: str, job: str, *, config: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Run one of `pipelines.jobs` for a job of headroom.toml; asset -> its metadata."""
        return self._carried_out(self._definitions.resolve_job_def(name), job, config)

    def assets(self, names: Sequence[str], job: str) -> Mapping[str, Any]:
        """Materialise these for a job of headroom.toml; asset -> its metadata."""
        everything = self._definitions.resolve_implicit_global_asset_job_def()
        return self._carried_out(everything, job, None, [dg.AssetKey(name) for name in names])

    def observe(self, events: Sequence[dg.AssetObservation]) -> None:
        """Points on the timelines, without a run."""
        for event in events:
            self._instance.report_runless_asset_event(event)

    def _carried_out(
        self,
        definition: dg.JobDefinition,
        job: str,
        config: Mapping[str, Any] | None,
        selection: Sequence[dg.AssetKey] | None = None,
    ) -> Mapping[str, Any]:
        with signals_kept():
            done = definition.execute_in_process(
                instance=self._instance,
                partition_key=job,
                run_config={**QUIET, **(config or {})},
                asset_selection=selection,
                raise_on_error=False,
            )
        if not done.success:
            raise NotReady(_why(done))
        found: dict[str, Any] = {}
        for event in done.get_asset_materialization_events():
            key = event.asset_key
            if key is not None:
                metadata = event.step_materialization_data.materialization.metadata
                found["/".join(key.path)] = {name: value.value for name, value in metadata.items()}
        return found


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
