"""A client without brokers: it says so in time, and leaves nothing behind."""

import gc
import os
import socket
import threading
import time

import pytest
from waiting import together

from models.errors import BrokerSilent, Misconfigured, NotReady, Unsafe
from pipelines.integrations.kafka_broker import KafkaBroker
from profiling_jobs.brokers import Brokers


@pytest.fixture
def nobody():
    """An address where connections are accepted and nothing is ever said."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    gc.collect()  # while we do not mind


@pytest.fixture
def closed():
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"
    gc.collect()


@pytest.mark.parametrize("address", ["nobody", "closed"])
def test_silence_is_told_in_time_and_leaves_no_thread(request, address):
    bootstrap = request.getfixturevalue(address)
    before = threading.active_count()
    with KafkaBroker(Brokers(bootstrap), patience_s=0.4) as broker:
        for _ in range(3):
            begun = time.monotonic()
            with pytest.raises(NotReady, match=rf"{bootstrap} does not answer within 0.*is it running"):
                broker.ends(["orders"])
            assert time.monotonic() - begun < 10.0
        assert threading.active_count() <= before


def test_a_partition_that_has_no_leader_yet_is_asked_for_again(closed, monkeypatch):
    """As kafka-python says it just after the brokers have come back."""
    from kafka.errors import UnknownBrokerIdError

    answers = iter((UnknownBrokerIdError(-1), UnknownBrokerIdError(-1), 5))

    def question(admin):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with KafkaBroker(Brokers(closed), patience_s=5.0) as broker:
        monkeypatch.setattr(broker, "_connected", lambda until: None)
        assert broker._ask(question) == 5


def test_questions_about_nothing_need_no_brokers(closed):
    with KafkaBroker(Brokers(closed)) as broker:
        assert broker.starts([]) == broker.ends([]) == broker.committed("headroom.orders", []) == {}
        broker.commit("headroom.orders", {})


def test_a_secret_that_is_not_set_is_named(closed, monkeypatch):
    monkeypatch.delenv("KAFKA_USER", raising=False)
    secrets = {"username_from": "KAFKA_USER", "password_from": "KAFKA_PASSWORD"}
    brokers = Brokers(closed, "SASL_PLAINTEXT", "PLAIN", **secrets)
    with KafkaBroker(brokers) as broker, pytest.raises(Misconfigured, match=r"username_from.*KAFKA_USER"):
        broker.topics()


def test_a_second_thread_does_not_wait_longer_than_its_patience(nobody):
    told = []
    with KafkaBroker(Brokers(nobody), patience_s=0.5) as broker:

        def ask():
            begun = time.monotonic()
            with pytest.raises(NotReady):
                broker.topics()
            told.append(time.monotonic() - begun)

        together([ask] * 4)
    assert len(told) == 4
    assert max(told) < 10.0


def test_who_waits_in_vain_behind_another_question_has_met_a_silent_broker_too(closed):
    """Else the gap in a job's timeline is put down to the job."""
    broker = KafkaBroker(Brokers(closed), patience_s=0.1)
    with broker._turn, pytest.raises(BrokerSilent, match="keeps another question waiting"):
        broker.topics()


@pytest.mark.parametrize(
    ("name", "ask", "raised"),
    [
        ("UnknownError", lambda broker: broker.ends(["orders"]), NotReady),
        ("UnsupportedVersionError", lambda broker: broker.ends(["orders"]), Unsafe),
        ("TopicDeletionDisabledError", lambda broker: broker.delete("orders"), Unsafe),
    ],
)
def test_whatever_the_brokers_refuse_is_an_error_of_ours(closed, monkeypatch, name, ask, raised):
    """Any other would end the round of samples of every job."""
    import kafka.errors

    class Refuses:
        def __getattr__(self, question):
            raise getattr(kafka.errors, name)("not here")

    with KafkaBroker(Brokers(closed)) as broker:
        monkeypatch.setattr(broker, "_connected", lambda until: Refuses())
        with pytest.raises(raised, match=rf"brokers\.bootstrap: {closed} answers {name}"):
            ask(broker)


class Admin:
    """Brokers that take every topic, but perhaps no settings of it."""

    def __init__(self, *, refuses):
        self.refuses, self.made = refuses, []

    def create_topics(self, wanted):
        from kafka.errors import PolicyViolationError

        if self.refuses and any("configs" in one for one in wanted.values()):
            raise PolicyViolationError("segment.bytes is not yours to set")
        self.made.append(wanted)

    def wait_for_topics(self, topics, *, timeout_ms): ...
    def close(self): ...


@pytest.mark.parametrize("refuses", [False, True])
def test_only_what_may_forget_its_records_has_settings_of_its_own(refuses):
    plain = {"num_partitions": 3, "replication_factor": -1}
    with KafkaBroker(Brokers("h:1")) as broker:
        broker._admin, broker._connected_by = Admin(refuses=refuses), os.getpid()
        broker.create("live", partitions=3)
        broker.create("headroom.orders-p1.events", partitions=3, kept_s=1800.0)
        live, scratch = broker._admin.made
    assert live == {"live": plain}
    found = scratch["headroom.orders-p1.events"]
    assert found == plain | ({} if refuses else {"configs": found["configs"]})
    if not refuses:
        assert found["configs"]["retention.ms"] == "1800000"
        assert found["configs"]["cleanup.policy"] == "delete"
        assert int(found["configs"]["segment.bytes"]) < 2**28
