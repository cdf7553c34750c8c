"""A queue as a table: what was pushed is what is read, filters narrow the request, options are obeyed or refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fixtures.fix_spark import Queues
from fixtures.running_stores import fresh
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer

COLUMNS = "seq BIGINT, partition STRING, transaction_id STRING, trace_id STRING, headers STRING, created_at TIMESTAMP"


def table(spark: SparkSession, url: str, queue: str, **options: Any) -> DataFrame:
    return spark.read.format("forebay").options(url=url, queue=queue, **options).load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.payload) for row in frame.select("payload").collect())


def test_table_holds_exactly_what_was_pushed(spark: SparkSession, spark_server: RunningServer, queues: Queues) -> None:
    queue = fresh()
    payloads = [b"", b"\xff\x00\xfe", b'{"a": 1}', bytes(range(256)) * 4096, "häß".encode()]
    queues.put(
        queue,
        {
            "payload": payloads,
            "partition": [f"p{n % 2}" for n in range(5)],
            "transaction_id": [f"t{n}" for n in range(5)],
            "headers": ['{"k":"v"}', None, None, None, None],
        },
    )
    before = datetime.now(UTC)
    frame = table(spark, spark_server.url, queue, minPartitions=3)
    assert frame.schema == spark.createDataFrame([], f"{COLUMNS}, payload BINARY").schema
    found = sorted(frame.collect(), key=lambda row: row.seq)
    assert [(row.seq, row.partition, row.transaction_id, row.headers, bytes(row.payload)) for row in found] == [
        (row["seq"], row["partition"], row["transaction_id"], row["headers"], row["payload"])
        for row in queues.rows(queue)
    ]
    assert [bytes(row.payload) for row in found] == payloads
    assert all(row.created_at.astimezone(UTC) <= before for row in found)


def test_payload_is_read_as_string(spark: SparkSession, spark_server: RunningServer, queues: Queues) -> None:
    queue = fresh()
    queues.put(queue, {"payload": [b'{"user":"ann","ms":5}', b"broken"]})
    as_text = table(spark, spark_server.url, queue, payloadAs="string").orderBy("seq").collect()
    assert [row.payload for row in as_text] == ['{"user":"ann","ms":5}', "broken"]


def test_offsets_and_times_bound_a_table(spark: SparkSession, spark_server: RunningServer, queues: Queues) -> None:
    queue = fresh()
    queues.put_numbers(queue, 1, 6)
    wait_until(lambda: datetime.now(UTC) > queues.rows(queue)[-1]["created_at"])
    between = datetime.now(UTC)
    wait_until(lambda: datetime.now(UTC) > between)
    queues.put_numbers(queue, 6, 11)

    def read(**options: object) -> list[int]:
        return numbers(table(spark, spark_server.url, queue, **options))

    assert read(startingOffsets='{"seq": 3}', endingOffsets='{"seq": 7}') == [3, 4, 5, 6]
    assert read(startingTimestamp=between.isoformat()) == [6, 7, 8, 9, 10]
    assert read(endingTimestamp=between.isoformat()) == [1, 2, 3, 4, 5]
    assert read(startingOffsets="latest") == []
    assert read(partition="p0, p1", endingOffsets='{"seq": 99}') == [1, 3, 4, 6, 7, 9, 10]


class Recorder:
    """Passes GET requests on to a server and remembers them."""

    def __init__(self, target: str) -> None:
        asked: list[str] = []
        self.asked = asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                with urlopen(target + self.path, timeout=60) as answer:
                    body = answer.read()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def recorder(spark_server: RunningServer) -> Iterator[Recorder]:
    recorder = Recorder(spark_server.url)
    yield recorder
    recorder.close()


def test_server_is_asked_only_for_what_the_filters_leave(
    spark: SparkSession, queues: Queues, recorder: Recorder
) -> None:
    queue = fresh()
    queues.put_numbers(queue, 1, 101)

    def frame() -> DataFrame:
        return table(spark, recorder.url, queue, pushFilters="true")

    narrowed = frame().where(
        "seq > 10 AND seq <= 40 AND partition IN ('p1', 'p2') AND created_at >= timestamp'2026-01-01 00:00:00'"
    )
    assert numbers(narrowed) == [n for n in range(11, 41) if n % 3]
    (asked,) = [path.partition("?")[2] for path in recorder.asked if "/range" not in path]
    assert asked.startswith("from=11&to=40&partition=p1&partition=p2&createdFrom=2025-12-31T23%3A59%3A59.999999Z&")
    recorder.asked.clear()
    assert frame().where("partition = 'p1' AND partition = 'p2'").count() == 0
    assert frame().where("seq = 7 AND seq = 8").count() == 0
    assert all("/range" in path for path in recorder.asked)
    assert numbers(frame().where("seq IN (3, 50) OR seq = 7")) == [3, 7, 50]


def test_frame_gives_each_of_its_queries_the_rows_of_that_query(
    spark: SparkSession, spark_server: RunningServer, queues: Queues
) -> None:
    queue = fresh()
    queues.put_numbers(queue, 1, 101)
    frame = table(spark, spark_server.url, queue)
    few, many = frame.where("seq <= 10"), frame.where("seq > 5 AND partition = 'p0'")
    assert (few.count(), frame.count(), many.count()) == (10, 100, 32)
    assert (few.union(frame).count(), few.join(many, "seq").count()) == (110, 2)


def test_deleted_message_is_a_hole_and_no_loss(
    spark: SparkSession, spark_server: RunningServer, queues: Queues
) -> None:
    queue = fresh()
    queues.put_numbers(queue, 1, 11)
    middle = queues.rows(queue)[4]
    found = queues.ask("GET", f"/api/v1/messages?queue={queue}&fromSeq=5&limit=1")["messages"][0]
    queues.ask("DELETE", f"/api/v1/messages/{found['partitionId']}/{middle['transaction_id']}")
    assert numbers(table(spark, spark_server.url, queue)) == [1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_lost_messages_fail_the_read_or_are_skipped(
    spark: SparkSession, spark_server: RunningServer, queues: Queues
) -> None:
    queue = fresh()
    queues.put_numbers(queue, 1, 11)
    queues.ask("POST", "/api/v1/configure", {"queue": queue, "options": {"retentionSeconds": 1}})
    wait_until(lambda: queues.ask("GET", f"/api/v1/arrow/queues/{queue}/range")["firstSeq"] == 11)
    queues.ask("POST", "/api/v1/configure", {"queue": queue, "options": {"retentionSeconds": 0}})
    queues.put_numbers(queue, 11, 16)
    begin: dict[str, Any] = {"startingOffsets": '{"seq": 4}'}
    with pytest.raises(PySparkException, match=rf"messages 4-10 of queue '{queue}' are gone"):
        table(spark, spark_server.url, queue, **begin).collect()
    assert numbers(table(spark, spark_server.url, queue, failOnDataLoss="false", **begin)) == [11, 12, 13, 14, 15]
    assert numbers(table(spark, spark_server.url, queue)) == [11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"queue": "q", "failOnDataLos": "false"}, r"did you mean failOnDataLoss\?"),
        ({}, "queue is missing"),
        ({"queue": "no-such-queue"}, "no queue 'no-such-queue'"),
        ({"queue": "q", "group": "g"}, "group is an option of spark.readStream only"),
        ({"queue": "q", "schema": "a INT"}, "schema belongs to payloadAs=json"),
    ],
)
def test_wrong_options_of_a_table_are_refused(
    spark: SparkSession, spark_server: RunningServer, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException, match=told):
        spark.read.format("forebay").option("url", spark_server.url).options(**options).load().count()


def test_schema_given_to_spark_instead_of_the_option_is_refused(
    spark: SparkSession, spark_server: RunningServer
) -> None:
    reader = spark.read.format("forebay").option("url", spark_server.url).option("queue", "q")
    with pytest.raises(PySparkException, match="with payloadAs=json it names the columns of the payload"):
        reader.schema("user STRING").load().count()
    with pytest.raises(PySparkException, match="not null"):
        reader.schema(f"{COLUMNS.replace('headers STRING', 'headers STRING NOT NULL')}, payload BINARY").load().count()
