"""Which auctions got the most bids in the last five minutes? (Nexmark query 5 with a large state)

Every minute, over the bids of the last five; otherwise `nexmark_q5`.

    events   one topic of people, auctions and bids (nexmark_events)
    results  auction, bids, window_end
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .json_frames import as_records
from .nexmark_events import events
from .nexmark_q5 import INPUTS, OUTPUTS, hot_items

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from ..topics import Topics

__all__ = ["INPUTS", "OUTPUTS", "LONGEST_WINDOW_S", "build", "events"]

WINDOW_S, SLIDE_S = 300, 60
LONGEST_WINDOW_S = float(WINDOW_S)


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """The job, ready to be started."""
    hot = hot_items(topics.read("events"), window_s=WINDOW_S, slide_s=SLIDE_S)
    return topics.write("results", as_records(hot, key="auction"))
