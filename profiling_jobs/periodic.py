"""Work that is repeated in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

from models.ports import Clock

SLICE_S = 1.0  # how long closing may take, where a clock that is not the machine's is waited for
LEAST = 0.05  # of a period: work that takes longer than its period leaves others so much


class Periodic:
    """Calls `work` every `every_s` seconds, from `start` to `close`; a late call puts off the next one.

    A call that fails is reported as the end of a thread would be, once for each reason; the next one is made.

    `clock`: whose seconds these are, this machine's by default; `taking_part`: held by the thread
    (simulated time stands still while it works).
    """

    def __init__(
        self,
        work: Callable[[], object],
        *,
        every_s: float,
        name: str,
        clock: Clock | None = None,
        taking_part: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._work, self._every_s, self._name = work, every_s, name
        self._clock, self._taking_part = clock, taking_part
        self._begun, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._reported = ""

    @property
    def running(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        """The first call is at once."""
        if self._thread is None:
            self._begun.clear()
            self._closing.clear()
            self._thread = threading.Thread(target=self._run, name=f"headroom-{self._name}", daemon=True)
            self._thread.start()
            self._begun.wait()  # before simulated time goes on without it

    def close(self) -> None:
        """No call after the one in hand, which is waited for."""
        if self._thread is not None:
            self._closing.set()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        now_s = time.monotonic if self._clock is None else self._clock.now_s
        with self._taking_part():
            self._begun.set()
            while not self._closing.is_set():
                began_s = now_s()
                try:
                    self._work()
                except Exception as error:  # noqa: BLE001 - the work of days must not end with one failure
                    self._report(error)
                took_s = max(0.0, now_s() - began_s)  # a clock that was set back is not waited for
                self._pause(max(LEAST * self._every_s, self._every_s - took_s))

    def _report(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        if reason != self._reported:
            self._reported = reason
            seen = (type(error), error, error.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(seen))

    def _pause(self, seconds: float) -> None:
        if self._clock is None:
            self._closing.wait(seconds)
            return
        while seconds > 0.0 and not self._closing.is_set():
            self._clock.sleep(min(SLICE_S, seconds))
            seconds -= SLICE_S
