"""The running service of one folder: its owner, the environment, the server, and the web pages.

    with open_service(settings, file=…, folder=…) as service:
        service.server …                      # other processes reach it through `Client(folder)`
        print(service.pages.wait()["dagster"])

On leaving, everything that was started ends: first the orders, then the pages, then the environment, then
whatever else runs in the folder's name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from profiling_jobs.experiments import copies
from profiling_jobs.periodic import Periodic
from profiling_jobs.training import workload_history

from .environments import base
from .environments.base import Environment
from .notify import channels as notify_channels
from .notify.watch import notifying
from .orchestration import reconciling, retention
from .orchestration.pages import Pages
from .processes import logs
from .processes.owner import Owner
from .server.client import Listener
from .server.in_process import InProcessServer
from .settings.loading import SettingsFile, secrets
from .settings.schema import JobSettings, Settings

Say = Callable[[str], None]


@dataclass(frozen=True)
class Service:
    """Everything that runs for one folder."""

    owner: Owner
    environment: Environment
    server: InProcessServer
    pages: Pages
    settings: Settings
    file: Path
    folder: Path


@contextmanager
def open_service(
    settings: Settings,
    *,
    file: Path,
    folder: Path,
    say: Say = lambda line: None,
    command: str = "headroom serve",
    since_s: float | None = None,
    read_only: bool = False,
) -> Iterator[Service]:
    """Own the folder, open the environment and start the server. The pages are not started yet.

    `read_only`: nothing can be changed on the pages.
    """
    channels = notify_channels.opened(settings.notify, os.environ)  # before anything is started
    with ExitStack() as stack:
        # Last of all: whatever was started, by us or by a run of Dagster's, ends.
        owner = stack.enter_context(Owner(folder, command=command))
        stack.enter_context(Periodic(owner.rotate_logs, every_s=logs.LOOK_S, name="logs"))
        if since_s is None:
            since_s = max(time.time(), _newest_s(settings, owner.folder))
        environment = stack.enter_context(
            base.opened(settings, owner.folder, say=say, owner=owner, since_s=since_s)
        )
        _clear_copies(environment, settings, say)
        for name, job in settings.jobs.items():  # recordings that the end of an earlier server has cut short
            for line in workload_history.tell(
                environment.store, name, owner.folder / "recordings", inputs=job.inputs
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
        server = stack.enter_context(InProcessServer(environment, live, owner.folder, say=say))
        pages = Pages(
            owner,
            settings,
            file=file,
            say=say,
            evaluated_at_s=lambda: server.evaluated_at_s,
            read_only=read_only,
        )
        stack.callback(pages.close)
        listener = Listener(server, owner.folder)
        stack.callback(listener.close)
        listener.start()
        stack.enter_context(
            notifying(
                settings.notify,
                channels,
                server,
                secrets=secrets(settings, os.environ),
                evaluates=lambda: pages.evaluates,
                say=say,
            )
        )
        reconciling.begin(owner, settings, environment=pages.environment(), say=say)
        kept = retention.Retention(
            owner,
            settings,
            environment=pages.environment(),
            busy=server.busy,
            now_s=environment.clock.now_s,
            say=say,
        )
        stack.enter_context(Periodic(kept.look, every_s=retention.LOOK_S, name="retention"))
        yield Service(owner, environment, server, pages, settings, file, owner.folder)


def _clear_copies(environment: Environment, settings: Settings, say: Say) -> None:
    """Stop the copies of a killed server: they hold slots that the live jobs may need."""
    removed = dict.fromkeys(environment.removed_jobs, JobSettings(inputs={}))
    for name, job in {**removed, **settings.jobs}.items():
        gone, problems = copies.clear_left_over(name, environment.around(name, job))
        for copy in gone:
            say(f"{name}: {copy}, a copy that an earlier server has left, was stopped")
        for problem in problems:
            say(f"{name}: left behind: {problem}")


def _newest_s(settings: Settings, folder: Path) -> float:
    """A simulated clock may have run ahead of ours, and never goes back."""
    from .integrations.stores.opening import find_store

    if settings.deployment.kind != "simulated" or (there := find_store(settings.store, folder)) is None:
        return 0.0
    with there as store:
        newest = [store.evaluations(name, limit=1) for name in settings.jobs]
    return max((found[-1][0] for found in newest if found), default=0.0) + 1.0
