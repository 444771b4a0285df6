"""What every broker promises: the computed one and a real Kafka say the same."""

from __future__ import annotations

import itertools
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from brokers_outside import KafkaOutside, TwinOutside

from models.errors import Misconfigured, NotReady, Unsafe
from models.ports import Broker
from models.quantities import Misuse
from models.simulation.cluster import Cluster
from pipelines.integrations.embedded_kafka import EmbeddedBroker
from pipelines.integrations.kafka_broker import KafkaBroker

names = (f"contract-{number}" for number in itertools.count())


def patient(question: Callable[[], Any]) -> Any:
    """What it answers, once it does: a busy machine is not ready for a while."""
    until = time.monotonic() + 60.0
    while True:
        try:
            return question()
        except NotReady:
            assert time.monotonic() < until
            time.sleep(0.1)


class TwinBench(TwinOutside):
    def __init__(self) -> None:
        self.cluster = Cluster(now_s=1.7e9)
        self.broker = self.cluster.topics

    def restart(self) -> None:
        with self.silence():
            self.pass_time(1.0)

    @contextmanager
    def silence(self) -> Iterator[Broker]:
        self.cluster.topics.leave(at_s=self.now_s())
        try:
            yield self.broker
        finally:
            self.cluster.topics.come_back(at_s=self.now_s())

    def close(self) -> None: ...


class KafkaBench(KafkaOutside):
    def __init__(self, embedded: EmbeddedBroker) -> None:
        self._embedded, self.brokers = embedded, embedded.brokers
        self.broker = KafkaBroker(embedded.brokers, patience_s=30.0)

    def restart(self) -> None:
        self._embedded.stop(kill=True)
        self._embedded.start(keep_ports=True)

    @contextmanager
    def silence(self) -> Iterator[Broker]:
        process = self._embedded.process
        assert process is not None
        with KafkaBroker(self._embedded.brokers, patience_s=1.0) as impatient:
            patient(impatient.topics)  # it connects, on a machine that may be busy
            process.signal(signal.SIGSTOP)
            try:
                for thread in Path(f"/proc/{process.pid}/task").glob("*/stat"):
                    with suppress(OSError):  # each of them stops when it is its turn, or has ended
                        while thread.read_text().rpartition(")")[2].split()[0] != "T":
                            time.sleep(0.01)
                yield impatient
            finally:
                process.signal(signal.SIGCONT)

    def close(self) -> None:
        self.broker.close()


Bench = TwinBench | KafkaBench


