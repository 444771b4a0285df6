"""Stops a streaming query after a batch, so that nothing is done twice.

`query.stop()` cancels the batch that runs: it is done again after the restart, and an at-least-once sink then
has its records twice. Spark has no call for a gentle stop, but a flag that the query's own loop reads between
two batches: the running batch is committed, and the query ends. A query that waits for its trigger is stopped
at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Literal

Stopped = Literal["between batches", "within a batch"]

POLL_S = 0.05
BEGIN_S = 10.0  # judgement: from the start of a batch to its first job, on a very busy machine
IDLE_S = 1.0  # judgement: between the end of a batch and the begin of the next a query looks idle, too
TERMINATED = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED"


def stop(queries: Iterable[Any], *, spark: Any, timeout_s: float) -> Stopped:
    """Stop after the running batches; one that takes longer than the time is cut short.

    The answer is read from the logs: Spark itself gives up a batch that has only just begun when
    the flag is set, and it is run again after the restart.
    """
    running = [query for query in queries if query.isActive]
    gently = [query for query in running if _ask_to_end(query, spark)]
    until = time.monotonic() + timeout_s
    for query in gently:
        worked_at, waits = time.monotonic(), _interval_ms(query) > 0
        while not _ended(query) and (now := time.monotonic()) < until:
            if query.status["isTriggerActive"]:
                worked_at = now
            elif waits and now - worked_at >= IDLE_S:
                break
            time.sleep(POLL_S)
    for query in running:
        query.stop()
    return "between batches" if all(map(_all_committed, running)) else "within a batch"


def _ask_to_end(query: Any, spark: Any) -> bool:
    """False where this Spark keeps its flag elsewhere."""
    from py4j.protocol import Py4JError

    # Before a batch runs its jobs Spark looks at the flag once more, and would give the batch up.
    until = time.monotonic() + BEGIN_S
    while query.status["isTriggerActive"] and not _runs_jobs(query, spark) and time.monotonic() < until:
        time.sleep(POLL_S)
    try:
        flag = spark._jvm.java.lang.Class.forName(f"{TERMINATED}$").getField("MODULE$").get(None)
        query._jsq.streamingQuery().state().set(flag)
    except (Py4JError, AttributeError):
        return False
    return True


def _runs_jobs(query: Any, spark: Any) -> bool:
    tracker = spark.sparkContext.statusTracker()
    return not set(tracker.getActiveJobsIds()).isdisjoint(tracker.getJobIdsForGroup(str(query.runId)))


def _interval_ms(query: Any) -> int:
    """0 where the next batch begins as soon as the last one has ended, or where there is none."""
    from py4j.protocol import Py4JError

    try:
        return int(query._jsq.streamingQuery().trigger().intervalMs())
    except Py4JError:
        return 0


def _ended(query: Any) -> bool:
    # `awaitTermination` believes the flag; the thread knows.
    return not query._jsq.streamingQuery().queryExecutionThread().isAlive()


def _all_committed(query: Any) -> bool:
    """Whether every batch that was planned is done."""
    execution = query._jsq.streamingQuery()
    planned, done = execution.offsetLog().getLatestBatchId(), execution.commitLog().getLatestBatchId()
    return str(planned.toString()) == str(done.toString())
