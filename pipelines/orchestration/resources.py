"""Resources of the Dagster definitions: server, store, model registry, and a refusing I/O manager.

Importing the definitions opens nothing. A folder without a server fails only the call that needs one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import dagster as dg

from models.errors import Misconfigured
from models.ports import Store
from profiling_jobs.orders import Server
from profiling_jobs.training.promoting import TrainingContext
from profiling_jobs.training.training_data import Purpose

from ..environments import batch_tasks
from ..settings import job_plans, loading
from ..settings.schema import JobSettings, Settings, StoreSettings

if TYPE_CHECKING:
    from models.ports import Registry


class RefusingIOManager(dg.IOManager):
    """Refuses values: Dagster's default would write pickles; our data is kept in stores of its own."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """No value is kept."""
        raise dg.Failure(
            description=f"{context.step_key} returned a {type(obj).__name__}: nothing is pickled here. "
            "Return a MaterializeResult, and keep the data in the store.",
            allow_retries=False,
        )

    def load_input(self, context: dg.InputContext) -> NoReturn:
        """No value was kept."""
        raise dg.Failure(
            description=f"{context.asset_key.to_user_string()} has no value to be read: depend on it with "
            "`deps`, and read the store.",
            allow_retries=False,
        )


class ServerResource(dg.ConfigurableResource[Server]):
    """The server that owns `folder`, started with `headroom serve`."""

    folder: str

    def create_resource(self, context: dg.InitResourceContext) -> Server:
        """The client; no call is made yet."""
        from ..server.client import Client

        return Client(Path(self.folder))


class StoreResource(dg.ConfigurableResource[Store]):
    """The store in the same `folder`, or where `[store]` has it."""

    folder: str
    url_from: str | None = None
    schema_name: str = StoreSettings().schema_name

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Store]:
        """Open for as long as the run."""
        from ..integrations.stores.opening import open_store

        settings = StoreSettings(url_from=self.url_from, schema_name=self.schema_name)
        with open_store(settings, Path(self.folder)) as store:
            yield store


def purpose(name: str, job: JobSettings, *, tasks: int | None = None) -> Purpose:
    """What decisions will ask of the models of this job."""
    control = job_plans.control_settings(name, job, tasks=tasks)
    return Purpose(
        job=name,
        horizon_s=control.horizon_s,
        candidates=control.sizes,
        failure_kinds=job.failure_kinds,
        target_s=job.recovery_target_s,
        confidence=job.confidence,
        limit_records=job.limit_records,
        trigger_s=job.trigger_s,
        tasks=tasks,
        latency_bound_ms=job.latency_bound_ms,
    )


class Modelling:
    """The jobs of one headroom.toml and their registry. `page`: address of MLflow's pages, if they run."""

    def __init__(self, settings: Settings, folder: Path, registry: Registry, *, page: str = "") -> None:
        self._settings, self._folder, self._registry, self._page = settings, folder, registry, page

    def purpose(self, job: str, store: Store) -> Purpose:
        if job not in self._settings.jobs:
            there = ", ".join(self._settings.jobs) or "none"
            raise Misconfigured(f"job.{job}", f"is not in headroom.toml; there are: {there}")
        tasks = batch_tasks.if_known(batch_tasks.known(store, job))
        return purpose(job, self._settings.jobs[job], tasks=tasks)

    def context(self, store: Store) -> TrainingContext:
        return TrainingContext(store, self._registry, self._folder)

    def page(self, name: str, version: int) -> str:
        from ..integrations.mlflow_registry import MlflowRegistry

        return f"{self._page.rstrip('/')}/{MlflowRegistry.page(name, version)}" if self._page else name


class ModellingResource(dg.ConfigurableResource[Modelling]):
    """`file`: headroom.toml. `folder`: `.headroom`. `page`: where MLflow's pages are, if they are served."""

    file: str
    folder: str
    page: str = ""

    def create_resource(self, context: dg.InitResourceContext) -> Modelling:
        """MLflow is opened when a model is registered."""
        from ..integrations.mlflow_registry import MlflowRegistry

        settings, folder = loading.in_force(Path(self.file), environment=os.environ), Path(self.folder)
        address = self.page or settings.mlflow.tracking_uri or ""
        page = address if address.startswith("http") else ""
        return Modelling(settings, folder, MlflowRegistry.of(settings.mlflow, folder), page=page)
