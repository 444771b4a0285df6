"""Stored record of searches: a crash costs one probe at most, and models find what was measured.

Each valid result is a measurement in the store, named by its search, its number and its point. The document
"profiling" holds the newest search (models.probing.State), the batches that were seen, and the searches that
were interrupted. A search need not visit every size, and a point may be probed alone. So what is known of a
size is

    the newest search that has saturated it, or if none has, the newest that has a value
    and the single points that were probed there since; one takes the place of the search's own result
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from models import codec, probing
from models.ports import Clock, Store
from models.probing import Result, Settings, State
from models.quantities import Measurement, Unknown, executors

from ..telemetry import batch_costs

DOCUMENT = "profiling"
KEPT_BATCHES = 400  # judgement: of each scale-out, for its overhead
FEWEST_SIZES = 2  # one does not show how capacity rises
PLENTY = 10.0  # times the highest load: a catch-up takes a ninth of the downtime at most
KEPT_ASIDE = 4  # judgement: interrupted searches that are still worth going on with
_KEY = re.compile(r"profile-(?P<session>\d+)-(?P<number>\d+)(/(?P<point>.*))?")

Batches = Mapping[str, Sequence[Sequence[float]]]


class Record:
    """The search of one job as it is written down."""

    def __init__(self, job: str, store: Store, clock: Clock) -> None:
        self._job, self._store, self._clock = job, store, clock
        self._session = ""
        self._batches: dict[str, list[list[float]]] = {}
        self._earlier: Batches = {}
        """What other searches have seen."""
        self._aside: list[Mapping[str, Any]] = []

    def begin(self, settings: Settings) -> tuple[State, bool]:
        """The search that was interrupted, if it was the same one and is not over; otherwise a new one."""
        kept: Mapping[str, Any] | None = self._store.document(self._job, DOCUMENT)
        if kept is None:
            return self._anew(settings), False
        again: Mapping[str, Any] | None = None
        state, interrupted = None, []
        for search in (kept, *kept.get("aside", ())):
            found = codec.from_json(State, search["state"])
            # The guess may have come from a single-slot run since.
            same = replace(found.settings, first_guess=settings.first_guess) == settings
            if not found.done and same and state is None:
                again, state = search, found
            elif not found.done:
                interrupted.append(search)
        self._aside = interrupted[:KEPT_ASIDE]
        if again is not None and again is kept:
            self._batches = {size: list(pairs) for size, pairs in kept["batches"].items()}
            self._earlier = kept.get("earlier", {})
        else:
            self._earlier = _batches(kept)
        if again is None or state is None:
            return self._anew(settings), False
        self._session = str(again["session"])
        return state, True

    def _anew(self, settings: Settings) -> State:
        taken = {one.session for one in _results(self._store, self._job)}
        number = round(self._clock.now_s())
        while str(number) in taken:
            number += 1
        self._session = str(number)
        return probing.start(settings)

    def save(self, state: State) -> None:
        """Durable when it returns."""
        document: dict[str, Any] = {
            "schema": 1,
            "session": self._session,
            "state": codec.to_json(state),
            "batches": {size: pairs[-KEPT_BATCHES:] for size, pairs in self._batches.items()},
            "earlier": self._earlier,
            "aside": [{"session": one["session"], "state": one["state"]} for one in self._aside],
        }
        self._store.save_document(self._job, DOCUMENT, document)

    def keep(self, result: Result) -> None:
        """A valid result as a measurement; keeping it again changes nothing."""
        if not result.valid:
            return
        probe = result.probe
        key = f"profile-{self._session}-{probe.number}/{point(probe.scale_out, probe.rate_rps)}"
        self._store.add_measurement(self._job, key, result.measurement, at_s=self._clock.now_s())

    def note_batches(self, scale_out: int, batches: Iterable[Sequence[float]]) -> None:
        """Batches of a valid probe: written with the next `save`."""
        self._batches.setdefault(str(scale_out), []).extend(list(pair) for pair in batches)


def point(scale_out: int, rate_rps: float) -> str:
    """Name of a profiling point of a job: e4/r30000."""
    return f"e{scale_out}/r{rate_rps:.0f}"


def measured(store: Store, job: str) -> tuple[Measurement, ...] | Unknown:
    """What is known of each scale-out, without the results that others have contradicted."""
    found = in_force(store, job)
    return found if isinstance(found, Unknown) else tuple(one for _, one in found)


def in_force(store: Store, job: str) -> tuple[tuple[float, Measurement], ...] | Unknown:
    """The same with the time of each, by size."""
    sizes: dict[int, list[_Kept]] = {}
    for one in _results(store, job):
        sizes.setdefault(one.what.scale_out, []).append(one)
    if not sizes:
        return Unknown(f"{job} was never profiled")
    return tuple((one.at_s, one.what) for size in sorted(sizes) for one in _standing(sizes[size]))


def overheads_s(store: Store, job: str) -> Mapping[int, float] | Unknown:
    """Overhead of a batch by scale-out, from the newest search that shows it."""
    kept = store.document(job, DOCUMENT)
    if kept is None:
        return Unknown(f"{job} was never profiled")
    found = {int(size): batch_costs.fit(pairs) for size, pairs in _batches(kept).items()}
    known = {size: cost.overhead_s for size, cost in found.items() if not isinstance(cost, Unknown)}
    if known:
        return known
    return Unknown(next((c.reason for c in found.values() if isinstance(c, Unknown)), "no batches were seen"))


def is_plenty(measurements: Iterable[Measurement], peak_rps: float | Unknown) -> bool:
    """Whether a copy has kept up with so much that decisions need no upper end of the capacity."""
    if isinstance(peak_rps, Unknown):
        return False
    profiled = [one for one in measurements if one.origin == "profile" and one.sustained]
    return any(one.throughput_rps >= PLENTY * peak_rps for one in profiled)


def missing_for_decisions(
    store: Store, job: str, *, one_size: bool, peak_rps: float | Unknown, limit_records: float
) -> str:
    """What decisions need and is not known; empty where nothing is missing. `one_size`: no other is asked."""
    found = measured(store, job)
    if isinstance(found, Unknown) or not found:
        return "no probe was valid"
    saturated = {one.scale_out for one in found if not one.sustained}
    plenty = is_plenty(found, peak_rps)
    if not saturated and not plenty:
        return "the job kept up with every rate that was offered, so that its capacity is unknown"
    if len(saturated) < FEWEST_SIZES and not one_size and not plenty:
        only = executors(saturated.pop())
        return f"its capacity is known with {only} only, and {FEWEST_SIZES} sizes show how it rises"
    costs = overheads_s(store, job)
    if isinstance(costs, Unknown):
        return f"the cost of a batch is unknown: {costs.reason}"
    for one in found:
        if one.sustained or one.scale_out not in costs:
            continue
        bare = batch_costs.bare_capacity_rps(
            one.throughput_rps, overhead_s=costs[one.scale_out], limit_records=limit_records
        )
        if isinstance(bare, Unknown):
            return f"the probes with {executors(one.scale_out)} contradict each other: {bare.reason}"
    return ""


# ----------------------------------------------------------------------------------------------- inside


@dataclass(frozen=True)
class _Kept:
    """A measurement, and what its key says."""

    at_s: float
    session: str
    """Of the search; empty for a point that was probed alone."""
    number: int
    point: str
    what: Measurement

    @property
    def sustained(self) -> bool:
        return self.what.sustained

    @property
    def value_rps(self) -> float:
        return self.what.throughput_rps

    @property
    def rate_rps(self) -> float:
        return self.what.offered_rps


def _results(store: Store, job: str) -> Iterator[_Kept]:
    for key, at_s, one in store.measurements(job):
        if one.origin != "profile":
            continue
        if found := _KEY.fullmatch(key):
            yield _Kept(at_s, found["session"], int(found["number"]), found["point"] or "", one)
        else:
            yield _Kept(at_s, "", 0, key.removeprefix(f"{job}/"), one)


def _standing(kept: Sequence[_Kept]) -> tuple[_Kept, ...]:
    """The measurements of one scale-out that count."""
    alone = [one for one in kept if not one.session]
    searches = [
        sorted((one for one in kept if one.session == session), key=lambda one: (one.at_s, one.number))
        for session in {one.session for one in kept} - {""}
    ]
    searches.sort(key=lambda search: (search[-1].at_s, search[-1].session))
    conclusive = [search for search in searches if probing.believed(search)]
    saturated = [
        search for search in conclusive if not all(one.sustained for one in probing.believed(search))
    ]
    newest = (saturated or conclusive or [[]])[-1]
    since = [one for one in alone if not newest or one.at_s > newest[-1].at_s]
    again = {one.point for one in since}
    return probing.believed([*(one for one in newest if one.point not in again), *since])


def _batches(document: Mapping[str, Any]) -> Batches:
    """Of each scale-out those of the newest search that show what a batch costs, if any do."""
    earlier: Batches = document.get("earlier", {})
    newest: Batches = document["batches"]
    conclusive = {
        size: pairs
        for size, pairs in newest.items()
        if size not in earlier or not isinstance(batch_costs.fit(pairs), Unknown)
    }
    return {**earlier, **conclusive}
