"""When has a driver been silent for too long? Stepped: the watch's own delays are not the driver's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from models.errors import NotReady
from models.ports import Function, Plan
from pipelines.environments.local import driver_watch
from pipelines.environments.local.driver_watch import PULSE_S, DriverWatch
from pipelines.environments.local.records import Record, Records

PATIENCE_S = 20.0


class Job:
    """One driver that runs, answers or not, and may be killed."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.answers = True
        self.asked = 0
        self.killed = False
        monkeypatch.setattr(driver_watch, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        records = Records(root)
        plan = Plan(
            name="stub",
            job="stub",
            role="live",
            program=Function("a:b"),
            scale_out=1,
            inputs={"events": "in"},
            outputs={"alerts": "out"},
            checkpoint=str(root / "checkpoint"),
        )
        records.save(Record(plan, incarnation=1))
        self.watch = DriverWatch(self, records, silence_s=lambda record: PATIENCE_S)  # type: ignore[arg-type]

    def after(self, seconds: float) -> None:
        self.now_s += seconds
        self.watch.tend("stub")

    def process(self, name: str) -> object:
        return object()

    def processes(self, name: str) -> list[Any]:
        return [self]

    def signal(self, number: int) -> None:
        self.killed = True

    def listening(self, record: Record) -> object:
        return object()

    def client(self, record: Record) -> Job:
        return self

    def status(self, *, timeout_s: float) -> dict[str, Any]:
        self.asked += 1
        if not self.answers:
            self.now_s += timeout_s
            raise NotReady("the driver did not answer")
        return {"batches": 1}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    job = Job(tmp_path, monkeypatch)
    job.after(0.0)
    assert job.asked == 1
    return job


def test_a_driver_that_is_silent_for_as_long_as_may_be_is_ended(job: Job) -> None:
    job.answers = False
    began_s = job.now_s
    while not job.killed:
        job.after(PULSE_S)
        assert job.now_s - began_s < PATIENCE_S + 2 * PULSE_S
    assert job.now_s - began_s > PATIENCE_S


@pytest.mark.parametrize("away_s", [PATIENCE_S + 1.0, 3600.0])
def test_the_time_in_which_nobody_asked_is_not_the_drivers_silence(job: Job, away_s: float) -> None:
    job.answers = False
    job.after(away_s)  # we were stopped, waited for a lock, or mended Spark
    assert not job.killed
    job.answers = True
    job.after(PULSE_S)
    job.answers = False
    job.after(PULSE_S)
    assert not job.killed


def test_one_question_that_is_missed_is_no_silence(job: Job) -> None:
    """Also where a time-out is shorter than the pulse."""
    job.watch._silence_s = lambda record: 0.5
    job.answers = False
    job.after(PULSE_S)
    job.after(PULSE_S)
    assert not job.killed
    job.after(PULSE_S)
    assert job.killed


def test_a_silent_driver_is_ended_also_by_a_watch_that_is_always_late(job: Job) -> None:
    """With many frozen drivers at once each of them is asked more seldom."""
    job.answers = False
    for _ in range(10):
        job.after(10.0)
    assert job.killed
