"""How many records per second have arrived at this job, as far back as anybody has looked?

One grid per job, in the store: cell k is the mean rate over [k·10 s, (k + 1)·10 s), epoch seconds, missing
where nobody looked. Every cell is said once: by a recording, which knows each record's time, or else by the
live job's rates, which are coarser and only fill what is missing. The newest week is kept.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from models.arguments import Array, number, numbers
from models.quantities import Unknown
from models.series import Grid

from ..loop.live_rates import Rates
from ..ports import Store

DOCUMENT = "workload_history"
STEP_S = 10.0  # judgement: finer steps show the source's batches, not the load
MOST_CELLS = 60_480  # a week: what a forecast at 30 s looks back (models.workload)
DIGITS = 5  # of a rate; its noise is far larger
SEEN = 0.5  # judgement: a cell of which less than half was seen is not known


def remember(
    store: Store, job: str, *, start_s: float, step_s: float, rates_rps: Any, only_missing: bool = False
) -> Grid:
    """Add rates on a regular grid, oldest first, NaN where nothing was seen; the whole history now.

    What was known before gives way to them, or with `only_missing` stays as it is.
    """
    new = _resampled(
        number("start_s", start_s),
        number("step_s", step_s, above=0.0),
        numbers("rates_rps", rates_rps, at_least=0.0, missing_allowed=True),
    )
    before = _kept(store, job)
    pieces = [new] if before is None else [new, before] if only_missing else [before, new]
    grid = reduce(_joined, pieces)
    if grid.values.size:
        values = [None if math.isnan(v) else float(f"{v:.{DIGITS}g}") for v in grid.values.tolist()]
        document = {"schema": 1, "step_s": STEP_S, "start_s": grid.start_s, "rates_rps": values}
        store.save_document(job, DOCUMENT, document)
    return grid


def remember_live(store: Store, job: str) -> None:
    """Add what the control loop has seen of the live job lately."""
    control = store.control(job)
    data = None if control is None else control.state.get("rates")
    if data is None:
        return
    rates = Rates.from_json(data)
    if rates.values:
        grid = rates.grid
        remember(
            store, job, start_s=grid.start_s, step_s=grid.step_s, rates_rps=grid.values, only_missing=True
        )


def history(store: Store, job: str) -> Grid | Unknown:
    """Everything that is remembered of this job's arrivals."""
    kept = _kept(store, job)
    if kept is None or np.isnan(kept.values).all():
        return Unknown(f"no arrivals of {job} are known: record its input, or let `headroom serve` watch it")
    return kept


def _kept(store: Store, job: str) -> Grid | None:
    data = store.document(job, DOCUMENT)
    if data is None or data.get("schema") != 1 or data["step_s"] != STEP_S:
        return None
    values = np.array([math.nan if v is None else v for v in data["rates_rps"]], dtype=float)
    return Grid(float(data["start_s"]), STEP_S, values)


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
