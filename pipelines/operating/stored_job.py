"""A job and its store, for what only reads or writes the store: most commands, and the home page.

It starts nothing and needs no server. Most commands also work while headroom.toml is broken: pausing a job at
night must not wait until a file is repaired.
"""

from __future__ import annotations

import difflib
import os
import pwd
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import Misconfigured, NotReady
from models.ports import LATE_TICKS, Store
from models.quantities import lasting

from ..integrations.stores.opening import find_store, open_store, place
from ..processes import owner
from ..settings import loading, times
from ..settings.loading import WrongSettings
from ..settings.schema import JobSettings, Settings, StoreSettings

if TYPE_CHECKING:
    from profiling_jobs.control_loop.memory import Evaluation
    from profiling_jobs.explain.explanation import Explanation

SILENT = "headroom serve --no-pages"
"""The command of a server that evaluates nothing and serves no pages."""
LOOKED_BACK = 30  # judgement: a change is verified, and most recoveries are over, within so many ticks


@dataclass(frozen=True)
class StoredJob:
    """One job and the store."""

    name: str
    settings: JobSettings | None
    """None where headroom.toml is broken or does not name the job any more."""
    store: Store
    now_s: float
    """Of the loop's clock: a simulated one may run ahead of ours."""
    newest_at_s: float | None
    """When it was evaluated last."""
    newest: Mapping[str, Any]
    """That evaluation as it is stored; empty without one."""
    owner: str = ""
    """The command that owns the folder now; empty where none does."""

    @property
    def known(self) -> bool:
        """Whether anything is stored of it."""
        return self.newest_at_s is not None or self.store.control(self.name) is not None

    @property
    def interval_s(self) -> float:
        """How often it is evaluated."""
        if self.settings is not None:
            return self.settings.evaluation_interval_s
        return float(self.newest.get("interval_s", JobSettings(inputs={}).evaluation_interval_s))

    @property
    def next_tick_s(self) -> float | None:
        """When it will be evaluated next; None when it was not evaluated lately.

        An interval is evaluated once, at the first tick in it.
        """
        if self.newest_at_s is None or self.now_s - self.newest_at_s > LATE_TICKS * self.interval_s:
            return None
        if self.newest_at_s // self.interval_s < self.now_s // self.interval_s:
            return self.now_s
        return (self.now_s // self.interval_s + 1) * self.interval_s

    def next_tick(self) -> str:
        """The time of the next tick as a sentence."""
        if self.next_tick_s == self.now_s:
            return "It counts from the next tick on, which is due now."
        if self.next_tick_s is not None:
            away = lasting(self.next_tick_s - self.now_s)
            return f"It counts from the next tick on: {times.shown(self.next_tick_s)}, in {away}."
        if self.newest_at_s is None:
            return f"It counts from the first tick on: nothing was evaluated yet, {self.remedy}."
        ago = lasting(self.now_s - self.newest_at_s)
        return (
            f"It counts from the next tick on, but the last one was {ago} ago "
            f"({times.shown(self.newest_at_s)}): {self.remedy}."
        )

    @property
    def remedy(self) -> str:
        """What to do where nothing is evaluated."""
        if not self.owner:
            return "start `headroom serve`"
        if self.owner == SILENT:
            return f"`{SILENT}` runs, which evaluates nothing: start it anew without --no-pages"
        return f"`{self.owner}` runs: what it prints, or the ticks on Dagster's page, say why"


@contextmanager
def opened(
    name: str, *, file: Path, folder: Path, warn: Callable[[str], None], create: bool = False
) -> Iterator[StoredJob]:
    """The job of this name; an unknown name is Misconfigured, with the nearest one that there is.

    `warn`: called where only what is stored is known of it.
    """
    settings, trouble = _settings(file)
    configured = {} if settings is None else dict(settings.jobs)
    kept_in = _kept_in(settings, folder)
    there = (open_store if create and name in configured else find_store)(kept_in, folder)
    if there is None:
        if name not in configured:
            raise trouble or no_job(name, tuple(configured), file)
        raise NotReady(
            f"nothing was ever evaluated here, there is no {place(kept_in, folder)}: start `headroom serve`, "
            "or name the right --folder"
        )
    with there as store:
        found = stored(name, configured.get(name), store, folder)
        if name not in configured and not found.known:
            raise trouble or no_job(name, tuple(configured), file)
        if name not in configured:
            why = str(trouble) if trouble else f"job.{name} is not in {file} any more"
            warn(f"{why}; going on with what is stored.")
        yield found


def stored(name: str, settings: JobSettings | None, store: Store, folder: Path) -> StoredJob:
    """The job as it is stored."""
    found = store.evaluations(name, limit=1)
    newest_at_s, newest = found[-1] if found else (None, {})
    now_s = max(time.time(), newest_at_s or 0.0)
    living = owner.holder(folder)
    command = "" if living is None else living.process.command[0]
    return StoredJob(name, settings, store, now_s, newest_at_s, newest, command)


def explained(found: Sequence[tuple[float, Mapping[str, Any]]]) -> tuple[Evaluation, Explanation] | None:
    """The newest of these evaluations with its explanation; they are as the store has them, oldest first.

    None where another version of Headroom has written it.
    """
    from profiling_jobs.control_loop.memory import Evaluation  # with numpy, which a pause does not need
    from profiling_jobs.explain import explanation

    *earlier, newest = (Evaluation.if_readable(document) for _, document in found)
    if newest is None:
        return None
    decided = (one for one in reversed(earlier) if one is not None and explanation.has_decided(one))
    return newest, explanation.explained(newest, shown=times.shown, before=next(decided, None))


def settings_with(job: str | None, file: Path) -> Settings:
    """The settings; Misconfigured where they do not name the job."""
    settings = loading.load(file, environment=os.environ)
    if job is not None and job not in settings.jobs:
        raise no_job(job, tuple(settings.jobs), file)
    return settings


def who() -> str:
    """The login name, which is stored with every directive."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number without a name
        name = f"user {os.getuid()}"
    real = os.environ.get("SUDO_USER")
    return f"{real} (as {name})" if real and real != name and os.getuid() == 0 else name


def said_why(text: str) -> str:
    """The reason a person gives, in one line; an empty one is refused."""
    line = " ".join(text.split())
    if not line:
        raise Misconfigured("--why", "is empty: say why, for those who read it at night")
    return line


def _settings(file: Path) -> tuple[Settings | None, Misconfigured | None]:
    try:
        return loading.load(file, environment=os.environ), None
    except WrongSettings as wrong:
        return None, Misconfigured(str(file), f"{wrong.first}: see `headroom check`")
    except Misconfigured as wrong:
        return None, wrong


def _kept_in(settings: Settings | None, folder: Path) -> StoreSettings:
    """Which store; where headroom.toml is broken, that of the last server of this folder."""
    if settings is None:
        last = {loading.HEADROOM_SETTINGS: str(folder / "settings.json")}
        with suppress(Misconfigured):
            return loading.in_force(Path(), environment=last).store
    return StoreSettings() if settings is None else settings.store


def no_job(name: str, known: tuple[str, ...], file: Path) -> Misconfigured:
    """The error for a job that the settings do not name: the nearest one, and all that there are."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    there = f"there is {', '.join(sorted(known))}" if known else "it names no job"
    hint = f"did you mean {near[0]}? " if near else ""
    return Misconfigured(f"job.{name}", f"is not in {file}; {hint}{there}")
