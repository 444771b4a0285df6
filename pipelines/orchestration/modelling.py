"""Resource of the model stage: what the models of a job are for, and the registry that keeps them.

Nothing is opened before it is used, and importing this costs nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from models.errors import Misconfigured
from models.ports import Store
from profiling_jobs.training.promoting import TrainingContext
from profiling_jobs.training.training_data import Purpose

from ..environments import batch_tasks
from ..settings import job_plans, loading
from ..settings.schema import JobSettings, Settings

if TYPE_CHECKING:
    from models.ports import Registry


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
        limit_records=job_plans.limit_records(job),
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
