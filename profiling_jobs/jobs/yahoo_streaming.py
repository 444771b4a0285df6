"""How often each campaign's advertising is seen (Yahoo Streaming Benchmark).

Of all ad events the views are kept, each ad is matched to its campaign, and views are counted per campaign in
tumbling windows of ten seconds. The campaigns are a table that every executor holds: in the original they
stand in Redis, which then limits the benchmark (Daedalus §4.1.2).

    events   user_id, page_id, ad_id, ad_type, event_type, ip_address, event_time; about 240 bytes
    results  campaign_id, views, window_end
"""

from __future__ import annotations

import uuid
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from . import json_events
from .json_events import RATE_RPS
from .json_frames import as_records, epoch_ms, parsed, watermarked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from ..topics import Topics

WINDOW_S = 10  # the benchmark's
CAMPAIGNS, ADS_PER_CAMPAIGN = 100, 10  # the benchmark's
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")  # the benchmark's
EVENT_TYPES = ("view", "click", "purchase")  # the benchmark's, equally often
USERS = PAGES = 100  # the benchmark's
HOT_SHARE = 0.5  # judgement: every second event is about the first ad


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """The job, ready to be started."""
    from pyspark.sql import functions as F

    seen = parsed(topics.read("events"), "ad_id STRING, event_type STRING").where(
        F.col("event_type") == "view"
    )
    matched = watermarked(seen.select("ad_id", "event_time")).join(
        F.broadcast(spark.createDataFrame(campaigns())), "ad_id"
    )
    window = F.window("event_time", f"{WINDOW_S} seconds").alias("window")
    counted = matched.groupBy(window, "campaign_id").agg(F.count("*").alias("views"))
    views = counted.select("campaign_id", "views", epoch_ms(F.col("window.end")).alias("window_end"))
    return topics.write("results", as_records(views, key="campaign_id"))


def campaigns() -> pa.Table:
    """Campaign of each ad, always the same."""
    ads = _identifiers("ad", CAMPAIGNS * ADS_PER_CAMPAIGN)
    of_campaign = np.repeat(np.arange(CAMPAIGNS), ADS_PER_CAMPAIGN)
    return pa.table({"ad_id": ads, "campaign_id": _identifiers("campaign", CAMPAIGNS).take(of_campaign)})


def events(
    *, seed: int, count: int, start_s: float, hot_keys: bool = False, rate_rps: float = RATE_RPS
) -> pa.Table:
    """Views, clicks and purchases, keyed by ad."""
    random = np.random.default_rng(seed)
    arrived = json_events.arrivals_ms(count=count, start_s=start_s, rate_rps=rate_rps)
    numbers = random.integers(0, CAMPAIGNS * ADS_PER_CAMPAIGN, count)
    if hot_keys:
        numbers[random.random(count) < HOT_SHARE] = 0
    ads = _identifiers("ad", CAMPAIGNS * ADS_PER_CAMPAIGN).take(pa.array(numbers))

    def one_of(choices: pa.Array) -> pa.Array:
        return choices.take(pa.array(random.integers(0, len(choices), count)))

    values = json_events.encode(
        json_events.event_times_ms(arrived, random),
        {
            "user_id": one_of(_identifiers("user", USERS)),
            "page_id": one_of(_identifiers("page", PAGES)),
            "ad_id": ads,
            "ad_type": one_of(pa.array(AD_TYPES)),
            "event_type": one_of(pa.array(EVENT_TYPES)),
            "ip_address": "1.2.3.4",
        },
    )
    return json_events.table(ads, values, arrived)


@cache
def _identifiers(kind: str, count: int) -> pa.Array:
    return pa.array([str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}-{number}")) for number in range(count)])
