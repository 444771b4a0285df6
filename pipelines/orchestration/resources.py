"""Resources of the Dagster definitions: the server, the store, and an I/O manager that refuses values.

Importing the definitions opens nothing. A folder without a server fails only the call that needs one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import dagster as dg

from models.errors import HeadroomError, error_from_json
from profiling_jobs.orders import Json, Say, Seen, Server

if TYPE_CHECKING:
    from models.ports import Store


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


class Watched:
    """A server for a Dagster run of this process: who started the run is shown the progress of its order."""

    def __init__(self, server: Server, *, say: Say, seen: Seen) -> None:
        self._server, self._say, self._seen = server, say, seen
        self.order_id = ""
        self.result: Json | None = None
        self.problem: HeadroomError | None = None

    def evaluate(self, job: str) -> Json:
        return self._server.evaluate(job)

    def status(self) -> Json:
        return self._server.status()

    def cancel(self, id: str) -> None:
        self._server.cancel(id)

    def begin(self, what: str, job: str, /, **details: Any) -> str:
        try:
            self.order_id = self._server.begin(what, job, **details)
        except HeadroomError as error:
            self.problem = error
            raise
        return self.order_id

    def order(self, id: str, *, since: int = 0) -> Json:
        now = self._server.order(id, since=since)
        for line in now["lines"]:
            self._say(line)
        self._seen(now)
        self.result = now["result"]
        if now["error"] is not None:
            self.problem = error_from_json(now["error"])
        return now


class ServerResource(dg.ConfigurableResource["Server"]):
    """The server that owns `folder`, started with `headroom serve`."""

    folder: str

    def create_resource(self, context: dg.InitResourceContext) -> Server:
        """The client; no call is made yet."""
        from ..server.client import Client

        return Client(Path(self.folder))


class StoreResource(dg.ConfigurableResource["Store"]):
    """The store in the same `folder`."""

    folder: str

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Store]:
        """Open for as long as the run."""
        from ..environments.base import STORE
        from ..integrations.sqlite_store import SqliteStore

        Path(self.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        with SqliteStore(Path(self.folder) / STORE) as store:
            yield store
