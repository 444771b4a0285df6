"""Which auctions got the most bids in the last ten seconds? (Nexmark query 5, hot items)

Every two seconds, over the bids of the last ten. Bids are counted per window and auction, then the largest
count per window is found: two stateful steps. Auctions with equally many bids all come out, lowest numbers
first, up to `TIES`: a bound that keeps the second state small, however many auctions there are.

    events   one topic of people, auctions and bids (nexmark_events)
    results  auction, bids, window_end
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .json_frames import as_records, epoch_ms, watermarked
from .nexmark_events import events
from .nexmark_frames import bids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from ..topics import Topics

__all__ = ["INPUTS", "OUTPUTS", "LONGEST_WINDOW_S", "build", "events", "hot_items"]

INPUTS, OUTPUTS = ("events",), ("results",)
WINDOW_S, SLIDE_S = 10, 2  # StreamBed §8.1
LONGEST_WINDOW_S = float(WINDOW_S)
TIES = 100  # judgement: more equally hot auctions than anybody would show


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """The job, ready to be started."""
    hot = hot_items(topics.read("events"), window_s=WINDOW_S, slide_s=SLIDE_S)
    return topics.write("results", as_records(hot, key="auction"))


def hot_items(records: DataFrame, *, window_s: int, slide_s: int) -> DataFrame:
    """The auctions with the most bids of every sliding window."""
    from pyspark.sql import functions as F

    window = F.window("event_time", f"{window_s} seconds", f"{slide_s} seconds")
    counted = watermarked(bids(records)).groupBy(window, "auction").agg(F.count("*").alias("bids"))
    # Ordered by count, then by the lowest number.
    rank = F.struct("bids", -F.col("auction"))
    hottest = counted.groupBy("window").agg(
        F.max_by(F.struct("auction", "bids"), rank, TIES).alias("hottest")
    )
    tied = F.filter("hottest", lambda one: one["bids"] == F.col("hottest")[0]["bids"])
    return hottest.select(
        F.explode(tied).alias("one"), epoch_ms(F.col("window.end")).alias("window_end")
    ).select("one.auction", "one.bids", "window_end")
