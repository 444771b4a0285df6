"""The orders of the enrichment job in its topics, to count what was lost and what was written twice."""

from __future__ import annotations

import json
import time
from collections import Counter

from pipelines.integrations.kafka_broker import KafkaBroker

PATIENCE_S = 600.0


def orders(broker: KafkaBroker, topic: str) -> Counter[str]:
    """How often each order is in a topic now."""
    from kafka import KafkaConsumer, TopicPartition

    ends = broker.ends([topic])
    found: Counter[str] = Counter()
    with KafkaConsumer(
        **broker.brokers.client(), auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        parts = [TopicPartition(*part) for part in ends]
        consumer.assign(parts)
        left = {TopicPartition(*part) for part, end in ends.items() if end > 0}
        until = time.monotonic() + PATIENCE_S
        while left:
            assert time.monotonic() < until, f"{topic} could not be read"
            for records in consumer.poll(timeout_ms=1000, max_records=5000).values():
                found.update(json.loads(record.value)["order"] for record in records)
            left = {part for part in left if consumer.position(part) < ends[(part.topic, part.partition)]}
    return found
