"""The records of a replay: a recording, Parquet files, or a generator; and those that a slice sends.

They become blocks of at most some hundred thousand records that can be read one by one:

    a folder that profiling_jobs.recording.driver has written      its slices, each merged by broker timestamp
    a Parquet file, or a folder of them                     its row groups in the order of the names
    generator:NAME, generator:NAME?count=…&hot_keys=1       the events of a benchmark job, written down once

Parquet needs a column `value` and may have `key`, `timestamp`, `partition` and `headers`. With timestamps it
has a rate of its own, and is walked through in its own time.

A slice passes over m records of the recording, and n are due in it. Each of the m appears ⌊n / m⌋ times, and
n mod m of them, drawn at random without replacement, once more: all have the same chance. The order is kept.
While a slice passes over no whole record, the one that it is passing over appears n times. (Every (m / n)-th
record from a random start would meet patterns that repeat with its own step: of ten keys in turn, every
second record shows five.)

Positions are whole millionths of a record, so that nothing drifts. A slice's random numbers follow from
(seed, number of the slice) alone: several tasks draw the same records and share them out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from models.arguments import whole
from models.errors import Misconfigured

from .. import jobs
from ..recording.recorded import CLOCKS_S, STRAYS, Recorded, as_times

Whole = NDArray[np.int64]

MICRO = 1_000_000  # positions are counted in millionths of a record
BLOCK_RECORDS = 250_000  # judgement: at 100 bytes some 30 MB in each task
WRITTEN_RECORDS = 25_000  # of a block of our own; measured: 15 to 20 MB less while it is read than 62 500
PLAIN = ".arrow"
GENERATED = 200_000  # judgement: minutes of events, generated in a second or two
GENERATED_FROM_S = 1_700_000_000.0


@dataclass(frozen=True)
class Block:
    """Records that are read together."""

    files: tuple[str, ...]
    records: int
    row_group: int | None = None
    """None: all of the files, merged by timestamp."""

    @property
    def plain(self) -> bool:
        """Whether it lies there as Arrow has it in memory: 70 ns to read a record again, 300 from Parquet."""
        return self.files[0].endswith(PLAIN)


@dataclass(frozen=True)
class Source:
    """All records that can be replayed, and how much time they took."""

    name: str
    blocks: tuple[Block, ...]
    span_us: int
    """0 where there are no timestamps, or they are not to matter."""
    columns: frozenset[str]
    partitions: int | None = None
    """Of the topic that was recorded."""
    plausible_s: tuple[float, float] = (-math.inf, math.inf)
    """Between which seconds timestamps can be right; others say nothing."""

    @property
    def records(self) -> int:
        return sum(block.records for block in self.blocks)

    def position(self, at_us: int, due: int) -> int:
        """How far into the source at this moment, with so many records due until then, in millionths.

        In its own time; without one by the number of records: every record once and in turn.
        """
        return self.records * MICRO * at_us // self.span_us if self.span_us else due * MICRO


def draw(*, position: int, advance: int, count: int, seed: int, number: int) -> Whole:
    """The records of one slice by their index, ascending. `position` and `advance` in millionths."""
    whole("count", count, at_least=0)
    first = whole("position", position, at_least=0) // MICRO
    passed = (position + whole("advance", advance, at_least=0)) // MICRO - first
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if passed <= 1:
        return np.full(count, first, dtype=np.int64)
    copies, more = divmod(count, passed)
    random = np.random.default_rng([seed, number])
    chosen = np.sort(random.choice(passed, size=more, replace=False, shuffle=False))
    if copies:
        chosen = np.sort(np.concatenate([np.repeat(np.arange(passed), copies), chosen]))
    return chosen.astype(np.int64) + first


def open_source(name: str, *, folder: Path, seed: int = 0) -> Source:
    """Find the records; `folder` takes what has to be written down first."""
    if name.startswith("generator:"):
        return _generated(name, folder=folder, seed=seed)
    path = Path(name)
    if Recorded.is_one(path):
        return _recorded(path)
    if not path.exists():
        raise Misconfigured("source", f"there is no {name}: a recording, a Parquet path or generator:NAME")
    found = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    files = [file for file in found if not file.name.startswith(("_", "."))]
    if not files:
        raise Misconfigured("source", f"{name} has no Parquet files")
    return _parquet(name, files, folder=folder)


def _recorded(path: Path) -> Source:
    recorded = Recorded.read(path)
    blocks = tuple(
        Block(tuple(str(file) for file in piece.files(path)), piece.records)
        for piece in recorded.slices
        if piece.records
    )
    if not blocks:
        raise Misconfigured("source", f"the recording {path} has no records yet")
    columns = frozenset({"key", "value", "timestamp", "partition", "offset", "headers"})
    stamped: Counter[int] = Counter()
    for piece in recorded.slices:
        stamped.update(piece.arrivals)
    return Source(
        str(path),
        blocks,
        round(recorded.covered_s * 1e6),
        columns,
        recorded.partitions,
        _around_the_middle(stamped, span_s=recorded.until_s - recorded.from_s),
    )


def _around_the_middle(stamped: Mapping[int, int], *, span_s: float) -> tuple[float, float]:
    """Right for a recording of so many seconds where fewer than half of its timestamps are wrong."""
    seconds = sorted(stamped)
    passed = np.cumsum([stamped[second] for second in seconds])
    middle = seconds[int(np.searchsorted(passed, passed[-1] / 2.0))]
    return middle - span_s - CLOCKS_S, middle + span_s + CLOCKS_S


def _parquet(name: str, files: list[Path], *, folder: Path) -> Source:
    blocks: list[Block] = []
    columns: set[str] | None = None
    seen: dict[int, _Second] = {}
    for file in files:
        try:
            opened = pq.ParquetFile(file)
        except (pa.ArrowInvalid, OSError) as error:
            raise Misconfigured("source", f"{file} cannot be read as Parquet: {error}") from error
        with opened:
            there = set(opened.schema_arrow.names)
            columns = there if columns is None else columns & there
            sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
            kept = file
            if max(sizes, default=0) > BLOCK_RECORDS:
                kept = folder / f"source-{len(blocks)}.parquet"
                sizes = _cut_up(opened, kept)
            blocks += [Block((str(kept),), size, group) for group, size in enumerate(sizes) if size]
            if "timestamp" in there and sizes:
                _add_times(opened, seen)
    if columns is None or "value" not in columns:
        raise Misconfigured(
            "source", f"{name} has no column `value`, but {', '.join(sorted(columns or ()))}: rename one"
        )
    if not blocks:
        raise Misconfigured("source", f"{name} has no records")
    plausible_s = _plausible({second: one.records for second, one in seen.items()})
    times = [one for second, one in seen.items() if plausible_s[0] <= second < plausible_s[1]]
    span_us = max(one.last_us for one in times) - min(one.first_us for one in times) if times else 0
    records = sum(block.records for block in blocks)
    if records > 1:  # so many records have one gap fewer between them
        span_us = span_us * records // (records - 1)
    return Source(name, tuple(blocks), span_us, frozenset(columns), plausible_s=plausible_s)


def _cut_up(opened: pq.ParquetFile, path: Path) -> list[int]:
    """Row groups that are too large for a task's memory, written again as smaller ones."""
    sizes = []
    with pq.ParquetWriter(path, opened.schema_arrow) as writer:
        for batch in opened.iter_batches(batch_size=WRITTEN_RECORDS):
            writer.write_batch(batch)
            sizes.append(batch.num_rows)
    return sizes


