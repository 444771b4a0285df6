"""A query as a user would write it, without a word of Headroom. `learning` runs it as a job that is not ours.

    sales.py BROKERS ORDERS TOTALS CHECKPOINT

Turnover per group of customers in windows of ten seconds; each order waits about a millisecond for a look-up.
"""

from __future__ import annotations

import sys
import time
import zlib

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ORDER = "customer string, cents long"


def group(customer: str) -> str:
    time.sleep(0.001)  # a service elsewhere answers
    return f"group-{zlib.crc32(customer.encode()) % 20}"


def main(brokers: str, orders: str, totals: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("sales").getOrCreate()
    bought = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", orders)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 2000)
        .load()
        .select(
            "timestamp",
            F.from_json(F.col("value").cast("string"), ORDER).alias("order"),
        )
    )
    turnover = (
        bought.select("timestamp", F.udf(group, "string")("order.customer").alias("group"), "order.cents")
        .withWatermark("timestamp", "10 seconds")
        .groupBy(F.window("timestamp", "10 seconds"), "group")
        .agg(F.sum("cents").alias("cents"))
    )
    (
        turnover.select(F.to_json(F.struct("window", "group", "cents")).alias("value"))
        .writeStream.format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", brokers)
        .option("topic", totals)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="2 seconds")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
