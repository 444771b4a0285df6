"""What is each bid worth in euros? (Nexmark query 1, currency conversion)

Stateless: one bid in, one bid out.

    events   one topic of people, auctions and bids (nexmark_events)
    results  auction, bidder, price_eur, event_time
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .json_frames import as_records, epoch_ms
from .nexmark_events import events
from .nexmark_frames import bids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from ..topics import Topics

__all__ = ["INPUTS", "OUTPUTS", "LONGEST_WINDOW_S", "build", "events"]

INPUTS, OUTPUTS = ("events",), ("results",)
LONGEST_WINDOW_S = 0.0
EUROS_PER_DOLLAR = 0.908  # Nexmark for Flink; the query is about the work, not the rate


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """The job, ready to be started."""
    offered = bids(topics.read("events"))
    converted = offered.select(
        "auction",
        "bidder",
        (offered["price"] * EUROS_PER_DOLLAR / 100).alias("price_eur"),
        epoch_ms("event_time").alias("event_time"),
    )
    return topics.write("results", as_records(converted, key="auction"))
