"""Watch whether a folder can still be written to: a full disk would silently end the evaluations."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

LOOK_S = 5.0  # judgement: a sixth of the shortest usual interval
BYTES = 256 * 1024  # judgement: what one tick of ten jobs writes, with SQLite's log


class RoomWatch:
    """Tries to write what a tick needs, and says where that has become impossible, and possible again.

    It is tried, not computed: a quota, or a disk that went read-only after an error, shows as well.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self.problem = ""
        """Why nothing is evaluated; empty while the folder can be written to."""

    def look(self) -> None:
        problem = self._tried()
        if problem and not self.problem:
            self._say(problem)
        elif self.problem and not problem:
            self._say(f"{self._folder} can be written to again: evaluations go on")
        self.problem = problem

    def _tried(self) -> str:
        path = self._folder / ".room"
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                left = BYTES
                while left > 0:
                    left -= os.write(handle, bytes(left))
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            return (
                f"{self._folder} cannot be written to ({error.strerror}): nothing is evaluated or decided "
                "until there is room; jobs run on"
            )
        finally:
            with suppress(OSError):
                path.unlink()
        return ""
