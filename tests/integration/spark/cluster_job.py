"""A program on a cluster: a streaming job and a flow in one session, until the file STOP is there.

    cluster_job.py MASTER URLS PYTHON FOLDER

The job copies `numbers` to `copies`. The flow takes what `events` holds, as `FLOW` says. Prints `job N` and `flow N`
after each batch, and `stopped` at the end.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from forebay.flows import Flow, QueueSink, Source, SqlAction
from forebay.flows.worker import Worker
from forebay.spark import spark_session
from forebay.spark.flow_runner import SparkRunner
from forebay.spark.options import Connection

SECONDS_MAX = 180
FLOW = Flow(
    name="squares",
    mode="stream",
    source=Source(
        queue="events",
        payload_as="json",
        schema="n INT, word STRING",
        max_offsets_per_trigger=100,
        min_partitions=2,
    ),
    actions=(SqlAction(name="square", sql="SELECT word, n * n AS square FROM input WHERE n % 3 <> 0"),),
    sink=QueueSink(queue="squares"),
    trigger=timedelta(0),
)


def main() -> None:
    master, urls, python, folder = sys.argv[1:]
    spark = spark_session(master, url=urls, python=python, config={"spark.log.level": "ERROR"})
    job = copying(spark, Path(folder))
    runner = SparkRunner(spark, Connection(tuple(urls.split(","))))
    worker = Worker([FLOW], runner, Path(folder) / "data", tell=say)
    deadline = time.monotonic() + SECONDS_MAX
    told = -1
    while not (Path(folder) / "STOP").exists() and time.monotonic() < deadline:
        worker.step()
        if job.exception() is not None:
            raise SystemExit(str(job.exception()))
        done = max((progress.batchId for progress in job.recentProgress if progress.numInputRows), default=-1)
        if done > told:
            told = done
            say(f"job {done}")
        time.sleep(0.1)
    worker.stop()
    job.stop()
    spark.stop()
    say("stopped")


def copying(spark: SparkSession, folder: Path) -> StreamingQuery:
    frame = spark.readStream.format("forebay").option("queue", "numbers").option("startingOffsets", "earliest")
    frame = frame.option("maxOffsetsPerTrigger", "50").option("minPartitions", "2").option("group", "job")
    writing = frame.load().select("payload", "partition").writeStream.format("forebay").option("queue", "copies")
    return writing.option("checkpointLocation", str(folder / "checkpoint")).start()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