class _Second(NamedTuple):
    """Its first and its last record, and how many."""

    first_us: int
    last_us: int
    records: int


def _add_times(opened: pq.ParquetFile, seen: dict[int, _Second]) -> None:
    for batch in opened.iter_batches(columns=["timestamp"]):
        if len(column := batch.column(0).drop_null()):
            whole = as_times(column).cast("int64")
            times = np.frombuffer(whole.buffers()[1], dtype=np.int64)  # `to_numpy` would import pandas
            times = np.sort(times[whole.offset : whole.offset + len(whole)])
            found = np.unique(times // 1_000_000, return_index=True, return_counts=True)
            for second, begin, count in zip(*(each.tolist() for each in found), strict=True):
                first_us, last_us = int(times[begin]), int(times[begin + count - 1])
                known = seen.get(second, _Second(first_us, last_us, 0))
                seen[second] = _Second(
                    min(first_us, known.first_us), max(last_us, known.last_us), known.records + count
                )


def _plausible(stamped: Mapping[int, int]) -> tuple[float, float]:
    """From the first second, before the second: no further from most records than these span.

    A single wrong timestamp would stretch the time of a source until nearly nothing of it is sent.
    """
    if not stamped:
        return -math.inf, math.inf
    seconds = sorted(stamped)
    passed = np.cumsum([stamped[second] for second in seconds])
    total = int(passed[-1])
    aside = min(math.ceil(STRAYS * total), (total - 1) // 2)
    low = seconds[int(np.searchsorted(passed, aside, side="right"))]
    high = seconds[int(np.searchsorted(passed, total - aside))] + 1
    return low - (high - low), high + (high - low)


def _generated(name: str, *, folder: Path, seed: int) -> Source:
    job, _, asked = name.removeprefix("generator:").partition("?")
    job = job.partition("/")[0]  # behind it the input of the job, where it has several: all get the same
    options = {key: values[-1] for key, values in parse_qs(asked).items()}
    if unknown := set(options) - {"count", "hot_keys", "start_s"}:
        raise Misconfigured("source", f"{name}: there is no option {', '.join(sorted(unknown))}")
    if job not in jobs.JOBS:
        raise Misconfigured("source", f"there is no generator '{job}', there is {', '.join(jobs.JOBS)}")
    try:
        made = jobs.load(job).function("events")(
            seed=seed,
            count=int(options.get("count", GENERATED)),
            start_s=float(options.get("start_s", GENERATED_FROM_S)),
            hot_keys=options.get("hot_keys", "0").lower() in ("1", "true", "yes"),
        )
    except ValueError as error:
        raise Misconfigured("source", f"{name}: {error}") from error
    if not len(made):
        raise Misconfigured("source", f"{name} has no records")
    # A generator's own pace means nothing: each of its records is sent once, at whatever rate.
    return Source(name, _written(made, folder / f"generated{PLAIN}"), 0, frozenset(made.column_names))


def _written(made: pa.Table, path: Path) -> tuple[Block, ...]:
    pieces = made.to_batches(max_chunksize=WRITTEN_RECORDS)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, made.schema) as writer:
        for piece in pieces:
            writer.write_batch(piece)
    return tuple(Block((str(path),), piece.num_rows, number) for number, piece in enumerate(pieces))