@pytest.fixture(params=["twin", pytest.param("kafka", marks=pytest.mark.real)])
def bench(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "twin":
        yield TwinBench()
        return
    bench = KafkaBench(request.getfixturevalue("real_broker"))
    try:
        yield bench
    finally:
        bench.close()


@pytest.fixture
def topic(bench: Bench) -> str:
    """A new topic with three partitions."""
    name = next(names)
    bench.broker.create(name, partitions=3)
    return name


class TestTopics:
    def test_a_topic_is_there_once_it_is_created_and_gone_once_it_is_deleted(self, bench: Bench) -> None:
        name = next(names)
        assert name not in bench.broker.topics()
        bench.broker.create(name, partitions=3)
        assert bench.broker.topics()[name] == 3
        assert bench.broker.ends([name]) == {(name, part): 0 for part in range(3)}
        bench.broker.delete(name)
        assert name not in bench.broker.topics()
        bench.broker.delete(name)

    def test_creating_it_again_is_fine_only_with_the_same_partitions(self, bench: Bench, topic: str) -> None:
        bench.broker.create(topic, partitions=3)
        with pytest.raises(Unsafe, match=rf"{topic} .* 3 partitions, not 4"):
            bench.broker.create(topic, partitions=4)
        assert bench.broker.topics()[topic] == 3

    def test_one_that_may_forget_old_records_has_the_young_ones(self, bench: Bench) -> None:
        name = next(names)
        for kept_s in (3600.0, 60.0, None):
            bench.broker.create(name, partitions=1, kept_s=kept_s)
        bench.produce(name, {0: 3})
        assert bench.broker.starts([name]) == {(name, 0): 0}
        assert bench.broker.ends([name]) == {(name, 0): 3}
        with pytest.raises(Misuse, match="kept_s"):
            bench.broker.create(next(names), partitions=1, kept_s=0.0)

    def test_a_topic_that_is_made_again_begins_anew(self, bench: Bench, topic: str) -> None:
        bench.produce(topic, {0: 3})
        bench.broker.commit("headroom.orders", {(topic, 0): 3})
        bench.broker.delete(topic)
        bench.broker.create(topic, partitions=2)
        assert bench.broker.ends([topic]) == {(topic, 0): 0, (topic, 1): 0}

    @pytest.mark.parametrize("name", ["", ".", "sla/sh", "sp ace", "x" * 250])
    def test_a_name_that_cannot_be_is_misconfigured(self, bench: Bench, name: str) -> None:
        with pytest.raises(Misconfigured, match="no name for a topic"):
            bench.broker.create(name, partitions=1)

    def test_no_partitions_is_misuse(self, bench: Bench) -> None:
        with pytest.raises(Misuse, match="partitions"):
            bench.broker.create(next(names), partitions=0)

    def test_what_the_broker_keeps_for_itself_is_not_shown(self, bench: Bench, topic: str) -> None:
        bench.broker.commit("headroom.orders", {(topic, 0): 0})
        assert [name for name in bench.broker.topics() if name.startswith("__")] == []


class TestOffsets:
    def test_ends_count_what_was_produced_also_where_nothing_was(self, bench: Bench, topic: str) -> None:
        bench.produce(topic, {0: 5, 2: 2})
        assert bench.broker.ends([topic]) == {(topic, 0): 5, (topic, 1): 0, (topic, 2): 2}
        assert bench.broker.starts([topic]) == {(topic, 0): 0, (topic, 1): 0, (topic, 2): 0}

    def test_several_topics_are_asked_at_once(self, bench: Bench, topic: str) -> None:
        other = next(names)
        bench.broker.create(other, partitions=1)
        bench.produce(other, {0: 4})
        assert bench.broker.ends([topic, other, other]) == {
            (other, 0): 4,
            **{(topic, part): 0 for part in range(3)},
        }
        assert bench.broker.ends([]) == {}
        assert bench.broker.starts([]) == {}

    def test_retention_moves_the_start_and_leaves_the_end(self, bench: Bench, topic: str) -> None:
        bench.produce(topic, {0: 5, 1: 5})
        bench.expire(topic, {0: 3, 1: 5})
        assert bench.broker.starts([topic]) == {(topic, 0): 3, (topic, 1): 5, (topic, 2): 0}
        assert bench.broker.ends([topic]) == {(topic, 0): 5, (topic, 1): 5, (topic, 2): 0}

    def test_new_partitions_are_seen_within_moments(self, bench: Bench, topic: str) -> None:
        bench.produce(topic, {0: 5})
        assert len(bench.broker.ends([topic])) == 3
        bench.grow(topic, 5)
        bench.pass_time(1.1)
        assert bench.broker.topics()[topic] == 5
        bench.produce(topic, {4: 1})
        assert bench.broker.ends([topic]) == {
            **{(topic, 0): 5, (topic, 1): 0, (topic, 2): 0},
            **{(topic, 3): 0, (topic, 4): 1},
        }
        assert bench.broker.starts([topic])[topic, 4] == 0

    @pytest.mark.parametrize("question", ["starts", "ends"])
    def test_a_topic_that_is_not_there_is_named(self, bench: Bench, topic: str, question: str) -> None:
        with pytest.raises(Misconfigured, match=r"nowhere.*create it, or correct the name"):
            getattr(bench.broker, question)([topic, "nowhere"])
        assert "nowhere" not in bench.broker.topics()

    def test_asking_for_its_times_and_commits_does_not_create_it_either(self, bench: Bench) -> None:
        with pytest.raises(Misconfigured, match="nowhere"):
            bench.broker.offsets_at("nowhere", bench.now_s())
        with pytest.raises(Misconfigured, match="nowhere"):
            bench.broker.committed("headroom.orders", ["nowhere"])
        with pytest.raises(Misconfigured, match="nowhere"):
            bench.broker.commit("headroom.orders", {("nowhere", 0): 1})
        assert "nowhere" not in bench.broker.topics()


class TestTimes:
    def test_the_first_offset_that_is_not_older(self, bench: Bench, topic: str) -> None:
        bench.produce(topic, {0: 2, 1: 1})
        bench.pass_time(0.05)
        between = bench.now_s()
        bench.pass_time(0.05)
        bench.produce(topic, {0: 3})
        bench.pass_time(0.05)
        assert bench.broker.offsets_at(topic, between) == {(topic, 0): 2, (topic, 1): 1, (topic, 2): 0}

    def test_long_ago_is_the_first_one_that_is_left(self, bench: Bench, topic: str) -> None:
        bench.produce(topic, {0: 5, 1: 2})
        bench.expire(topic, {0: 3})
        for at_s in (-5.0, 0.0, bench.now_s() - 3600.0):
            assert bench.broker.offsets_at(topic, at_s) == {(topic, 0): 3, (topic, 1): 0, (topic, 2): 0}

    def test_where_there_is_none_it_is_the_end(self, bench: Bench, topic: str) -> None:
        bench.produce(topic, {0: 5})
        assert bench.broker.offsets_at(topic, bench.now_s() + 60.0) == bench.broker.ends([topic])

    def test_a_time_that_is_none_is_misuse(self, bench: Bench, topic: str) -> None:
        with pytest.raises(Misuse, match="at_s"):
            bench.broker.offsets_at(topic, math.nan)


class TestGroups:
    def test_only_what_was_committed(self, bench: Bench, topic: str) -> None:
        group = f"headroom.{topic}"
        assert bench.broker.committed(group, [topic]) == {}
        bench.broker.commit(group, {(topic, 0): 7, (topic, 2): 0})
        assert bench.broker.committed(group, [topic]) == {(topic, 0): 7, (topic, 2): 0}
        bench.broker.commit(group, {(topic, 0): 4})  # also back
        assert bench.broker.committed(group, [topic]) == {(topic, 0): 4, (topic, 2): 0}
        assert bench.broker.committed(f"{group}.other", [topic]) == {}

    def test_only_for_the_topics_that_were_asked_for(self, bench: Bench, topic: str) -> None:
        other = next(names)
        bench.broker.create(other, partitions=1)
        bench.broker.commit(f"headroom.{topic}", {(topic, 0): 7, (other, 0): 3})
        assert bench.broker.committed(f"headroom.{topic}", [other]) == {(other, 0): 3}
        assert bench.broker.committed(f"headroom.{topic}", []) == {}

    def test_it_survives_new_partitions(self, bench: Bench, topic: str) -> None:
        group = f"headroom.{topic}"
        bench.broker.commit(group, {(topic, 1): 7})
        bench.grow(topic, 4)
        bench.pass_time(1.1)
        bench.broker.commit(group, {(topic, 3): 2})
        assert bench.broker.committed(group, [topic]) == {(topic, 1): 7, (topic, 3): 2}

    @pytest.mark.parametrize(("part", "offset", "error"), [(3, 1, Misconfigured), (0, -1, Misuse)])
    def test_what_cannot_be_is_refused(
        self, bench: Bench, topic: str, part: int, offset: int, error: type[Exception]
    ) -> None:
        with pytest.raises(error, match=f"{topic}"):
            bench.broker.commit("headroom.orders", {(topic, part): offset})
        assert (topic, part) not in bench.broker.committed("headroom.orders", [topic])

    def test_committing_nothing_is_nothing(self, bench: Bench) -> None:
        bench.broker.commit("headroom.orders", {})


class TestTrouble:
    def test_silence_is_not_ready_and_then_it_goes_on(self, bench: Bench, topic: str) -> None:
        bench.produce(topic, {0: 5})
        with bench.silence() as impatient:
            for question in (
                lambda: impatient.topics(),
                lambda: impatient.ends([topic]),
                lambda: impatient.committed("headroom.orders", [topic]),
                lambda: impatient.commit("headroom.orders", {(topic, 0): 1}),
                lambda: impatient.create(next(names), partitions=1),
            ):
                with pytest.raises(NotReady, match=r"brokers\.bootstrap.*answer"):
                    question()
        assert patient(lambda: impatient.ends([topic]))[topic, 0] == 5
        assert bench.broker.ends([topic])[topic, 0] == 5

    def test_the_same_client_goes_on_after_a_restart_and_nothing_is_lost(
        self, bench: Bench, topic: str
    ) -> None:
        bench.produce(topic, {0: 5})
        bench.broker.commit(f"headroom.{topic}", {(topic, 0): 3})
        bench.restart()
        assert bench.broker.ends([topic])[topic, 0] == 5
        assert bench.broker.committed(f"headroom.{topic}", [topic]) == {(topic, 0): 3}
        bench.produce(topic, {0: 1})
        assert bench.broker.ends([topic])[topic, 0] == 6
