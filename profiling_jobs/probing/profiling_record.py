"""What is written down of a search, so that a crash costs one probe and the models find what was measured?

The store's document "profiling" holds the search (models.probing.State) and the batches that were seen;
each valid result is a measurement beside it, named by its session and number. The document comes first: what
is missing of the measurements is written again when the search goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from models import probing
from models.probing import Result, Settings, State
from models.quantities import Measurement, Unknown

from ..ports import Clock, Store
from ..signals import batch_costs

DOCUMENT = "profiling"
KEPT_BATCHES = 400  # judgement: of each scale-out, for its overhead


class Record:
    """The search of one job as it is written down."""

    def __init__(self, job: str, store: Store, clock: Clock) -> None:
        self._job, self._store, self._clock = job, store, clock
        self._session = ""
        self._batches: dict[str, list[list[float]]] = {}

    def begin(self, settings: Settings) -> tuple[State, bool]:
        """The search that was interrupted, if it was the same one and is not over; otherwise a new one."""
        kept = self._store.document(self._job, DOCUMENT)
        if kept is not None:
            state = State.from_json(kept["state"])
            # The guess may have come from a single-slot run since.
            same = replace(state.settings, first_guess=settings.first_guess) == settings
            if same and not state.done:
                self._session = str(kept["session"])
                self._batches = {size: list(pairs) for size, pairs in kept["batches"].items()}
                for result in state.results:
                    self.keep(result)
                return state, True
        self._session = f"{self._clock.now_s():.0f}"
        return probing.start(settings), False

    def save(self, state: State) -> None:
        """Durable when it returns."""
        document: dict[str, Any] = {
            "schema": 1,
            "session": self._session,
            "state": state.to_json(),
            "batches": {size: pairs[-KEPT_BATCHES:] for size, pairs in self._batches.items()},
        }
        self._store.save_document(self._job, DOCUMENT, document)

    def keep(self, result: Result) -> None:
        """A valid result as a measurement; telling it again changes nothing."""
        if not result.valid:
            return
        key = f"profile-{self._session}-{result.probe.number}"
        self._store.add_measurement(self._job, key, measurement(result), at_s=self._clock.now_s())

    def note_batches(self, scale_out: int, batches: Iterable[Sequence[float]]) -> None:
        """Batches of a valid probe: written with the next `save`."""
        self._batches.setdefault(str(scale_out), []).extend(list(pair) for pair in batches)


def measured(store: Store, job: str) -> tuple[Measurement, ...] | Unknown:
    """What has the newest search found, without the results that later ones have contradicted?"""
    kept = store.document(job, DOCUMENT)
    if kept is None:
        return Unknown(f"{job} was never profiled")
    return probing.measurements(State.from_json(kept["state"]))


def overheads_s(store: Store, job: str) -> Mapping[int, float] | Unknown:
    """What has a batch cost beside its records, by scale-out, as the newest search has seen it?"""
    kept = store.document(job, DOCUMENT)
    if kept is None:
        return Unknown(f"{job} was never profiled")
    found = {int(size): batch_costs.fit(pairs) for size, pairs in kept["batches"].items()}
    known = {size: cost.overhead_s for size, cost in found.items() if not isinstance(cost, Unknown)}
    if known:
        return known
    return Unknown(next((c.reason for c in found.values() if isinstance(c, Unknown)), "no batches were seen"))


def measurement(result: Result) -> Measurement:
    """What a valid probe has measured."""
    return Measurement(
        scale_out=result.probe.scale_out,
        offered_rps=result.rate_rps,
        throughput_rps=result.value_rps,
        sustained=result.sustained,
        latency_ms=result.latency_ms,
        duration_s=result.probe.probe_s,
        executor_seconds=result.cost,
        standard_error_rps=result.standard_error_rps,
    )
