"""Writing a frame: all rows or none, once where it has a name, and what cannot be a message is refused."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fixtures.fix_spark import Queues
from fixtures.running_stores import fresh
from forebay.testing.running_server import RunningServer


def save(frame: DataFrame, server: RunningServer, queue: str, **options: str) -> None:
    frame.write.format("forebay").options(url=server.url, queue=queue, **options).mode("append").save()


def test_rows_of_all_tasks_are_written_with_their_columns(
    spark: SparkSession, spark_server: RunningServer, queues: Queues
) -> None:
    queue = fresh()
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "unhex(lpad(hex(id), 4, '0')) AS payload",
        "concat('p', id % 3) AS partition",
        "concat('t', id) AS transaction_id",
        """IF(id = 7, '{"k":"v"}', NULL) AS headers""",
    )
    # So small that every task sends several stages.
    save(frame, spark_server, queue, maxBytesPerStage="2000")
    rows = queues.rows(queue)
    assert sorted(row["payload"] for row in rows) == [n.to_bytes(2, "big") for n in range(1000)]
    for row in rows:
        number = int.from_bytes(row["payload"], "big")
        assert (row["partition"], row["transaction_id"]) == (f"p{number % 3}", f"t{number}")
        assert row["headers"] == ('{"k":"v"}' if number == 7 else None)


def test_failed_write_leaves_nothing(spark: SparkSession, spark_server: RunningServer, queues: Queues) -> None:
    queue = fresh()
    queues.put_numbers(queue, 0, 1)
    failing = spark.range(0, 1000, 1, 4).selectExpr("IF(id = 999, raise_error('broken row'), string(id)) AS payload")
    with pytest.raises(PySparkException, match="broken row"):
        save(failing, spark_server, queue, maxBytesPerStage="1000")
    assert queues.payloads(queue) == [b"0"]


def test_frame_without_rows_writes_nothing(spark: SparkSession, spark_server: RunningServer, queues: Queues) -> None:
    queue = fresh()
    queues.put_numbers(queue, 0, 1)
    save(spark.range(0).selectExpr("string(id) AS payload"), spark_server, queue)
    assert queues.payloads(queue) == [b"0"]


def test_write_with_a_name_is_done_once(spark: SparkSession, spark_server: RunningServer, queues: Queues) -> None:
    queue = fresh()
    frame = spark.range(3).selectExpr("string(id) AS payload")
    for epoch in ("1", "1", "2"):
        save(frame, spark_server, queue, producer=f"job-{queue}", epoch=epoch)
    assert sorted(queues.payloads(queue)) == [b"0", b"0", b"1", b"1", b"2", b"2"]


def test_writes_of_one_batch_to_several_queues_and_named_ones_to_one_are_all_kept(
    spark: SparkSession, spark_server: RunningServer, queues: Queues
) -> None:
    left, right = fresh("left"), fresh("right")
    frame = spark.range(0, 6, 1, 3).selectExpr("string(id) AS payload")
    named = {"producer": f"job-{left}", "epoch": "1"}
    for _ in range(2):
        save(frame, spark_server, left, **named)
        save(frame.where("payload > '3'"), spark_server, right, **named)
        save(frame.where("payload < '2'"), spark_server, right, writeName="low", **named)
    assert sorted(queues.payloads(left)) == [b"%d" % n for n in range(6)]
    assert sorted(queues.payloads(right)) == [b"0", b"1", b"4", b"5"]


def test_write_that_is_repeated_with_other_rows_fails_with_the_numbers_or_keeps_the_first(
    spark: SparkSession, spark_server: RunningServer, queues: Queues
) -> None:
    queue = fresh()
    named = {"producer": f"job-{queue}", "epoch": "1"}
    frame = spark.range(3).selectExpr("string(id) AS payload")
    save(frame, spark_server, queue, **named)
    save(frame.repartition(2).orderBy("payload", ascending=False), spark_server, queue, **named)
    for other in (frame.limit(2), frame.limit(0), frame.selectExpr("concat('x', payload) AS payload")):
        with pytest.raises(PySparkException, match=rf"'{queue}' with 3 messages, 3 bytes.*this commit has \d messages"):
            save(other, spark_server, queue, **named)
    save(frame.limit(2), spark_server, queue, onDifferentRepeat="keep", **named)
    assert sorted(queues.payloads(queue)) == [b"0", b"1", b"2"]
    save(frame.limit(0), spark_server, queue, producer=f"job-{queue}", epoch="3")
    with pytest.raises(PySparkException, match="with 0 messages"):
        save(frame, spark_server, queue, producer=f"job-{queue}", epoch="3")


def test_columns_are_packed_as_json(spark: SparkSession, spark_server: RunningServer, queues: Queues) -> None:
    queue = fresh()
    frame = spark.sql(
        "SELECT 'p' AS partition, 7L AS id, array(1.5D, NULL) AS list, named_struct('x', true, 'y', NULL) AS inner, "
        "timestamp'2026-01-01 00:00:00' AS at, date'2026-01-02' AS day, CAST(NULL AS STRING) AS gone"
    )
    save(frame, spark_server, queue, payloadAs="json")
    (row,) = queues.rows(queue)
    assert row["partition"] == "p"
    assert json.loads(row["payload"]) == {
        "id": 7,
        "list": [1.5, None],
        "inner": {"x": True},
        "at": "2026-01-01T00:00:00.000000Z",
        "day": "2026-01-02",
    }


@pytest.mark.parametrize(
    ("select", "options", "told"),
    [
        ("id", {}, r"payload is missing; id has no place in a message.*to_json\(struct"),
        ("id AS payload", {}, "payload is bigint, not binary or string"),
        ("string(id) AS payload", {"queues": "q"}, r"did you mean queue\?"),
        ("string(id) AS payload", {"writeName": "a"}, "writeName belongs to producer and epoch"),
        ("string(id) AS payload", {"startingOffsets": "latest"}, "startingOffsets is an option of spark.read"),
    ],
)
def test_wrong_writes_are_refused(
    spark: SparkSession, spark_server: RunningServer, select: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException, match=told):
        save(spark.range(1).selectExpr(select), spark_server, "q", **options)


def test_overwriting_a_queue_is_refused(spark: SparkSession, spark_server: RunningServer) -> None:
    writer = spark.range(1).selectExpr("string(id) AS payload").write.format("forebay").option("url", spark_server.url)
    with pytest.raises(PySparkException, match="a queue can be appended to, not overwritten"):
        writer.option("queue", "q").mode("overwrite").save()
