"""What Spark leans on is killed in the middle of a batch: the server, a Python worker, the messages themselves."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from fixtures.fix_spark import RETENTION, Queues, finished
from fixtures.flow_control import ScriptedControl
from fixtures.running_stores import fresh
from fixtures.waiting import wait_until
from fixtures.watched_way import Kind, Moment, Point, WatchedWay, process_at
from forebay.flows import Flow, QueueSink, Source
from forebay.flows.supervision import State
from forebay.flows.worker import Worker
from forebay.spark.flow_runner import SparkRunner
from forebay.spark.options import Connection
from forebay.testing.running_server import RunningServer

PAYLOAD_BYTES = 40_000
"""So large that the rows of a task are more than what passes at once."""
AT_EACH_STEP = [
    Point(Kind.ROWS, Moment.MIDDLE, commits=0),
    Point(Kind.STAGE, Moment.MIDDLE, commits=0),
    Point(Kind.COMMIT, Moment.SENT, commits=0),
    Point(Kind.ROWS, Moment.SENT),
    Point(Kind.STAGE, Moment.ANSWERED),
    Point(Kind.COMMIT, Moment.ANSWERED),
]


@pytest.fixture
def mortal_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server of this test's own, to be killed."""
    with RunningServer(tmp_path / "data", arguments=RETENTION) as server:
        yield server


def copy(spark: SparkSession, url: str, source: str, target: str, checkpoint: Path, **options: str) -> StreamingQuery:
    given = {"startingOffsets": "earliest", "minPartitions": "2", **options}
    frame = spark.readStream.format("forebay").options(url=url, queue=source, **given).load()
    writing = frame.select("payload", "partition").writeStream.format("forebay").options(url=url, queue=target)
    return writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def test_server_killed_during_reads_stages_and_commits_costs_no_row_and_doubles_none(
    spark: SparkSession, mortal_server: RunningServer, tmp_path: Path
) -> None:
    queues = Queues(mortal_server)
    payloads = [str(n).encode().ljust(PAYLOAD_BYTES) for n in range(40)]
    queues.put("source", {"payload": payloads})

    one_at_a_time = Lock()

    def kill_and_start(point: Point, port: int) -> None:
        # Two tasks run, and both may be at a point of theirs.
        with one_at_a_time:
            mortal_server.kill()
            mortal_server.start()

    with WatchedWay(mortal_server, AT_EACH_STEP, kill_and_start) as way:
        finished(copy(spark, way.url, "source", "target", tmp_path / "checkpoint", maxOffsetsPerTrigger="20"))
        assert way.left == []
    assert sorted(queues.payloads("target")) == sorted(payloads)


@pytest.mark.parametrize("kind", [Kind.ROWS, Kind.STAGE])
def test_python_worker_killed_in_its_task_fails_the_query_and_the_next_start_writes_each_row_once(
    spark: SparkSession, spark_server: RunningServer, queues: Queues, tmp_path: Path, kind: Kind
) -> None:
    source, target = fresh("source"), fresh("target")
    queues.put_numbers(source, 0, 40)
    killed: list[int] = []

    def kill_who_asks(point: Point, port: int) -> None:
        killed.append(process_at(port))
        os.kill(killed[-1], signal.SIGKILL)

    def run(url: str) -> None:
        finished(copy(spark, url, source, target, tmp_path / "checkpoint", maxOffsetsPerTrigger="20"))

    point = Point(kind, Moment.MIDDLE)
    with WatchedWay(spark_server, [point], kill_who_asks) as way:
        with pytest.raises(StreamingQueryException, match="Python worker exited unexpectedly"):
            run(way.url)
        assert len(killed) == 1
        assert len(queues.payloads(target)) == 20
        run(way.url)
    assert sorted(map(int, queues.payloads(target))) == list(range(40))


