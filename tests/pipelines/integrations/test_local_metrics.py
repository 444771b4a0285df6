"""The metrics of jobs on this machine against a broker and deployments that are made up here."""

import errno
import json
import os
import threading

import pytest
from fake_broker import FakeBroker
from stand_ins import plan

from models.errors import Misconfigured, NotReady
from models.ports import ExecutorSample, Sample, Status
from models.quantities import Unknown
from pipelines.environments import metrics as local_metrics
from pipelines.environments.metrics import JobMetrics
from profiling_jobs.telemetry.observing import ExecutorReading

pytestmark = pytest.mark.fast


class Jobs:
    """Deployments with a checkpoint each, and their executors."""

    def __init__(self, folder):
        self.folder = folder
        self.plans = {}
        self.dead = False
        self.broken = None
        self.hang = threading.Event()
        self.hang.set()
        self.cpu_s = 0.0

    def add(self, name, topic):
        checkpoint = self.folder / name
        for part in ("offsets", "commits"):
            (checkpoint / part).mkdir(parents=True)
        self.plans[name] = plan(name, inputs={"events": topic}, checkpoint=str(checkpoint))

    def commit(self, name, batch, topic, *ends):
        offsets = json.dumps({topic: {str(p): end for p, end in enumerate(ends)}})
        (self.folder / name / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offsets}")
        (self.folder / name / "commits" / str(batch)).write_text("v1\n{}")

    def plan(self, name):
        if name not in self.plans:
            raise Misconfigured("deployment", f"there is no '{name}' here")
        return self.plans[name]

    def status(self, name):
        self.hang.wait(10.0)
        if self.dead:
            raise NotReady("the driver is dead")
        return Status("running", 1, 1, "run-1")

    def read(self, name):
        if self.broken is not None:
            raise self.broken
        if self.dead:
            return ()
        self.cpu_s += 2.0
        at_s = self.clock_s
        return (ExecutorReading("a/0", 0.0, 1, at_s, self.cpu_s, at_s, 2 * self.cpu_s, 5, 0.0),)

    def losses(self, name):
        return {}

    def processors_per_slot(self):
        return 1.0

    clock_s = 1000.0


@pytest.fixture
def topics():
    return FakeBroker({"orders": [0, 0], "clicks": [0]})


@pytest.fixture
def jobs(tmp_path):
    found = Jobs(tmp_path)
    found.add("orders", "orders")
    found.add("clicks", "clicks")
    return found


@pytest.fixture
def metrics(topics, jobs, monkeypatch):
    monkeypatch.setattr(local_metrics, "SLOW_WAIT_S", 5.0)
    with JobMetrics(topics, jobs, jobs, clock=lambda: jobs.clock_s) as found:
        yield found
        jobs.hang.set()


def test_one_question_to_the_broker_serves_all_jobs(metrics, topics, jobs):
    topics.ends_of = {"orders": [100, 50], "clicks": [7]}
    jobs.commit("orders", 0, "orders", 90, 50)
    jobs.commit("clicks", 0, "clicks", 0)
    both = metrics.sample_all(["orders", "clicks"])
    assert topics.questions == 2
    orders, clicks = both["orders"], both["clicks"]
    assert (orders.lag_records, clicks.lag_records) == (10, 7)
    assert orders.head == {("orders", 0): 100, ("orders", 1): 50}
    assert (orders.committed_source, orders.last_batch, orders.run_id) == ("checkpoint", 0, "run-1")


def test_a_topic_that_is_not_there_harms_only_its_own_job(metrics, jobs):
    jobs.add("lost", "no-such-topic")
    jobs.commit("clicks", 0, "clicks", 0)
    found = metrics.sample_all(["lost", "clicks", "nobody"])
    assert isinstance(found["clicks"], Sample)
    assert "topic no-such-topic: is not there" in str(found["lost"])
    assert "there is no 'nobody' here" in str(found["nobody"])
    with pytest.raises(Misconfigured, match="no-such-topic"):
        metrics.sample("lost")


def test_a_checkpoint_on_a_disk_that_stumbles_harms_only_its_own_job(metrics, jobs, monkeypatch):
    for name in ("orders", "clicks"):
        jobs.commit(name, 0, name, 0)
    metrics.sample_all(["orders", "clicks"])
    jobs.commit("orders", 1, "orders", 0)
    listed, there = os.listdir, []

    def listdir(folder):
        there.append(folder)
        if folder == jobs.folder / "orders" / "commits" and there.count(folder) == 2:  # for its commits
            raise OSError(errno.ESTALE, "Stale file handle")
        return listed(folder)

    monkeypatch.setattr(os, "listdir", listdir)
    found = metrics.sample_all(["orders", "clicks"])
    assert "Stale file handle" in str(found["orders"])
    assert isinstance(found["clicks"], Sample)
    assert isinstance(metrics.sample("orders"), Sample)


def test_processes_that_cannot_be_listed_leave_lag_known(metrics, jobs):
    jobs.commit("clicks", 0, "clicks", 0)
    jobs.broken = OSError(errno.EMFILE, "Too many open files")
    found = metrics.sample("clicks")
    assert found.lag_records == 0
    assert "Too many open files" in found.executors.reason


