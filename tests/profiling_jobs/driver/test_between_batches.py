"""Stopping a query between two batches: what is waited for, and what is cut short."""

from __future__ import annotations

import time
from typing import Any

import pytest

from profiling_jobs.driver import stopping

pytestmark = pytest.mark.fast


class Batch:
    """Some(7), in Spark's words."""

    def __init__(self, number: int) -> None:
        self.number = number

    def getLatestBatchId(self) -> Batch:
        return self

    def toString(self) -> str:
        return f"Some({self.number})"


class Query:
    """A query whose thread lives for so long, and looks at work for so long."""

    def __init__(self, *, lives_s: float, works_s: float = 0.0, interval_ms: int = 0) -> None:
        self.began, self.lives_s, self.works_s = time.monotonic(), lives_s, works_s
        self.interval_ms = interval_ms
        self.planned = self.done = Batch(7)
        self.isActive = True
        self.runId = "run-1"
        self.cut_short = False
        self._jsq = self

    # Spark's chain of objects, all of them this one
    def streamingQuery(self) -> Query:
        return self

    state = trigger = queryExecutionThread = streamingQuery

    def offsetLog(self) -> Batch:
        return self.planned

    def commitLog(self) -> Batch:
        return self.done

    def set(self, flag: Any) -> None:
        pass

    def intervalMs(self) -> int:
        return self.interval_ms

    def isAlive(self) -> bool:
        return time.monotonic() - self.began < self.lives_s

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": time.monotonic() - self.began < self.works_s}

    def stop(self) -> None:
        self.cut_short = self.isAlive()


class Spark:
    """Everything that leads to the flag, and one job that runs."""

    def getActiveJobsIds(self) -> list[int]:
        return [3]

    def getJobIdsForGroup(self, group: str) -> list[int]:
        return [2, 3]

    def __getattr__(self, name: str) -> Spark:
        return self

    def __call__(self, *given: Any) -> Spark:
        return self


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "IDLE_S", 0.1)
    monkeypatch.setattr(stopping, "POLL_S", 0.01)


def test_a_query_without_an_interval_is_waited_for_however_idle_it_looks() -> None:
    query = Query(lives_s=0.5)
    assert stopping.stop([query], spark=Spark(), timeout_s=10.0) == "between batches"
    assert not query.cut_short


def test_one_that_waits_for_its_next_trigger_is_stopped_at_once() -> None:
    query = Query(lives_s=60.0, works_s=0.2, interval_ms=60_000)
    assert stopping.stop([query], spark=Spark(), timeout_s=10.0) == "between batches"
    assert query.cut_short
    assert time.monotonic() - query.began < 5.0


def test_a_batch_that_takes_too_long_is_cut_short_and_that_is_said() -> None:
    query = Query(lives_s=60.0, works_s=60.0)
    query.planned = Batch(8)
    assert stopping.stop([query], spark=Spark(), timeout_s=0.3) == "within a batch"
    assert query.cut_short


def test_a_batch_that_spark_itself_gave_up_is_no_stop_between_batches() -> None:
    query = Query(lives_s=0.1, works_s=0.1)
    query.planned = Batch(8)
    assert stopping.stop([query], spark=Spark(), timeout_s=10.0) == "within a batch"
