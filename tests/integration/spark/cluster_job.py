"""A program on a cluster: a streaming job and a flow in one session, until the file STOP is there.

    spark-submit --master MASTER cluster_job.py URLS PYTHON FOLDER

The program names no master: it is the one that spark-submit has. First `numbers` are copied to `batches` by
foreachBatch, and the events are counted as JSON. Then the job copies `numbers` to `copies`, and the flow takes what
`events` holds, as `FLOW` says. Prints `master M`, `json GOOD BAD`, `job N` and `squares: batch N` after each batch, and
`stopped` at the end.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path

from any_master import copy_by_batch, json_counts  # type: ignore[import-not-found]  # beside this program
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from forebay.cli.flow_server import FlowServer, worker_name
from forebay.flows import ClassAction, Flow, QueueSink, Source
from forebay.flows.worker import Worker
from forebay.spark import spark_session
from forebay.spark.flow_code import send_code
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
    actions=(ClassAction(name="square", class_name="shop_actions.Square"),),
    sink=QueueSink(queue="squares"),
    trigger=timedelta(0),
)


def main() -> None:
    urls, python, folder = sys.argv[1:]
    spark = spark_session(url=urls, python=python, config={"spark.log.level": "ERROR"})
    say(f"master {spark.conf.get('spark.master')}")
    copy_by_batch(spark, str(Path(folder) / "batches"))
    say("json {} {}".format(*json_counts(spark)))
    job = copying(spark, Path(folder))
    send_code(spark, [FLOW])
    runner = SparkRunner(spark, Connection(tuple(urls.split(","))))
    data = Path(folder) / "data"
    control = FlowServer(urls.split(","), None, worker_name(data), [FLOW.name], tell=say)
    with control:
        _work(Worker([FLOW], runner, data, control, tell=say), job, Path(folder))
    job.stop()
    spark.stop()
    say("stopped")


def _work(worker: Worker, job: StreamingQuery, folder: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    told = -1
    while not (folder / "STOP").exists() and time.monotonic() < deadline:
        worker.step()
        if job.exception() is not None:
            raise SystemExit(str(job.exception()))
        done = max((progress.batchId for progress in job.recentProgress if progress.numInputRows), default=-1)
        if done > told:
            told = done
            say(f"job {done}")
        time.sleep(0.1)
    worker.stop()


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
