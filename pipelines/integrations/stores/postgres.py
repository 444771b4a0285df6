"""The store in a schema of a Postgres database.

A write locks the one row of `schema_version` first, so that writers take turns as with SQLite; what is read
after that is what was committed before (READ COMMITTED). It is durable when it returns (synchronous_commit).

A connection that breaks is NotReady for that call, and the next call connects again. Where it breaks during a
commit, whether it was written is not known; every write can be repeated, and the error says so.

The address holds a password: it is shown nowhere, and messages are built from its other parts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe

from .sql import MIGRATIONS, PATIENCE_S, Connection, Migration, SqlStore

SETTING = "store.url_from"
ADDRESS = re.compile(r"postgres(ql)?://([^/?#@\s]*@)?[^/?#@\s]*(/[^/?#@\s]*)?(\?[^#@\s]*)?")
"""One @ at the most: where a password holds one unescaped, the parts would be taken for others, and shown."""
TYPES = {
    "INTEGER PRIMARY KEY": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER": "BIGINT",
    "REAL": "DOUBLE PRECISION",
    "BLOB": "BYTEA",
    "TEXT": 'TEXT COLLATE "C"',  # the order of SQLite, whatever the database's own is
}
KEEPALIVE_S = 30  # judgement: firewalls forget a silent connection after minutes
REFUSED = re.compile(
    r"authentication failed|no password supplied|does not exist|pg_hba\.conf|permission denied|not permitted"
    r"|does not support SSL|certificate|invalid"
)
"""In what is said when connecting fails, which has no error code: it stays so until a setting is changed."""
TRY_AGAIN = ("08", "40", "53", "55", "57", "58")
"""Classes of error codes: connection, conflict, resources as a full disk, locks, shutdown, failing disk."""


class EmptyStore(NotReady):
    """Nothing was ever stored there."""


class _Session:
    """A connection that takes `?` for a parameter."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        return self.raw.execute(sql.replace("?", "%s").encode(), parameters or None)

    def close(self) -> None:
        self.raw.close()


