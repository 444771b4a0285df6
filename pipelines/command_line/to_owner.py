"""How does a person's order reach whoever runs the jobs? For what only a living owner can do."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from pipelines import config, desk, job_plans, owner
from pipelines.desk_line import DeskClient
from pipelines.resources.deployment_records import Records

from . import subject


def carried_out(what: str, job: str, *, file: Path, folder: Path) -> Mapping[str, Any]:
    """Give the order, tell on standard error how it gets on, and wait for its end. Ctrl-C takes it back."""
    settings = config.load(file, environment=os.environ)
    if job in settings.jobs:
        job_plans.check_order(job, settings.jobs[job], what)
    elif what != "stop" or not _was_launched(job, folder):
        raise subject.no_job(job, tuple(settings.jobs), file)
    owner.exit_on_signals()
    return desk.carried_out(DeskClient(folder), what, job, say=lambda line: click.echo(line, err=True))


def _was_launched(job: str, folder: Path) -> bool:
    """Whoever has taken a job out of headroom.toml while it ran must still be able to stop it."""
    record = Records(folder / "deployments").find(job)
    return record is not None and record.plan.role == "live"


def answer(job: str, found: Mapping[str, Any], *, said: str, as_json: bool) -> None:
    """What has come of it."""
    click.echo(json.dumps({"schema": 1, "job": job, **found}) if as_json else said)
