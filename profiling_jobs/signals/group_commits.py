"""How far has the job come, for everybody who can reach the broker but not the checkpoint?

Spark never commits to a consumer group. The wrapper does it after each finished batch, in a thread: a
broker that is away must not hold up the batches, and only the newest offsets matter.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress

from ..brokers import Brokers

PAUSE_S = 2.0  # judgement: between two attempts while the broker is away
CLOSE_MS = 1000  # judgement: nothing is left to be said to that broker


class GroupCommits:
    """Commits the newest offsets it was given to one group."""

    def __init__(self, brokers: Brokers, *, group: str) -> None:
        self._brokers = brokers
        self._group = group
        self._newest: dict[tuple[str, int], int] = {}
        self._given = threading.Event()
        self._closing = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._work, name="headroom-group", daemon=True)

    def start(self) -> None:
        """Commit from now on."""
        self._thread.start()

    def give(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """These are finished. Returns at once."""
        if offsets:
            self._idle.clear()
            self._newest = dict(offsets)
            self._given.set()

    def close(self, *, timeout_s: float) -> bool:
        """Commit what was given last; False when that did not work in time."""
        done = self._idle.wait(timeout_s)
        self._closing.set()
        self._given.set()
        return done

    def _work(self) -> None:
        from kafka import KafkaConsumer, TopicPartition
        from kafka.errors import KafkaError
        from kafka.structs import OffsetAndMetadata

        consumer: KafkaConsumer | None = None
        while True:
            self._given.wait()
            if self._closing.is_set():
                return
            self._given.clear()
            newest = self._newest
            try:
                consumer = consumer or KafkaConsumer(
                    **self._brokers.client(), group_id=self._group, enable_auto_commit=False
                )
                named = {TopicPartition(*part): offset for part, offset in newest.items()}
                consumer.assign(list(named))
                consumer.commit({part: OffsetAndMetadata(offset, "", -1) for part, offset in named.items()})
            except (KafkaError, OSError, RuntimeError):  # the last: "Transport closed for writes"
                if consumer is not None:
                    with suppress(KafkaError, OSError, RuntimeError):  # whatever is left of it
                        consumer.close(autocommit=False, timeout_ms=CLOSE_MS)
                consumer = None
                self._given.set()
                self._closing.wait(PAUSE_S)
            else:
                if newest is self._newest:
                    self._idle.set()
