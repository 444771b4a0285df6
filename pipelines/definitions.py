"""The Dagster definitions: the five stages as assets, their jobs, sensors, schedules and resources.

Imported in a fresh process for every run, so nothing heavy may be imported from here (a test sees to it).
The jobs are those of headroom.toml: `HEADROOM_FILE`, default `headroom.toml` where Dagster was started;
`headroom serve` passes the settings that are in force there (`HEADROOM_SETTINGS`). Everything lies in
`HEADROOM_FOLDER`, default `.headroom`; MLflow's pages are at `HEADROOM_PAGE`. When the file is missing or
wrong, the stages are still there, without jobs, and the sensor says what is wrong. A schedule that Dagster
refuses is left out, and the jobs are evaluated all the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from assets import apply, decide, decision_checks, model, partitions, profile, record
from models.errors import Misconfigured

from .orchestration import sensors
from .orchestration.jobs import all_jobs, schedules
from .orchestration.resources import ModellingResource, RefusingIOManager, ServerResource, StoreResource
from .settings import loading
from .settings.schema import Settings

STAGES = (record, profile, model, decide, apply)


def built(file: Path, folder: Path, *, environment: Mapping[str, str]) -> dg.Definitions:
    """The definitions for the jobs of this file."""
    settings, problem = Settings(), ""
    try:
        settings = loading.in_force(file, environment=environment)
    except Misconfigured as wrong:
        problem = f"nothing is evaluated, {wrong}. Put it right and reload this code location."
    jobs = settings.jobs
    launched = all_jobs(list(jobs))
    where = str(folder.absolute())
    left_out: list[str] = []
    come_round = schedules(jobs, launched, say=left_out.append)
    return dg.Definitions(
        assets=partitions.of(dg.load_assets_from_modules(STAGES, include_specs=True), list(jobs)),
        asset_checks=[decision_checks.checks(list(jobs))],
        jobs=list(launched.values()),
        sensors=[
            sensors.optimization_sensor(jobs, launched, problem=problem, left_out=left_out),
            sensors.decision_checks(list(jobs), problem=problem),
            sensors.automation(),
            *sensors.after_runs(),
        ],
        schedules=come_round,
        resources={
            "server": ServerResource(folder=where),
            "store": StoreResource(folder=where, **settings.store.model_dump()),
            "modelling": ModellingResource(
                file=str(file.absolute()), folder=where, page=environment.get("HEADROOM_PAGE", "")
            ),
            "io_manager": RefusingIOManager(),
        },
        executor=dg.in_process_executor,  # a run is a process already, and has one thing to do
        metadata={
            "headroom.toml": str(file),
            "folder": where,
            "problem": problem or "; ".join(left_out) or "none",
        },
    )


definitions = built(
    Path(os.environ.get("HEADROOM_FILE", "headroom.toml")),
    Path(os.environ.get("HEADROOM_FOLDER", ".headroom")),
    environment=os.environ,
)
