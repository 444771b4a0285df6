"""The `Store` port in one SQLite file, shared by several threads and processes.

A table per kind of row; each method is one statement or one transaction. Evaluations are compressed.

The file is in write-ahead mode. A write takes the write lock first (BEGIN IMMEDIATE), so that what was read
in the transaction cannot change before the write, and is on the disk when it returns (synchronous = FULL).
Others wait up to PATIENCE_S.

MIGRATIONS has one entry per schema version, oldest first; a released entry is never changed. What a file
lacks is applied in one transaction, so that a crash leaves the old version or the new one.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from models.arguments import whole
from models.codec import dumps, loads
from models.errors import HeadroomError, Misconfigured, NotReady, Unsafe
from models.ports import Control, Directive, Lease
from models.quantities import Measurement, Misuse, RecoveryEvent

Migration = Sequence[str]
"""SQL statements, one each."""

MIGRATIONS: tuple[Migration, ...] = (
    (  # 1
        "CREATE TABLE evaluations (job TEXT NOT NULL, interval INTEGER NOT NULL, at_s REAL NOT NULL,"
        " evaluation BLOB NOT NULL, PRIMARY KEY (job, interval))",
        "CREATE INDEX evaluations_by_time ON evaluations (job, at_s)",
        "CREATE TABLE controls (job TEXT NOT NULL PRIMARY KEY, epoch INTEGER NOT NULL, state TEXT NOT NULL)",
        "CREATE TABLE leases (job TEXT NOT NULL PRIMARY KEY, epoch INTEGER NOT NULL, holder TEXT,"
        " until_s REAL NOT NULL)",
        "CREATE TABLE directives (id INTEGER PRIMARY KEY, job TEXT NOT NULL, kind TEXT NOT NULL,"
        " who TEXT NOT NULL, why TEXT NOT NULL, since_s REAL NOT NULL, until_s REAL, value INTEGER,"
        " ended_s REAL)",
        "CREATE INDEX directives_of_a_job ON directives (job)",
        "CREATE TABLE measurements (job TEXT NOT NULL, key TEXT NOT NULL, at_s REAL NOT NULL,"
        " measurement TEXT NOT NULL, PRIMARY KEY (job, key))",
        "CREATE TABLE events (job TEXT NOT NULL, kind TEXT NOT NULL, failed_at_s REAL NOT NULL,"
        " scale_out INTEGER NOT NULL, downtime_s REAL NOT NULL, recovery_s REAL NOT NULL,"
        " details TEXT NOT NULL, PRIMARY KEY (job, kind, failed_at_s))",
        "CREATE TABLE documents (job TEXT NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL,"
        " PRIMARY KEY (job, name))",
    ),
)


def version(connection: sqlite3.Connection, path: Path, *, newest: int) -> int:
    """The schema version of the file; 0 if empty. A newer version or another program's database is Unsafe."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    if "schema_version" not in tables:
        raise Unsafe(f"{path} is another program's database: move it aside, or give the store another path")
    (found,) = connection.execute("SELECT version FROM schema_version").fetchone()
    if found > newest:
        raise Unsafe(
            f"{path} was written by a newer Headroom (schema {found}, this one knows up to {newest}): "
            "update Headroom, or restore the copy from before the update"
        )
    return int(found)


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    """Apply the migrations that the file lacks, in the write transaction of the caller."""
    found = version(connection, path, newest=len(migrations))
    if found == len(migrations):
        return
    for migration in migrations[found:]:
        for statement in migration:
            connection.execute(statement)
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
    connection.execute("DELETE FROM schema_version")
    connection.execute("INSERT INTO schema_version VALUES (?)", (len(migrations),))


PATIENCE_S = 10.0  # judgement: a write takes milliseconds, a checkpoint of the log on a busy disk a second
TRY_AGAIN = {
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_IOERR: "the disk does not answer properly",
    sqlite3.SQLITE_BUSY: "another process keeps it locked",
    sqlite3.SQLITE_LOCKED: "another process keeps it locked",
}

