"""What runs while Headroom runs: the folder's owner, the world, the desk, and the pages to look at?

    with served(settings, file=…, folder=…) as office:
        office.desk …                      # also reached by others, through `desk_line.DeskClient(folder)`
        print(office.pages.wait().dagster)

On leaving, in whatever way, everything that was started ends: orders are cancelled and put away first, then
the pages go, then the world, and then whatever else runs in the folder's name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from profiling_jobs.experiments import copies
from profiling_jobs.training import workload_history

from ..environments import base
from ..environments.base import World
from ..orchestration import reconciling
from ..processes.owner import Owner
from ..processes.pages import Pages, closed_quietly
from ..settings.loading import SettingsFile
from ..settings.schema import JobSettings, Settings
from .client import DeskServer
from .in_process import HereDesk

Say = Callable[[str], None]


@dataclass(frozen=True)
class Office:
    """Everything of one owner."""

    owner: Owner
    world: World
    desk: HereDesk
    pages: Pages
    settings: Settings
    file: Path
    folder: Path


@contextmanager
def served(
    settings: Settings,
    *,
    file: Path,
    folder: Path,
    say: Say = lambda line: None,
    command: str = "headroom serve",
    since_s: float | None = None,
) -> Iterator[Office]:
    """Own the folder, open the world and sit at the desk. The pages are not started yet."""
    with ExitStack() as stack:
        # Last of all: whatever was started, by us or by a run of Dagster's, ends.
        owner = stack.enter_context(Owner(folder, command=command))
        if since_s is None:
            since_s = max(time.time(), _newest_s(settings, owner.folder))
        there = stack.enter_context(
            base.opened(settings, owner.folder, say=say, owner=owner, since_s=since_s)
        )
        _clear_copies(there, settings, say)
        for name, job in settings.jobs.items():  # what the death of an earlier owner has cut short
            for line in workload_history.tell(
                there.store, name, owner.folder / "recordings", inputs=job.inputs
            ):
                say(line)
        live = SettingsFile(
            settings,
            file,
            kept=owner.folder / "settings.json",
            environment=os.environ,
            say=say,
            changed=lambda: pages.reload_definitions(),
        )
        desk = stack.enter_context(HereDesk(there, live, owner.folder, say=say))
        pages = Pages(owner, settings, file=file, say=say, evaluated_at_s=lambda: desk.evaluated_at_s)
        stack.callback(closed_quietly, pages)
        server = DeskServer(desk, owner.folder)
        stack.callback(server.close)
        server.start()
        reconciling.begin(owner, settings, environment=pages.environment(), say=say)
        yield Office(owner, there, desk, pages, settings, file, owner.folder)


def _clear_copies(there: World, settings: Settings, say: Say) -> None:
    """A killed owner's copies would be kept alive for nobody, on slots that the live jobs may need."""
    removed = dict.fromkeys(there.removed_jobs, JobSettings(inputs={}))
    for name, job in {**removed, **settings.jobs}.items():
        gone, problems = copies.clear_left_over(name, there.around(name, job))
        for copy in gone:
            say(f"{name}: {copy}, a copy that an earlier owner has left, is ended")
        for problem in problems:
            say(f"{name}: left behind: {problem}")


def _newest_s(settings: Settings, folder: Path) -> float:
    """A simulated clock may have run ahead of ours, and never goes back."""
    from ..integrations.sqlite_store import SqliteStore

    if settings.deployment.kind != "simulated" or not (folder / base.STORE).exists():
        return 0.0
    with SqliteStore(folder / base.STORE) as store:
        newest = [store.evaluations(name, limit=1) for name in settings.jobs]
    return max((found[-1][0] for found in newest if found), default=0.0) + 1.0
