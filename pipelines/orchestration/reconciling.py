"""At the owner's start, compares the exported champions with those in charge in MLflow.

Ticks read the exported champions; people look at MLflow, where an alias can be moved by hand. A refit
compares the two before anything else; this is for the owner's start. It has a process of its own, as MLflow
takes seconds and much memory to import.

    python -m pipelines.orchestration.reconciling        with HEADROOM_FILE and HEADROOM_FOLDER
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from models.errors import HeadroomError, NotReady
from models.ports import Registry
from models.quantities import Unknown
from profiling_jobs.training import champions

from ..integrations.mlflow_registry import MlflowRegistry
from ..integrations.mlflow_store import DATABASE
from ..processes.owner import Owner
from ..settings import loading
from ..settings.schema import Settings
from .pages import HEADROOM_FILE, HEADROOM_FOLDER

ROLE = "champions"
LOOK_S = 0.5
Say = Callable[[str], None]


def begin(owner: Owner, settings: Settings, *, environment: Mapping[str, str], say: Say) -> None:
    """Compare in the background, and say what was changed or why it could not be seen."""
    if settings.mlflow.tracking_uri is None and not (owner.folder / DATABASE).exists():
        return  # no version was ever registered
    log = owner.log(ROLE)
    before = log.stat().st_size if log.exists() else 0
    try:
        process = owner.start(
            ROLE,
            [sys.executable, "-m", __name__],
            environment=environment,
            directory=Path(environment[HEADROOM_FILE]).parent,
        )
    except HeadroomError as error:  # no comparison is worth the jobs that run
        say(f"whether decisions go by the models in charge in MLflow was not compared: {error}")
        return

    def tell() -> None:
        while process.alive:
            time.sleep(LOOK_S)
        for line in log.read_bytes()[before:].decode(errors="replace").splitlines():
            say(line)

    threading.Thread(target=tell, name="headroom-champions", daemon=True).start()


def compared(registry: Registry, folder: Path, settings: Settings) -> Iterator[str]:
    """Write what differs, one job after the other; a line for each."""
    for job in settings.jobs:
        refused: list[str] = []
        try:
            written = champions.refresh(registry, folder, job, say=refused.append)
        except HeadroomError as error:
            yield f"{job}: whether its models are those in charge in MLflow cannot be seen: {error}"
            if isinstance(error, NotReady):
                return  # nor can it for the other jobs
            continue
        yield from refused
        for kind in written:
            found = champions.exported(folder, job, kind)
            if not isinstance(found, Unknown):
                yield f"{found.name} version {found.version} is in charge in MLflow, and now of decisions too"


def main() -> None:
    """Compare once."""
    os.nice(10)  # jobs and pages are being started beside it
    settings = loading.in_force(Path(os.environ[HEADROOM_FILE]), environment=os.environ)
    folder = Path(os.environ[HEADROOM_FOLDER])
    for line in compared(MlflowRegistry.of(settings.mlflow, folder), folder, settings):
        click.echo(line)


if __name__ == "__main__":
    main()
