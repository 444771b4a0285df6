"""Who registered and at once put something up for auction? (Nexmark query 8, monitor new users)

People and sellers of the same ten seconds: both are grouped by tumbling window, so that a seller of many
auctions comes out once, then joined on window and person. Three stateful steps.

    events   one topic of people, auctions and bids (nexmark_events)
    results  id, name, window_end
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .json_frames import as_records, epoch_ms, watermarked
from .nexmark_events import events
from .nexmark_frames import auctions, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from ..topics import Topics

__all__ = ["INPUTS", "OUTPUTS", "LONGEST_WINDOW_S", "build", "events"]

INPUTS, OUTPUTS = ("events",), ("results",)
WINDOW_S = 10  # StreamBed §8.1
LONGEST_WINDOW_S = float(WINDOW_S)


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """The job, ready to be started."""
    from pyspark.sql import functions as F

    records = topics.read("events")
    window = F.window("event_time", f"{WINDOW_S} seconds").alias("window")
    registered = watermarked(people(records)).groupBy(window, "id", "name").count().alias("registered")
    selling = watermarked(auctions(records)).groupBy(window, "seller").count().alias("selling")
    new = registered.join(
        selling,
        (F.col("registered.id") == F.col("selling.seller"))
        & (F.col("registered.window") == F.col("selling.window")),
    ).select("id", "name", epoch_ms(F.col("registered.window.end")).alias("window_end"))
    return topics.write("results", as_records(new, key="id"))
