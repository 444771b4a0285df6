"""The real store for one test: SQLite in a folder of its own, which goes with it."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from pipelines.integrations.stores.sqlite import SqliteStore


class TemporaryStore(SqliteStore):
    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="headroom-store-")
        super().__init__(Path(folder) / "headroom.sqlite")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
