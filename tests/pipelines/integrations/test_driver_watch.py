"""When has a driver been silent for too long? Stepped: the watch's own delays are not the driver's."""

from types import SimpleNamespace

import pytest
from stand_ins import plan

from models.errors import NotReady
from pipelines.environments.local import driver_watch
from pipelines.environments.local.driver_watch import PULSE_S, DriverWatch
from pipelines.environments.local.records import Record, Records

PATIENCE_S = 20.0


class Job:
    """One driver that runs, answers or not, and may be killed."""

    def __init__(self, root, monkeypatch):
        self.now_s = 1000.0
        self.answers = True
        self.asked = 0
        self.killed = False
        self.commits = 0
        monkeypatch.setattr(driver_watch, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        records = Records(root)
        records.save(Record(plan("stub"), incarnation=1))
        self.watch = DriverWatch(self, records, silence_s=lambda record: PATIENCE_S)

    def after(self, seconds):
        self.now_s += seconds
        self.watch.tend("stub")

    def process(self, name):
        return object()

    def processes(self, name):
        return [self]

    def signal(self, number):
        self.killed = True

    def listening(self, record):
        return object()

    def client(self, record):
        return self

    def traces(self, record):
        return (self.commits,)

    def status(self, *, timeout_s):
        self.asked += 1
        if not self.answers:
            self.now_s += timeout_s
            raise NotReady("the driver did not answer")
        return {"batches": 1}


@pytest.fixture
def job(tmp_path, monkeypatch):
    job = Job(tmp_path, monkeypatch)
    job.after(0.0)
    assert job.asked == 1
    return job


def test_a_driver_that_is_silent_for_as_long_as_may_be_is_ended(job):
    job.answers = False
    began_s = job.now_s
    while not job.killed:
        job.after(PULSE_S)
        assert job.now_s - began_s < PATIENCE_S + 2 * PULSE_S
    assert job.now_s - began_s > PATIENCE_S


@pytest.mark.parametrize("away_s", [PATIENCE_S + 1.0, 3600.0])
def test_the_time_in_which_nobody_asked_is_not_the_drivers_silence(job, away_s):
    job.answers = False
    job.after(away_s)  # we were stopped, waited for a lock, or mended Spark
    assert not job.killed
    job.answers = True
    job.after(PULSE_S)
    job.answers = False
    job.after(PULSE_S)
    assert not job.killed


def test_one_question_that_is_missed_is_no_silence(job):
    """Also where a time-out is shorter than the pulse."""
    job.watch._silence_s = lambda record: 0.5
    job.answers = False
    job.after(PULSE_S)
    job.after(PULSE_S)
    assert not job.killed
    job.after(PULSE_S)
    assert job.killed


def test_a_silent_driver_is_ended_also_by_a_watch_that_is_always_late(job):
    """With many frozen drivers at once each of them is asked more seldom."""
    job.answers = False
    for _ in range(10):
        job.after(10.0)
    assert job.killed


def test_a_driver_whose_batches_go_on_is_not_ended_however_long_its_channel_is_silent(job):
    """As in a flood of connections. Once they stop, its silence counts from there."""
    job.answers = False
    while job.now_s < 1000.0 + 5 * PATIENCE_S:
        job.commits += job.asked % 3 == 0  # a batch takes several pulses
        job.after(PULSE_S)
        assert not job.killed
    stopped_s = job.now_s
    while not job.killed:
        job.after(PULSE_S)
    assert PATIENCE_S < job.now_s - stopped_s + 4 * PULSE_S < PATIENCE_S + 8 * PULSE_S
