"""Which tables does the store have, and how does an older file become a newer one?

One entry per version, oldest first; an entry that was released is never changed, a new one is appended.
All that a file lacks is applied in one transaction, so that a crash leaves the old version or the new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from profiling_jobs.errors import Unsafe

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
    """The file's version; 0 for an empty one. A newer one, or a stranger's, is refused untouched."""
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
    """Bring the file forward. The caller holds the write transaction."""
    found = version(connection, path, newest=len(migrations))
    if found == len(migrations):
        return
    for migration in migrations[found:]:
        for statement in migration:
            connection.execute(statement)
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
    connection.execute("DELETE FROM schema_version")
    connection.execute("INSERT INTO schema_version VALUES (?)", (len(migrations),))
