"""Executors of this machine as counters; the processes and the driver's page are made up here."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from models.quantities import Unknown
from pipelines.environments.local.executors import LocalExecutors
from pipelines.integrations import spark
from pipelines.integrations.spark import BACKEND, ExecutorProcess, LocalSpark
from pipelines.processes.owner import Owner
from pipelines.processes.processes import Process, identify
from profiling_jobs.telemetry.spark_page import Work

pytestmark = pytest.mark.fast

DARK = Unknown("the driver's page does not answer")


class Machine(LocalExecutors):
    """Executors `number` of `job` as processes 100 + number."""

    def __init__(self, folder):
        self.now_s = 1e9
        owner = Owner(folder)
        super().__init__(LocalSpark(owner), clock=lambda: self.now_s)
        self.there = [("orders", "app-1", 0), ("orders", "app-1", 1)]
        self.page = {}

    def _pass(self):
        found = tuple(
            ExecutorProcess(Process(100 + number, 7, f"executor.{job}"), str(number), application)
            for job, application, number in self.there
        )
        return self.now_s, {one.process: 12.5 for one in found}, found

    def _work(self, name, application):
        return self.page


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def work(*numbers, tasks=3):
    return {str(number): Work(1, 0.0, tasks, 20.0, 500) for number in numbers}


def test_processes_and_the_drivers_page_make_one_reading(machine):
    machine.page = work(0, 1)
    first, second = machine.read("orders")
    assert (first.executor, second.executor) == ("app-1/0", "app-1/1")
    assert (first.cpu_s, first.task_s, first.records, first.slots) == (12.5, 20.0, 500, 1)
    assert machine.read("payments") == ()
    machine.page = DARK  # without the driver processor time is known
    first, _ = machine.read("orders")
    assert first.cpu_s == 12.5
    assert first.task_s == first.records == DARK


def test_an_executor_that_the_driver_does_not_know_yet_and_one_it_knows_no_more(machine):
    machine.page = work(0)
    readings = machine.read("orders")
    assert "has not registered" in readings[1].task_s.reason
    machine.page = work(0, 1)
    machine.read("orders")
    machine.page = work(0)  # frozen: still a process, but given up
    assert [one.executor for one in machine.read("orders")] == ["app-1/0"]
    machine.there, machine.page = [*machine.there, ("orders", "app-2", 5)], work(5)  # a newer run
    assert [one.executor for one in machine.read("orders")] == ["app-2/5"]


def test_the_first_finished_task_is_noticed_and_remembered(machine):
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


def test_of_a_job_that_is_gone_nothing_is_kept(tmp_path, monkeypatch):
    me, closed, now_s = identify(os.getpid()), [], [1e9]
    assert me is not None
    there = [
        replace(me, role=f"executor.{job}", command=(BACKEND, "--executor-id", "0", "--app-id", application))
        for job, application in (("orders", "app-1"), ("orders-p1", "app-2"))
    ]
    monkeypatch.setattr(spark, "marked", lambda owner: there)
    monkeypatch.setattr(LocalExecutors, "_work", lambda self, name, application: work(0))
    owner = Owner(tmp_path)
    executors = LocalExecutors(LocalSpark(owner), clock=lambda: now_s[0])
    executors._pages["orders-p1"] = SimpleNamespace(close=lambda: closed.append("orders-p1"))
    assert len(executors.read("orders")) == len(executors.read("orders-p1")) == 1
    there.pop()
    now_s[0] += 10.0
    executors.forget("orders-p1")
    executors.forget("never-seen")
    assert len(executors.read("orders")) == 1
    assert (closed, executors._pages, set(executors._first_tasks)) == (["orders-p1"], {}, {"app-1/0"})


def test_a_slot_is_worth_a_processor_at_most_and_less_where_there_are_too_few(machine, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert machine.processors_per_slot() == 1.0
    machine.there = [("orders", "app-1", number) for number in range(8)]
    assert machine.processors_per_slot() == 0.25
    machine.there = []
    assert machine.processors_per_slot() == 1.0
