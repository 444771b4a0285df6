"""The store in one SQLite file.

The file is in write-ahead mode. A write takes the write lock first (BEGIN IMMEDIATE) and is on the disk when
it returns (synchronous = FULL). Others wait up to PATIENCE_S.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe

from .sql import MIGRATIONS, PATIENCE_S, Connection, Migration, SqlStore

TRY_AGAIN = {
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_IOERR: "the disk does not answer properly",
    sqlite3.SQLITE_BUSY: "another process keeps it locked",
    sqlite3.SQLITE_LOCKED: "another process keeps it locked",
}


def uptime_s() -> float:
    """Seconds since this machine was started, its sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_CREATING = threading.Lock()
"""Held while a file is created, and the only descriptor of ours is closed.

Closing *any* descriptor of a file drops all POSIX locks that the process holds on it, those of SQLite's own
connections too. The next process that closes the database then believes that it is the last one, and deletes
the write-ahead log that we still use. So once the file exists, only SQLite opens it, here and elsewhere.
"""


class SqliteStore(SqlStore):
    """The store in a file.

    `uptime_s`: seconds since the machine was started, the same for every process, by which leases end: the
    clock may be set back, and a lease would be held for so much longer. Without it they end by the clock,
    which in a simulation is the only one.
    """

    def __init__(
        self,
        path: Path,
        *,
        migrations: Sequence[Migration] = MIGRATIONS,
        patience_s: float = PATIENCE_S,
        uptime_s: Callable[[], float] | None = None,
    ) -> None:
        self.path = path
        super().__init__(str(path), migrations=migrations, patience_s=patience_s, uptime_s=uptime_s)

    def _tables(self, connection: Connection) -> set[str]:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {name for (name,) in rows}

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _usable(self, connection: sqlite3.Connection) -> bool:
        return not connection.in_transaction  # else its rollback has failed

    def _opened(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _CREATING:
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(
                self.path, timeout=self._patience_s, isolation_level=None, check_same_thread=False
            )
        try:
            self._version(connection)
            self._write_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
            with self._transaction(connection):
                self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Switch to write-ahead mode; SQLite itself does not wait for its turn here."""
        until = time.monotonic() + self._patience_s
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
                continue
            if mode != "wal":
                raise Misconfigured(str(self.path), "lies where SQLite cannot keep a log: use a local disk")
            return

    def _translated(self, error: Exception) -> HeadroomError | None:
        if isinstance(error, OSError):
            return Misconfigured(str(self.path), f"cannot be opened ({error.strerror})")
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in TRY_AGAIN:
            return NotReady(f"the store {self.path}: {TRY_AGAIN[code]}")
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return Unsafe(
                f"{self.path} is damaged or no database ({error}): restore a copy, or move it aside"
            )
        if code == sqlite3.SQLITE_CANTOPEN:
            return Misconfigured(str(self.path), f"cannot be opened ({error})")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return Misconfigured(str(self.path), f"cannot be written ({error})")
        return Unsafe(f"the store {self.path} failed ({error}); nothing was written")
