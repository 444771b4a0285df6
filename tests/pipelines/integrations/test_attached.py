"""A job that somebody else runs, seen through its checkpoint on a disk and a broker that is made up here."""

import json
import os
from contextlib import ExitStack

import pytest
from stand_ins import plan

from models.errors import Misconfigured, NotReady, Unsafe
from models.quantities import Unknown
from pipelines.environments.attached import (
    Attached,
    AttachedDeployments,
    AttachedMetrics,
    theirs,
)
from pipelines.environments.metrics import JobMetrics
from pipelines.settings import loading

pytestmark = pytest.mark.fast

BEGAN_S = 1_763_474_400.0
TOML = """
[job.orders]
attach = true
executors = 4
checkpoint = "{checkpoint}"
inputs = {{events = "orders"}}
outputs = {{alerts = "alerts"}}
"""


class Owner:
    """Who runs the job: its checkpoint, its topic, and the time."""

    def __init__(self, folder):
        self.checkpoint, self.now_s = folder, BEGAN_S
        self.end, self.done, self.batch = 0, 0, -1
        self.silent = False
        self.group = "none"

    def starts_a_query(self):
        for part in ("offsets", "commits"):
            (self.checkpoint / part).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text('{"id": "1b4e28ba"}')

    def passes(self, seconds, *, arrive=0, commits=True, every_s=10):
        """So many records arrive each second; a batch is committed every so often."""
        for second in range(seconds):
            self.now_s += 1.0
            self.end += arrive
            if commits and second % every_s == every_s - 1 and self.done < self.end:
                self.commits()

    def commits(self):
        self.batch, self.done = self.batch + 1, self.end
        if not self.checkpoint.is_dir():
            return
        offsets = json.dumps({"orders": {"0": self.done}})
        (self.checkpoint / "offsets" / str(self.batch)).write_text(f"v1\n{{}}\n{offsets}")
        path = self.checkpoint / "commits" / str(self.batch)
        path.write_text("v1\n{}")
        os.utime(path, (self.now_s, self.now_s))

    # the broker, which has no method to write with

    def starts(self, topics):
        return {("orders", 0): 0}

    def ends(self, topics):
        if self.silent:
            raise NotReady("the broker does not answer")
        return {("orders", 0): self.end}

    def committed(self, group, topics):
        return {("orders", 0): self.done} if group == self.group and self.batch >= 0 else {}


