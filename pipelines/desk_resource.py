"""How does a run reach the owner, and what has been stored? The resources of the definitions.

Everything is made when it is first asked for: importing the definitions opens nothing. A folder without an
owner is no error here; it is said by the call that needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from profiling_jobs.errors import HeadroomError

from .desk import Desk, Json, awaited, carried_out

if TYPE_CHECKING:
    from profiling_jobs.ports import Store


class AtDesk:
    """A desk whose orders can be waited for: what assets and sensors are given."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def evaluate(self, job: str) -> Json:
        return self._desk.evaluate(job)

    def status(self) -> Json:
        return self._desk.status()

    def cancel(self, id: str) -> None:
        self._desk.cancel(id)

    def carried_out(
        self,
        what: str,
        job: str,
        /,
        *,
        say: Callable[[str], None],
        seen: Callable[[Json], None],
        **details: Any,
    ) -> Json:
        return carried_out(self._desk, what, job, say=say, seen=seen, **details)


class Watched(AtDesk):
    """The same for a run of this process: what an order says is also shown to whoever started the run."""

    def __init__(self, desk: Desk, *, say: Callable[[str], None], seen: Callable[[Json], None]) -> None:
        super().__init__(desk)
        self._say, self._seen = say, seen
        self.order_id = ""
        self.result: Json | None = None
        self.problem: HeadroomError | None = None

    def carried_out(
        self,
        what: str,
        job: str,
        /,
        *,
        say: Callable[[str], None],
        seen: Callable[[Json], None],
        **details: Any,
    ) -> Json:
        def also_say(line: str) -> None:
            say(line)
            self._say(line)

        def also_seen(order: Json) -> None:
            seen(order)
            self._seen(order)

        try:
            self.order_id = self._desk.begin(what, job, **details)
            self.result = awaited(self._desk, self.order_id, say=also_say, seen=also_seen)
        except HeadroomError as error:
            self.problem = error
            raise
        return self.result


class DeskResource(dg.ConfigurableResource[AtDesk]):
    """The desk of the process that owns `folder`, started with `headroom serve`."""

    folder: str

    def create_resource(self, context: dg.InitResourceContext) -> AtDesk:
        """Nothing is asked yet."""
        from .desk_line import DeskClient

        return AtDesk(DeskClient(Path(self.folder)))


class StoreResource(dg.ConfigurableResource["Store"]):
    """What has been measured, lived through and decided, in the same `folder`."""

    folder: str

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Store]:
        """Open for as long as the run."""
        from .resources.sqlite_store import SqliteStore
        from .world import STORE

        Path(self.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        with SqliteStore(Path(self.folder) / STORE) as store:
            yield store
