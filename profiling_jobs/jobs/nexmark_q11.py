"""How much does each user bid in one go? (Nexmark query 11, user sessions)

A session of a bidder ends when there is no bid for ten seconds; its bids are counted.

    events   one topic of people, auctions and bids (nexmark_events)
    results  bidder, bids, session_start, session_end (last bid plus the gap)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .json_frames import as_records, epoch_ms, watermarked
from .nexmark_events import events
from .nexmark_frames import bids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from ..topics import Topics

__all__ = ["INPUTS", "OUTPUTS", "LONGEST_WINDOW_S", "build", "events"]

INPUTS, OUTPUTS = ("events",), ("results",)
GAP_S = 10  # Nexmark; StreamBed §8.1
LONGEST_WINDOW_S = float(GAP_S)  # a session may last longer, but its state is one row per bidder either way


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """The job, ready to be started."""
    from pyspark.sql import functions as F

    session = F.session_window("event_time", f"{GAP_S} seconds").alias("session")
    counted = (
        watermarked(bids(topics.read("events"))).groupBy(session, "bidder").agg(F.count("*").alias("bids"))
    )
    sessions = counted.select(
        "bidder",
        "bids",
        epoch_ms(F.col("session.start")).alias("session_start"),
        epoch_ms(F.col("session.end")).alias("session_end"),
    )
    return topics.write("results", as_records(sessions, key="bidder"))
