"""Our own Kafka is started again where it has died, unless somebody restarts it. The broker is a stub."""

import threading
from pathlib import Path

import pytest

from models.errors import NotReady
from pipelines.environments.local.broker_watch import BrokerWatch
from profiling_jobs.brokers import Brokers

ENDED, RUNS = "Kafka has ended (see logs/kafka.log): it is started again", "Kafka runs again on 127.0.0.1:9"


class Broker:
    """One that dies when it is told to, and the watch over it."""

    log = Path("logs/kafka.log")

    def __init__(self):
        self.process, self.problem, self.unseen = object(), None, None
        self.starts, self.said, self.restarting = [], [], threading.Lock()
        self.watch = BrokerWatch(self, restarting=self.restarting, say=self.said.append)

    @property
    def process(self):
        if self.unseen is not None:
            raise self.unseen
        return self._process

    @process.setter
    def process(self, process):
        self._process = process

    def start(self, *, keep_ports):
        self.starts.append(keep_ports)
        if self.problem is not None:
            raise self.problem
        self.process = object()
        return Brokers("127.0.0.1:9")


@pytest.fixture
def broker():
    return Broker()


def test_one_that_has_died_is_started_again_on_its_ports(broker):
    for _ in range(2):
        broker.process = None
        broker.watch.look()
        broker.watch.look()
    assert broker.starts == [True, True]
    assert broker.said == [ENDED, RUNS] * 2


def test_one_that_is_being_restarted_is_left_to_whoever_does_that(broker):
    broker.process = None
    with broker.restarting:
        broker.watch.look()
    assert (broker.starts, broker.said) == ([], [])
    broker.watch.look()
    assert broker.starts == [True]


@pytest.mark.parametrize(
    "problem",
    [
        NotReady("somebody else listens on its ports"),
        OSError("disk full"),
        RuntimeError("can't start new thread"),
    ],
)
def test_what_goes_wrong_is_said_once_and_tried_again(broker, problem):
    broker.process, broker.problem = None, problem
    for _ in range(3):
        broker.watch.look()
    assert not broker.restarting.locked()
    assert len(broker.starts) == 3
    assert broker.said[1:] == [f"Kafka could not be started, which is tried again: {problem}"]
    broker.problem = None
    broker.watch.look()
    assert broker.said[-1] == RUNS


def test_processes_that_cannot_be_seen_for_a_moment_do_not_end_the_watch(broker):
    broker.process, broker.unseen = None, NotReady("Too many open files")
    broker.watch.look()
    assert broker.starts == []
    broker.unseen = None
    broker.watch.look()
    assert broker.starts == [True]


def test_what_cannot_be_said_does_not_end_the_watch(broker):
    def gone(line):
        raise BrokenPipeError

    broker.process = None
    BrokerWatch(broker, restarting=broker.restarting, say=gone).look()
    assert broker.process is not None
