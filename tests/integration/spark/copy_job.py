"""A Spark program as a user writes it: copies a queue to another, and stops when it has copied so many messages.

    copy_job.py MASTER URL SOURCE TARGET CHECKPOINT MESSAGES PYTHON

MESSAGES 0 stops when there are no more. Prints `batch N` after each batch and `copied N` at the end; then it
writes 5 messages more, and prints what the frame from before shows of them: none.
"""

from __future__ import annotations

import sys
import time

from any_master import copy_by_batch, json_counts  # type: ignore[import-not-found]  # beside this program

from forebay.spark import spark_session

SECONDS_MAX = 180


def main() -> None:
    master, url, source, target, checkpoint, messages, python = sys.argv[1:]
    config = {} if master.startswith("sc://") else {"spark.log.level": "ERROR"}
    spark = spark_session(master, url=url, python=python or None, config=config, on_progress=say)
    frame = spark.readStream.format("forebay").option("queue", source).option("startingOffsets", "earliest")
    frame = frame.option("maxOffsetsPerTrigger", "20").option("minPartitions", "2")
    writing = frame.load().select("payload", "partition").writeStream.format("forebay").option("queue", target)
    writing = writing.option("checkpointLocation", checkpoint)
    wanted = int(messages)
    query = (writing if wanted else writing.trigger(availableNow=True)).start()
    deadline = time.monotonic() + SECONDS_MAX
    copied, told = 0, -1
    while query.isActive and time.monotonic() < deadline and (not wanted or copied < wanted):
        for progress in query.recentProgress:
            if progress.batchId > told and progress.numInputRows:
                told, copied = progress.batchId, copied + progress.numInputRows
                say(f"batch {told}")
        time.sleep(0.2)
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    query.stop()
    table = spark.read.format("forebay").option("queue", target).load()
    say(f"copied {table.where('seq > 0').count()}")
    table.select("payload").limit(5).write.format("forebay").option("queue", target).mode("append").save()
    anew = spark.read.format("forebay").load(queue=target)
    say(f"snapshot {table.count()} {table.where('seq > 1').count()} of {anew.count()}")
    if "sc://" in master:
        copy_by_batch(spark, f"{checkpoint}-batches")
        say("json {} {}".format(*json_counts(spark)))
    spark.stop()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
