"""What arrives in the live topics of a simulated world? Whatever a made-up curve says, until it is closed."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

from profiling_jobs.errors import HeadroomError

from .settings import Settings
from .world import World

EVERY_S = 5.0  # judgement: smooth beside batches of seconds
Curve = Callable[[float], float]


@dataclass(frozen=True)
class Wave:
    """λ(t) = mean · (1 + swing · sin 2πt/period), t in epoch seconds."""

    mean_rps: float = 800.0  # what one executor of the twin's default job does
    swing: float = 0.5
    period_s: float = 3600.0

    def __call__(self, at_s: float) -> float:
        return self.mean_rps * (1.0 + self.swing * math.sin(2.0 * math.pi * at_s / self.period_s))


def of_every_job(settings: Settings, curve: Curve) -> Mapping[str, Curve]:
    """The same curve for every topic that a job reads."""
    return {topic: curve for job in settings.jobs.values() for topic in job.inputs.values()}


class SimulatedLoad:
    """Records arrive for as long as it is open."""

    def __init__(self, world: World, curves: Mapping[str, Curve]) -> None:
        self._world, self._curves = world, curves
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="headroom-simulated-load", daemon=True)

    def __enter__(self) -> SimulatedLoad:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        world = self._world
        assert world.flow is not None
        with world.taking_part():
            while not self._closing.is_set():
                now_s = world.clock.now_s()
                with suppress(HeadroomError):  # the broker is away: producers wait
                    there = world.broker.topics()
                    for topic, curve in self._curves.items():
                        if topic in there:
                            world.flow(topic, max(0.0, curve(now_s)))
                world.clock.sleep(EVERY_S)
