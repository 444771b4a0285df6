"""Simulated time for several threads.

A thread that *takes part* holds the time still while it works; when all that take part sleep, time jumps to
the first that has to wake up. So a search, a drill and a sampler run side by side as they would in real time,
only faster. Those that wake up at the same moment work one after the other, by the names of their threads:
what they find does not depend on how busy this machine is. `not_beyond` bounds time: a simulated environment
that is served goes with the wall clock once it has caught up with it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from models.ports import Plan
from models.simulation.cluster import Cluster
from profiling_jobs import plans

LOOK_S = 1.0  # of simulated time, between two looks at what a call waits for
NAP_S = 0.05  # of real time, between two looks at the wall clock, at most …
SHORTEST_S = 0.0005  # … and at least
HURRY = 60.0  # seconds a second, while a call waits for something that takes long


class SharedCluster(Cluster):
    """A cluster that many threads use, and that refuses the plans that a real deployment refuses."""

    turn: threading.Condition

    def __post_init__(self) -> None:
        super().__post_init__()
        self.turn = self.topics.turn = threading.Condition(threading.RLock())
        self.not_beyond: Callable[[], float] = lambda: math.inf
        self.real_s: Callable[[float], float] = lambda seconds: seconds
        """How long so much simulated time takes at the pace that is set."""
        self._awake = 0
        self._here = threading.local()
        self._sleepers: dict[object, tuple[float, str, bool]] = {}
        """Who sleeps -> until when, in which thread, and whether time waits for them afterwards."""

    def launch(self, plan: Plan) -> None:
        plans.check(plan)
        with self.turn:
            for job in self.jobs.values():
                if job.plan.name != plan.name:
                    plans.apart(plan, job.plan)
                    plans.apart(job.plan, plan)
            super().launch(plan)

    @contextmanager
    def taking_part(self) -> Iterator[None]:
        """As long as this thread is at work time stands still."""
        if getattr(self._here, "part", False):
            yield
            return
        with self.turn:
            self._awake += 1
            self._here.part = True
        try:
            yield
        finally:
            with self.turn:
                self._here.part = False
                self._awake -= 1
                self.turn.notify_all()

    def sleep(self, seconds: float) -> None:
        """Until so much time has passed."""
        part = bool(getattr(self._here, "part", False))
        me = object()
        with self.turn:
            due_s = self.now_s + max(0.0, seconds)
            if due_s <= self.now_s:
                return
            self._sleepers[me] = (due_s, threading.current_thread().name, part)
            self._awake -= part
            try:
                while me in self._sleepers:
                    if self._awake > 0:
                        self.turn.wait()
                    else:
                        self._pass_on()
            finally:
                if self._sleepers.pop(me, None) is not None:  # Ctrl-C
                    self._awake += part

    def _pass_on(self) -> None:
        """Advance the time to the first thread that has to wake up, once every thread sleeps."""
        first_s, _, _ = min(self._sleepers.values())
        allowed_s = self.not_beyond()
        if first_s > allowed_s:
            # Also while a call waits the others may look, and come to sleep or to work.
            self.turn.wait(min(NAP_S, self.real_s(first_s - allowed_s)))
            return
        self.advance(max(0.0, first_s - self.now_s))
        for one, (due_s, _, part) in sorted(self._sleepers.items(), key=lambda sleeper: sleeper[1]):
            if due_s <= self.now_s and not self._awake:
                del self._sleepers[one]
                self._awake += part
        self.turn.notify_all()

    def _wait(self, condition: Callable[[], bool], *, timeout_s: float) -> bool:
        """As in the cluster, but the others go on meanwhile."""
        until_s = self.now_s + timeout_s
        while not condition() and self.now_s < until_s:
            due_s = min((job.next_s(self.now_s) for job in self.jobs.values()), default=math.inf)
            self.sleep(max(1e-6, min(due_s - self.now_s, until_s - self.now_s, LOOK_S)))
        return condition()


class Pace:
    """The highest speed of simulated time, seconds a second; inf: as fast as it is computed."""

    def __init__(self, cluster: SharedCluster, *, usual: float) -> None:
        self._cluster, self._usual = cluster, usual
        self._hurried = 0
        self._with_wall_clock = False
        self._speed, self._from_s, self._since_s = usual, cluster.now_s, time.monotonic()
        cluster.not_beyond = self._bound_s
        cluster.real_s = lambda seconds: max(SHORTEST_S, seconds / self._speed)

    def set(self, speed: float) -> None:
        """From now on, and faster still while a call waits."""
        with self._cluster.turn:
            self._usual, self._with_wall_clock = speed, False
            self._anew()

    def catch_up(self) -> None:
        """To the wall clock as fast as it can be computed, and on with it; one that is ahead stays ahead."""
        with self._cluster.turn:
            self.set(1.0)
            self._with_wall_clock = True

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Held while a call waits."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._cluster.turn:
            before = self._hurried
            self._hurried += more
            if bool(before) != bool(self._hurried):
                self._anew()

    def _anew(self) -> None:
        self._speed = max(self._usual, HURRY) if self._hurried else self._usual
        self._from_s, self._since_s = self._cluster.now_s, time.monotonic()
        with self._cluster.turn:
            self._cluster.turn.notify_all()

    def _bound_s(self) -> float:
        bound_s = self._from_s + self._speed * (time.monotonic() - self._since_s)
        return max(bound_s, time.time()) if self._with_wall_clock else bound_s
