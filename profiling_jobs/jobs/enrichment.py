"""How does a job scale whose time goes into waiting? Each record waits about a millisecond for a look-up.

As with a request to another service, the processor does nothing meanwhile. The more executors, the more
records wait at the same time: its scale-out curve is real even on two cores. Every record appears once in
the output, with the answer attached, so lost and repeated ones can be counted.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from profiling_jobs.topics import Topics

INPUTS = ("events",)
OUTPUTS = ("results",)
PARTITIONS = 12  # divisible by 1, 2, 3, 4, 6 and 12: a scale-out for every step of the staircase
LOOK_UP_S = 0.001
CHUNK = 100  # one sleep for this many: a single one of a millisecond takes 1.06 and wakes the processor
REGIONS = ("north", "east", "south", "west")
CUSTOMERS = 10_000
HOT_SHARE = 0.8  # judgement: four of five records of one customer, as a flash sale does
EVENT_SPACING_S = 0.001


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


def events(*, seed: int, count: int, start_s: float, hot_keys: bool = False) -> pa.Table:
    """Orders of about a hundred bytes: number, customer, amount, event time."""
    random = np.random.default_rng(seed)
    customers = random.integers(CUSTOMERS, size=count)
    if hot_keys:
        customers[random.random(count) < HOT_SHARE] = 0
    amounts = random.integers(100, 100_000, size=count)
    at_ms = np.round((start_s + EVENT_SPACING_S * np.arange(count)) * 1000).astype("int64")
    keys = [b"customer-%05d" % customer for customer in customers]
    values = [
        json.dumps(
            {"order": f"{seed}-{number}", "customer": int(who), "cents": int(cents), "at_ms": int(at)}
        ).encode()
        for number, (who, cents, at) in enumerate(zip(customers, amounts, at_ms, strict=True))
    ]
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array(at_ms, pa.timestamp("ms", tz="UTC")),
        }
    )


def _look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, CHUNK):
            records = batch.slice(start, CHUNK)
            due = time.monotonic() + LOOK_UP_S * records.num_rows
            keys, values = records.column("key"), records.column("value").to_pylist()
            answers = [answer(key or b"", value) for key, value in zip(keys.to_pylist(), values, strict=True)]
            time.sleep(max(0.0, due - time.monotonic()))
            yield pa.record_batch([keys, pa.array(answers, pa.binary())], names=["key", "value"])
