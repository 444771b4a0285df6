"""Evaluates the demo's job at every interval and moves its load, in place of Dagster's daemon and of users.

Two threads by the environment's clock. The load is a gentle wave around a level. With `acts` it also carries
out the changes of size, as a run of Dagster would.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from models.errors import HeadroomError, NotReady
from models.ports import Source
from profiling_jobs.orders import Json

from ..serving import Service

LOAD_EVERY_S = 5.0  # judgement: smooth beside batches of seconds
SWING = 0.08  # of the level
PERIOD_S = 240.0
SLICE_S = 1.0  # how long closing may take
PATIENCE_S = 120.0  # of real time, for one interval


class Evaluator:
    """Evaluates and moves the load from `start` to `close`."""

    def __init__(
        self,
        service: Service,
        job: str,
        *,
        interval_s: float,
        seen: Callable[[Json], None] = lambda one: None,
    ) -> None:
        self._service, self._job, self._interval_s, self._seen = service, job, interval_s, seen
        self._closing = threading.Event()
        self._turn = threading.Condition()
        self._count = 0
        self._newest: Json = {}
        self._decided: Json = {}
        self._threads: list[threading.Thread] = []
        self._problem: BaseException | None = None
        self._level = (0.0, 0.0, 0.0, 0.0)
        """From which rate, to which, since when, within how many seconds."""
        self._handed_over = False
        self.acts = False

    def start(self) -> None:
        for work in (self._load, self._evaluate):
            thread = threading.Thread(
                target=self._guarded, args=(work,), name="headroom-evaluator", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def hand_over(self) -> None:
        """Go on with the load; Dagster's daemon evaluates from now on."""
        self._handed_over = True

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def load(self, rate_rps: float, *, ramp_s: float = 0.0) -> None:
        """Move the load to this level within `ramp_s`."""
        now_s = self._service.environment.clock.now_s()
        self._level = (self._at(now_s), rate_rps, now_s, ramp_s)

    @property
    def load_is_steady(self) -> bool:
        """Whether it has reached its level."""
        _, _, since_s, ramp_s = self._level
        return self._service.environment.clock.now_s() >= since_s + ramp_s

    @property
    def newest(self) -> Json:
        """The newest evaluation."""
        with self._turn:
            return self._newest

    @property
    def decided(self) -> Json:
        """The newest evaluation with an answer of the optimiser; the newest of all where there is none."""
        with self._turn:
            return self._decided or self._newest

    def next_tick(self) -> Json:
        """Wait for the next evaluation."""
        with self._turn:
            before = self._count
            self._turn.wait_for(
                lambda: self._count > before or self._problem is not None,
                timeout=PATIENCE_S + self._interval_s,
            )
            if self._problem is not None:
                raise self._problem
            if self._count == before:
                raise NotReady(
                    f"{self._job} was not evaluated for {PATIENCE_S:.0f} s: is the machine asleep?"
                )
            return self._newest

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            with self._service.environment.taking_part():
                work()
        except BaseException as error:  # noqa: BLE001 - raised in `next_tick`
            with self._turn:
                self._problem = error
                self._turn.notify_all()

    def _load(self) -> None:
        world, job = self._service.environment, self._service.settings.jobs[self._job]
        source: Source = world.open_source(self._job, job, f"{self._job}-input", dict(job.inputs))
        try:
            while not self._closing.is_set():
                now_s = world.clock.now_s()
                wave = 1.0 + SWING * math.sin(2.0 * math.pi * now_s / PERIOD_S)
                source.set_rate(max(1.0, wave * self._at(now_s)))
                self._sleep(LOAD_EVERY_S)
        finally:
            source.stop()

    def _evaluate(self) -> None:
        world, every_s = self._service.environment, self._interval_s
        while not self._closing.is_set():
            now_s = world.clock.now_s()
            self._sleep((math.floor(now_s / every_s) + 1) * every_s + 0.5 - now_s)
            if self._closing.is_set() or self._handed_over:
                return
            try:
                found = self._service.server.evaluate(self._job)
            except NotReady:  # not just now
                continue
            self._seen(found)
            if self.acts and found.get("apply"):
                self._carry_out(found["apply"])
            with self._turn:
                self._newest, self._count = found, self._count + 1
                if "verdicts" in (found.get("decision") or {}):
                    self._decided = found
                self._turn.notify_all()

    def _carry_out(self, change: Json) -> None:
        try:
            self._service.server.begin("apply", self._job, epoch=change["epoch"], to=change["to"])
        except HeadroomError:  # the next tick asks again
            return

    def _sleep(self, seconds: float) -> None:
        while seconds > 0.0 and not self._closing.is_set():
            self._service.environment.clock.sleep(min(SLICE_S, seconds))
            seconds -= SLICE_S

    def _at(self, now_s: float) -> float:
        before, after, since_s, ramp_s = self._level
        share = 1.0 if ramp_s <= 0.0 else min(1.0, max(0.0, (now_s - since_s) / ramp_s))
        return before + share * (after - before)
