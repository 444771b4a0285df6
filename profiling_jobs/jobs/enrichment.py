"""How does a job scale whose time goes into waiting? Each record waits about a millisecond for a look-up.

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
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import without_pandas
from . import json_events
from .json_events import RATE_RPS, Whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from profiling_jobs.topics import Topics

INPUTS, OUTPUTS = ("events",), ("results",)
LONGEST_WINDOW_S = 0.0
LOOK_UP_S = 0.001
CHUNK = 100  # one sleep for this many: a single one of a millisecond takes 1.06 and wakes the processor
REGIONS = ("north", "east", "south", "west")
CUSTOMERS = 10_000
HOT_SHARE = 0.8  # judgement: four of five records of one customer, as a flash sale does


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """Look every record up, and pass it on with the answer."""
    return topics.write("results", enriched(topics.read("events")))


def enriched(events: DataFrame) -> DataFrame:
    """The same records, each with the region of its customer."""
    given = events.select("key", "value")
    return without_pandas.map_in_arrow(given, _look_up, "key binary, value binary")


def region(key: bytes) -> str:
    """What the look-up answers."""
    return REGIONS[zlib.crc32(key) % len(REGIONS)]


def answer(key: bytes, value: bytes) -> bytes:
    """The record as it leaves the job."""
    return value[:-1] + b', "region": "' + region(key).encode() + b'"}'


def events(
    *, seed: int, count: int, start_s: float, hot_keys: bool = False, rate_rps: float = RATE_RPS
) -> pa.Table:
    """Orders, keyed by customer."""
    random = np.random.default_rng(seed)
    arrived = json_events.arrivals_ms(count=count, start_s=start_s, rate_rps=rate_rps)
    customers = random.integers(CUSTOMERS, size=count)
    if hot_keys:
        customers[random.random(count) < HOT_SHARE] = 0
    cents = random.integers(100, 100_000, size=count)
    spelt = pa.array([f"customer-{number:05d}" for number in range(CUSTOMERS)]).take(pa.array(customers))
    numbers, whose, cost, at = (_text(of) for of in (np.arange(count), customers, cents, arrived))
    order, customer = f'{{"order": "{seed}-', '", "customer": '
    values = pc.binary_join_element_wise(
        *(order, numbers, customer, whose, ', "cents": ', cost, ', "at_ms": ', at, "}"), ""
    )
    return json_events.table(spelt, values, arrived)


def _text(values: Whole) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, CHUNK):
            records = batch.slice(start, CHUNK)
            due = time.monotonic() + LOOK_UP_S * records.num_rows
            keys, values = records.column("key"), records.column("value").to_pylist()
            answers = [answer(key or b"", value) for key, value in zip(keys.to_pylist(), values, strict=True)]
            time.sleep(max(0.0, due - time.monotonic()))
            yield pa.record_batch([keys, pa.array(answers, pa.binary())], names=["key", "value"])
