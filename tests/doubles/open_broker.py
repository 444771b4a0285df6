"""The embedded broker without a password, as it was before 0.9, and as pods of a test's cluster need it."""

from __future__ import annotations

from pipelines.integrations.embedded_kafka import EmbeddedBroker
from profiling_jobs.brokers import Brokers


class OpenBroker(EmbeddedBroker):
    """Everybody who reaches it is let in."""

    @property
    def brokers(self) -> Brokers:
        return Brokers(self._address)

    def _security(self) -> str:
        return "listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
