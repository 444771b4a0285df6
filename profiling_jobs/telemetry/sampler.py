"""Samples of all jobs, put on their timelines round by round.

What cannot be read leaves a gap with its reason, and so do a clock that goes back and a round that fails: the
next round tries again. When the clock goes back a little, samples are left out until it has made up for it;
when it goes back far, that would take as long, so the timeline is dropped and begun anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from models.errors import HeadroomError, NotReady
from models.ports import Metrics, Sample
from models.quantities import Unknown

from .timeline import Timeline

WAITED_FOR_S = 15.0  # judgement: as timeline.EDGE_S, a gap that spans are still answered across


def is_far(newest_s: float, now_s: float) -> bool:
    """Whether the newest sample is too far ahead to wait for."""
    return newest_s - now_s > WAITED_FOR_S


def missed(newest_s: float, now_s: float) -> str:
    """Why there is no sample now."""
    return f"the clock went back by {newest_s - now_s:.1f} s: samples go on when it has made up for it"


KEPT_S = 3600.0  # judgement: many evaluation intervals; six hours of ten jobs were over a gigabyte
EVERY_S = 1.0  # judgement: latency is known to a part of this, and a round costs some 30 ms


@runtime_checkable
class Rounds(Protocol):
    """Metrics that can sample several jobs at once, at a fraction of the cost."""

    def sample_all(self, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]: ...


def sampled(metrics: Metrics, names: Sequence[str]) -> Mapping[str, Sample | HeadroomError]:
    """Every one of them now; what could not be sampled carries its error."""
    if isinstance(metrics, Rounds):
        return metrics.sample_all(names)
    found: dict[str, Sample | HeadroomError] = {}
    for name in names:
        try:
            found[name] = metrics.sample(name)
        except HeadroomError as error:
            found[name] = error
    return found


class Sampler:
    """Samples of `names()`, one round at a time. Any thread may read the timelines, through `reading`."""

    def __init__(
        self,
        metrics: Metrics,
        names: Callable[[], Sequence[str]],
        *,
        clock: Callable[[], float] = time.time,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`say`: gets a line for a round that failed, once for each reason."""
        self._metrics = metrics
        self._names = names
        self._clock = clock
        self._timelines: dict[str, Timeline] = {}
        self._turn = threading.RLock()
        self._say = say
        self._said = ""

    @contextmanager
    def reading(self, name: str) -> Iterator[Timeline]:
        """The timeline of a job, which stands still meanwhile."""
        with self._turn:
            yield self._timelines.setdefault(name, Timeline(kept_s=KEPT_S))

    def round(self) -> None:
        """Sample every job once, now."""
        names = tuple(self._timelines)
        try:
            names = tuple(self._names())
            for name, found in sampled(self._metrics, names).items():
                self._take(name, found)
        except Exception as error:  # noqa: BLE001 - jobs are watched for days: one failed round must not end that
            failed = NotReady(f"a round of samples failed ({type(error).__name__}: {error})")
            for name in names:
                self._take(name, failed)
            if str(failed) != self._said:
                self._said = str(failed)
                self._say(f"{failed}; the next ones are tried")

    def fed_from(self, metrics: Metrics) -> Metrics:
        """The same metrics; what they are asked for is put on the timelines here, too."""
        return _Fed(metrics, self._take)

    def forget(self, name: str) -> None:
        """Drop the timeline of a job that is gone."""
        with self._turn:
            self._timelines.pop(name, None)

    def _take(self, name: str, found: Sample | HeadroomError) -> None:
        with self._turn:
            timeline = self._timelines.setdefault(name, Timeline(kept_s=KEPT_S))
            if isinstance(found, HeadroomError):
                timeline.miss(self._clock(), str(found))
            else:
                self._timelines[name] = _with(timeline, found)


class _Fed:
    def __init__(self, metrics: Metrics, take: Callable[[str, Sample | HeadroomError], None]) -> None:
        self._metrics, self._take = metrics, take

    def sample(self, name: str) -> Sample:
        try:
            found = self._metrics.sample(name)
        except HeadroomError as error:
            self._take(name, error)
            raise
        self._take(name, found)
        return found


def _with(timeline: Timeline, sample: Sample) -> Timeline:
    """The timeline with this sample; another one where the clock went far back."""
    last = timeline.last
    if isinstance(last, Unknown) or sample.at_s > last.at_s:
        timeline.add(sample)
    elif not is_far(last.at_s, sample.at_s):
        timeline.miss(sample.at_s, missed(last.at_s, sample.at_s))
    else:
        back_s, timeline = last.at_s - sample.at_s, Timeline(kept_s=KEPT_S)
        timeline.miss(
            sample.at_s, f"the clock went back by {back_s:,.0f} s: what was sampled before is dropped"
        )
        timeline.add(sample)
    return timeline
