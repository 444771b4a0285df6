"""Counters of the executors on this machine: what they have used and done.

Processor time from the kernel, of each executor's JVM and its Python workers; task seconds and records from
the driver's page. Where the driver does not answer, processor time is still known. One pass over the
processes serves all jobs.
"""

from __future__ import annotations

import http.client
import os
import re
import threading
import time
from collections.abc import Callable, Mapping

from models.errors import NotReady
from models.observation import ExecutorLoss
from models.quantities import Unknown
from profiling_jobs.telemetry.observing import ExecutorReading
from profiling_jobs.telemetry.spark_page import SparkPage, Work

from ...integrations import ports
from ...integrations.ports import HOST
from ...integrations.spark import ExecutorProcess, LocalSpark
from ...processes.processes import Process, cpu_seconds

PASS_S = 1.0  # judgement: jobs that are read within a second share one pass over the processes
ANSWER_S = 3.0  # judgement: 10 ms on an idle machine
NEW_S = 60.0  # judgement: a first task takes up to 46 s here; what is older was there before we looked
SLOTS = 1  # what the local Spark gives every executor
NOT_REGISTERED = Unknown("the executor has not registered with its driver yet")
NO_TASK = Unknown("the executor has not finished a task yet")
PAGE = re.compile(rb'href="(http://[^"]+)">Application Detail UI')
Clock = Callable[[], float]


class LocalExecutors:
    """The executors of our jobs. Safe from several threads."""

    def __init__(self, spark: LocalSpark, *, clock: Clock = time.time) -> None:
        self._spark = spark
        self._clock = clock
        self._passing = threading.Lock()
        self._passed: tuple[float, dict[Process, float], tuple[ExecutorProcess, ...]] | None = None
        self._pages: dict[str, SparkPage] = {}
        self._first_tasks: dict[str, float] = {}

    def read(self, name: str) -> tuple[ExecutorReading, ...]:
        """The counters of every living executor of the job's newest run."""
        at_s, used_s, ours = self._newest(name)
        work = self._work(name, ours[0].application_id) if ours else {}
        asked_at_s = self._clock()
        return tuple(
            self._reading(one, used_s[one.process], at_s, work, asked_at_s)
            for one in ours
            if one.process in used_s and not self._given_up(one, work)
        )

    def losses(self, name: str) -> Mapping[str, ExecutorLoss]:
        """Executors of its newest run that its driver has lost; as of the newest `read`."""
        page = self._pages.get(name)
        return {} if page is None else page.losses

    def processors_per_slot(self) -> float:
        """How much of a processor a slot has when all executors of ours are busy; 1 at most."""
        _, _, all_executors = self._pass()
        return min(1.0, len(os.sched_getaffinity(0)) / max(1, len(all_executors) * SLOTS))

    def page(self, name: str) -> tuple[str, str]:
        """Address of the page of its newest run's driver, and the run's name there."""
        _, _, ours = self._newest(name)
        if not ours:
            raise NotReady(f"{name} has no executor yet: try again")
        return self._address(ours[0].application_id), ours[0].application_id

    def forget(self, name: str) -> None:
        """Close the connection to the driver of a job that is gone."""
        page = self._pages.pop(name, None)
        if page is not None:
            page.close()

    def close(self) -> None:
        """Close all connections."""
        for page in self._pages.values():
            page.close()
        self._pages.clear()

    def _given_up(self, one: ExecutorProcess, work: Mapping[str, Work] | Unknown) -> bool:
        """Whether its driver has lost it, as a frozen one that is still there as a process."""
        known = _name(one) in self._first_tasks
        return known and not isinstance(work, Unknown) and one.executor_id not in work

    def _reading(
        self,
        one: ExecutorProcess,
        cpu_s: float,
        at_s: float,
        work: Mapping[str, Work] | Unknown,
        asked_at_s: float,
    ) -> ExecutorReading:
        name, started_at_s = _name(one), one.process.started_at_s
        done = work if isinstance(work, Unknown) else work.get(one.executor_id, NOT_REGISTERED)
        task_s: float | Unknown
        records: int | Unknown
        if isinstance(done, Unknown):
            none_yet, slots, task_s, records = done, SLOTS, done, done
        else:
            none_yet, slots, task_s, records = NO_TASK, done.slots, done.task_s, done.records
            if done.tasks and name not in self._first_tasks:
                # One that had tasks before we came has warmed up before, as far as we can tell.
                new = asked_at_s - started_at_s < NEW_S
                self._first_tasks[name] = asked_at_s if new else started_at_s
        first_task = self._first_tasks.get(name, none_yet)
        return ExecutorReading(
            name, started_at_s, slots, at_s, cpu_s, asked_at_s, task_s, records, first_task
        )

    def _work(self, name: str, application: str) -> Mapping[str, Work] | Unknown:
        try:
            page = self._pages.get(name)
            if page is None or page.application_id != application:
                if page is not None:
                    page.close()
                page = self._pages[name] = SparkPage(self._address(application), application)
            return page.read()
        except NotReady as error:
            return Unknown(str(error))

    def _address(self, application: str) -> str:
        """The master links to the page of every driver."""
        kept = ports.kept(self._spark.folder)
        if kept is None:
            raise NotReady("the Spark master has not been started yet")
        try:
            master = http.client.HTTPConnection(HOST, kept[1], timeout=ANSWER_S)
            try:
                master.request("GET", f"/app/?appId={application}")
                found = PAGE.search(master.getresponse().read())
            finally:
                master.close()
        except (OSError, http.client.HTTPException) as error:
            raise NotReady(f"the Spark master does not answer ({error})") from error
        if found is None:
            raise NotReady(
                f"the Spark master shows no page of {application}: has it ended, or spark.ui.enabled off?"
            )
        return found[1].decode()

    def _newest(self, name: str) -> tuple[float, dict[Process, float], list[ExecutorProcess]]:
        """When processor time was read, of each process, and the executors of the newest run."""
        at_s, used_s, everything = self._pass()
        ours = [one for one in everything if one.process.role == f"executor.{name}"]
        newest = max((one.application_id for one in ours), default="")
        return at_s, used_s, [one for one in ours if one.application_id == newest]

    def _pass(self) -> tuple[float, dict[Process, float], tuple[ExecutorProcess, ...]]:
        with self._passing:
            if self._passed is None or not 0.0 <= self._clock() - self._passed[0] < PASS_S:
                found = tuple(self._spark.all_executors())
                self._passed = (self._clock(), cpu_seconds(one.process for one in found), found)
                for gone in set(self._first_tasks) - {_name(one) for one in found}:
                    self._first_tasks.pop(gone, None)
            return self._passed


def _name(one: ExecutorProcess) -> str:
    return f"{one.application_id}/{one.executor_id}"
