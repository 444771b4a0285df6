"""Offsets at the broker: those that the driver commits to the job's consumer group, and those of one topic.

Spark never commits to a consumer group. The wrapper does it after each finished batch (`GroupCommits`), in a
thread: a broker that is away must not hold up the batches, and only the newest offsets matter. `LogOffsets`
is for recording and replay, which have the broker's address alone: no group, no commit, no record.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from models.errors import Misconfigured, NotReady

from ..brokers import Brokers

REQUEST_MS = 5000  # judgement: an answer takes 1–5 ms


class LogOffsets:
    """The offsets of one topic, by partition."""

    def __init__(self, brokers: Brokers, *, topic: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._admin: Any = None

    def starts(self) -> dict[int, int]:
        """The first offset that retention has left."""
        from kafka.admin import OffsetSpec

        return self._list(OffsetSpec.EARLIEST)

    def ends(self) -> dict[int, int]:
        """The offset that the next record will get."""
        from kafka.admin import OffsetSpec

        return self._list(OffsetSpec.LATEST)

    def at(self, at_s: float) -> dict[int, int]:
        """The first offset whose timestamp is not before `at_s`; the end where there is none."""
        from kafka.admin import OffsetTimestamp

        ends = self.ends()
        found = self._list(OffsetTimestamp(max(0, math.ceil(at_s * 1000))))
        return {part: ends[part] if found.get(part, -1) < 0 else found[part] for part in ends}

    def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _list(self, which: Any) -> dict[int, int]:
        from kafka import KafkaAdminClient
        from kafka.errors import InvalidTopicError, KafkaError, UnknownTopicOrPartitionError, for_code
        from kafka.structs import TopicPartition

        try:
            if self._admin is None:
                self._admin = KafkaAdminClient(
                    **self._brokers.client(),
                    bootstrap_timeout_ms=REQUEST_MS,
                    request_timeout_ms=REQUEST_MS,
                )
            described = self._admin.describe_topics([self._topic])
            problem = described[0]["error_code"] if described else UnknownTopicOrPartitionError.errno
            if problem in (UnknownTopicOrPartitionError.errno, InvalidTopicError.errno):
                raise Misconfigured(f"topic {self._topic}", f"is not there on {self._brokers.bootstrap}")
            if problem:  # while a broker restarts, or without the right to read
                raise for_code(problem)(self._topic)
            parts = [
                TopicPartition(self._topic, one["partition_index"]) for one in described[0]["partitions"]
            ]
            found = self._admin.list_partition_offsets(dict.fromkeys(parts, which))
            return {part.partition: int(at.offset) for part, at in sorted(found.items())}
        except (KafkaError, OSError, RuntimeError) as error:
            try:
                self.close()
            except (KafkaError, OSError, RuntimeError):
                self._admin = None  # what is left of it
            raise NotReady(
                f"brokers.bootstrap: {self._brokers.bootstrap} does not answer ({error})"
            ) from error


PAUSE_S = 2.0  # judgement: between two attempts while the broker is away
CLOSE_MS = 1000  # judgement: it has nothing more to answer


class GroupCommits:
    """Commits the newest offsets it was given to one group."""

    def __init__(
        self, brokers: Brokers, *, group: str, say: Callable[[str], None] = lambda line: None
    ) -> None:
        """`say`: gets a line for a commit that failed, once for each reason."""
        self._brokers = brokers
        self._group = group
        self._say = say
        self._said = ""
        self._turn = threading.Condition()
        self._newest: dict[tuple[str, int], int] = {}
        self._committed = self._newest
        """The same object as `_newest` once that is committed."""
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="headroom-group", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def give(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Take offsets that are finished, to be committed. Returns at once."""
        if offsets:
            with self._turn:
                self._newest = dict(offsets)
                self._turn.notify_all()

    def close(self, *, timeout_s: float) -> bool:
        """Commit what was given last; False when that did not work in time."""
        with self._turn:
            done = self._turn.wait_for(lambda: self._committed is self._newest, timeout_s)
            self._closed = True
            self._turn.notify_all()
        return done

    def _work(self) -> None:
        from kafka import KafkaConsumer, TopicPartition
        from kafka.structs import OffsetAndMetadata

        consumer: KafkaConsumer | None = None
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._closed or self._committed is not self._newest)
                if self._closed:
                    return
                newest = self._newest
            try:
                consumer = consumer or KafkaConsumer(
                    **self._brokers.client(), group_id=self._group, enable_auto_commit=False
                )
                named = {TopicPartition(*part): offset for part, offset in newest.items()}
                consumer.assign(list(named))
                consumer.commit({part: OffsetAndMetadata(offset, "", -1) for part, offset in named.items()})
            except Exception as error:  # noqa: BLE001 - a group that stands still looks like a lag
                self._tell(f"{type(error).__name__}: {error}")
                if consumer is not None:
                    with suppress(Exception):  # what is left of it
                        consumer.close(autocommit=False, timeout_ms=CLOSE_MS)
                consumer = None
                with self._turn:
                    self._turn.wait_for(lambda: self._closed, PAUSE_S)
            else:
                with self._turn:
                    self._committed = newest
                    self._turn.notify_all()

    def _tell(self, why: str) -> None:
        if why != self._said:
            self._said = why
            self._say(f"offsets were not committed to the group {self._group}, which is tried again ({why})")
