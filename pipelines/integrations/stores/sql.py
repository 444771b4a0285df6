"""The `Store` port in SQL that SQLite and Postgres both understand; each of them adds how it is connected to.

A table per kind of row; each method is one statement or one transaction. Evaluations are compressed.

Writers take turns: each transaction takes the write lock first, so that what was read in it cannot change
before the write, and is durable when it has ended.

MIGRATIONS has one entry per schema version, oldest first; a released entry is never changed. What a database
lacks is applied in one transaction, so that a crash leaves the old version or the new one.
"""

from __future__ import annotations

import math
import os
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import Any, Protocol, Self

from models.arguments import whole
from models.codec import dumps, loads
from models.errors import HeadroomError, Unsafe
from models.ports import Control, Directive, Lease
from models.quantities import Measurement, Misuse, RecoveryEvent

Migration = Sequence[str]
"""SQL statements, one each, with the types of SQLite; Postgres has others for them."""

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


TABLES: Mapping[str, Sequence[str]] = {
    "evaluations": ("job", "interval", "at_s", "evaluation"),
    "controls": ("job", "epoch", "state"),
    "leases": ("job", "epoch", "holder", "until_s"),
    "directives": ("job", "kind", "who", "why", "since_s", "until_s", "value", "ended_s"),
    "measurements": ("job", "key", "at_s", "measurement"),
    "events": ("job", "kind", "failed_at_s", "scale_out", "downtime_s", "recovery_s", "details"),
    "documents": ("job", "name", "document"),
}
"""Table -> its columns, for copying. Directives are in the order of their ids, which each database gives."""
AT_ONCE = 100  # rows of one statement: a round trip each would take minutes over a network


PATIENCE_S = 10.0  # judgement: a write takes milliseconds, a checkpoint of the log on a busy disk a second


