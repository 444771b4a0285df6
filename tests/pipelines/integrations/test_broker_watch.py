"""Our own Kafka is started again where it has died, unless somebody restarts it. The broker is a stub."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from models.errors import NotReady
from pipelines.environments.local.broker_watch import BrokerWatch
from profiling_jobs.brokers import Brokers


class Broker:
    """One that dies when it is told to."""

    log = Path("logs/kafka.log")

    def __init__(self) -> None:
        self.process: object | None = object()
        self.starts: list[bool] = []
        self.problem: Exception | None = None

    def start(self, *, keep_ports: bool) -> Brokers:
        self.starts.append(keep_ports)
        if self.problem is not None:
            raise self.problem
        self.process = object()
        return Brokers("127.0.0.1:9")


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def restarting() -> threading.Lock:
    return threading.Lock()


@pytest.fixture
def watch(broker: Broker, said: list[str], restarting: threading.Lock) -> BrokerWatch:
    return BrokerWatch(broker, restarting=restarting, say=said.append)  # type: ignore[arg-type]


def test_one_that_runs_is_left_alone(watch: BrokerWatch, broker: Broker, said: list[str]) -> None:
    watch.look()
    assert (broker.starts, said) == ([], [])


def test_one_that_has_died_is_started_again_on_its_ports(
    watch: BrokerWatch, broker: Broker, said: list[str]
) -> None:
    for _ in range(2):
        broker.process = None
        watch.look()
        watch.look()
    assert broker.starts == [True, True]
    assert said == 2 * [
        "Kafka has ended (see logs/kafka.log): it is started again",
        "Kafka runs again on 127.0.0.1:9",
    ]


def test_one_that_is_being_restarted_is_left_to_whoever_does_that(
    watch: BrokerWatch, broker: Broker, said: list[str], restarting: threading.Lock
) -> None:
    broker.process = None
    with restarting:
        watch.look()
    assert (broker.starts, said) == ([], [])
    watch.look()
    assert broker.starts == [True]


@pytest.mark.parametrize("problem", [NotReady("somebody else listens on its ports"), OSError("disk full")])
def test_what_goes_wrong_is_said_once_and_tried_again(
    watch: BrokerWatch, broker: Broker, said: list[str], restarting: threading.Lock, problem: Exception
) -> None:
    broker.process, broker.problem = None, problem
    for _ in range(3):
        watch.look()
    assert not restarting.locked()
    assert len(broker.starts) == 3
    assert said[1:] == [f"Kafka could not be started, which is tried again: {problem}"]
    broker.problem = None
    watch.look()
    assert said[-1] == "Kafka runs again on 127.0.0.1:9"


def test_what_cannot_be_said_does_not_end_the_watch(broker: Broker, restarting: threading.Lock) -> None:
    def gone(line: str) -> None:
        raise BrokenPipeError

    broker.process = None
    BrokerWatch(broker, restarting=restarting, say=gone).look()  # type: ignore[arg-type]
    assert broker.process is not None