class Overtaken:
    """A queue of which retention removes everything, when rows of it are asked for the first time."""

    def __init__(self, queues: Queues, queue: str) -> None:
        self._queues = queues
        self._queue = queue

    def __call__(self, point: Point, port: int) -> None:
        path = f"/api/v1/arrow/queues/{self._queue}/range"
        end = self._queues.ask("GET", path)["nextSeq"]
        self._keep(1)
        wait_until(lambda: self._queues.ask("GET", path)["firstSeq"] == end)
        self._keep(0)
        self._queues.put_numbers(self._queue, 100, 105)

    def _keep(self, seconds: int) -> None:
        self._queues.ask("POST", "/api/v1/configure", {"queue": self._queue, "options": {"retentionSeconds": seconds}})


@pytest.fixture
def slow(queues: Queues, spark_server: RunningServer) -> Iterator[tuple[str, str]]:
    """A queue with 10 messages and the way to it, on which a reader is overtaken by retention: it finds 5 new ones."""
    queue = fresh("slow")
    queues.put_numbers(queue, 0, 10)
    with WatchedWay(spark_server, [Point(Kind.ROWS, Moment.BEFORE, commits=0)], Overtaken(queues, queue)) as way:
        yield queue, way.url


def test_stream_that_retention_overtakes_tells_what_is_gone_and_goes_on_without_it_if_told_to(
    spark: SparkSession, slow: tuple[str, str], queues: Queues, tmp_path: Path
) -> None:
    queue, url = slow
    target = fresh("target")
    with pytest.raises(StreamingQueryException, match=rf"messages 1-10 of queue '{queue}' are gone"):
        finished(copy(spark, url, queue, target, tmp_path / "checkpoint", minPartitions="1"))
    finished(copy(spark, url, queue, target, tmp_path / "checkpoint", minPartitions="1", failOnDataLoss="false"))
    assert sorted(map(int, queues.payloads(target))) == list(range(100, 105))


@pytest.mark.parametrize("is_fatal", [True, False])
def test_table_that_retention_overtakes_tells_what_is_gone_or_is_read_without_it(
    spark: SparkSession, slow: tuple[str, str], is_fatal: bool
) -> None:
    queue, url = slow
    reading = spark.read.format("forebay").options(url=url, queue=queue, failOnDataLoss=str(is_fatal).lower())
    if is_fatal:
        with pytest.raises(PySparkException, match=rf"messages 1-10 of queue '{queue}' are gone"):
            reading.load().collect()
    else:
        assert reading.load().collect() == []


def test_flow_whose_server_is_away_restarts_until_it_is_back_and_writes_each_row_once(
    spark: SparkSession, mortal_server: RunningServer, tmp_path: Path
) -> None:
    queues = Queues(mortal_server)
    flow = Flow(
        name="patient",
        mode="stream",
        source=Source(queue="numbers", retry_timeout="1s", max_offsets_per_trigger=50),
        sink=QueueSink(queue="copies"),
    )
    queues.put_numbers("numbers", 0, 100)
    told: list[str] = []
    runner = SparkRunner(spark, Connection((mortal_server.url,)))
    worker = Worker([flow], runner, tmp_path, ScriptedControl(), tell=told.append)

    def state() -> State:
        worker.step()
        return worker.reports()[0].state

    def has_read(rows: int) -> bool:
        return state() is State.RUNNING and worker.reports()[0].rows >= rows

    try:
        wait_until(lambda: has_read(100))
        mortal_server.kill()
        wait_until(lambda: state() is State.RESTARTING)
        assert "failed for 1 s" in worker.reports()[0].cause
        mortal_server.start()
        queues.put_numbers("numbers", 100, 150)
        # The cursor comes one step behind the rows: it is moved when Spark asks for the batch after them.
        wait_until(lambda: has_read(150) and queues.lag("patient", "numbers") == 0)
    finally:
        worker.stop()
    assert sorted(map(int, queues.payloads("copies"))) == list(range(150))
    assert worker.reports()[0].restarts >= 1
    assert any(line.startswith("patient: restarting: ") and "again in" in line for line in told)
