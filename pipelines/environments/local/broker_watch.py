"""Restarts our own Kafka when it has died.

Every job waits for it. It comes back on the ports it had, so that clients find it again. One that is being
restarted on purpose is left alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from models.errors import NotReady

from ...integrations.embedded_kafka import EmbeddedBroker

LOOK_S = 3.0  # judgement: a start takes as long


class BrokerWatch:
    """Keeps the broker of one folder running. `restarting` is held while it is restarted on purpose."""

    def __init__(
        self, broker: EmbeddedBroker, *, restarting: threading.Lock, say: Callable[[str], None]
    ) -> None:
        self._broker = broker
        self._restarting = restarting
        self._say = say
        self._down = False
        self._wrong = ""

    def look(self) -> None:
        """Check the broker, and restart it where needed."""
        with suppress(NotReady):  # what runs cannot be seen just now: the next look may
            if self._broker.process is not None or not self._restarting.acquire(blocking=False):
                return
            try:
                if self._broker.process is None:  # a restart may just have been over
                    self._start()
            finally:
                self._restarting.release()

    def _start(self) -> None:
        if not self._down:
            self._down = True
            self._tell(f"Kafka has ended (see {self._broker.log}): it is started again")
        try:
            brokers = self._broker.start(keep_ports=True)
        except Exception as error:  # noqa: BLE001 - it is watched for days: nothing may end that
            if str(error) != self._wrong:
                self._wrong = str(error)
                self._tell(f"Kafka could not be started, which is tried again: {error}")
            return
        self._down, self._wrong = False, ""
        self._tell(f"Kafka runs again on {brokers.bootstrap}")

    def _tell(self, line: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that has gone
            self._say(line)
