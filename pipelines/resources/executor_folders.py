"""What have executors left on the disk that no longer live?

The worker gives every executor a folder, `work/APPLICATION/NUMBER`, into which it copies the jars of its job:
some 10 MB each. Spark clears it once the job has ended, which a live job never does. Of an executor that has
gone only its logs are worth anything, and those as long as Spark keeps the logs of a job that has ended.
"""

from __future__ import annotations

import shutil
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

LOGS = ("stdout", "stderr")
NEW_S = 60.0  # judgement: the worker makes the folder some moments before the process can be seen
LOGS_KEPT_S = 3600  # judgement: as the worker is told for the folders of jobs that have ended


def clear(work: Path, *, living: Set[tuple[str, str]], now_s: float) -> None:
    """Remove what is left of every executor (application and number) that is not among the living."""
    for folder in work.glob("app-*/*"):
        if (folder.parent.name, folder.name) not in living:
            with suppress(FileNotFoundError, NotADirectoryError):  # the worker clears, too
                _clear(folder, now_s)


def _clear(folder: Path, now_s: float) -> None:
    if now_s - folder.stat().st_mtime < NEW_S:
        return
    for left in folder.iterdir():
        if left.name in LOGS and now_s - left.stat().st_mtime < LOGS_KEPT_S:
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
