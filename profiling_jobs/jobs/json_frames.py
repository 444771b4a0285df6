"""How the benchmark jobs read JSON records from a topic and write their results into one.

Time is the event time in the record. A watermark follows the newest event by `LATENESS_S`: records that are
later than that are dropped, and a window's result appears that much after its end. Results carry times as
epoch milliseconds, so that no session time zone can change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATENESS_S = 5  # judgement: 2.5 times the longest delay the generators have


def parsed(records: DataFrame, schema: str) -> DataFrame:
    """The fields in `schema` (SQL names and types) of a topic's JSON values, and `event_time`."""
    from pyspark.sql import functions as F

    fields = F.from_json(F.col("value").cast("string"), f"event_time BIGINT, {schema}")
    rows = records.select(fields.alias("record")).select("record.*")
    return rows.withColumn("event_time", F.timestamp_millis("event_time"))


def watermarked(rows: DataFrame) -> DataFrame:
    """With the watermark on `event_time` that all benchmark jobs share."""
    return rows.withWatermark("event_time", f"{LATENESS_S} seconds")


def as_records(rows: DataFrame, *, key: str) -> DataFrame:
    """A topic's key and JSON value; the value has every column, the key among them."""
    from pyspark.sql import functions as F

    return rows.select(F.col(key).cast("string").alias("key"), F.to_json(F.struct("*")).alias("value"))


def epoch_ms(time: Any) -> Column:
    """A timestamp as whole epoch milliseconds."""
    from pyspark.sql import functions as F

    return F.unix_millis(time)
