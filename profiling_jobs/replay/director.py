"""Starts the tasks of a replay, and reports what has reached the broker.

Once a second the driver asks the broker for its end offsets and writes how many records have come: what a
task has handed over may still be on its way.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from typing import Any

from models.errors import HeadroomError, NotReady

from ..driver.launch_file import read_json, write_json
from ..telemetry.offsets import LogOffsets
from . import replay_plan
from .replay_plan import MICROS, Replay
from .tasks import ScheduleFile

START_IN_S = 0.5  # judgement: every task has seen by then when it begins
PAUSE_S = 0.5  # judgement: between two questions to a broker that did not answer
OVERTIME_S = 150.0  # Kafka's producer gives a record up after 120 s


class Director(threading.Thread):
    """Gives the start once every task is ready, and reports every second what has reached the broker."""

    def __init__(self, replay: Replay, offsets: LogOffsets) -> None:
        super().__init__(name="headroom-replay", daemon=True)
        self._replay, self._offsets = replay, offsets
        self._schedule_file = ScheduleFile(replay.folder)
        self._over = threading.Event()
        self._base: dict[int, int] = {}
        self._start_s = 0.0

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - without it the tasks would wait for ever, or go on unseen
            self._give_up(
                str(error) if isinstance(error, HeadroomError) else f"{type(error).__name__}: {error}"
            )

    def _run(self) -> None:
        ready = [self._replay.folder / f"ready.{task}" for task in range(self._replay.tasks)]
        while not all(path.exists() for path in ready):
            if self._over.wait(0.02):
                return
        while (base := self._ends()) is None:
            if self._over.wait(PAUSE_S):
                return
        self._base = base
        self._start_s = time.time() + START_IN_S
        self._write({"at_s": self._start_s, "head": 0})
        write_json(self._replay.folder / "start.json", {"schema": 1, "start_us": int(self._start_s * MICROS)})
        beat = 0
        while not self._over.wait(max(0.0, self._start_s + beat - time.time())):
            beat = int(time.time() - self._start_s) + 1
            self.report()
            over_s = self._start_s + self._schedule_file.read().end_us / MICROS + OVERTIME_S
            if time.time() > over_s:
                self._give_up(f"the broker took no records for {OVERTIME_S:.0f} s")

    def finish(self) -> None:
        self._over.set()
        self.join(timeout=10.0)
        if self._start_s:
            with suppress(HeadroomError):  # of a copy the topic may be gone by now
                self.report()

    def report(self) -> None:
        began_s, ends = time.time(), self._ends()
        head = None if ends is None else sum(end - self._base.get(part, 0) for part, end in ends.items())
        at_s = (began_s + time.time()) / 2
        if at_s <= self._start_s:
            return
        self._write({"at_s": at_s, "head": head})

    def _ends(self) -> dict[int, int] | None:
        """None where the broker does not answer just now."""
        with suppress(NotReady):
            return self._offsets.ends()
        return None

    def _give_up(self, why: str) -> None:
        replay_plan.end(self._replay.folder, "threw", why)
        os._exit(1)

    def _write(self, seen: dict[str, Any]) -> None:
        reports = [read_json(self._replay.folder / f"task-{n}.json") or {} for n in range(self._replay.tasks)]
        line = {
            **seen,
            "sent": sum(one.get("sent", 0) for one in reports),
            # Every task counts all the records of a slice it has given up, its share of them is not known.
            "given_up": sum(one.get("given_up", 0) for one in reports) // self._replay.tasks,
        }
        with (self._replay.folder / "achieved.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