class Nothing:
    """Deployments and executors of ours: there are none, and what is asked of them is kept."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        def ask(*arguments, **named):
            self.asked.append((name, *arguments))
            return {"read": (), "names": (), "losses": {}}.get(name, 1.0)

        return ask


class Watched:
    """The adapters around both."""

    def __init__(self, owner, toml=TOML):
        found = loading.parse(toml.format(checkpoint=owner.checkpoint), environment={})
        self.owner, self.ours = owner, Nothing()
        self.attached = Attached(theirs(found.jobs), now_s=lambda: owner.now_s)
        self.deployments = AttachedDeployments(self.ours, self.attached)
        self.local = JobMetrics(owner, self.deployments, self.ours, clock=lambda: owner.now_s)
        self.metrics = AttachedMetrics(self.local, self.attached)

    def status(self):
        return self.deployments.status("orders")

    def watches(self, seconds, **what):
        """Look once a second."""
        every_s = what.pop("every_s", 10)
        for second in range(seconds):
            self.owner.passes(1, every_s=1 if second % every_s == every_s - 1 else 2, **what)
            self.metrics.sample_all(["orders"])
        return self.status()


@pytest.fixture
def owner(tmp_path):
    return Owner(tmp_path / "theirs")


@pytest.fixture
def watching(owner):
    """Adapters with these settings, which are closed after the test."""
    with ExitStack() as stack:

        def opened(toml=TOML):
            found = Watched(owner, toml)
            stack.callback(found.local.close)
            return found

        yield opened


@pytest.fixture
def watched(owner, watching):
    owner.starts_a_query()
    return watching()


def test_lag_commits_and_their_times_come_from_offsets_and_the_checkpoint(watched):
    watched.watches(35, arrive=100)
    sample = watched.metrics.sample("orders")
    assert (sample.lag_records, sample.last_batch, sample.committed_source) == (500, 2, "checkpoint")
    assert sample.last_commit_at_s == BEGAN_S + 30.0
    assert isinstance(sample.latency_p95_ms, float)
    told = watched.watches(5, arrive=100)
    assert told.state == "running"
    assert isinstance(sample.executors, Unknown)
    assert isinstance(sample.run_id, Unknown)


def test_commits_that_go_on_are_a_running_job_with_what_its_owner_says(watched):
    status = watched.watches(60, arrive=100)
    assert (status.state, status.declared_scale_out, status.ours) == ("running", 4, False)
    assert isinstance(status.executors_alive, Unknown), "never zero: nobody has seen them"


def test_records_that_arrive_and_are_not_committed_are_a_standstill(watched):
    watched.watches(60, arrive=100)
    assert watched.watches(50, arrive=100, commits=False).state == "running"
    status = watched.watches(80, arrive=100, commits=False)
    assert status.state == "stalled"
    assert "no commit for 130 s while records wait" in status.reason
    assert watched.watches(15, arrive=100).state == "running"


def test_where_nothing_arrives_nobody_can_tell_whether_it_runs(watched):
    watched.watches(60, arrive=100)
    status = watched.watches(600)
    assert status.state == "unknown"
    assert "nothing has arrived since its newest commit, 600 s ago" in status.reason
    assert watched.watches(9, arrive=100, commits=False).state == "unknown", "not overdue yet"
    assert watched.watches(20, arrive=100).state == "running"


def test_a_job_that_died_with_a_backlog_stands_still_also_while_nothing_more_arrives(
    watched,
):
    watched.owner.passes(60, arrive=100)
    watched.owner.passes(3600, arrive=1, commits=False)
    status = watched.watches(30, commits=False)
    assert "records wait for 29 s, its next commit is not overdue" in status.reason
    status = watched.watches(60, commits=False)
    assert status.state == "stalled"
    assert "no commit for 3690 s while records wait" in status.reason


def test_a_job_that_died_in_a_batch_stands_still_also_while_nothing_more_arrives(watched):
    watched.watches(55, arrive=100)
    watched.owner.commits()
    watched.owner.end += 500  # it came while the newest batch was at work, and is not in it
    assert watched.watches(60, commits=False).state == "running"
    assert watched.watches(60, commits=False).state == "stalled"


def test_a_slow_trigger_is_waited_for(owner, watching):
    owner.starts_a_query()
    watched = watching(TOML + "trigger_s = 60\n")
    watched.watches(120, arrive=10, every_s=60)
    assert watched.watches(300, arrive=10, commits=False).state == "running"
    assert watched.watches(100, arrive=10, commits=False).state == "stalled"


def test_what_cannot_be_read_is_unknown_and_says_why(owner, watching):
    watched = watching()
    assert watched.status().state == "unknown", "nobody has looked yet"
    owner.silent = True
    assert watched.watches(1).reason == "the broker does not answer", "also where it never has"
    owner.silent = False
    status = watched.watches(3, commits=False)
    assert status.state == "unknown"
    assert "is not there" in status.reason
    owner.starts_a_query()
    watched.watches(30, arrive=10)
    owner.silent = True
    assert watched.watches(3, arrive=10).reason == "the broker does not answer"
    owner.silent = False
    assert watched.watches(12, arrive=10).state == "running"
    owner.now_s += 300.0
    assert "it was read last 300 s ago" in watched.status().reason


def test_a_checkpoint_on_an_object_store_leaves_its_consumer_group(owner, watching):
    far = TOML.replace("{checkpoint}", "s3a://bucket/orders")
    grouped = far + 'consumer_group = "orders-done"\n'
    unread, watched = watching(far), watching(grouped)
    owner.group = "orders-done"
    told = unread.watches(30, arrive=10)
    assert told.state == "unknown"
    assert "s3a://bucket/orders cannot be read from here" in told.reason
    assert watched.watches(60, arrive=10).state == "running"
    sample = watched.metrics.sample("orders")
    assert (sample.committed_source, sample.lag_records) == ("group", 0)
    assert watched.watches(140, arrive=10, commits=False).state == "stalled"
    again = watching(grouped)
    assert "no commit was seen while records wait" in again.watches(80, arrive=10, commits=False).reason


def test_hands_off(watched):
    again = _plan("orders", role="live", checkpoint="/ours")
    for attempt in (
        lambda: watched.deployments.launch(again),
        lambda: watched.deployments.stop("orders"),
        lambda: watched.deployments.scale("orders", 6, epoch=1),
    ):
        with pytest.raises(Unsafe, match=r"^job\.orders\.attach = true: it is run elsewhere"):
            attempt()
    looks = ("read", "losses", "processors_per_slot")
    assert [ask for ask in watched.ours.asked if ask[0] not in looks] == []


def test_its_checkpoint_is_only_read(watched):
    watched.watches(30, arrive=10)
    before = {path: path.stat().st_mtime_ns for path in watched.owner.checkpoint.rglob("*")}
    watched.watches(30, arrive=10, commits=False)
    assert {path: path.stat().st_mtime_ns for path in watched.owner.checkpoint.rglob("*")} == before


def test_what_is_ours_goes_through(watched):
    copy = _plan("orders-p1-e2", role="profile", checkpoint="/scratch")
    watched.deployments.launch(copy)
    watched.deployments.stop("orders-p1-e2")
    assert [ask[:2] for ask in watched.ours.asked] == [
        ("launch", copy),
        ("stop", "orders-p1-e2"),
    ]


def test_no_copy_and_no_other_job_may_write_where_it_does(watched):
    there = str(watched.owner.checkpoint)
    for key, wrong in (
        ("outputs", {"alerts": "alerts"}),
        ("checkpoint", there),
        ("checkpoint", f"{there}/copy"),
    ):
        with pytest.raises((Unsafe, Misconfigured), match=rf"job\.orders\.{key}"):
            watched.deployments.launch(_plan("orders-p1-e2", role="profile", **{key: wrong}))
    copied = _plan("copied", role="live", checkpoint=there)
    with pytest.raises(Unsafe, match=r"^job\.copied\.checkpoint: .* belongs to orders"):
        watched.deployments.launch(copied)
    assert watched.ours.asked == []


def _plan(name, **changes):
    job = "orders" if name.startswith("orders") else name
    ours = {"scale_out": 2, "inputs": {"events": "scratch-in"}, "outputs": {"alerts": "scratch-out"}}
    return plan(name, job=job, **{**ours, **changes})