class PostgresStore(SqlStore):
    """The store on a server.

    `variable`: the environment variable that the URL is from, for messages. Without `create` a database that
    has no store yet is EmptyStore.
    """

    LOCK = " FOR UPDATE"
    THEIRS = "holds tables of another program: choose another store.schema_name"

    def __init__(
        self,
        url: str,
        *,
        variable: str,
        schema: str = "headroom",
        create: bool = True,
        migrations: Sequence[Migration] = MIGRATIONS,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._address = _parsed(url.strip(), variable)
        self._variable, self._schema, self._create = variable, schema, create
        server = ":".join(str(self._address[key]) for key in ("host", "port") if key in self._address)
        database = self._address.get("dbname", "by default")
        self._server = f"Postgres at {server or 'its default address'}, database {database}, schema {schema}"
        super().__init__(f"{self._server} ({SETTING})", migrations=migrations, patience_s=patience_s)

    def _tables(self, connection: Connection) -> set[str]:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = ?", (self._schema,))
        return {name for (name,) in rows}

    def _dialect(self, statement: str) -> str:
        return re.sub("|".join(TYPES), lambda found: TYPES[found[0]], statement)

    @contextmanager
    def _transaction(self, connection: _Session) -> Iterator[None]:
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error):  # a connection that is broken is rolled back by the server
                connection.execute("ROLLBACK")
            raise
        try:
            connection.execute("COMMIT")
        except psycopg.Error as error:
            if not connection.raw.closed:
                raise
            raise NotReady(
                f"{self.where}: the connection broke during a commit ({_short(error)}), so that it is not "
                "known whether it was written: it can safely be repeated"
            ) from error

    def _usable(self, connection: _Session) -> bool:
        return connection.raw.info.transaction_status == TransactionStatus.IDLE

    def _opened(self) -> _Session:
        connection = _Session(self._connected())
        try:
            if connection.raw.info.parameter_status("server_encoding") != "UTF8":
                raise Misconfigured(
                    SETTING,
                    f"{self._server} cannot hold every text: create the database with ENCODING 'UTF8'",
                )
            patience_ms = str(int(1000 * self._patience_s))
            for name, value in {
                "search_path": f'"{self._schema}"',
                "synchronous_commit": "on",
                "lock_timeout": patience_ms,
                # A writer that is frozen or cut off must not keep the lock.
                "idle_in_transaction_session_timeout": patience_ms,
            }.items():
                connection.execute("SELECT set_config(?, ?, false)", (name, value))
            found = self._version(connection)
            if found == 0 and not self._create:
                raise EmptyStore(f"{self.where} has no store yet: start `headroom serve`")
            if found < len(self._migrations):
                with self._transaction(connection):
                    # Two that create the same schema at once would fail.
                    connection.execute(
                        "SELECT pg_advisory_xact_lock(hashtext(?))", (f"headroom {self._schema}",)
                    )
                    schemas = connection.execute(
                        "SELECT 1 FROM pg_namespace WHERE nspname = ?", (self._schema,)
                    )
                    if schemas.fetchone() is None:
                        connection.execute(f'CREATE SCHEMA "{self._schema}"')
                    self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connected(self) -> psycopg.Connection[Any]:
        defaults = {
            "connect_timeout": max(2, math.ceil(self._patience_s)),
            "application_name": "headroom",
            "keepalives_idle": KEEPALIVE_S,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": int(1000 * self._patience_s),
            "target_session_attrs": "read-write",  # of several servers the one that is in charge
        }
        options: dict[str, Any] = {**defaults, **self._address, "client_encoding": "UTF8"}
        try:
            # Nothing is prepared: after a change of the schema that would fail.
            return psycopg.connect(autocommit=True, prepare_threshold=None, **options)
        except psycopg.OperationalError as error:
            said = _short(error)
            if REFUSED.search(said):
                raise Misconfigured(
                    SETTING, f"{self._server} refuses us ({said}): correct the URL in {self._variable}"
                ) from error
            raise NotReady(
                f"{self.where} does not answer ({said}): start it, or correct the URL in {self._variable}"
            ) from error

    def _translated(self, error: Exception) -> HeadroomError | None:
        if not isinstance(error, psycopg.Error):
            return None
        said, code = _short(error), error.sqlstate or ""
        if isinstance(error, errors.LockNotAvailable):
            return NotReady(f"{self.where}: another process keeps it locked")
        if isinstance(error, errors.ReadOnlySqlTransaction):
            self.close()  # a standby; the next call looks for the server that is in charge
            return NotReady(f"{self.where} is read-only ({said}): nothing was written")
        if isinstance(error, errors.InsufficientPrivilege):
            return Misconfigured(
                SETTING,
                f"{self._server}: {said}; create the schema with AUTHORIZATION for that user, or GRANT "
                "CREATE ON DATABASE to it",
            )
        if code.startswith(TRY_AGAIN) or (not code and isinstance(error, psycopg.OperationalError)):
            return NotReady(f"{self.where} does not answer ({said}): nothing was written, try again")
        return Unsafe(f"{self.where} failed ({said}): nothing was written")


def _parsed(url: str, variable: str) -> dict[str, Any]:
    """The parts of the address. What is wrong with one is not quoted: it may be the password."""
    found: dict[str, Any] = {}
    if ADDRESS.fullmatch(url):
        with suppress(psycopg.ProgrammingError):
            found = dict(conninfo_to_dict(url))
    if not found or re.search("[^0-9,]", str(found.get("port", ""))):
        raise Misconfigured(
            SETTING,
            f"the environment variable {variable} must be postgresql://USER:PASSWORD@HOST:5432/DATABASE; in "
            "the password write @ : / ? # % as %40 %3A %2F %3F %23 %25",
        )
    return found


def _short(error: Exception) -> str:
    """In one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
