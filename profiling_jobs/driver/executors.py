"""Executors of a driver, and changes of their number under the running query.

Structured Streaming plans every micro-batch anew, so executors may come and go between two of them. Through
the driver's own scheduler: ask the cluster for the wanted total, which grows and caps, and decommission what
is over it: such an executor gets no new task and leaves when those that it has in hand are done. One that has
not left within LEAVE_S is killed; its tasks run again. Nothing is believed that is not seen: a change is done
when the number registered is the wanted one.

Spark's own `SparkContext.killExecutors` also lowers the total by as many as it kills; after a total that
was already lowered, lost executors would never be replaced. Hence the call one level below, which does not.
A standalone cluster gives a new application every free slot before the wanted number is known, so
the surplus is ended by its number before it has registered (`claim`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from models.errors import Misconfigured, NotReady
from models.quantities import executors

POLL_S = 0.1
LEAVE_S = 10.0  # judgement: a task of a batch takes seconds
STANDALONE = "StandaloneSchedulerBackend"


class Executors:
    """The executors of one Spark application."""

    def __init__(self, spark: Any, *, slots: int | None = None) -> None:
        self._jvm = spark._jvm
        self._context = spark.sparkContext._jsc.sc()
        self._slots = slots
        self._changing = threading.Lock()
        self.application_id = str(spark.sparkContext.applicationId)
        self.wanted = 0

    def ids(self) -> tuple[str, ...]:
        """Identifiers of the registered executors, oldest first."""
        return tuple(sorted(filter(None, self._context.getExecutorIds().mkString(",").split(",")), key=int))

    def claim(self, count: int) -> None:
        """Right after the start: ask for the wanted total, and end the surplus that was started already."""
        self._request(count)
        backend = self._context.schedulerBackend()
        if self._slots and backend.getClass().getSimpleName() == STANDALONE:
            backend.doKillExecutors(self._sequence(str(number) for number in range(count, self._slots)))

    def settle(self, count: int, *, timeout_s: float) -> float:
        """Change to `count` executors and see it done; the seconds it took.

        When it cannot be done in time the total of before is asked for again. A change under way is waited
        for: a fresh driver may look after its first size for a moment after that was seen from outside.
        """
        if count < 1:
            raise Misconfigured("scale_out", f"must be at least 1 executor, got {count}")
        begun = time.monotonic()
        if not self._changing.acquire(timeout=timeout_s):
            raise NotReady(f"the change to {executors(self.wanted)} is not over yet: try again")
        try:
            before = self.wanted
            self._request(count)
            try:
                # Right after the start what is over it has no task yet.
                leave_s = min(LEAVE_S, timeout_s / 2.0) if count < before else 0.0
                self._reach(count, until=begun + timeout_s, leave_s=leave_s)
            except NotReady:
                if before and before != count:
                    self._request(before)
                    self._kill(self.ids()[before:])
                raise
            return time.monotonic() - begun
        finally:
            self._changing.release()

    def _reach(self, count: int, *, until: float, leave_s: float) -> None:
        leaving: set[str] = set()
        killed: set[str] = set()
        begun = time.monotonic()
        while len(ids := self.ids()) != count:
            surplus = ids[count:]  # the newest have the least state and the coldest workers
            now = time.monotonic()
            doomed: tuple[str, ...] = ()
            if now < min(begun + leave_s, until):
                self._decommission(one for one in surplus if one not in leaving)
                leaving.update(surplus)
            else:
                doomed = tuple(one for one in surplus if one not in killed)
                self._kill(doomed)
                killed.update(doomed)
            if now > until and not doomed:  # what was killed just now is looked for once more
                waited = time.monotonic() - begun
                if len(ids) > count:
                    raise NotReady(
                        f"{executors(len(ids), 'are')} still registered after {waited:.0f} s, not {count}"
                    )
                missing = "did not start; raise spark.scale_timeout_s"
                if self._slots:
                    missing = (
                        f"found no free slot of {self._slots} or did not start; stop another job, raise "
                        "spark.slots, or raise spark.scale_timeout_s"
                    )
                raise NotReady(
                    f"{len(ids)} of {executors(count)} registered within {waited:.0f} s: "
                    f"{count - len(ids)} {missing}"
                )
            time.sleep(POLL_S)

    def _request(self, count: int) -> None:
        self.wanted = count
        empty = getattr(self._jvm.scala.collection.immutable.Map, "from")(
            self._scala(self._jvm.java.util.HashMap())
        )
        self._context.requestTotalExecutors(count, 0, empty)

    def _decommission(self, ids: Iterable[str]) -> None:
        for one in ids:
            why = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
                "fewer executors are wanted", self._jvm.scala.Option.empty()
            )
            # Not adjusting the total, which was asked for; not by the executor itself.
            self._context.schedulerBackend().decommissionExecutor(one, why, False, False)

    def _kill(self, ids: Iterable[str]) -> None:
        chosen = list(ids)
        if chosen:
            # Not adjusting the total, not counted as failures, also when busy: their tasks run again.
            self._context.schedulerBackend().killExecutors(self._sequence(chosen), False, False, True)

    def _sequence(self, items: Iterable[str]) -> Any:
        names = self._jvm.java.util.ArrayList()
        for item in items:
            names.add(item)
        return self._scala(names).toSeq()

    def _scala(self, collection: Any) -> Any:
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(collection)
