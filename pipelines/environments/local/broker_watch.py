"""Who starts our own Kafka again when it has died?

Without it every job waits, and nothing else of ours would bring it back. It comes back on the ports it had,
so whoever was connected finds it by itself. One that is being restarted on purpose is left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from models.errors import HeadroomError

from ...integrations.embedded_kafka import EmbeddedBroker

LOOK_S = 3.0  # judgement: a start takes as long


class BrokerWatch:
    """Keeps the broker of one folder running, in a thread, for as long as the context lasts.

    `restarting` is held by whoever restarts it.
    """

    def __init__(
        self, broker: EmbeddedBroker, *, restarting: threading.Lock, say: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._restarting = restarting
        self._say = say
        self._down = False
        self._wrong = ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="headroom-broker-watch", daemon=True)

    def look(self) -> None:
        """One look, and what follows from it."""
        if self._broker.process is not None or not self._restarting.acquire(blocking=False):
            return
        try:
            if self._broker.process is None:  # a restart may just have been over
                self._start()
        finally:
            self._restarting.release()

    def __enter__(self) -> BrokerWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.wait(LOOK_S):
            self.look()

    def _start(self) -> None:
        if not self._down:
            self._down = True
            self._tell(f"Kafka has ended (see {self._broker.log}): it is started again")
        try:
            brokers = self._broker.start(keep_ports=True)
        except (HeadroomError, OSError) as error:
            if str(error) != self._wrong:
                self._wrong = str(error)
                self._tell(f"Kafka could not be started, which is tried again: {error}")
            return
        self._down, self._wrong = False, ""
        self._tell(f"Kafka runs again on {brokers.bootstrap}")

    def _tell(self, line: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that has gone
            self._say(line)
