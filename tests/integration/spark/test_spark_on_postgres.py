"""Spark beside PostgreSQL: the first rows of a table, and messages that an outage sent through buffer files."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from fixtures.fix_spark import Queues
from fixtures.running_stores import Http, fresh
from fixtures.waiting import wait_until
from forebay.testing.running_server import RunningServer
from forebay.testing.servers import PostgresServer
from integration.spark.test_spark_reading import table
from integration.spark.test_spark_streaming import Copying


def test_take_gives_the_first_rows_of_a_long_queue(spark: SparkSession, postgres_database: str, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", store=postgres_database) as server:
        queue = fresh()
        Queues(server).put_numbers(queue, 0, 30_000)
        for rows in (1, 7):
            found = table(spark, server.url, queue).take(rows)
            assert [(row.seq, int(row.payload)) for row in found] == [(n + 1, n) for n in range(rows)]
        assert table(spark, server.url, queue).filter("seq > 29990").take(100)[-1].seq == 30_000


def test_buffered_messages_reach_a_stream_once_and_in_order(
    spark: SparkSession, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with RunningServer(tmp_path / "data", store=postgres_server.url) as server, Http(server.url) as http:
        copying = Copying(spark, server, tmp_path / "checkpoint")
        statuses = [http.push(copying.source, n, partition="p")[0]["status"] for n in range(10)]
        assert copying.run() == [10]
        postgres_server.stop("immediate")
        statuses += [http.push(copying.source, n, partition="p")[0]["status"] for n in range(10, 40)]
        postgres_server.start()
        wait_until(lambda: http.get("/api/v1/status/buffers").json["pending"] == 0)
        statuses += [http.push(copying.source, n, partition="p")[0]["status"] for n in range(40, 50)]
        assert statuses == ["queued"] * 10 + ["buffered"] * 30 + ["queued"] * 10
        assert sum(copying.run()) == 40
        queues = Queues(server)
        for queue in (copying.source, copying.target):
            assert [int(payload) for payload in queues.payloads(queue)] == list(range(50))
