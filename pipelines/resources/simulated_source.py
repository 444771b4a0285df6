"""What sends the records of a simulated profiling copy? A flow into its topics, exactly as commanded."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.simulation.cluster import Cluster


@dataclass(frozen=True)
class Flowed:
    """What was to be sent in some time, and what was sent."""

    achieved_rps: float
    commanded_rps: float


class SimulatedSource:
    """A source for the `Source` port. `shares` divides the rate between several topics."""

    def __init__(self, cluster: Cluster, topics: Mapping[str, float], *, highest_rps: float = np.inf) -> None:
        self._cluster, self._highest_rps = cluster, highest_rps
        total = sum(topics.values())
        self._shares = {topic: share / total for topic, share in topics.items()}
        self._commands: list[tuple[float, float]] = []

    def set_rate(self, rate_rps: float) -> float:
        with self._alone():
            return self._set_rate(rate_rps)

    def _set_rate(self, rate_rps: float) -> float:
        now_s = self._cluster.now_s
        self._commands.append((now_s, rate_rps))
        for topic, share in self._shares.items():
            self._cluster.topics.flow(topic, share * min(rate_rps, self._highest_rps), at_s=now_s)
        return now_s

    def achieved(self, from_s: float, to_s: float) -> Flowed:
        with self._alone():
            sent = sum(
                float((self._cluster.topics[topic].end(to_s) - self._cluster.topics[topic].end(from_s)).sum())
                for topic in self._shares
            )
        edges = [at_s for at_s, _ in self._commands[1:]] + [to_s]
        owed = sum(
            rate * max(0.0, min(end_s, to_s) - max(at_s, from_s))
            for (at_s, rate), end_s in zip(self._commands, edges, strict=True)
        )
        return Flowed(sent / (to_s - from_s), owed / (to_s - from_s))

    def stop(self) -> None:
        with self._alone():
            for topic in self._shares:
                if topic in self._cluster.topics:
                    self._cluster.topics.flow(topic, 0.0, at_s=self._cluster.now_s)

    def _alone(self) -> AbstractContextManager[Any]:
        """One call at a time, where several threads share the cluster."""
        turn: AbstractContextManager[Any] = getattr(self._cluster, "turn", nullcontext())
        return turn
