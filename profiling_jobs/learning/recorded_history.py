"""Which recordings does the workload's history not know yet, and what do they say?

A recording lies in `recordings/JOB/BEGAN-INPUT`, one folder per input of the job. Whoever ends one tells it;
one that its owner's death has cut short is found here at the next start, and counts for as long as it went,
until somebody goes on with it.
One that is still being written is looked at again the next time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from models.quantities import Unknown

from ..errors import HeadroomError
from ..ports import Store
from ..recording.recorded import Recorded
from . import workload_history

DOCUMENT = "recordings_told"


def folder_of(recordings: Path, job: str, *, began_s: float, own: str) -> Path:
    """Where the recording of one input lies that was begun at this whole second."""
    return recordings / job / f"{began_s:.0f}-{own}"


def tell(store: Store, job: str, recordings: Path, *, inputs: Iterable[str]) -> tuple[str, ...]:
    """Add what the history does not know yet; a sentence for each recording that was added."""
    known = store.document(job, DOCUMENT) or {}
    told: set[str] = set(known.get("told", ()))
    said, ended = [], {}
    for began, folders in _by_beginning(recordings / job).items():
        if began in told:
            continue
        found = _read(folders, tuple(inputs))
        if isinstance(found, Unknown):  # nor will it be known later
            ended[began] = True
            continue
        rate = _together(found)
        if not isinstance(rate, Unknown):
            first, values = rate
            workload_history.remember(store, job, start_s=float(first), step_s=1.0, rates_rps=values)
            said.append(f"{job}: {values.size} s of recorded arrivals count for its history")
        ended[began] = not any(one.is_written for one in found)
    finished = {began for began, over in ended.items() if over}
    if finished:
        document = {"schema": 1, "told": sorted(told | finished)}
        store.save_document(job, DOCUMENT, document)
    return tuple(said)


def newest(recordings: Path, job: str) -> tuple[int, Mapping[str, Path]]:
    """When the last recording of the job was begun, and its folders by input; none if there is none."""
    began, folders = next(reversed(_by_beginning(recordings / job).items()), ("0", {}))
    return int(began), folders


def goes_on(store: Store, job: str, *, began_s: float) -> None:
    """Somebody goes on with a recording that was cut short: what was told of it is not all there is."""
    told = set((store.document(job, DOCUMENT) or {}).get("told", ())) - {f"{began_s:.0f}"}
    store.save_document(job, DOCUMENT, {"schema": 1, "told": sorted(told)})


def _by_beginning(folder: Path) -> dict[str, dict[str, Path]]:
    """When it began -> input -> folder, the oldest first."""
    found: dict[str, dict[str, Path]] = {}
    for each in folder.glob("*-*"):
        began, _, own = each.name.partition("-")
        if began.isdecimal() and Recorded.is_one(each):
            found.setdefault(began, {})[own] = each
    return dict(sorted(found.items(), key=lambda one: int(one[0])))


def _read(folders: Mapping[str, Path], inputs: tuple[str, ...]) -> tuple[Recorded, ...] | Unknown:
    if missing := [own for own in inputs if own not in folders]:
        return Unknown(f"{', '.join(missing)} was not recorded at the same time")
    try:
        return tuple(Recorded.read(folders[own]) for own in inputs)
    except (HeadroomError, ValueError, KeyError, TypeError) as unreadable:
        return Unknown(f"a recording cannot be read: {unreadable}")


def _together(recordings: tuple[Recorded, ...]) -> tuple[int, Any] | Unknown:
    """What has arrived in all topics together, second by second, while all were recorded."""
    rates = []
    for one in recordings:
        rate = one.rate_rps()
        if isinstance(rate, Unknown):
            return rate
        rates.append(rate)
    first = max(begin for begin, _ in rates)
    last = min(begin + each.size for begin, each in rates)
    if last <= first:
        return Unknown("the topics were recorded at different times")
    return first, sum(each[first - begin : last - begin] for begin, each in rates)
