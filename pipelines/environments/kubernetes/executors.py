"""Counters of the executors of a cluster, from the page of each driver: task seconds and records.

Of processor time that page knows only what threads of the JVM used (`executorCpuTime`), without the Python
workers: a job that computes in Python would look as if it waited. So it is taken from Prometheus, which
measures containers, or it is Unknown, and the busy share stands for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Protocol

from models.errors import HeadroomError
from models.observation import ExecutorLoss
from models.quantities import Unknown
from profiling_jobs.telemetry.observing import ExecutorReading
from profiling_jobs.telemetry.spark_page import SparkPage, Work

NEW_S = 60.0  # judgement: an older executor had its first task before we looked
ASKED_EVERY_S = 15.0  # judgement: a mean of two minutes hardly changes before
NO_CPU = Unknown(
    "the processor time of executors is not measured, their busy share is used: kubernetes.prometheus_url "
    "names what measures it"
)
NO_POD = Unknown("which pod this executor runs in is not known")
NO_TASK = Unknown("the executor has not finished a task yet")


class Pages(Protocol):
    """Addresses of the drivers' pages, and the pods of executors."""

    def page(self, name: str) -> tuple[str, str]:
        """Address of the page of its driver, and the run's name there."""

    def executor_names(self, name: str, application: str) -> tuple[str, Mapping[str, str]]:
        """Their namespace, and by Spark's number the pod of each executor of this run."""


class Processors(Protocol):
    """What measures the processors that pods use."""

    def processors(self, namespace: str, pods: Collection[str]) -> Mapping[str, float | Unknown]: ...


class KubernetesExecutors:
    """The executors of jobs. Safe from several threads, for different jobs."""

    def __init__(
        self,
        deployments: Pages,
        *,
        measured: Processors | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._deployments = deployments
        self._measured = measured
        self._clock = clock
        self._processors: dict[str, tuple[float, Mapping[str, float | Unknown]]] = {}
        self._pages: dict[str, SparkPage] = {}
        self._first_tasks: dict[str, dict[str, float]] = {}

    def read(self, name: str) -> tuple[ExecutorReading, ...]:
        """The counters of every registered executor of the job; none while its driver does not answer."""
        try:
            url, application = self.page(name)
            page = self._pages.get(name)
            if page is None or (page.url, page.application_id) != (url, application):
                self.forget(name)
                page = self._pages[name] = SparkPage(url, application)
            work = page.read()
        except HeadroomError:
            return ()
        at_s = self._clock()
        first = self._first_tasks.setdefault(name, {})
        readings = {one: _reading(f"{application}/{one}", done, at_s, first) for one, done in work.items()}
        if self._measured is not None:
            used = self._used(self._measured, name, application, at_s)
            readings = {
                one: _with_processors(reading, used.get(one, NO_POD)) for one, reading in readings.items()
            }
        return tuple(readings.values())

    def losses(self, name: str) -> Mapping[str, ExecutorLoss]:
        """Executors of its newest run that its driver has lost; as of the newest `read`."""
        page = self._pages.get(name)
        return {} if page is None else page.losses

    def processors_per_slot(self) -> float:
        """A slot is given the processor that its pod asks for."""
        return 1.0

    def page(self, name: str) -> tuple[str, str]:
        """Address of the page of its driver, and the run's name there."""
        return self._deployments.page(name)

    def forget(self, name: str) -> None:
        """Close the connection to the driver of a job that is gone."""
        page = self._pages.pop(name, None)
        self._first_tasks.pop(name, None)
        self._processors.pop(name, None)
        if page is not None:
            page.close()

    def close(self) -> None:
        """Close all connections."""
        for name in list(self._pages):
            self.forget(name)

    def _used(
        self, measured: Processors, name: str, application: str, at_s: float
    ) -> Mapping[str, float | Unknown]:
        """Processors in use, by Spark's number of the executor."""
        asked_s, found = self._processors.get(name, (-math.inf, {}))
        if not 0.0 <= at_s - asked_s < ASKED_EVERY_S:
            try:
                namespace, pods = self._deployments.executor_names(name, application)
            except HeadroomError:  # what Spark's page said of them is known all the same
                return {}
            used = measured.processors(namespace, tuple(pods.values()))
            found = {one: used[pod] for one, pod in pods.items()}
            self._processors[name] = at_s, found
        return found


def _with_processors(reading: ExecutorReading, used: float | Unknown) -> ExecutorReading:
    if isinstance(used, Unknown):
        return replace(reading, cpu_s=used)
    return replace(reading, processors=used)


def _reading(name: str, done: Work, at_s: float, first: dict[str, float]) -> ExecutorReading:
    if done.tasks and name not in first:
        # One that had tasks before we came has warmed up before, as far as we can tell.
        first[name] = at_s if at_s - done.started_at_s < NEW_S else done.started_at_s
    return ExecutorReading(
        executor=name,
        started_at_s=done.started_at_s,
        slots=done.slots,
        cpu_at_s=at_s,
        cpu_s=NO_CPU,
        task_at_s=at_s,
        task_s=done.task_s,
        records=done.records,
        first_task_at_s=first.get(name, NO_TASK),
    )
