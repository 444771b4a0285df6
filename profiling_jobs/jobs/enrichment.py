"""A job whose time goes into waiting: each record waits about a millisecond for a look-up.

As with a request to another service, the processor does nothing meanwhile. The more executors, the more
records wait at the same time: its scale-out curve is real even on two cores. Every record appears once in
the output, with the answer attached, so lost and repeated ones can be counted.

    events   order (a number of its own), customer, cents, at_ms; about 80 bytes
    results  the same, and region
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from ..topics import Topics

LOOK_UP_S = 0.001
CHUNK = 100  # one sleep for this many: a single one of a millisecond takes 1.06 and wakes the processor
REGIONS = ("north", "east", "south", "west")


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """Look every record up, and pass it on with the answer."""
    return topics.write("results", enriched(topics.read("events")))


def enriched(events: DataFrame) -> DataFrame:
    """The same records, each with the region of its customer."""
    return events.select("key", "value").mapInArrow(_look_up, "key binary, value binary")


def region(key: bytes) -> str:
    """What the look-up answers."""
    return REGIONS[zlib.crc32(key) % len(REGIONS)]


def answer(key: bytes, value: bytes) -> bytes:
    """The record as it leaves the job."""
    return value[:-1] + b', "region": "' + region(key).encode() + b'"}'


def events(**asked: Any) -> pa.Table:
    """Orders, keyed by customer. Neither driver nor executors make any: they do without what it takes."""
    from . import enrichment_events

    return enrichment_events.events(**asked)


def _look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for start in range(0, batch.num_rows, CHUNK):
            records = batch.slice(start, CHUNK)
            due = time.monotonic() + LOOK_UP_S * records.num_rows
            keys, values = records.column("key"), records.column("value").to_pylist()
            answers = [answer(key or b"", value) for key, value in zip(keys.to_pylist(), values, strict=True)]
            time.sleep(max(0.0, due - time.monotonic()))
            yield pa.record_batch([keys, pa.array(answers, pa.binary())], names=["key", "value"])
