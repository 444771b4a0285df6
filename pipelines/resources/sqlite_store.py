"""Where is everything kept that must not be forgotten?

The `Store` port in one SQLite file: a table per kind of thing, each method one statement or one transaction.
Evaluations are compressed: they are many and alike.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from models.arguments import whole
from models.codec import dumps, loads
from models.quantities import Measurement, Misuse, RecoveryEvent
from profiling_jobs.ports import Control, Directive, Lease

from .sqlite_file import PATIENCE_S, SqliteFile
from .sqlite_migrations import MIGRATIONS, Migration

FILE = "headroom.db"


class SqliteStore:
    """Everything in one file. Safe from several threads and processes."""

    def __init__(
        self, path: Path, *, migrations: Sequence[Migration] = MIGRATIONS, patience_s: float = PATIENCE_S
    ) -> None:
        self.path = path
        self._file = SqliteFile(path, migrations=migrations, patience_s=patience_s)
        with self._file.reading():
            pass  # a file that cannot be used is told now, not at the first tick

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
