"""How do several threads and processes share one SQLite file, through crashes and updates of ours?

With a write-ahead log. A write is one transaction that takes the write lock first (BEGIN IMMEDIATE), so that
reading and deciding inside it cannot be overtaken, and is on the disk when it returns (synchronous = FULL).
Others wait their turn for PATIENCE_S. What SQLite has to say is told as one of our errors.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from profiling_jobs.errors import HeadroomError, Misconfigured, NotReady, Unsafe

from .sqlite_migrations import Migration, migrate, version

PATIENCE_S = 10.0  # judgement: a write takes milliseconds, a checkpoint of the log on a busy disk a second
TRY_AGAIN = {
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_IOERR: "the disk does not answer properly",
    sqlite3.SQLITE_BUSY: "somebody else keeps it locked",
    sqlite3.SQLITE_LOCKED: "somebody else keeps it locked",
}

_CREATING = threading.Lock()
"""Held while a file is created, and the only descriptor of ours is closed.

Closing *any* descriptor of a file drops all POSIX locks that the process holds on it, those of SQLite's own
connections too. The next process that closes the database then believes that it is the last one, and deletes
the write-ahead log that we still use. So once the file exists, only SQLite opens it, here and elsewhere.
"""


class SqliteFile:
    """One file; each process opens its own connection, whose threads take turns."""

    def __init__(self, path: Path, *, migrations: Sequence[Migration], patience_s: float) -> None:
        self.path = path
        self._migrations = migrations
        self._patience_s = patience_s
        self._turn = threading.RLock()
        self._open: sqlite3.Connection | None = None
        self._opened_by = 0
        self._inherited: list[sqlite3.Connection] = []

    def close(self) -> None:
        with self._turn:
            if self._open is not None and self._opened_by == os.getpid():
                self._open.close()
            self._open = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One statement sees one state; no transaction is needed for it."""
        with self._turn, self._errors_told():
            yield self._connection()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or nothing."""
        with self._turn, self._errors_told():
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                # A newer Headroom may have brought the file forward while this one had it open.
                version(connection, self.path, newest=len(self._migrations))
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _connection(self) -> sqlite3.Connection:
        if self._open is not None and self._opened_by != os.getpid():
            # SQLite must not be carried over a fork; and closing what is the parent's is not ours to do.
            self._inherited.append(self._open)
            self._open = None
        if self._open is None:
            self._open, self._opened_by = self._opened(), os.getpid()
        return self._open

    def _opened(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _CREATING:
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(
                self.path, timeout=self._patience_s, isolation_level=None, check_same_thread=False
            )
        try:
            version(connection, self.path, newest=len(self._migrations))
            self._write_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("BEGIN IMMEDIATE")
            migrate(connection, self.path, self._migrations)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """SQLite does not wait for its turn when it changes the journal's mode: so we do."""
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

    @contextmanager
    def _errors_told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._told(error) from error
        except OSError as error:
            raise Misconfigured(str(self.path), f"cannot be opened ({error.strerror})") from error

    def _told(self, error: sqlite3.Error) -> HeadroomError:
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
