"""How often each word has occurred so far.

Lines are split into words, and every batch gives the new totals of the words it has seen. The work is the
processor's: splitting, hashing, counting. The state is one number per word of the vocabulary.

    events   lines of ten words, as plain text
    results  word, occurrences (the total so far; the newest one per word counts)
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import json_events
from .json_events import RATE_RPS
from .json_frames import as_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from ..topics import Topics

WORDS_PER_LINE = 10  # judgement: about 65 bytes, a line of prose
SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi".split()
VOCABULARY = len(SYLLABLES) ** 3  # 5 832: judgement, the words of a short novel
ZIPF = 1.0  # natural language: the n-th most frequent word has a share of about 1/n
HOT_SHARE = 0.5  # judgement: every second word is the first one
SOURCES = 100  # judgement: where the lines come from, which spreads them over the partitions


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """The job, ready to be started."""
    from pyspark.sql import functions as F

    lines = topics.read("events").select(F.col("value").cast("string").alias("line"))
    words = lines.select(F.explode(F.split(F.lower("line"), r"\s+")).alias("word")).where(F.col("word") != "")
    totals = words.groupBy("word").agg(F.count("*").alias("occurrences"))
    return topics.write("results", as_records(totals, key="word"), output_mode="update")


def events(
    *, seed: int, count: int, start_s: float, hot_keys: bool = False, rate_rps: float = RATE_RPS
) -> pa.Table:
    """Lines of text, keyed by where they come from."""
    random = np.random.default_rng(seed)
    arrived = json_events.arrivals_ms(count=count, start_s=start_s, rate_rps=rate_rps)
    words = pa.array(["".join(three) for three in itertools.product(SYLLABLES, repeat=3)])
    shares = 1.0 / np.arange(1, VOCABULARY + 1) ** ZIPF
    ranks = np.searchsorted(np.cumsum(shares / shares.sum()), random.random((WORDS_PER_LINE, count)))
    if hot_keys:
        ranks[random.random(ranks.shape) < HOT_SHARE] = 0
    columns = [words.take(pa.array(np.minimum(of_place, VOCABULARY - 1))) for of_place in ranks]
    lines = pc.binary_join_element_wise(*columns, " ")
    return json_events.table(random.integers(0, SOURCES, count), lines, arrived)