def test_a_silent_broker_is_not_ready_and_no_commit_is_lost_meanwhile(metrics, topics, jobs):
    topics.ends_of["clicks"] = [50]
    jobs.commit("clicks", 0, "clicks", 10)
    metrics.sample("clicks")
    topics.silent = True
    for batch in (1, 2):
        jobs.commit("clicks", batch, "clicks", 10 * batch + 10)
        with pytest.raises(NotReady, match="does not answer"):
            metrics.sample("clicks")
    topics.silent = False
    assert [commit.batch for commit in metrics.sample("clicks").commits] == [1, 2]
    assert metrics.sample("clicks").commits == ()


def test_a_broker_that_comes_back_within_our_patience_has_kept_the_sample_waiting(
    metrics, topics, jobs, monkeypatch
):
    jobs.commit("clicks", 0, "clicks", 0)
    assert metrics.sample("clicks").broker_waited_s == 0.0
    starts = topics.starts

    def late(names):
        jobs.clock_s += 8.0
        return starts(names)

    monkeypatch.setattr(topics, "starts", late)
    found = metrics.sample("clicks")
    assert found.broker_waited_s == 8.0
    assert found.driver == "up"


def test_a_broker_that_is_silent_about_a_group_only_was_silent_too(metrics, topics, jobs, monkeypatch):
    """It is back when it is asked for the ends."""

    def silent(group, asked):
        jobs.clock_s += 10.0
        raise NotReady("the broker does not answer")

    jobs.commit("clicks", 0, "clicks", 0)
    metrics.sample("clicks")
    jobs.clock_s += 10.0
    monkeypatch.setattr(topics, "committed", silent)
    assert metrics.sample("clicks").broker_waited_s == 10.0


def test_a_clock_that_goes_back_a_little_is_waited_for_and_no_commit_is_lost_meanwhile(metrics, jobs):
    jobs.commit("clicks", 0, "clicks", 0)
    metrics.sample("clicks")
    jobs.clock_s -= 2.0
    for batch in (1, 2):
        jobs.commit("clicks", batch, "clicks", 0)
        with pytest.raises(NotReady, match=r"the clock went back by 2\.0 s"):
            metrics.sample("clicks")
    jobs.clock_s += 3.0
    assert [commit.batch for commit in metrics.sample("clicks").commits] == [1, 2]


def test_after_a_clock_that_goes_far_back_nothing_from_ahead_is_believed(metrics, topics, jobs):
    jobs.commit("clicks", 0, "clicks", 0)
    for _ in range(2):
        jobs.clock_s += 20.0
        topics.ends_of["clicks"][0] += 100
        before = metrics.sample("clicks").executors
    assert before[0].cpu == 0.1
    jobs.clock_s -= 3600.0
    found = metrics.sample("clicks")
    assert found.lag_records == 200
    assert isinstance(found.executors[0].cpu, Unknown), "the reading before is from another time"
    jobs.clock_s += 20.0
    assert metrics.sample("clicks").executors[0].cpu == 0.1


def test_while_the_driver_is_dead_lag_is_known(metrics, topics, jobs):
    jobs.commit("clicks", 0, "clicks", 10)
    jobs.dead = True
    topics.ends_of["clicks"] = [60]
    found = metrics.sample("clicks")
    assert found.lag_records == 50
    assert found.run_id == Unknown("the driver is dead")
    assert found.executors == ()


def test_a_frozen_driver_holds_nobody_up_for_long(metrics, topics, jobs, monkeypatch):
    monkeypatch.setattr(local_metrics, "SLOW_WAIT_S", 0.05)
    jobs.hang.clear()
    jobs.commit("clicks", 0, "clicks", 10)
    topics.ends_of["clicks"] = [60]
    found = metrics.sample("clicks")
    assert found.lag_records == 50
    assert "did not answer in time" in found.executors.reason


def test_executors_are_read_every_few_seconds_and_repeated_in_between(metrics, jobs):
    jobs.commit("clicks", 0, "clicks", 0)
    first = metrics.sample("clicks").executors
    assert isinstance(first[0].cpu, Unknown)
    jobs.clock_s += 1.0
    assert metrics.sample("clicks").executors == first
    jobs.clock_s += 19.0  # so long ago that the new reading is waited for
    assert metrics.sample("clicks").executors == (ExecutorSample("a/0", "running", 0.1, 0.2, 0.0),)


def test_another_checkpoint_is_another_job(metrics, topics, jobs):
    topics.ends_of["clicks"] = [50]
    jobs.commit("clicks", 7, "clicks", 40)
    assert metrics.sample("clicks").lag_records == 10
    jobs.plans.pop("clicks")
    jobs.folder = jobs.folder / "second"
    jobs.add("clicks", "clicks")
    assert "no batch is committed yet" in metrics.sample("clicks").lag_records.reason


def test_of_a_job_that_is_gone_nothing_is_kept(metrics, jobs):
    for name in ("orders", "clicks"):
        jobs.commit(name, 0, name, 0)
    metrics.sample_all(["orders", "clicks"])
    metrics.forget("orders")
    metrics.forget("never-seen")
    assert set(metrics._jobs) == {"clicks"}