class Connection(Protocol):
    """What the statements need of a connection; `?` stands for a parameter."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Any: ...
    def close(self) -> None: ...


class SqlStore(ABC):
    """The store; safe to use from several threads and processes.

    One connection per process to one database; its threads take turns. `uptime_s`: by which leases end, where
    it is not the clock.
    """

    LOCK = ""
    """What makes reading the schema version take the write lock, where BEGIN has not taken it already."""
    THEIRS = "is another program's database: move it aside, or give the store another path"

    def __init__(
        self,
        where: str,
        *,
        migrations: Sequence[Migration],
        patience_s: float,
        uptime_s: Callable[[], float] | None = None,
    ) -> None:
        self.where = where
        """For messages."""
        self._uptime_s = uptime_s
        self._migrations = migrations
        self._patience_s = patience_s
        self._turn = threading.RLock()
        self._open: Any = None
        self._opened_by = 0
        self._inherited: list[Any] = []
        with self._reading():
            pass  # a database that cannot be used fails here, not at the first tick

    def close(self) -> None:
        with self._turn:
            if self._open is not None and self._opened_by == os.getpid():
                self._open.close()
            self._open = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # ------------------------------------------------------------ all of it

    def empty(self) -> bool:
        """Whether nothing was ever stored."""
        with self._reading() as connection:
            return not _filled(connection)

    def copy_from(self, other: SqlStore) -> Mapping[str, int]:
        """Everything of another store, in one transaction; rows by table. Unsafe where this one is not empty.

        Both have the newest schema: opening brings them forward, and refuses a newer one.
        """
        with other._writing() as source, self._writing() as target:
            if filled := _filled(target):
                raise Unsafe(
                    f"{self.where} is not empty (there is something in {filled}), so nothing is copied into "
                    "it: choose another store.schema_name, or delete that one"
                )
            return {table: _copied(table, source, target) for table in TABLES}

    # ------------------------------------------------------------ evaluations

    def record_evaluation(
        self, job: str, *, interval: int, at_s: float, evaluation: Mapping[str, Any]
    ) -> bool:
        blob = zlib.compress(dumps("evaluation", evaluation).encode())
        with self._writing() as connection:
            done = connection.execute(
                "INSERT INTO evaluations VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (job, int(interval), at_s, blob),
            )
            return done.rowcount == 1

    def evaluations(
        self, job: str, *, since_s: float = 0.0, until_s: float = math.inf, limit: int = 100
    ) -> tuple[tuple[float, Mapping[str, Any]], ...]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT at_s, evaluation FROM evaluations WHERE job = ? AND at_s >= ? AND at_s <= ?"
                " ORDER BY at_s DESC, interval DESC LIMIT ?",
                (job, since_s, until_s, whole("limit", limit)),
            ).fetchall()
        return tuple((at_s, loads(zlib.decompress(blob).decode())) for at_s, blob in reversed(rows))

    def forget_evaluations(self, job: str, *, before_s: float) -> int:
        with self._writing() as connection:
            return connection.execute(
                "DELETE FROM evaluations WHERE job = ? AND at_s < ?", (job, before_s)
            ).rowcount

    # ------------------------------------------------- control state, leases

    def control(self, job: str) -> Control | None:
        with self._reading() as connection:
            row = connection.execute("SELECT epoch, state FROM controls WHERE job = ?", (job,)).fetchone()
        return Control(job, row[0], loads(row[1])) if row else None

    def save_control(self, control: Control, *, expected_epoch: int | None) -> bool:
        if control.epoch < (least := expected_epoch or 0):
            raise Misuse(
                "control.epoch", f"must be at least {least}, got {control.epoch}: it never goes back"
            )
        state = dumps("control.state", control.state)
        with self._writing() as connection:
            if expected_epoch is None:
                done = connection.execute(
                    "INSERT INTO controls VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                    (control.job, control.epoch, state),
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
        lasts_s = lease.until_s - now_s
        with self._writing() as connection:
            if self._uptime_s is not None:
                now_s = self._uptime_s()  # now, and not before the others that were waited for
            row = connection.execute(
                "SELECT epoch, holder, until_s FROM leases WHERE job = ?", (lease.job,)
            ).fetchone()
            if row is not None:
                epoch, holder, until_s = row
                held = holder is not None and holder != lease.holder and now_s < until_s
                # With more time left than a new one has it is from before the machine was started again.
                held = held and (self._uptime_s is None or until_s - now_s <= lasts_s)
                if epoch > lease.epoch or held:
                    return False
            connection.execute(
                "INSERT INTO leases VALUES (?, ?, ?, ?) ON CONFLICT (job) DO UPDATE"
                " SET epoch = excluded.epoch, holder = excluded.holder, until_s = excluded.until_s",
                (lease.job, lease.epoch, lease.holder, now_s + lasts_s),
            )
            return True

    def release(self, lease: Lease) -> None:
        with self._writing() as connection:
            connection.execute(
                "UPDATE leases SET holder = NULL WHERE job = ? AND epoch = ? AND holder = ?",
                (lease.job, lease.epoch, lease.holder),
            )

    # ------------------------------------------------------------- directives

    def direct(self, directive: Directive) -> None:
        with self._writing() as connection:
            connection.execute(
                "UPDATE directives SET ended_s = ? WHERE job = ? AND kind = ?"
                " AND (ended_s IS NULL OR ended_s > ?)",
                (directive.since_s, directive.job, directive.kind, directive.since_s),
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
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT job, kind, who, why, since_s, until_s, value FROM directives"
                " WHERE job = ? AND kind != 'resume' AND since_s <= ?"
                " AND (until_s IS NULL OR until_s > ?) AND (ended_s IS NULL OR ended_s > ?) ORDER BY id",
                (job, now_s, now_s, now_s),
            ).fetchall()
        return tuple(Directive(*row) for row in rows)

    def resume(self, job: str, *, who: str, why: str, now_s: float) -> int:
        with self._writing() as connection:
            ended = connection.execute(
                "UPDATE directives SET ended_s = ? WHERE job = ? AND kind != 'resume'"
                " AND (until_s IS NULL OR until_s > ?) AND (ended_s IS NULL OR ended_s > ?)",
                (now_s, job, now_s, now_s),
            ).rowcount
            connection.execute(
                "INSERT INTO directives (job, kind, who, why, since_s) VALUES (?, 'resume', ?, ?, ?)",
                (job, who, why, now_s),
            )
            return ended

    def audit(self, job: str) -> tuple[Mapping[str, Any], ...]:
        names = ("at_s", "what", "who", "why", "until_s", "value")
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT since_s, kind, who, why, until_s, value FROM directives WHERE job = ? ORDER BY id",
                (job,),
            ).fetchall()
        return tuple(dict(zip(names, row, strict=True)) for row in rows)

    # -------------------------------------------- measurements, events, state

    def add_measurement(self, job: str, key: str, measurement: Measurement, *, at_s: float) -> bool:
        text = dumps("measurement", asdict(measurement))
        with self._writing() as connection:
            new = connection.execute(
                "SELECT 1 FROM measurements WHERE job = ? AND key = ?", (job, key)
            ).fetchone()
            connection.execute(
                "INSERT INTO measurements VALUES (?, ?, ?, ?) ON CONFLICT (job, key) DO UPDATE"
                " SET at_s = excluded.at_s, measurement = excluded.measurement",
                (job, key, at_s, text),
            )
            return new is None

    def measurements(self, job: str) -> tuple[tuple[str, float, Measurement], ...]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT key, at_s, measurement FROM measurements WHERE job = ? ORDER BY at_s, key", (job,)
            ).fetchall()
        return tuple((key, at_s, Measurement(**loads(text))) for key, at_s, text in rows)

    def forget_measurements(self, job: str, keys: Collection[str]) -> int:
        if not keys:
            return 0
        with self._writing() as connection:
            done = [
                connection.execute("DELETE FROM measurements WHERE job = ? AND key = ?", (job, key))
                for key in keys
            ]
            return sum(one.rowcount for one in done)

    def add_event(self, job: str, event: RecoveryEvent, *, details: Mapping[str, Any]) -> None:
        text = dumps("details", details)
        with self._writing() as connection:
            connection.execute(
                "INSERT INTO events (job, kind, failed_at_s, scale_out, downtime_s, recovery_s, details)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (job, kind, failed_at_s) DO UPDATE SET"
                " scale_out = excluded.scale_out, downtime_s = excluded.downtime_s,"
                " recovery_s = excluded.recovery_s, details = excluded.details",
                (
                    *(job, event.kind, event.failed_at_s, event.scale_out),
                    *(event.downtime_s, event.recovery_s, text),
                ),
            )

    def events(self, job: str) -> tuple[tuple[RecoveryEvent, Mapping[str, Any]], ...]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT kind, scale_out, failed_at_s, downtime_s, recovery_s, details FROM events"
                " WHERE job = ? ORDER BY failed_at_s, kind",
                (job,),
            ).fetchall()
        return tuple((RecoveryEvent(*row[:5]), loads(row[5])) for row in rows)

    def save_document(self, job: str, name: str, document: Mapping[str, Any]) -> None:
        text = dumps(name, document)
        with self._writing() as connection:
            connection.execute(
                "INSERT INTO documents VALUES (?, ?, ?) ON CONFLICT (job, name) DO UPDATE"
                " SET document = excluded.document",
                (job, name, text),
            )

    def document(self, job: str, name: str) -> Mapping[str, Any] | None:
        with self._reading() as connection:
            row = connection.execute(
                "SELECT document FROM documents WHERE job = ? AND name = ?", (job, name)
            ).fetchone()
        return loads(row[0]) if row else None

    # ------------------------------------------------------------ connection

    @abstractmethod
    def _opened(self) -> Any:
        """A new connection to a database with the newest schema."""

    @abstractmethod
    def _tables(self, connection: Connection) -> set[str]:
        """The names of all tables."""

    @abstractmethod
    def _transaction(self, connection: Any) -> AbstractContextManager[None]:
        """Rolled back on an error."""

    @abstractmethod
    def _translated(self, error: Exception) -> HeadroomError | None:
        """An error of the driver as one of ours; None for any other."""

    def _usable(self, connection: Any) -> bool:
        """Whether an open connection can be used again."""
        return True

    def _dialect(self, statement: str) -> str:
        """A statement of a migration as this database wants it."""
        return statement

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """The connection, for one statement."""
        with self._turn, self._translated_errors():
            yield self._connection()

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """The connection in a write transaction, rolled back on an error."""
        with self._turn, self._translated_errors():
            connection = self._connection()
            with self._transaction(connection):
                # A newer Headroom may have brought the database forward while this one had it open.
                self._version(connection, lock=self.LOCK)
                yield connection

    def _connection(self) -> Any:
        if self._open is not None and self._opened_by != os.getpid():
            # It must not be carried over a fork; and closing what is the parent's is not ours to do.
            self._inherited.append(self._open)
            self._open = None
        if self._open is not None and not self._usable(self._open):
            self._open.close()
            self._open = None
        if self._open is None:
            self._open, self._opened_by = self._opened(), os.getpid()
        return self._open

    def _version(self, connection: Connection, *, lock: str = "") -> int:
        """The schema version; 0 if empty. A newer version or another program's database is Unsafe."""
        tables = self._tables(connection)
        if not tables:
            return 0
        if not {"schema_version", "evaluations"} <= tables:  # other programs have a schema_version, too
            raise Unsafe(f"{self.where} {self.THEIRS}")
        (found,) = connection.execute(f"SELECT version FROM schema_version{lock}").fetchone()
        if found > len(self._migrations):
            raise Unsafe(
                f"{self.where} was written by a newer Headroom (schema {found}, this one knows up to "
                f"{len(self._migrations)}): update Headroom, or restore the copy from before the update"
            )
        return int(found)

    def _migrate(self, connection: Connection) -> None:
        """Apply the migrations that the database lacks, in the write transaction of the caller."""
        found, newest = self._version(connection, lock=self.LOCK), len(self._migrations)
        if found == newest:
            return
        for migration in self._migrations[found:]:
            for statement in migration:
                connection.execute(self._dialect(statement))
        if found == 0:
            connection.execute(self._dialect("CREATE TABLE schema_version (version INTEGER NOT NULL)"))
            connection.execute("INSERT INTO schema_version VALUES (?)", (newest,))
        else:
            connection.execute("UPDATE schema_version SET version = ?", (newest,))

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            ours = self._translated(error)
            if ours is None:
                raise
            raise ours from error


def _filled(connection: Connection) -> str:
    """The first table that has a row; empty where none has."""
    tables = (one for one in TABLES if connection.execute(f"SELECT 1 FROM {one} LIMIT 1").fetchone())
    return next(tables, "")


def _copied(table: str, source: Connection, target: Connection) -> int:
    columns = ", ".join(TABLES[table])
    order = " ORDER BY id" if table == "directives" else ""
    rows = source.execute(f"SELECT {columns} FROM {table}{order}")
    one, number = f"({', '.join('?' * len(TABLES[table]))})", 0
    while some := rows.fetchmany(AT_ONCE):
        values = [value for row in some for value in row]
        target.execute(f"INSERT INTO {table} ({columns}) VALUES {', '.join([one] * len(some))}", values)
        number += len(some)
    return number
