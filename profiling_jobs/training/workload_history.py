"""The arrival rate of a job, from recordings and from the live job.

One grid per job, in the store: cell k is the mean rate over [k·10 s, (k + 1)·10 s), epoch seconds, NaN where
it is unknown. A recording knows each record's time; the live job's rates are coarser and only fill what is
missing. The newest week is kept.

A clock may be ahead for a while, by hours or a year. So live rates replace at most as many older cells as
they bring until they have brought an hour, and cells after the newest live rate are kept only where a
recording made them.

A recording lies in `recordings/JOB/BEGAN-INPUT`, one folder per input. `tell` adds those that the
grid does not have yet, also one that a crash has cut short; one that is still being written is added again
later.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from models import codec
from models.arguments import Array, number, numbers
from models.errors import HeadroomError
from models.ports import Store
from models.quantities import Unknown
from models.series import Grid

from ..control_loop.forecasting import Rates
from ..driver.launch_file import read_json
from ..recording.recorded import Recorded

DOCUMENT = "workload_history"
STEP_S = 10.0  # judgement: finer steps show the source's batches, not the load
MOST_CELLS = 60_480  # a week: what a forecast at 30 s looks back (models.workload)
DIGITS = 5  # of a rate; its noise is far larger
AN_HOUR = 360  # cells; judgement: a wrong clock is corrected by then
SEEN = 0.5  # judgement: a cell of which less than half was seen is not known


def remember(store: Store, job: str, *, start_s: float, step_s: float, rates_rps: Any) -> Grid:
    """Add recorded rates on a regular grid, oldest first, NaN where unknown; returns the history."""
    new = _resampled(
        number("start_s", start_s),
        number("step_s", step_s, above=0.0),
        numbers("rates_rps", rates_rps, at_least=0.0, missing_allowed=True),
    )
    before, recorded_until_s = _kept(store, job)
    grid = new if before is None else _joined(before, new)
    if grid.values.size:
        _save(store, job, grid, recorded_until_s=max(recorded_until_s, _end_s(new)))
    return grid


def remember_live(store: Store, job: str) -> None:
    """Add the rates that the control loop has observed, where no recording has them."""
    control = store.control(job)
    data = None if control is None else control.state.get("rates")
    if data is None:
        return
    rates = codec.from_json(Rates, data)
    if not rates.values:
        return
    new = _resampled(rates.grid.start_s, rates.grid.step_s, rates.grid.values)
    before, recorded_until_s = _kept(store, job)
    if before is not None:
        cells = round((max(recorded_until_s, _end_s(new)) - before.start_s) / STEP_S)
        before = Grid(before.start_s, STEP_S, before.values[: max(0, cells)])
    if before is None or not before.values.size:
        _save(store, job, new, recorded_until_s=recorded_until_s)
        return
    grid = _joined(new, before)
    kept = before.values[max(0, round((grid.start_s - before.start_s) / STEP_S)) :]
    pushed_out, brought = _seen(before.values) - _seen(kept), _seen(grid.values) - _seen(kept)
    if pushed_out > brought and brought < AN_HOUR:
        grid = before
    _save(store, job, grid, recorded_until_s=recorded_until_s)


def history(store: Store, job: str) -> Grid | Unknown:
    """The grid of this job."""
    kept, _ = _kept(store, job)
    if kept is None or np.isnan(kept.values).all():
        return Unknown(f"no arrivals of {job} are known: record its input, or let `headroom serve` watch it")
    return kept


def peak_rps(store: Store, job: str) -> float | Unknown:
    """The highest rate of arrivals that is known."""
    found = history(store, job)
    return found if isinstance(found, Unknown) else float(np.nanmax(found.values))


def _kept(store: Store, job: str) -> tuple[Grid | None, float]:
    """The grid, and the end of its recorded part."""
    data = store.document(job, DOCUMENT)
    if data is None or data.get("schema") != 1 or data["step_s"] != STEP_S:
        return None, -math.inf
    values = np.array([math.nan if v is None else v for v in data["rates_rps"]], dtype=float)
    grid = Grid(float(data["start_s"]), STEP_S, values)
    until_s = data.get("recorded_until_s", _end_s(grid))  # unknown in old documents: all may be recorded
    return grid, -math.inf if until_s is None else float(until_s)


def _save(store: Store, job: str, grid: Grid, *, recorded_until_s: float) -> None:
    values = [None if math.isnan(v) else float(f"{v:.{DIGITS}g}") for v in grid.values.tolist()]
    document = {
        "schema": 1,
        "step_s": STEP_S,
        "start_s": grid.start_s,
        "recorded_until_s": recorded_until_s if math.isfinite(recorded_until_s) else None,
        "rates_rps": values,
    }
    store.save_document(job, DOCUMENT, document)


def _end_s(grid: Grid) -> float:
    return grid.start_s + STEP_S * grid.values.size


def _seen(values: Array) -> int:
    return int((~np.isnan(values)).sum())


def _resampled(start_s: float, step_s: float, values: Array) -> Grid:
    """The same on our grid: means weighted by overlap."""
    first = math.floor(start_s / STEP_S + 1e-9)
    last = math.ceil((start_s + step_s * values.size) / STEP_S - 1e-9)
    edges = (STEP_S * np.arange(first, last + 1) - start_s) / step_s
    at, seen = np.arange(values.size + 1), ~np.isnan(values)
    amount = np.interp(edges, at, np.concatenate(([0.0], np.cumsum(np.where(seen, values, 0.0)))))
    present = np.diff(np.interp(edges, at, np.concatenate(([0.0], np.cumsum(seen)))))
    enough = present * step_s >= SEEN * STEP_S - 1e-9
    means = np.where(enough, np.diff(amount) / np.where(enough, present, 1.0), np.nan)
    return Grid(first * STEP_S, STEP_S, means)


def _joined(old: Grid, new: Grid) -> Grid:
    starts = (round(old.start_s / STEP_S), round(new.start_s / STEP_S))
    end = max(starts[0] + old.values.size, starts[1] + new.values.size)
    first = max(min(starts), end - MOST_CELLS)
    values = np.full(end - first, np.nan)
    for start, grid in zip(starts, (old, new), strict=True):
        piece = grid.values[max(0, first - start) :]
        at = max(start, first) - first
        here = values[at : at + piece.size]
        values[at : at + piece.size] = np.where(np.isnan(piece), here, piece)
    return Grid(first * STEP_S, STEP_S, values)


RECORDINGS_DOCUMENT = "recordings_told"


def folder_of(recordings: Path, job: str, *, began_s: float, own: str) -> Path:
    """The folder of the recording of one input that began at this whole second."""
    return recordings / job / f"{began_s:.0f}-{own}"


def tell(store: Store, job: str, recordings: Path, *, inputs: Iterable[str]) -> tuple[str, ...]:
    """Add the recordings that the history does not have yet; one sentence for each."""
    added = _added(store, job)
    said, finished = [], set()
    for began, folders in _by_beginning(recordings / job).items():
        if began in added:
            continue
        found = _read(folders, tuple(inputs))
        if isinstance(found, Unknown):  # it cannot be read later either
            finished.add(began)
            continue
        rate = _together(found)
        if not isinstance(rate, Unknown):
            first, values = rate
            remember(store, job, start_s=float(first), step_s=1.0, rates_rps=values)
            said.append(f"{job}: {values.size} s of recorded arrivals were added to its history")
        if not any(one.is_written for one in found):
            finished.add(began)
    if finished:
        _save_added(store, job, added | finished)
    return tuple(said)


def newest(recordings: Path, job: str) -> tuple[int, Mapping[str, Path]]:
    """The beginning of the newest recording, and its folders by input; 0 and none without one."""
    began, folders = next(reversed(_by_beginning(recordings / job).items()), ("0", {}))
    return int(began), folders


def forget(recordings: Path, job: str, *, before_s: float, wanted: Collection[Path] = ()) -> tuple[str, ...]:
    """Delete recordings that had ended by then; their names.

    Of each input the newest stays, which an order may continue, and so does the newest that has ended, from
    which copies get their events. `wanted`: what the settings name stays, too, with all that is below it.
    """
    by_input: dict[str, list[Path]] = {}
    for folders in _by_beginning(recordings / job).values():
        for own, folder in folders.items():
            by_input.setdefault(own, []).append(folder)
    gone = []
    for folders_of_one in by_input.values():
        ended = [one for one in folders_of_one if (one / "ended.json").is_file()]
        for folder in folders_of_one:
            head = read_json(folder / "recording.json") or {}
            until_s = float(head.get("until_s", folder.name.partition("-")[0]))
            if folder in (*folders_of_one[-1:], *ended[-1:]) or until_s >= before_s:
                continue
            if any(folder.is_relative_to(one) or one.is_relative_to(folder) for one in wanted):
                continue
            shutil.rmtree(folder, ignore_errors=True)
            gone.append(folder.name)
    return tuple(gone)


def goes_on(store: Store, job: str, *, began_s: float) -> None:
    """A recording that was cut short is continued: add it again when it has ended."""
    _save_added(store, job, _added(store, job) - {f"{began_s:.0f}"})


def _added(store: Store, job: str) -> set[str]:
    return set((store.document(job, RECORDINGS_DOCUMENT) or {}).get("told", ()))


def _save_added(store: Store, job: str, added: set[str]) -> None:
    store.save_document(job, RECORDINGS_DOCUMENT, {"schema": 1, "told": sorted(added)})


def _by_beginning(folder: Path) -> dict[str, dict[str, Path]]:
    """Beginning -> input -> folder, the oldest first."""
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
    """The rate of all topics together, second by second, while all were recorded."""
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
