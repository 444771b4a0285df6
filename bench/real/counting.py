"""Counts of the records that came out, and of those that came out twice.

Every order of `enrichment` has a number. A source that sends its events more than once asks for an order more
than once, so orders are counted, not collected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.environments.base import Environment
from profiling_jobs.driver.batch_files import read_batches

SILENT_S = 60.0  # judgement: a broker of this machine answers within a second
NUMBER = b'"order": "'


@dataclass(frozen=True)
class Counted:
    """What was asked, what was answered, and the difference."""

    asked: int
    answered: int
    lost: int
    twice: int
    unasked: int

    @classmethod
    def of(cls, asked: Counter[bytes], answered: Counter[bytes]) -> Counted:
        return cls(
            asked=asked.total(),
            answered=answered.total(),
            lost=(asked - answered).total(),
            twice=sum(count - asked[order] for order, count in answered.items() if 0 < asked[order] < count),
            unasked=sum(count for order, count in answered.items() if order not in asked),
        )


def in_topics(here: Environment, asked: str, answered: str) -> Counted:
    """Between two topics; of the twin, whose records have no content, only how many there are."""
    if here.kind == "simulated":
        came, went = (sum(here.broker.ends([topic]).values()) for topic in (asked, answered))
        return Counted(came, went, lost=max(0, came - went), twice=max(0, went - came), unasked=0)
    return Counted.of(Counter(_orders(here, asked)), Counter(_orders(here, answered)))


def in_files(here: Environment, asked: str, folder: Path) -> Counted:
    """Between a topic and the folder that batches were written to."""
    found: Counter[bytes] = Counter()
    for _, batch in read_batches(folder):
        found.update(_order(value) for value in batch.column("value").to_pylist())
    return Counted.of(Counter(_orders(here, asked)), found)


def _order(value: bytes) -> bytes:
    begin = value.index(NUMBER) + len(NUMBER)
    return value[begin : value.index(b'"', begin)]


def _orders(here: Environment, topic: str) -> Iterator[bytes]:
    """All records of a topic, as they are now."""
    from kafka import KafkaConsumer, TopicPartition

    from pipelines.integrations.kafka_broker import KafkaBroker

    assert isinstance(here.broker, KafkaBroker)
    ends = {TopicPartition(*part): end for part, end in here.broker.ends([topic]).items() if end > 0}
    settings = here.broker.brokers.client()
    with KafkaConsumer(**settings, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign(list(ends))
        left, silent_s = set(ends), 0.0
        while left:
            polled = consumer.poll(timeout_ms=1000, max_records=5000)
            silent_s = 0.0 if polled else silent_s + 1.0
            if silent_s > SILENT_S:
                raise SystemExit(f"{topic} could not be read to its end")
            for records in polled.values():
                for record in records:
                    yield _order(record.value)
            left = {part for part in left if consumer.position(part) < ends[part]}
