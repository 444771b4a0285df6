"""What is bid on a chosen few auctions? (Nexmark query 2, selection)

Stateless: few bids come out. Beam and Flink choose every 123rd auction, since the five of the original hardly
ever match.

    events   one topic of people, auctions and bids (nexmark_events)
    results  auction, price
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .json_frames import as_records
from .nexmark_events import events
from .nexmark_frames import bids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from ..topics import Topics

__all__ = ["INPUTS", "OUTPUTS", "LONGEST_WINDOW_S", "build", "events"]

INPUTS, OUTPUTS = ("events",), ("results",)
LONGEST_WINDOW_S = 0.0
CHOSEN_EVERY = 123  # Beam


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """The job, ready to be started."""
    offered = bids(topics.read("events"))
    chosen = offered.where(offered["auction"] % CHOSEN_EVERY == 0).select("auction", "price")
    return topics.write("results", as_records(chosen, key="auction"))
