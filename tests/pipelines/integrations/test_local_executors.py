"""Executors of this machine as counters; the processes and the driver's page are made up here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from models.quantities import Unknown
from pipelines.environments.local import executors as local_executors
from pipelines.environments.local.executors import LocalExecutors
from pipelines.integrations.spark import BACKEND, ExecutorProcess, LocalSpark
from pipelines.processes.owner import Owner
from pipelines.processes.processes import Process, identify
from profiling_jobs.telemetry.spark_page import Work

pytestmark = pytest.mark.fast

DARK = Unknown("the driver's page does not answer")


class Machine(LocalExecutors):
    """Executors `number` of `job` as processes 100 + number."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 1e9
        owner = Owner(folder)
        super().__init__(owner, LocalSpark(owner), clock=lambda: self.now_s)
        self.there: list[tuple[str, str, int]] = [("orders", "app-1", 0), ("orders", "app-1", 1)]
        self.page: Mapping[str, Work] | Unknown = {}

    def _pass(self) -> tuple[float, dict[Process, float], tuple[ExecutorProcess, ...]]:
        found = tuple(
            ExecutorProcess(Process(100 + number, 7, f"executor.{job}"), str(number), application)
            for job, application, number in self.there
        )
        return self.now_s, {one.process: 12.5 for one in found}, found

    def _work(self, name: str, application: str) -> Any:
        return self.page


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def work(*numbers: int, tasks: int = 3) -> dict[str, Work]:
    return {str(number): Work(1, 0.0, tasks, 20.0, 500) for number in numbers}


def test_processes_and_the_drivers_page_make_one_reading(machine: Machine) -> None:
    machine.page = work(0, 1)
    first, second = machine.read("orders")
    assert (first.executor, second.executor) == ("app-1/0", "app-1/1")
    assert (first.cpu_s, first.task_s, first.records, first.slots) == (12.5, 20.0, 500, 1)
    assert machine.read("payments") == ()


def test_without_the_driver_processor_time_is_known(machine: Machine) -> None:
    machine.page = DARK
    first, _ = machine.read("orders")
    assert first.cpu_s == 12.5
    assert first.task_s == first.records == first.first_task_at_s == DARK


def test_an_executor_that_the_driver_does_not_know_yet_and_one_it_knows_no_more(machine: Machine) -> None:
    machine.page = work(0)
    readings = machine.read("orders")
    assert "has not registered" in readings[1].task_s.reason  # type: ignore[union-attr]
    machine.page = work(0, 1)
    machine.read("orders")
    machine.page = work(0)  # frozen: still a process, but given up
    assert [one.executor for one in machine.read("orders")] == ["app-1/0"]


def test_of_two_runs_only_the_newest_counts(machine: Machine) -> None:
    machine.there = [("orders", "app-1", 0), ("orders", "app-2", 5)]
    machine.page = work(5)
    assert [one.executor for one in machine.read("orders")] == ["app-2/5"]


def test_the_first_finished_task_is_noticed_and_remembered(machine: Machine) -> None:
    machine.now_s = Process(100, 7).started_at_s + 20.0
    machine.page = work(0, 1, tasks=0)
    assert all(isinstance(one.first_task_at_s, Unknown) for one in machine.read("orders"))
    machine.now_s += 5.0
    machine.page = work(0, 1)
    noticed = machine.now_s
    assert [one.first_task_at_s for one in machine.read("orders")] == [noticed, noticed]
    machine.now_s += 5.0
    machine.page = DARK
    assert [one.first_task_at_s for one in machine.read("orders")] == [noticed, noticed]


def test_of_a_job_that_is_gone_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, closed = [[("orders-p1", "app-2", 0), ("orders", "app-1", 0)], [("orders", "app-1", 0)]], []

    class Page:
        def __init__(self, url: str, application_id: str) -> None:
            self.application_id = application_id

        def read(self) -> Mapping[str, Work]:
            return work(0)

        def close(self) -> None:
            closed.append(self.application_id)

    def processes(owner: str) -> list[Process]:
        return [
            Process(
                os.getpid(), own_start, f"executor.{job}", (BACKEND, "--executor-id", str(n), "--app-id", app)
            )
            for job, app, n in there[0]
        ]

    found = identify(os.getpid())
    assert found is not None
    own_start = found.started_ticks
    monkeypatch.setattr(local_executors, "marked", processes)
    monkeypatch.setattr(local_executors, "SparkPage", Page)
    monkeypatch.setattr(LocalExecutors, "_address", lambda self, application: "http://h:1")
    owner = Owner(tmp_path)
    now_s = [1e9]
    executors = LocalExecutors(owner, LocalSpark(owner), clock=lambda: now_s[0])
    assert len(executors.read("orders")) == len(executors.read("orders-p1")) == 1
    there.pop(0)
    now_s[0] += 10.0
    executors.forget("orders-p1")
    executors.forget("never-seen")
    assert len(executors.read("orders")) == 1
    assert (closed, set(executors._pages), set(executors._first_tasks)) == (
        ["app-2"],
        {"orders"},
        {"app-1/0"},
    )


def test_a_slot_is_worth_a_processor_at_most_and_less_where_there_are_too_few(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert machine.processors_per_slot() == 1.0
    machine.there = [("orders", "app-1", number) for number in range(8)]
    assert machine.processors_per_slot() == 0.25
    machine.there = []
    assert machine.processors_per_slot() == 1.0
