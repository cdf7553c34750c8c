"""Queue to queue as a stream: batches within limits, restarts and repeated batches, each row once."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from fixtures.fix_spark import Queues, finished, forget_last_commit
from fixtures.running_stores import fresh
from fixtures.waiting import wait_until
from forebay.spark import OptionsRefused
from forebay.testing.running_server import RunningServer


class Copying:
    """A query that copies one queue to another."""

    def __init__(self, spark: SparkSession, server: RunningServer, checkpoint: Path) -> None:
        self.spark = spark
        self.server = server
        self.checkpoint = checkpoint
        self.source, self.target = fresh("source"), fresh("target")

    def run(self, **options: str) -> list[int]:
        """To the end of what is there; returns the sizes of the batches."""
        writing = self._writing(**{"startingOffsets": "earliest", **options})
        query = finished(writing.trigger(availableNow=True).start())
        return [progress.numInputRows for progress in query.recentProgress]

    def start(self, **options: str) -> StreamingQuery:
        return self._writing(**options).start()

    def _writing(self, **options: str) -> DataStreamWriter:
        frame = (
            self.spark.readStream.format("forebay").options(url=self.server.url, queue=self.source, **options).load()
        )
        writing = frame.select("payload", "partition").writeStream.format("forebay")
        return writing.options(url=self.server.url, queue=self.target, checkpointLocation=str(self.checkpoint))


@pytest.fixture
def copying(spark: SparkSession, spark_server: RunningServer, tmp_path: Path) -> Copying:
    return Copying(spark, spark_server, tmp_path / "checkpoint")


def numbered(payloads: list[bytes]) -> list[int]:
    return sorted(map(int, payloads))


def test_stream_is_cut_into_batches_and_goes_on_where_it_was(copying: Copying, queues: Queues) -> None:
    queues.put_numbers(copying.source, 0, 100)
    assert copying.run(maxOffsetsPerTrigger="30", group="report", minPartitions="2") == [30, 30, 30, 10]
    assert numbered(queues.payloads(copying.target)) == list(range(100))
    assert queues.lag("report", copying.source) == 0
    queues.put_numbers(copying.source, 100, 110)
    assert queues.lag("report", copying.source) == 10
    assert copying.run(group="report") == [10]
    assert numbered(queues.payloads(copying.target)) == list(range(110))
    assert queues.lag("report", copying.source) == 0


def test_updates_become_messages_by_foreach_batch_once_each_and_progress_names_the_queue(
    copying: Copying, queues: Queues, spark: SparkSession, spark_server: RunningServer
) -> None:
    queues.put_numbers(copying.source, 0, 60)
    named = {"url": spark_server.url, "queue": copying.source, "startingOffsets": "earliest"}
    reading = spark.readStream.format("forebay").options(**named, maxOffsetsPerTrigger="30").load()
    counted = reading.groupBy("partition").count().selectExpr("to_json(struct(*)) AS payload")

    def write(frame: DataFrame, batch_id: int) -> None:
        once = {"producer": copying.target, "epoch": str(batch_id)}
        frame.write.format("forebay").options(url=spark_server.url, queue=copying.target, **once).mode("append").save()

    updates = counted.writeStream.outputMode("update").option("checkpointLocation", str(copying.checkpoint))
    progress = finished(updates.foreachBatch(write).trigger(availableNow=True).start()).lastProgress
    forget_last_commit(copying.checkpoint)
    finished(updates.foreachBatch(write).trigger(availableNow=True).start())
    found = sorted(queues.payloads(copying.target))
    assert found == sorted(b'{"partition":"p%d","count":%d}' % (n, count) for n in range(3) for count in (10, 20))
    assert progress is not None
    latest = json.loads(progress.sources[0].latestOffset)
    assert (latest["seq"], latest["queueName"]) == (61, copying.source)

    direct = counted.writeStream.format("forebay").options(url=spark_server.url, queue=copying.target)
    refused = direct.outputMode("update").option("checkpointLocation", str(copying.checkpoint.with_name("direct")))
    with pytest.raises(StreamingQueryException, match="forebay does not support Update mode"):
        finished(refused.trigger(availableNow=True).start())


def test_stream_with_an_end_is_refused_when_it_is_loaded(copying: Copying) -> None:
    with pytest.raises(OptionsRefused, match=r"endingOffsets is an option of spark\.read only; a stream has no end"):
        copying.start(endingOffsets='{"seq": 5}')


def test_batch_that_is_repeated_after_its_commit_is_not_written_twice(copying: Copying, queues: Queues) -> None:
    queues.put_numbers(copying.source, 0, 50)
    assert copying.run(maxOffsetsPerTrigger="20") == [20, 20, 10]
    assert forget_last_commit(copying.checkpoint) == 2
    queues.put_numbers(copying.source, 50, 60)
    assert copying.run(maxOffsetsPerTrigger="20") == [10, 10]
    assert numbered(queues.payloads(copying.target)) == list(range(60))


def test_stream_from_the_latest_begins_where_the_queue_ended_while_producers_go_on(
    copying: Copying, queues: Queues
) -> None:
    queues.put_numbers(copying.source, 0, 500)
    numbers, is_over = itertools.count(500), Event()

    def produce() -> None:
        while not is_over.is_set():
            number = next(numbers)
            queues.put_numbers(copying.source, number, number + 1)

    with ThreadPoolExecutor(1) as producer:
        pushing = producer.submit(produce)
        query = copying.start()
        try:
            wait_until(lambda: queues.size(copying.target) >= 20 or not query.isActive)
        finally:
            is_over.set()
            query.stop()
        pushing.result()
    found = numbered(queues.payloads(copying.target))
    assert found[0] >= 500
    assert found == list(range(found[0], found[-1] + 1))


def test_stream_from_the_latest_that_was_killed_in_its_first_batch_misses_nothing_and_reads_nothing_old(
    copying: Copying, queues: Queues
) -> None:
    queues.put_numbers(copying.source, 0, 20)
    assert sum(copying.run(startingOffsets="latest")) == 0
    assert forget_last_commit(copying.checkpoint) == 0
    queues.put_numbers(copying.source, 20, 30)
    copying.run(startingOffsets="latest")
    assert numbered(queues.payloads(copying.target)) == list(range(20, 30))
    queues.put_numbers(copying.source, 30, 35)
    copying.run(startingOffsets="latest")
    assert numbered(queues.payloads(copying.target)) == list(range(20, 35))


def test_bytes_limit_batches_by_average_size(copying: Copying, queues: Queues) -> None:
    queues.put(copying.source, {"payload": [b"x" * 1000] * 40})
    sizes = copying.run(maxBytesPerTrigger="10000")
    assert sum(sizes) == 40
    assert 4 <= len(sizes) <= 10


def test_lost_messages_fail_the_stream_or_are_skipped(copying: Copying, queues: Queues) -> None:
    queues.put_numbers(copying.source, 0, 10)
    assert copying.run() == [10]
    queues.put_numbers(copying.source, 10, 20)
    queues.ask("POST", "/api/v1/configure", {"queue": copying.source, "options": {"retentionSeconds": 1}})
    wait_until(lambda: queues.ask("GET", f"/api/v1/arrow/queues/{copying.source}/range")["firstSeq"] == 21)
    queues.ask("POST", "/api/v1/configure", {"queue": copying.source, "options": {"retentionSeconds": 0}})
    queues.put_numbers(copying.source, 20, 25)
    with pytest.raises(StreamingQueryException, match=rf"messages 11-20 of queue '{copying.source}' are gone"):
        copying.run()
    copying.run(failOnDataLoss="false")
    assert numbered(queues.payloads(copying.target)) == [*range(10), *range(20, 25)]


def test_wrong_options_of_a_stream_are_refused(copying: Copying, queues: Queues) -> None:
    queues.put_numbers(copying.source, 0, 1)
    with pytest.raises(Exception, match=r"'maxoffsetpertrigger' is no option \(did you mean maxOffsetsPerTrigger\?\)"):
        copying.run(maxOffsetPerTrigger="5")
    with pytest.raises(Exception, match=r"endingOffsets is an option of spark\.read only"):
        copying.run(endingOffsets="latest")
