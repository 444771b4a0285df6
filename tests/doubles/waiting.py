"""Waiting for something that other threads or processes do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable


def until(
    condition: Callable[[], object],
    what: str = "what was waited for",
    *,
    timeout_s: float = 240.0,
    every_s: float = 0.02,
) -> None:
    """Return once the condition holds; a test that waits in vain fails."""
    limit = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < limit, f"{what} did not come within {timeout_s:.0f} s"
        time.sleep(every_s)


def together(works: Iterable[Callable[[], object]]) -> None:
    """Each in a thread of its own, all at once; returns once all have ended."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
