"""The `Broker` port on Kafka, whether it is ours or not.

The `Broker` port on kafka-python's admin client. Threads take turns. A call is tried again while the brokers
say that it is a matter of moments (a coordinator that still loads, a leader that is being elected) or say
nothing; after `patience_s` that is NotReady. A connection that has failed is given up: the next call makes a
new one instead of waiting for the back-off of the old one.

Asking never creates a topic, also where brokers create them on their own. New partitions are seen within a
second.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar, cast

from models.arguments import number, whole
from models.errors import BrokerSilent, Misconfigured, NotReady, Unsafe
from models.ports import Offsets
from profiling_jobs.brokers import Brokers

PATIENCE_S = 10.0  # judgement: an answer takes 1–5 ms; a restarted broker is back within 5–10 s
REQUEST_S = 4.0  # judgement: one request, so that a second one fits into our patience
AGAIN_S = 0.1
SEGMENT_BYTES = 64 * 2**20  # judgement: only whole segments are deleted; some brokers refuse less than 50 MB
KNOWN_S = 1.0  # judgement: so long a topic's partitions are believed; one sample asks for them three times
CONNECT = ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms")
Answer = TypeVar("Answer")
Method = TypeVar("Method", bound=Callable[..., Any])


def _refusals_are_ours(method: Method) -> Method:
    """Raise whatever else the brokers refuse as an error of ours: its callers know no others."""

    @wraps(method)
    def asked(broker: KafkaBroker, *details: Any, **more: Any) -> Any:
        from kafka.errors import KafkaError, UnknownError

        try:
            return method(broker, *details, **more)
        except KafkaError as error:
            said = f"brokers.bootstrap: {broker.brokers.bootstrap} answers {type(error).__name__} ({error})"
            if isinstance(error, UnknownError):  # as they call whatever went wrong on their side
                raise NotReady(f"{said}: see the log of the brokers, and try again") from error
            raise Unsafe(f"{said}: see what the brokers are set to allow") from error

    return cast("Method", asked)


class KafkaBroker:
    """Topics and offsets of real brokers. Safe from several threads."""

    def __init__(self, brokers: Brokers, *, patience_s: float = PATIENCE_S) -> None:
        self.brokers = brokers
        self._patience_s = patience_s
        self._turn = threading.Lock()
        self._admin: Any = None
        self._known: dict[str, tuple[float, int]] = {}
        """Topic -> when it was seen, and with how many partitions."""
        self._connected_by = 0

    def close(self) -> None:
        with self._turn:
            self._give_up()

    def __enter__(self) -> KafkaBroker:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # ---------------------------------------------------------------- topics

    @_refusals_are_ours
    def topics(self) -> Mapping[str, int]:
        found = self._ask(lambda admin: admin.describe_topics())
        return {
            topic["name"]: len(topic["partitions"])
            for topic in found
            if not topic["is_internal"] and not topic["error_code"]
        }

    @_refusals_are_ours
    def create(self, topic: str, *, partitions: int, kept_s: float | None = None) -> None:
        from kafka.errors import (
            InvalidConfigurationError,
            InvalidTopicError,
            PolicyViolationError,
            TopicAlreadyExistsError,
        )

        # -1: as many replicas as the brokers think right.
        wanted = {"num_partitions": whole("partitions", partitions), "replication_factor": -1}
        shorter = {} if kept_s is None else {"configs": _kept_for(number("kept_s", kept_s, above=0.0))}
        try:
            try:
                self._ask(lambda admin: admin.create_topics({topic: wanted | shorter}))
            except (InvalidConfigurationError, PolicyViolationError):
                if not shorter:
                    raise
                # Managed brokers may reserve these settings: their own values will do.
                self._ask(lambda admin: admin.create_topics({topic: wanted}))
            self._ask(lambda admin: admin.wait_for_topics([topic], timeout_ms=REQUEST_S * 1000))
        except TopicAlreadyExistsError:
            there = self.topics().get(topic)
            if there != partitions:
                raise Unsafe(
                    f"the topic {topic} is there with {there} partitions, not {partitions}: use it as it is, "
                    "or choose another name"
                ) from None
        except InvalidTopicError as error:
            raise Misconfigured("topic", f"'{topic}' is no name for a topic") from error

    @_refusals_are_ours
    def delete(self, topic: str) -> None:
        from kafka.errors import InvalidTopicError, UnknownTopicOrPartitionError

        self._known.pop(topic, None)
        with suppress(UnknownTopicOrPartitionError, InvalidTopicError):
            self._ask(lambda admin: admin.delete_topics([topic]))
        until = time.monotonic() + self._patience_s
        while topic in self.topics():
            if time.monotonic() > until:
                raise NotReady(f"the topic {topic} is still there after {self._patience_s:.0f} s: try again")
            time.sleep(AGAIN_S)

    # --------------------------------------------------------------- offsets

    @_refusals_are_ours
    def starts(self, topics: Sequence[str]) -> Offsets:
        from kafka.admin import OffsetSpec

        return self._list(topics, OffsetSpec.EARLIEST)

    @_refusals_are_ours
    def ends(self, topics: Sequence[str]) -> Offsets:
        from kafka.admin import OffsetSpec

        return self._list(topics, OffsetSpec.LATEST)

    @_refusals_are_ours
    def offsets_at(self, topic: str, at_s: float) -> Offsets:
        from kafka.admin import OffsetSpec, OffsetTimestamp

        # Timestamps are whole milliseconds; negative ones would mean something else to the broker.
        at_ms = max(0, math.ceil(number("at_s", at_s) * 1000.0))
        found = self._list([topic], OffsetTimestamp(at_ms))
        if any(offset < 0 for offset in found.values()):  # nothing so late
            ends = self._list([topic], OffsetSpec.LATEST)
            return {part: offset if offset >= 0 else ends[part] for part, offset in found.items()}
        return found

    @_refusals_are_ours
    def committed(self, group: str, topics: Sequence[str]) -> Offsets:
        from kafka.errors import GroupIdNotFoundError, InvalidGroupIdError

        parts = self._partitions(topics)
        if not parts:
            return {}
        try:
            found = self._ask(lambda admin: admin.list_group_offsets({group: parts}))[group]
        except GroupIdNotFoundError:
            return {}
        except InvalidGroupIdError as error:
            raise Misconfigured("group", f"'{group}' is no name for a consumer group") from error
        return {(part.topic, part.partition): kept.offset for part, kept in found.items() if kept.offset >= 0}

    @_refusals_are_ours
    def commit(self, group: str, offsets: Offsets) -> None:
        from kafka.errors import InvalidGroupIdError
        from kafka.structs import OffsetAndMetadata, TopicPartition

        kept = {
            TopicPartition(*part): OffsetAndMetadata(whole(f"offsets[{part}]", offset, at_least=0), "", -1)
            for part, offset in offsets.items()
        }
        there = self._partitions(sorted({topic for topic, _ in offsets}))
        for part in kept:
            if part not in there:
                raise Misconfigured("topic", f"{part.topic} has no partition {part.partition}")
        if not kept:
            return
        try:
            answers = self._ask(lambda admin: _accepted(admin.alter_group_offsets(group, kept)))
        except InvalidGroupIdError as error:
            raise Misconfigured("group", f"'{group}' is no name for a consumer group") from error
        failed = {error for error in answers.values() if error.errno}
        if failed:
            names = ", ".join(sorted(error.__name__ for error in failed))
            raise Unsafe(
                f"the consumer group {group} took no offsets ({names}): another client is a member of it; "
                "give this job another group"
            )

    # ------------------------------------------------------------ connection

    def _partitions(self, topics: Sequence[str]) -> list[Any]:
        """All partitions of the topics; one that is not there is named."""
        from kafka.structs import TopicPartition

        now, wanted = time.monotonic(), list(dict.fromkeys(topics))
        known = {topic: count for topic, (at, count) in list(self._known.items()) if now - at < KNOWN_S}
        absent = [topic for topic in wanted if topic not in known]
        if absent:
            found = self._ask(lambda admin: _described(admin, absent))
            for topic in absent:
                if topic not in found:
                    raise self._unknown(topic)
            self._known.update({topic: (now, count) for topic, count in found.items()})
            known.update(found)
        return [TopicPartition(topic, part) for topic in wanted for part in range(known[topic])]

    def _list(self, topics: Sequence[str], which: Any) -> Offsets:
        from kafka.errors import UnknownTopicOrPartitionError

        for last_try in (False, True):
            wanted = dict.fromkeys(self._partitions(topics), which)
            try:
                found = self._ask(_offsets, wanted) if wanted else {}
                return {(part.topic, part.partition): at.offset for part, at in sorted(found.items())}
            except UnknownTopicOrPartitionError as error:  # deleted a moment ago, perhaps made again
                self._known.clear()
                if last_try:
                    raise self._unknown(", ".join(topics)) from error
        raise AssertionError("the second try returns or raises")

    def _unknown(self, topic: str) -> Misconfigured:
        return Misconfigured(
            f"topic {topic}", f"is not there on {self.brokers.bootstrap}: create it, or correct the name"
        )

    def _ask(self, question: Callable[..., Answer], *details: Any) -> Answer:
        """Ask, and again while it is a matter of moments. What the brokers refuse is for the caller."""
        from kafka.errors import (
            AuthorizationError,
            BrokerResponseError,
            RequestTimedOutError,
            RetriableError,
            SaslAuthenticationFailedError,
            UnknownBrokerIdError,
            UnknownTopicOrPartitionError,
        )

        until = time.monotonic() + self._patience_s
        if not self._turn.acquire(timeout=self._patience_s):
            raise BrokerSilent(f"brokers.bootstrap: {self.brokers.bootstrap} keeps another question waiting")
        try:
            while True:
                try:
                    return question(self._connected(until), *details)
                except UnknownTopicOrPartitionError:
                    raise
                except (SaslAuthenticationFailedError, AuthorizationError) as error:
                    self._give_up()
                    raise Misconfigured(
                        "brokers.username_from", f"{self.brokers.bootstrap} refuses us ({error})"
                    ) from error
                except (RetriableError, UnknownBrokerIdError, OSError, RuntimeError) as error:
                    # An unknown broker: a partition has no leader until the brokers have found one again.
                    if not isinstance(error, BrokerResponseError) or isinstance(error, RequestTimedOutError):
                        self._give_up()
                    if time.monotonic() + AGAIN_S > until:
                        raise self._silent(error) from error
                    time.sleep(AGAIN_S)
        finally:
            self._turn.release()

    def _connected(self, until: float) -> Any:
        if self._admin is not None and self._connected_by != os.getpid():
            self._admin = None  # its thread stayed behind in the process that we were forked from
        if self._admin is None:
            from kafka import KafkaAdminClient
            from kafka.net.compat import KafkaNetClient

            networks: list[Any] = []
            request_ms = int(1000 * min(REQUEST_S, self._patience_s))

            def network(**settings: Any) -> Any:
                # The admin client does not pass on how long it may take to connect (10 s).
                connect = dict.fromkeys(CONNECT, request_ms)
                networks.append(KafkaNetClient(**{**settings, **connect}))
                return networks[-1]

            try:
                self._admin = KafkaAdminClient(
                    **self.brokers.client(),
                    kafka_client=network,
                    bootstrap_timeout_ms=max(100, int(1000 * (until - time.monotonic()))),
                    request_timeout_ms=request_ms,
                )
            except BaseException:
                for one in networks:  # its thread would run for ever
                    one.close()
                    one._net.stop(timeout_ms=1000)
                raise
            self._connected_by = os.getpid()
        return self._admin

    def _give_up(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None and self._connected_by == os.getpid():
            with suppress(OSError, RuntimeError):  # whatever is left of it
                admin.close()

    def _silent(self, error: Exception) -> BrokerSilent:
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        return BrokerSilent(
            f"brokers.bootstrap: {self.brokers.bootstrap} does not answer within {self._patience_s:.0f} s "
            f"({what}): is it running, and reachable with this security_protocol?"
        )


def _kept_for(seconds: float) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",  # the brokers may compact by default, and would delete nothing then
        "retention.ms": f"{1000.0 * seconds:.0f}",
        "segment.bytes": str(SEGMENT_BYTES),
    }


def _described(admin: Any, topics: Sequence[str]) -> dict[str, int]:
    """The partitions of the topics that are there, or the error that says: in a moment."""
    from kafka.errors import InvalidTopicError, UnknownTopicOrPartitionError, for_code

    found = {}
    for topic in admin.describe_topics(list(topics)):
        if not topic["error_code"]:
            found[topic["name"]] = len(topic["partitions"])
        elif (error := for_code(topic["error_code"])) not in (
            UnknownTopicOrPartitionError,
            InvalidTopicError,
        ):
            raise error(topic["name"])
    return found


def _offsets(admin: Any, wanted: dict[Any, Any]) -> dict[Any, Any]:
    found: dict[Any, Any] = admin.list_partition_offsets(wanted)
    return found


def _accepted(answers: dict[Any, Any]) -> dict[Any, Any]:
    """The answers, or the first that says: in a moment."""
    from kafka.errors import RetriableError

    for error in answers.values():
        if issubclass(error, RetriableError):
            raise error()
    return answers
