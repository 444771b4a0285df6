"""Who evaluates a job at every interval and moves its load, where neither Dagster's daemon nor people do?

Two threads by the world's clock. The load is a gentle wave around a level that can be told to rise. Every
evaluation is kept until somebody has looked at it; with `acts` the pilot carries out what has to change
itself, as a run of Dagster's would.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from models.errors import HeadroomError, NotReady
from models.ports import Source

from .protocol import Json
from .serving import Office

LOAD_EVERY_S = 5.0  # judgement: smooth beside batches of seconds
SWING = 0.08  # of the level
PERIOD_S = 240.0
SLICE_S = 1.0  # how long closing may take
PATIENCE_S = 120.0  # of real time, for one interval


class Pilot:
    """Evaluates and moves the load from `start` to `close`."""

    def __init__(
        self, office: Office, job: str, *, interval_s: float, seen: Callable[[Json], None] = lambda one: None
    ) -> None:
        self._office, self._job, self._interval_s, self._tell = office, job, interval_s, seen
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
            thread = threading.Thread(target=self._guarded, args=(work,), name="headroom-pilot", daemon=True)
            self._threads.append(thread)
            thread.start()

    def hand_over(self) -> None:
        """Go on with the load; others evaluate from now on."""
        self._handed_over = True

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    # ---------------------------------------------------------------------------------------- for others

    def load(self, rate_rps: float, *, ramp_s: float = 0.0) -> None:
        """To which level the load goes, within how long."""
        now_s = self._office.world.clock.now_s()
        self._level = (self._at(now_s), rate_rps, now_s, ramp_s)

    @property
    def load_is_steady(self) -> bool:
        """Whether it has reached its level."""
        _, _, since_s, ramp_s = self._level
        return self._office.world.clock.now_s() >= since_s + ramp_s

    @property
    def newest(self) -> Json:
        """The newest evaluation."""
        with self._turn:
            return self._newest

    @property
    def decided(self) -> Json:
        """The newest one at which the optimiser was asked; the newest of all where it never was."""
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

    # ------------------------------------------------------------------------------------- the two threads

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            with self._office.world.taking_part():
                work()
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            with self._turn:
                self._problem = error
                self._turn.notify_all()

    def _load(self) -> None:
        world, job = self._office.world, self._office.settings.jobs[self._job]
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
        world, every_s = self._office.world, self._interval_s
        while not self._closing.is_set():
            now_s = world.clock.now_s()
            self._sleep((math.floor(now_s / every_s) + 1) * every_s + 0.5 - now_s)
            if self._closing.is_set() or self._handed_over:
                return
            try:
                found = self._office.desk.evaluate(self._job)
            except NotReady:  # not just now
                continue
            self._tell(found)
            if self.acts and found.get("apply"):
                self._carry_out(found["apply"])
            with self._turn:
                self._newest, self._count = found, self._count + 1
                if "verdicts" in (found.get("decision") or {}):
                    self._decided = found
                self._turn.notify_all()

    def _carry_out(self, change: Json) -> None:
        try:
            self._office.desk.begin("apply", self._job, epoch=change["epoch"], to=change["to"])
        except HeadroomError:  # the next tick asks again
            return

    def _sleep(self, seconds: float) -> None:
        while seconds > 0.0 and not self._closing.is_set():
            self._office.world.clock.sleep(min(SLICE_S, seconds))
            seconds -= SLICE_S

    def _at(self, now_s: float) -> float:
        before, after, since_s, ramp_s = self._level
        share = 1.0 if ramp_s <= 0.0 else min(1.0, max(0.0, (now_s - since_s) / ramp_s))
        return before + share * (after - before)
