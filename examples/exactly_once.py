"""Copies large orders from the queue `orders` to `large-orders`, exactly once: kill it at any moment, start it again.

    forebay serve &
    forebay push orders '{"id": 1, "total": 250}'
    python examples/exactly_once.py
    forebay pop large-orders

The checkpoint and the queue's commit by query and batch make it exactly once; nothing else has to be kept.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from forebay.spark import spark_session


def copy_large_orders(spark: SparkSession, checkpoint: str) -> None:
    """Read what is there now, and end."""
    orders = (
        spark.readStream.format("forebay")
        .option("queue", "orders")
        .option("group", "large-orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    total = "try_cast(get_json_object(string(payload), '$.total') AS DOUBLE)"
    large = orders.where(f"{total} > 100").select("payload", "partition")
    query = (
        large.writeStream.format("forebay")
        .option("queue", "large-orders")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    spark = spark_session(url=os.environ.get("FOREBAY_URL", "http://127.0.0.1:6632"))
    copy_large_orders(spark, os.environ.get("CHECKPOINT", "checkpoint-large-orders"))
    spark.stop()


if __name__ == "__main__":
    main()
