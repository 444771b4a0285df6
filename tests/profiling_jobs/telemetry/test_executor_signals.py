"""Shares and rates of executors from two readings, and what is said where one is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from models.ports import ExecutorSample
from models.quantities import Unknown
from profiling_jobs.telemetry.observing import LOST_SHOWN_S, ExecutorMeter, ExecutorReading, limit

pytestmark = pytest.mark.fast

UNREAD = Unknown("the driver does not answer")
ONE = ExecutorReading("app-1/0", 0.0, 1, 100.0, 10.0, 100.0, 20.0, records=1000, first_task_at_s=3.0)


def later(at_s: float, one: ExecutorReading = ONE, **counters: Any) -> ExecutorReading:
    return replace(one, cpu_at_s=at_s, task_at_s=at_s, **counters)


def test_what_an_executor_did_between_two_readings() -> None:
    meter = ExecutorMeter()
    (first,) = meter.update(100.0, [ONE])
    assert isinstance(first.cpu, Unknown)
    then = later(105.0, cpu_s=11.0, task_s=24.5, records=4000)
    assert meter.update(105.0, [then]) == (ExecutorSample("app-1/0", "running", 0.2, 0.9, 600.0),)


def test_shares_count_per_slot_and_per_processor_that_a_slot_can_have() -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [replace(ONE, slots=4)])
    (sample,) = meter.update(105.0, [later(105.0, slots=4, cpu_s=15.0, task_s=30.0)], processors_per_slot=0.5)
    assert (sample.cpu, sample.busy) == (0.5, 0.5)


def test_a_share_is_never_more_than_all() -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [ONE])
    (sample,) = meter.update(105.0, [later(105.0, cpu_s=16.0, task_s=31.0)])
    assert (sample.cpu, sample.busy) == (1.0, 1.0)


@pytest.mark.parametrize(("field", "of"), [("cpu_s", "cpu"), ("task_s", "busy"), ("records", "records_rps")])
def test_a_counter_that_cannot_be_read_is_unknown_now_and_once_more(field: str, of: str) -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [ONE])
    (dark,) = meter.update(105.0, [later(105.0, **{field: UNREAD})])
    assert getattr(dark, of) == UNREAD
    (back,) = meter.update(110.0, [later(110.0)])
    assert "wait for the next" in getattr(back, of).reason
    (again,) = meter.update(115.0, [later(115.0)])
    assert getattr(again, of) == 0.0


def test_an_executor_starts_warms_up_runs_and_is_lost() -> None:
    meter = ExecutorMeter()
    new = replace(ONE, executor="app-1/1", first_task_at_s=Unknown("no task yet"))

    def states(at_s: float, *readings: ExecutorReading) -> dict[str, str]:
        return {one.executor: one.state for one in meter.update(at_s, readings)}

    assert states(100.0, ONE) == {"app-1/0": "running"}
    assert states(105.0, ONE, new) == {"app-1/0": "running", "app-1/1": "warming_up"}
    new = replace(new, first_task_at_s=108.0)
    assert states(110.0, ONE, new)["app-1/1"] == "warming_up"
    assert states(118.0, ONE, new)["app-1/1"] == "running"
    assert states(125.0, new) == {"app-1/1": "running", "app-1/0": "lost"}
    assert states(130.0, new)["app-1/0"] == "lost"
    assert states(126.0 + LOST_SHOWN_S, new) == {"app-1/1": "running"}


def test_a_lost_executor_has_no_load_and_one_that_is_back_is_not_lost() -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [ONE])
    (lost,) = meter.update(105.0, [])
    assert lost.state == "lost"
    assert isinstance(lost.cpu, Unknown)
    assert [one.state for one in meter.update(110.0, [ONE])] == ["running"]


def test_readings_too_close_together_say_what_was_said_before() -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [ONE])
    before = meter.update(105.0, [later(105.0, cpu_s=11.0)])
    assert meter.update(105.01, [later(105.01, cpu_s=11.1)]) == before
    (after,) = meter.update(110.0, [later(110.0, cpu_s=12.0)])
    assert after.cpu == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("cpu", "busy", "expected"),
    [(0.9, 1.0, "cpu"), (0.35, 0.4, "cpu"), (0.1, 0.9, "waiting"), (0.5, 0.9, None), (0.05, 0.02, None)],
)
def test_which_limit_a_job_will_meet(cpu: float, busy: float, expected: str | None) -> None:
    found = limit(
        [ExecutorSample("a", "running", cpu, busy, 1.0), ExecutorSample("b", "lost", 1.0, 0.0, 1.0)]
    )
    assert isinstance(found, Unknown) if expected is None else found == expected


def test_no_limit_is_claimed_of_what_was_not_read() -> None:
    assert isinstance(limit([ExecutorSample("a", "running", UNREAD, 0.9, 1.0)]), Unknown)
    assert isinstance(limit([]), Unknown)


def test_processor_time_and_tasks_are_read_at_moments_of_their_own() -> None:
    meter = ExecutorMeter()
    meter.update(100.0, [replace(ONE, cpu_at_s=99.0)])
    (sample,) = meter.update(106.0, [replace(ONE, cpu_at_s=104.0, cpu_s=11.0, task_at_s=106.0, task_s=23.0)])
    assert (sample.cpu, sample.busy) == (0.2, 0.5)
