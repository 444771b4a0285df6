"""How does a run reach the owner, and what has been stored? The resources of the definitions.

Everything is made when it is first asked for: importing the definitions opens nothing. A folder without an
owner is no error here; it is said by the call that needs one.

Where would an asset's value be put, if one returned any? Nowhere.

Our data lives in stores of its own; what an asset returns is a `MaterializeResult`. Dagster's default writes
a pickle of whatever is returned, and reads it again: here nothing is ever pickled, so a value is a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import dagster as dg

from models.errors import HeadroomError

from ..server.protocol import Desk, Json, awaited, carried_out

if TYPE_CHECKING:
    from models.ports import Store


class RefusingIOManager(dg.IOManager):
    """Refuses to keep values, and has none."""

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
        from ..server.client import DeskClient

        return AtDesk(DeskClient(Path(self.folder)))


class StoreResource(dg.ConfigurableResource["Store"]):
    """What has been measured, lived through and decided, in the same `folder`."""

    folder: str

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Store]:
        """Open for as long as the run."""
        from ..environments.base import STORE
        from ..integrations.sqlite_store import SqliteStore

        Path(self.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        with SqliteStore(Path(self.folder) / STORE) as store:
            yield store
