"""No row is missed in silence: queues that are made again, gaps that retention leaves, frames that stay as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from fixtures.fix_spark import RETENTION, Queues, finished, forget_last_commit
from fixtures.running_stores import fresh
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer

STORES = ["embedded", "postgres"]


@pytest.fixture(params=STORES)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningServer]:
    """A server of the test's own, on each store: it may be killed."""
    store = request.getfixturevalue("postgres_database") if request.param == "postgres" else "embedded"
    with RunningServer(tmp_path / "data", store=store, arguments=RETENTION) as server:
        yield server


@pytest.fixture
def own(server: RunningServer) -> Queues:
    return Queues(server)


class Counting:
    """A query that writes one queue to a table in memory of its own."""

    def __init__(self, spark: SparkSession, server: RunningServer, queue: str, checkpoint: Path) -> None:
        self._spark, self._server, self._checkpoint = spark, server, checkpoint
        self.queue = queue
        self.found: list[int] = []

    def run(self, **options: str) -> list[int]:
        """To the end of what is there; returns the numbers that came."""
        self.found.clear()
        given = {"startingOffsets": "earliest", **options}
        frame = self._spark.readStream.format("forebay").options(url=self._server.url, queue=self.queue, **given).load()
        writing = frame.select("payload").writeStream.foreachBatch(self._take)
        writing = writing.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True)
        finished(writing.start())
        return sorted(self.found)

    def _take(self, frame: DataFrame, _: int) -> None:
        self.found.extend(int(row.payload) for row in frame.collect())


def finish(own: Queues, queue: str, group: str = "workers") -> None:
    """Let a group finish all that the queue holds."""
    own.ask("POST", f"/api/v1/consumer-groups/{group}/queues/{queue}/seek", {"toEnd": True})


def keep(own: Queues, queue: str, **options: int) -> None:
    own.ask("POST", "/api/v1/configure", {"queue": queue, "options": options})


def bounds(own: Queues, queue: str) -> dict[str, Any]:
    told: dict[str, Any] = own.ask("GET", f"/api/v1/arrow/queues/{queue}/range")
    return told


def is_emptied(own: Queues, queue: str) -> bool:
    told = bounds(own, queue)
    return bool(told["firstSeq"] == told["nextSeq"])


def test_queue_that_was_made_again_is_a_fault_with_the_numbers_or_begun_anew(
    spark: SparkSession, server: RunningServer, own: Queues, tmp_path: Path
) -> None:
    queue = fresh()
    own.put_numbers(queue, 0, 100)
    counting = Counting(spark, server, queue, tmp_path / "checkpoint")
    assert counting.run() == list(range(100))
    old = bounds(own, queue)["identity"]
    own.ask("DELETE", f"/api/v1/resources/queues/{queue}")
    own.put_numbers(queue, 1000, 1150)
    server.kill()
    server.start()
    new = bounds(own, queue)["identity"]
    with pytest.raises(
        StreamingQueryException, match=rf"from seq 101 .identity {old}.*seqs from 1 to 150 .identity {new}"
    ):
        counting.run()
    assert counting.run(failOnDataLoss="false") == list(range(1000, 1150))
    own.put_numbers(queue, 1150, 1160)
    assert counting.run() == list(range(1150, 1160))
    # Another queue under the same checkpoint is another one too.
    counting.queue = fresh("other")
    own.put_numbers(counting.queue, 0, 500)
    with pytest.raises(StreamingQueryException, match=f"'{counting.queue}' was to be read from seq 161"):
        counting.run()


def test_checkpoint_from_before_offsets_knew_their_queue_is_gone_on_with(
    spark: SparkSession, server: RunningServer, own: Queues, tmp_path: Path
) -> None:
    queue = fresh()
    own.put_numbers(queue, 0, 10)
    counting = Counting(spark, server, queue, tmp_path / "checkpoint")
    assert counting.run() == list(range(10))
    for written in (tmp_path / "checkpoint" / "offsets").iterdir():
        if written.name.isdecimal():
            *lines, last = written.read_text().splitlines()
            written.write_text("\n".join([*lines, json.dumps({"seq": json.loads(last)["seq"]})]))
            (written.parent / f".{written.name}.crc").unlink(missing_ok=True)
    own.put_numbers(queue, 10, 15)
    assert counting.run() == list(range(10, 15))
    newest = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert json.loads(newest.read_text().splitlines()[-1])["queue"] == bounds(own, queue)["identity"]


