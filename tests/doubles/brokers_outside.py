"""What happens to a broker from outside: records arrive and expire, time passes."""

from __future__ import annotations

import time
from collections.abc import Mapping

from waiting import until

from models.ports import Broker
from models.simulation.cluster import Cluster
from profiling_jobs.brokers import Brokers

PRODUCED_S = 30.0
READ_S = 60.0


class TwinOutside:
    """Everything is computed; time is stepped."""

    cluster: Cluster

    def now_s(self) -> float:
        return self.cluster.now_s

    def pass_time(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    def produce(self, topic: str, counts: Mapping[int, int]) -> None:
        """Partition -> so many records, there when it returns."""
        self.cluster.topics.produce(topic, counts, at_s=self.now_s())

    def expire(self, topic: str, before: Mapping[int, int]) -> None:
        self.cluster.topics.expire(topic, before, at_s=self.now_s())

    def grow(self, topic: str, partitions: int) -> None:
        self.cluster.topics.grow(topic, partitions, at_s=self.now_s())


class KafkaOutside:
    """Real brokers and real time."""

    brokers: Brokers
    broker: Broker

    def now_s(self) -> float:
        return time.time()

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    def produce(self, topic: str, counts: Mapping[int, int]) -> None:
        from kafka import KafkaProducer

        with KafkaProducer(**self.brokers.client()) as producer:  # one that knows all partitions
            sent = [producer.send(topic, b"x", partition=p) for p, n in counts.items() for _ in range(n)]
            for one in sent:
                one.get(timeout=PRODUCED_S)

    def expire(self, topic: str, before: Mapping[int, int]) -> None:
        from kafka import KafkaAdminClient, TopicPartition

        with KafkaAdminClient(**self.brokers.client()) as admin:
            admin.delete_records({TopicPartition(topic, part): offset for part, offset in before.items()})

    def grow(self, topic: str, partitions: int) -> None:
        from kafka import KafkaAdminClient

        with KafkaAdminClient(**self.brokers.client()) as admin:
            admin.create_partitions({topic: partitions})
        until(lambda: len(self.broker.ends([topic])) == partitions)


def values(brokers: Brokers, topic: str) -> list[bytes]:
    """The value of every record that is in a topic now."""
    from kafka import KafkaConsumer, TopicPartition

    with KafkaConsumer(
        **brokers.client(), auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        parts = [TopicPartition(topic, part) for part in consumer.partitions_for_topic(topic)]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        found: list[bytes] = []
        limit_s = time.monotonic() + READ_S
        while any(consumer.position(part) < ends[part] for part in parts):
            assert time.monotonic() < limit_s, "the records did not come"
            found += [record.value for records in consumer.poll(500).values() for record in records]
        return found
