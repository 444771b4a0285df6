"""One task's share of the records of a source, without holding all of them.

Several tasks draw the same records, and each sends those whose key is its own: what has one key keeps its
order, as it has in a partition. Records without a key are dealt out in turn. Blocks are read when their turn
comes, and kept while they fit. They come round in a circle, so the one to drop is the one just left, whose
next turn is farthest away. Where a block is all its own and plain Arrow, a task keeps no block but the one it
is in.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ..recording.recorded import as_times
from .sources import Block, Source, Whole

CACHED_BYTES = 24 * 2**20  # judgement: 200 000 records of 100 bytes; reading more again costs 0.3 µs a record
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
WANTED = {"key": pa.binary(), "value": pa.binary(), "headers": HEADERS, "partition": pa.int32()}


@dataclass(frozen=True)
class Records:
    """Some records, and when the broker had them in milliseconds since the epoch (−1: unknown)."""

    batch: pa.RecordBatch
    at_ms: Whole


class Tape:
    """The records of a source that belong to one task, endlessly repeated."""

    def __init__(self, source: Source, *, task: int = 0, tasks: int = 1) -> None:
        self._source = source
        self._task, self._tasks = task, tasks
        sizes = np.array([block.records for block in source.blocks], dtype=np.int64)
        self._before = np.concatenate([[0], np.cumsum(sizes)])
        self._loaded: dict[int, _Loaded] = {}  # the one used last comes last
        plain = tasks == 1 and all(block.plain for block in source.blocks)
        self._kept_bytes = 0 if plain else CACHED_BYTES
        self._columns = [name for name in WANTED if name in source.columns]

    def take(self, chosen: Whole) -> Iterator[Records]:
        """This task's share of the chosen records (ascending; beyond the end it begins again)."""
        if not chosen.size:
            return
        total = int(self._before[-1])
        places = chosen % total
        blocks = np.searchsorted(self._before, places, side="right") - 1
        cuts = np.flatnonzero((np.diff(blocks) != 0) | (np.diff(chosen // total) != 0)) + 1
        for part, block in zip(np.split(places, cuts), blocks[np.concatenate([[0], cuts])], strict=True):
            loaded = self._load(int(block))
            rows = loaded.rows[part - self._before[block]]
            if (rows := rows[rows >= 0]).size:
                yield loaded.at(rows)

    def _load(self, number: int) -> _Loaded:
        loaded = self._loaded.pop(number, None) or self._read(self._source.blocks[number])
        while self._loaded and loaded.bytes + self._held_bytes() > self._kept_bytes:
            self._loaded.popitem()
        self._loaded[number] = loaded
        return loaded

    def _held_bytes(self) -> int:
        return sum(loaded.bytes for loaded in self._loaded.values())

    def _read(self, block: Block) -> _Loaded:
        timed = ["timestamp"] if "timestamp" in self._source.columns else []
        merging = ["partition", "offset"] if block.row_group is None else []
        columns = list(dict.fromkeys([*self._columns, *timed, *merging]))
        if block.row_group is None:
            table = pa.concat_tables([_parquet(name, None, columns) for name in block.files])
            table = table.take(pa.array(_merged(table)))
        else:
            read = _plain if block.plain else _parquet
            table = read(block.files[0], block.row_group, columns)
        table = table.combine_chunks()
        keys = _single(table, "key", pa.binary()) if "key" in columns else pa.nulls(len(table), pa.binary())
        own = owners(keys, tasks=self._tasks) == self._task
        rows = np.where(own, np.cumsum(own) - 1, -1).astype(np.int32)
        mine = table.filter(pa.array(own)) if not own.all() else table
        batch = pa.record_batch([_single(mine, name, WANTED[name]) for name in self._columns], self._columns)
        if not timed:
            return _Loaded(batch, np.full(len(mine), -1), rows)
        at_ms, (low_s, high_s) = _at_ms(table), self._source.plausible_s
        at_ms = np.where((at_ms >= low_s * 1000) & (at_ms < high_s * 1000), at_ms, -1)
        return _Loaded(batch, at_ms[own], rows)


@dataclass(frozen=True)
class _Loaded:
    batch: pa.RecordBatch
    at_ms: Whole
    rows: NDArray[np.int32]
    """Per record of the block its row in `batch`, −1 for those of other tasks."""

    @property
    def bytes(self) -> int:
        return int(self.batch.nbytes + self.at_ms.nbytes + self.rows.nbytes)

    def at(self, rows: NDArray[np.int32]) -> Records:
        first, count = int(rows[0]), rows.size
        if count == int(rows[-1]) - first + 1 and (np.diff(rows) == 1).all():  # nothing to copy
            return Records(self.batch.slice(first, count), self.at_ms[first : first + count])
        return Records(self.batch.take(pa.array(rows)), self.at_ms[rows])


def owners(keys: pa.Array, *, tasks: int) -> Whole:
    """Which task sends each record."""
    if tasks == 1:
        return np.zeros(len(keys), dtype=np.int64)
    encoded = keys.dictionary_encode()
    named = [zlib.crc32(key) % tasks for key in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    in_turn = np.arange(len(keys)) % tasks
    return np.where(codes >= 0, np.array([*named, 0], dtype=np.int64)[codes], in_turn)


def _merged(table: pa.Table) -> Whole:
    """By broker timestamp, never against the offsets of a partition."""
    partition = table["partition"].to_numpy().astype(np.int64)
    by_offset = np.lexsort([table["offset"].to_numpy(), partition])
    times, partition = _at_ms(table)[by_offset], partition[by_offset]
    # One running maximum per partition: each lies above all the ones before.
    above = partition * 2**42
    latest = np.maximum.accumulate(np.clip(times, 0, 2**42 - 1) + above) - above
    order: Whole = by_offset[np.argsort(latest, kind="stable")]
    return order


def _plain(name: str, number: int, columns: list[str]) -> pa.Table:
    with pa.OSFile(name) as file, pa.ipc.open_file(file) as reader:
        return pa.Table.from_batches([reader.get_batch(number)]).select(columns)


def _parquet(name: str, row_group: int | None, columns: list[str]) -> pa.Table:
    with pq.ParquetFile(name) as opened:
        if row_group is None:
            return opened.read(columns=columns)
        return opened.read_row_group(row_group, columns=columns)


def _at_ms(table: pa.Table) -> Whole:
    times = as_times(_single(table, "timestamp", table.schema.field("timestamp").type))
    found: Whole = times.cast(pa.int64()).fill_null(-1000).to_numpy(zero_copy_only=False) // 1000
    return found


def _single(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    column = table[name]
    column = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [_none(column)])
    return column if column.type == kind else column.cast(kind)


def _none(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([], column.type)