def test_stream_without_a_group_holds_what_is_finished_and_a_gap_is_told(
    spark: SparkSession, server: RunningServer, own: Queues, tmp_path: Path
) -> None:
    queue = fresh()
    keep(own, queue, completedRetentionSeconds=1)
    # A partition that no group finishes keeps the front of the queue: what is missing is missing in the middle.
    own.put(queue, {"payload": [b"0"], "partition": ["slow"]})
    counting = Counting(spark, server, queue, tmp_path / "checkpoint")
    assert counting.run() == [0]
    own.put_numbers(queue, 1, 31)
    finish(own, queue)
    own.ask("POST", f"/api/v1/consumer-groups/workers/queues/{queue}/partitions/slow/seek", {"seq": 1})
    server.kill()
    server.start()
    # Two rounds of retention, seen by another queue that nobody holds.
    for _ in range(2):
        seen = fresh("seen")
        keep(own, seen, completedRetentionSeconds=1)
        own.put_numbers(seen, 0, 1)
        finish(own, seen)
        wait_until(partial(is_emptied, own, seen))
    assert "removedSeq" not in bounds(own, queue)
    # Longer than a busy machine needs between the word to the server and the read.
    assert counting.run(holdRetention="6s") == list(range(1, 31))
    own.put_numbers(queue, 31, 61)
    finish(own, queue)
    own.ask("POST", f"/api/v1/consumer-groups/workers/queues/{queue}/partitions/slow/seek", {"seq": 1})
    wait_until(lambda: bounds(own, queue).get("removedSeq") == 61)
    own.put_numbers(queue, 61, 65)
    with pytest.raises(StreamingQueryException, match=rf"queue '{queue}' between seq 32 and 61 are gone"):
        counting.run()
    assert counting.run(failOnDataLoss="false") == list(range(61, 65))
    own.put_numbers(queue, 65, 70)
    assert counting.run() == list(range(65, 70))
    # A new query begins with what there is: what was gone before it is not its loss.
    fresh_query = Counting(spark, server, queue, tmp_path / "fresh")
    assert fresh_query.run() == [0, *range(61, 70)]


def test_frame_is_a_snapshot_of_the_moment_it_was_loaded(
    spark: SparkSession, server: RunningServer, own: Queues
) -> None:
    queue = fresh()
    own.put_numbers(queue, 0, 10)
    reading = spark.read.format("forebay").options(url=server.url, queue=queue)
    frame, lenient = reading.load(), reading.option("failOnDataLoss", "false").load()
    own.put_numbers(queue, 10, 20)
    assert frame.count() == 10
    own.put_numbers(queue, 20, 30)
    server.kill()
    server.start()
    assert frame.where("seq > 0").count() == 10
    assert frame.union(frame.where("seq > 5")).count() == 15
    assert reading.load().count() == 30
    keep(own, queue, retentionSeconds=1)
    wait_until(lambda: bounds(own, queue)["firstSeq"] == 31)
    with pytest.raises(PySparkException, match=rf"messages 1-10 of queue '{queue}' are gone"):
        frame.where("seq > 1").count()
    assert lenient.where("seq > 1").count() == 0
    own.ask("DELETE", f"/api/v1/resources/queues/{queue}")
    own.put_numbers(queue, 0, 20)
    with pytest.raises(PySparkException, match="deleted and made again"):
        frame.where("seq > 2").count()


def test_lag_of_a_group_whose_stream_reads_one_partition_is_that_of_the_partition(
    spark: SparkSession, server: RunningServer, own: Queues, tmp_path: Path
) -> None:
    queue = fresh()
    own.put_numbers(queue, 0, 30)
    counting = Counting(spark, server, queue, tmp_path / "checkpoint")
    assert counting.run(partition="p1", group="report") == list(range(1, 30, 3))
    assert own.lag("report", queue) == 0
    own.put(queue, {"payload": [b"0"] * 7, "partition": ["p1"] * 2 + ["p2"] * 4 + ["new"]})
    assert own.lag("report", queue) == 2
    assert counting.run(partition="p1", group="report") == [0, 0]
    assert own.lag("report", queue) == 0


def test_fan_out_of_a_batch_that_is_killed_between_its_writes_keeps_all_rows_once(
    spark: SparkSession, server: RunningServer, own: Queues, tmp_path: Path
) -> None:
    source, even, odd = fresh("source"), fresh("even"), fresh("odd")
    own.put_numbers(source, 0, 40)
    killed: list[int] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        once = {"url": server.url, "producer": f"fan-out-{source}", "epoch": str(batch_id)}
        for number, (queue, name) in enumerate([(even, "a"), (odd, "a"), (odd, "b")]):
            rows = frame.where(f"int(string(payload)) % 2 = {int(queue == odd)}").select("payload", "partition")
            rows.write.format("forebay").options(queue=queue, writeName=name, **once).mode("append").save()
            if number not in killed:
                killed.append(number)
                server.kill()
                server.start()
                raise RuntimeError("killed on purpose")

    frame = spark.readStream.format("forebay").options(url=server.url, queue=source, startingOffsets="earliest").load()
    writing = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    for _ in range(3):
        with pytest.raises(StreamingQueryException, match="killed on purpose"):
            finished(writing.trigger(availableNow=True).start())
    finished(writing.trigger(availableNow=True).start())
    assert forget_last_commit(tmp_path / "checkpoint") == 0
    finished(writing.trigger(availableNow=True).start())
    assert sorted(map(int, own.payloads(even))) == list(range(0, 40, 2))
    assert sorted(map(int, own.payloads(odd))) == sorted([*range(1, 40, 2)] * 2)
