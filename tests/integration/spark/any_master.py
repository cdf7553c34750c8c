"""What the programs of all masters do alike: foreachBatch into a queue, and a queue as JSON."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

SECONDS_MAX = 180


def copy_by_batch(spark: SparkSession, checkpoint: str) -> None:
    """`numbers` to `batches`, each batch once."""

    def write(frame: DataFrame, batch_id: int) -> None:
        named = {"queue": "batches", "producer": "by-batch", "epoch": str(batch_id)}
        frame.select("payload").write.format("forebay").options(**named).mode("append").save()

    reading = spark.readStream.format("forebay").options(queue="numbers", startingOffsets="earliest")
    writing = reading.load().writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    query = writing.trigger(availableNow=True).start()
    if not query.awaitTermination(SECONDS_MAX):
        raise SystemExit("foreachBatch did not end")


def json_counts(spark: SparkSession) -> tuple[int, int]:
    """How many of `events` are good, and how many are bad."""
    named = {"queue": "events", "payloadAs": "json", "schema": "n INT NOT NULL, word STRING"}
    counted = spark.read.format("forebay").options(**named).load().groupBy("_corrupt").count().collect()
    return (
        sum(row["count"] for row in counted if row._corrupt is None),
        sum(row["count"] for row in counted if row._corrupt is not None),
    )
