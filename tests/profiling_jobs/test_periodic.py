"""Work that is repeated in a thread."""

import threading

import pytest

from models.simulation.cluster import SimulatedClock
from pipelines.environments.simulated.time import SharedCluster
from profiling_jobs.periodic import Periodic

pytestmark = pytest.mark.fast


def test_it_is_repeated_until_it_is_closed_and_leaves_no_thread():
    calls, enough = [], threading.Event()

    def work():
        calls.append(None)
        if len(calls) == 3:
            enough.set()

    before = threading.active_count()
    with Periodic(work, every_s=0.001, name="test") as periodic:
        assert enough.wait(30.0)
        assert periodic.running
    done = len(calls)
    assert (threading.active_count(), periodic.running, len(calls)) == (before, False, done)


def test_a_call_that_fails_is_told_once_for_each_reason_and_the_next_ones_are_made(monkeypatch):
    told, calls, enough = [], [], threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda seen: told.append((str(seen.exc_value), seen.thread)))

    def work():
        calls.append(None)
        if len(calls) in (2, 3):
            raise OSError("no room")
        if len(calls) == 4:
            raise ValueError("not a number")
        if len(calls) == 6:
            enough.set()

    with Periodic(work, every_s=0.001, name="test"):
        assert enough.wait(30.0)
    assert [(reason, thread.name) for reason, thread in told] == [
        ("no room", "headroom-test"),
        ("not a number", "headroom-test"),
    ]


def test_by_another_clock_a_call_that_takes_longer_puts_off_the_next_one():
    cluster = SharedCluster(now_s=100.0)
    clock, began_s, enough = SimulatedClock(cluster), [], threading.Event()

    def work():
        began_s.append(clock.now_s())
        clock.sleep(7.0 if len(began_s) == 2 else 1.0)
        if len(began_s) == 4:
            enough.set()

    with Periodic(work, every_s=5.0, name="test", clock=clock, taking_part=cluster.taking_part):
        assert enough.wait(30.0)
    assert began_s[:4] == pytest.approx([100.0, 105.0, 112.25, 117.25])