_CREATING = threading.Lock()
"""Held while a file is created, and the only descriptor of ours is closed.

Closing *any* descriptor of a file drops all POSIX locks that the process holds on it, those of SQLite's own
connections too. The next process that closes the database then believes that it is the last one, and deletes
the write-ahead log that we still use. So once the file exists, only SQLite opens it, here and elsewhere.
"""


class SqliteFile:
    """One connection per process to one file; its threads take turns."""

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
        """The connection, for one statement."""
        with self._turn, self._translated_errors():
            yield self._connection()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection in a write transaction, rolled back on an error."""
        with self._turn, self._translated_errors():
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

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._translated(error) from error
        except OSError as error:
            raise Misconfigured(str(self.path), f"cannot be opened ({error.strerror})") from error

    def _translated(self, error: sqlite3.Error) -> HeadroomError:
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


FILE = "headroom.db"


class SqliteStore:
    """The store; safe to use from several threads and processes."""

    def __init__(
        self, path: Path, *, migrations: Sequence[Migration] = MIGRATIONS, patience_s: float = PATIENCE_S
    ) -> None:
        self.path = path
        self._file = SqliteFile(path, migrations=migrations, patience_s=patience_s)
        with self._file.reading():
            pass  # a file that cannot be used fails here, not at the first tick

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------ evaluations

    def record_evaluation(
        self, job: str, *, interval: int, at_s: float, evaluation: Mapping[str, Any]
    ) -> bool:
        blob = zlib.compress(dumps("evaluation", evaluation).encode())
        with self._file.writing() as connection:
            done = connection.execute(
                "INSERT OR IGNORE INTO evaluations VALUES (?, ?, ?, ?)", (job, int(interval), at_s, blob)
            )
            return done.rowcount == 1

    def evaluations(
        self, job: str, *, since_s: float = 0.0, until_s: float = math.inf, limit: int = 100
    ) -> tuple[tuple[float, Mapping[str, Any]], ...]:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT at_s, evaluation FROM evaluations WHERE job = ? AND at_s >= ? AND at_s <= ?"
                " ORDER BY at_s DESC, interval DESC LIMIT ?",
                (job, since_s, until_s, whole("limit", limit)),
            ).fetchall()
        return tuple((at_s, loads(zlib.decompress(blob).decode())) for at_s, blob in reversed(rows))

    def forget_evaluations(self, job: str, *, before_s: float) -> int:
        with self._file.writing() as connection:
            return connection.execute(
                "DELETE FROM evaluations WHERE job = ? AND at_s < ?", (job, before_s)
            ).rowcount

    # ------------------------------------------------- control state, leases

    def control(self, job: str) -> Control | None:
        with self._file.reading() as connection:
            row = connection.execute("SELECT epoch, state FROM controls WHERE job = ?", (job,)).fetchone()
        return Control(job, row[0], loads(row[1])) if row else None

    def save_control(self, control: Control, *, expected_epoch: int | None) -> bool:
        if expected_epoch is not None and control.epoch < expected_epoch:
            raise Misuse("control.epoch", f"must not go back from {expected_epoch} to {control.epoch}")
        state = dumps("control.state", control.state)
        with self._file.writing() as connection:
            if expected_epoch is None:
                done = connection.execute(
                    "INSERT OR IGNORE INTO controls VALUES (?, ?, ?)", (control.job, control.epoch, state)
                )
            else:
                done = connection.execute(
                    "UPDATE controls SET epoch = ?, state = ? WHERE job = ? AND epoch = ?",
                    (control.epoch, state, control.job, expected_epoch),
                )
            return done.rowcount == 1

    def claim(self, lease: Lease, *, now_s: float) -> bool:
        if lease.until_s <= now_s:
            raise Misuse("lease.until_s", f"is over already: {lease.until_s} at {now_s}")
        with self._file.writing() as connection:
            row = connection.execute(
                "SELECT epoch, holder, until_s FROM leases WHERE job = ?", (lease.job,)
            ).fetchone()
            if row is not None:
                epoch, holder, until_s = row
                held = holder is not None and holder != lease.holder and until_s > now_s
                if epoch > lease.epoch or held:
                    return False
            connection.execute(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)",
                (lease.job, lease.epoch, lease.holder, lease.until_s),
            )
            return True

    def release(self, lease: Lease) -> None:
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE leases SET holder = NULL WHERE job = ? AND epoch = ? AND holder = ?",
                (lease.job, lease.epoch, lease.holder),
            )

    # ------------------------------------------------------------- directives

    def direct(self, directive: Directive) -> None:
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE directives SET ended_s = ?1 WHERE job = ?2 AND kind = ?3"
                " AND (ended_s IS NULL OR ended_s > ?1)",
                (directive.since_s, directive.job, directive.kind),
            )
            connection.execute(
                "INSERT INTO directives (job, kind, who, why, since_s, until_s, value)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *(directive.job, directive.kind, directive.who, directive.why),
                    *(directive.since_s, directive.until_s, directive.value),
                ),
            )

    def directives(self, job: str, *, now_s: float) -> tuple[Directive, ...]:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT job, kind, who, why, since_s, until_s, value FROM directives"
                " WHERE job = ?1 AND kind != 'resume' AND since_s <= ?2"
                " AND (until_s IS NULL OR until_s > ?2) AND (ended_s IS NULL OR ended_s > ?2) ORDER BY id",
                (job, now_s),
            ).fetchall()
        return tuple(Directive(*row) for row in rows)

    def resume(self, job: str, *, who: str, why: str, now_s: float) -> int:
        with self._file.writing() as connection:
            ended = connection.execute(
                "UPDATE directives SET ended_s = ?1 WHERE job = ?2 AND kind != 'resume'"
                " AND (until_s IS NULL OR until_s > ?1) AND (ended_s IS NULL OR ended_s > ?1)",
                (now_s, job),
            ).rowcount
            connection.execute(
                "INSERT INTO directives (job, kind, who, why, since_s) VALUES (?, 'resume', ?, ?, ?)",
                (job, who, why, now_s),
            )
            return ended

    def audit(self, job: str) -> tuple[Mapping[str, Any], ...]:
        names = ("at_s", "what", "who", "why", "until_s", "value")
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT since_s, kind, who, why, until_s, value FROM directives WHERE job = ? ORDER BY id",
                (job,),
            ).fetchall()
        return tuple(dict(zip(names, row, strict=True)) for row in rows)

    # -------------------------------------------- measurements, events, state

    def add_measurement(self, job: str, key: str, measurement: Measurement, *, at_s: float) -> bool:
        text = dumps("measurement", asdict(measurement))
        with self._file.writing() as connection:
            new = connection.execute(
                "SELECT 1 FROM measurements WHERE job = ? AND key = ?", (job, key)
            ).fetchone()
            connection.execute(
                "INSERT OR REPLACE INTO measurements VALUES (?, ?, ?, ?)", (job, key, at_s, text)
            )
            return new is None

    def measurements(self, job: str) -> tuple[tuple[str, float, Measurement], ...]:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT key, at_s, measurement FROM measurements WHERE job = ? ORDER BY at_s, key", (job,)
            ).fetchall()
        return tuple((key, at_s, Measurement(**loads(text))) for key, at_s, text in rows)

    def add_event(self, job: str, event: RecoveryEvent, *, details: Mapping[str, Any]) -> None:
        text = dumps("details", details)
        with self._file.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO events (job, kind, failed_at_s, scale_out, downtime_s, recovery_s,"
                " details) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    *(job, event.kind, event.failed_at_s, event.scale_out),
                    *(event.downtime_s, event.recovery_s, text),
                ),
            )

    def events(self, job: str) -> tuple[tuple[RecoveryEvent, Mapping[str, Any]], ...]:
        with self._file.reading() as connection:
            rows = connection.execute(
                "SELECT kind, scale_out, failed_at_s, downtime_s, recovery_s, details FROM events"
                " WHERE job = ? ORDER BY failed_at_s, kind",
                (job,),
            ).fetchall()
        return tuple((RecoveryEvent(*row[:5]), loads(row[5])) for row in rows)

    def save_document(self, job: str, name: str, document: Mapping[str, Any]) -> None:
        text = dumps(name, document)
        with self._file.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", (job, name, text))

    def document(self, job: str, name: str) -> Mapping[str, Any] | None:
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT document FROM documents WHERE job = ? AND name = ?", (job, name)
            ).fetchone()
        return loads(row[0]) if row else None
