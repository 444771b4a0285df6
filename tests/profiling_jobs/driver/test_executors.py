"""Rescaling through the driver's own scheduler, on a cluster that is played."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from waiting import until

from models.errors import Misconfigured, NotReady
from profiling_jobs.driver import executors as driver_executors
from profiling_jobs.driver.executors import Executors


class Sequence(list[str]):
    def mkString(self, separator: str) -> str:
        return separator.join(self)

    def toSeq(self) -> Sequence:
        return self

    def add(self, item: str) -> None:
        self.append(item)


class Cluster:
    """As much of a SparkSession as is asked for; gives what is requested, up to its slots."""

    def __init__(self, *, slots: int, greedy: bool = True) -> None:
        self.slots = slots
        self.alive = [str(number) for number in range(slots)] if greedy else []
        self.number = slots
        self.total = slots
        self.calls: list[tuple[Any, ...]] = []
        self.sparkContext = self
        self.applicationId = "app-1"
        self._jsc = self._jvm = self
        self.java = self.util = self.scala = self.collection = self.immutable = self.jdk = self.javaapi = self
        self.CollectionConverters = self.org = self.apache = self.spark = self.scheduler = self
        self.busy = False
        """Executors do not leave while they have a task in hand."""
        self.answers = threading.Event()
        self.answers.set()

    def sc(self) -> Cluster:
        return self

    def schedulerBackend(self) -> Cluster:
        return self

    def getClass(self) -> Cluster:
        return self

    def getSimpleName(self) -> str:
        return "StandaloneSchedulerBackend"

    def asScala(self, collection: Any) -> Any:
        return collection

    def HashMap(self) -> dict[str, int]:
        return {}

    def ArrayList(self) -> Sequence:
        return Sequence()

    class Map:
        pass

    setattr(Map, "from", staticmethod(lambda value: value))

    def getExecutorIds(self) -> Sequence:
        assert self.answers.wait(60.0)
        # Registered in any order, a moment after they were asked for.
        while len(self.alive) < min(self.total, self.slots):
            self.alive.append(str(self.number))
            self.number += 1
            break
        return Sequence(sorted(self.alive))

    def requestTotalExecutors(self, total: int, tasks: int, hosts: Any) -> bool:
        self.calls.append(("request", total))
        self.total = total
        return True

    def killExecutors(self, ids: Sequence, adjust: bool, count: bool, force: bool) -> None:
        assert (adjust, count, force) == (False, False, True)
        self.calls.append(("kill", *ids))
        self.alive = [one for one in self.alive if one not in ids]

    class Option:
        empty = staticmethod(lambda: None)

    def ExecutorDecommissionInfo(self, message: str, host: None) -> str:
        return message

    def decommissionExecutor(self, one: str, info: str, adjust: bool, by_itself: bool) -> bool:
        assert (adjust, by_itself) == (False, False)
        self.calls.append(("decommission", one))
        if not self.busy:
            self.alive.remove(one)
        return True

    def doKillExecutors(self, ids: Sequence) -> None:
        self.calls.append(("end", *ids))
        self.alive = [one for one in self.alive if one not in ids]


def test_a_new_application_gives_back_what_it_took_too_much() -> None:
    cluster = Cluster(slots=8)
    executors = Executors(cluster, slots=8)
    executors.claim(2)
    executors.settle(2, timeout_s=5)
    assert cluster.calls[:2] == [("request", 2), ("end", "2", "3", "4", "5", "6", "7")]
    assert executors.ids() == ("0", "1")


def test_growing_and_shrinking_ends_the_newest_and_never_the_wrong_number() -> None:
    cluster = Cluster(slots=12)
    executors = Executors(cluster, slots=12)
    executors.claim(1)
    executors.settle(4, timeout_s=5)
    assert executors.ids() == ("0", "12", "13", "14")
    executors.settle(2, timeout_s=5)
    assert executors.ids() == ("0", "12"), "numbers are compared as numbers"
    assert cluster.calls[-3:] == [("request", 2), ("decommission", "13"), ("decommission", "14")]
    cluster.alive.remove("0")
    executors.settle(2, timeout_s=5)
    assert executors.ids() == ("12", "15"), "a lost one is replaced after shrinking, too"


@pytest.mark.parametrize(
    ("leave_s", "timeout_s", "poll_s"),
    [
        pytest.param(0.2, 5.0, driver_executors.POLL_S, id="after its time"),
        pytest.param(driver_executors.LEAVE_S, 1.0, driver_executors.POLL_S, id="in a short time limit"),
        pytest.param(driver_executors.LEAVE_S, 1.0, 1.1, id="a look too late"),
    ],
)
def test_an_executor_that_does_not_finish_its_task_is_killed(
    monkeypatch: pytest.MonkeyPatch, leave_s: float, timeout_s: float, poll_s: float
) -> None:
    monkeypatch.setattr(driver_executors, "LEAVE_S", leave_s)
    monkeypatch.setattr(driver_executors, "POLL_S", poll_s)
    cluster = Cluster(slots=3)
    executors = Executors(cluster, slots=3)
    executors.claim(3)
    cluster.busy = True
    executors.settle(2, timeout_s=timeout_s)
    assert cluster.calls[-3:] == [("request", 2), ("decommission", "2"), ("kill", "2")]
    assert executors.ids() == ("0", "1")


def test_what_is_missing_is_said_and_the_total_of_before_asked_for_again() -> None:
    cluster = Cluster(slots=3)
    executors = Executors(cluster, slots=3)
    executors.claim(2)
    executors.settle(2, timeout_s=5)
    with pytest.raises(NotReady, match=r"3 of 5 executors registered within .* s: 2 found no free slot of 3"):
        executors.settle(5, timeout_s=0.5)
    assert executors.wanted == 2
    assert executors.ids() == ("0", "1")


def test_zero_is_refused() -> None:
    with pytest.raises(Misconfigured, match="at least 1 executor, got 0"):
        Executors(Cluster(slots=3)).settle(0, timeout_s=1)


def settling(executors: Executors, cluster: Cluster, count: int) -> threading.Thread:
    """A change that is under way as long as the cluster does not answer."""

    def settle() -> None:
        with suppress(NotReady):
            executors.settle(count, timeout_s=0.5)

    cluster.answers.clear()
    thread = threading.Thread(target=settle)
    thread.start()
    until(lambda: executors.wanted == count)
    return thread


def test_one_change_at_a_time() -> None:
    cluster = Cluster(slots=2)
    executors = Executors(cluster)
    executors.claim(1)
    first = settling(executors, cluster, 5)
    with pytest.raises(NotReady, match="the change to 5 executors is not over yet"):
        executors.settle(1, timeout_s=0.2)
    cluster.answers.set()
    first.join()


def test_a_change_waits_for_the_one_before_it() -> None:
    cluster = Cluster(slots=2)
    executors = Executors(cluster)
    executors.claim(1)
    first = settling(executors, cluster, 5)
    threading.Timer(0.2, cluster.answers.set).start()
    executors.settle(2, timeout_s=60.0)
    first.join()
    assert len(executors.ids()) == executors.wanted == 2
