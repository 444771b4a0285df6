"""Which rows of Nexmark's one topic are people, auctions, bids?

Give all of them the same `records` where a query needs two: the topic is then one source with one set of
offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .json_frames import parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def people(records: DataFrame) -> DataFrame:
    """Who has registered: id, name, city, state, event_time."""
    return _of_kind("person", records, "id BIGINT, name STRING, city STRING, state STRING")


def auctions(records: DataFrame) -> DataFrame:
    """What has been put up: id, seller, category, event_time."""
    return _of_kind("auction", records, "id BIGINT, seller BIGINT, category BIGINT")


def bids(records: DataFrame) -> DataFrame:
    """Who has offered how many cents for what: auction, bidder, price, event_time."""
    return _of_kind("bid", records, "auction BIGINT, bidder BIGINT, price BIGINT")


def _of_kind(kind: str, records: DataFrame, schema: str) -> DataFrame:
    rows = parsed(records, f"kind STRING, {schema}")
    return rows.where(rows["kind"] == kind).drop("kind")
