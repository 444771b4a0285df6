"""How do several threads read metrics that are for one at a time? Each waits for its turn."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from profiling_jobs.errors import HeadroomError
from profiling_jobs.ports import Metrics, Sample
from profiling_jobs.signals.sampler import Rounds


class _InTurn:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics, self._turn = metrics, threading.Lock()

    def sample(self, name: str) -> Sample:
        with self._turn:
            return self._metrics.sample(name)


class _RoundsInTurn(_InTurn):
    """The same, where several jobs can be sampled at once."""

    def __init__(self, metrics: Metrics, rounds: Rounds) -> None:
        super().__init__(metrics)
        self._rounds = rounds

    def sample_all(self, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]:
        with self._turn:
            return self._rounds.sample_all(names)


def one_at_a_time(metrics: Metrics) -> Metrics:
    """The same metrics for any number of threads."""
    return _RoundsInTurn(metrics, metrics) if isinstance(metrics, Rounds) else _InTurn(metrics)
