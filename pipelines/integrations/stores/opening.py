"""The store that `[store]` asks for: a SQLite file in the folder, or a schema of a Postgres database."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from models.errors import Misconfigured, NotReady, Unsafe

from ...settings.schema import StoreSettings
from .sql import PATIENCE_S, SqlStore
from .sqlite import SqliteStore

STORE = "headroom.sqlite"
SETTING = "store.url_from"


def open_store(
    settings: StoreSettings,
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    uptime_s: Callable[[], float] | None = None,
) -> SqlStore:
    """The store, made where there is none yet. `environment`: that of this process, if not given.

    `uptime_s`: by which the leases of a file end. Those of a database are for several machines, and end by
    the clock.

    Unsafe where it would begin anew beside a SQLite file that holds what must not be forgotten.
    """
    store = _store(settings, folder, environment, patience_s=PATIENCE_S, create=True, uptime_s=uptime_s)
    assert store is not None
    try:
        left = not_taken_over(settings, folder, store)
    except BaseException:
        store.close()
        raise
    if left:
        store.close()
        raise Unsafe(left)
    return store


def not_taken_over(settings: StoreSettings, folder: Path, store: SqlStore | None) -> str:
    """What an earlier SQLite file holds and the database does not, with what to do; empty where nothing."""
    path = folder / STORE
    if settings.url_from is None or not path.exists() or not (store is None or store.empty()):
        return ""
    with SqliteStore(path) as earlier:
        if earlier.empty():
            return ""
    return (
        f"{path} holds what was learnt and decided before, and {place(settings, folder)} is empty: "
        "`headroom copy-store` copies it, or move the file aside to begin anew"
    )


def take_over(settings: StoreSettings, folder: Path) -> Mapping[str, int]:
    """Copy the SQLite file of the folder into the database, which must be empty; rows by table."""
    path = folder / STORE
    if settings.url_from is None:
        raise Misconfigured(SETTING, "is not set: it names the database that is to hold the store")
    if not path.exists():
        raise NotReady(f"there is no {path}, so there is nothing to copy: start `headroom serve`")
    store = _store(settings, folder, None, patience_s=PATIENCE_S, create=True)
    assert store is not None
    with store, SqliteStore(path) as earlier:
        return store.copy_from(earlier)


def find_store(
    settings: StoreSettings,
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    patience_s: float = PATIENCE_S,
) -> SqlStore | None:
    """The same, but None where nothing was ever stored: looking makes nothing."""
    return _store(settings, folder, environment, patience_s=patience_s, create=False)


def place(settings: StoreSettings, folder: Path) -> str:
    """Where the store would be, for messages."""
    if settings.url_from is None:
        return str(folder / STORE)
    return f"schema {settings.schema_name} in the database of {SETTING} ({settings.url_from})"


def _store(
    settings: StoreSettings,
    folder: Path,
    environment: Mapping[str, str] | None,
    *,
    patience_s: float,
    create: bool,
    uptime_s: Callable[[], float] | None = None,
) -> SqlStore | None:
    if settings.url_from is None:
        path = folder / STORE
        if not (create or path.exists()):
            return None
        return SqliteStore(path, patience_s=patience_s, uptime_s=uptime_s)
    url = (os.environ if environment is None else environment).get(settings.url_from)
    if not url:
        raise Misconfigured(
            SETTING,
            f"the environment variable {settings.url_from} is not set: set it, or leave url_from out to use "
            "SQLite in the folder",
        )
    try:
        from .postgres import EmptyStore, PostgresStore
    except ImportError as missing:
        raise Misconfigured(
            SETTING, f"needs psycopg ({missing}): `make install`, or `pip install 'psycopg[binary]'`"
        ) from missing
    try:
        return PostgresStore(
            url,
            variable=settings.url_from,
            schema=settings.schema_name,
            create=create,
            patience_s=patience_s,
        )
    except EmptyStore:
        return None
