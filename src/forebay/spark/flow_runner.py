"""Runs flows as Structured Streaming queries: one for the sink, and one for bad records where a flow checks for them.

**Exactly once.** Both queries keep their own checkpoint. A batch that a crash cut short is repeated with the same rows
and the same number, and a queue takes each (query, batch) once: see `forebay.spark.sink`. Bad records reach the error
queue by the same way. A table is as exactly once as its format is.

**Failures.** What is wrong with the definition is final; everything else may be over at the next try. The worker
decides what follows. The source's queue is made if it is not there yet, so that a flow can wait for its first message.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from forebay.errors import Transient
from forebay.flows.definition import Flow, TableSink
from forebay.flows.flow_directory import FlowDirectory
from forebay.flows.worker import FlowFailed, Progress
from forebay.spark.flow_causes import cause_of, end_of
from forebay.spark.flow_plan import DoesNotCompile, flow_plan
from forebay.spark.options import Connection
from forebay.spark.wire import ServerRefused, Wire

BEGIN_SECONDS_MAX = 30.0
"""How long a query's sources may take to begin before the next query is started beside it."""
START_RETRY_SECONDS = 5.0
"""How long a server may be away when a flow starts; after that it counts as a failure and is tried again later."""
POLL_SECONDS = 0.2
BEGIN_POLL_SECONDS = 0.05
_BEGINNING = ("Initializing StreamExecution", "Initializing sources")

_GONE = (Py4JNetworkError, OSError, EOFError)
"""What PySpark raises when its Java is not there any more."""


class SparkGone(Transient):
    """Spark's Java has died, and all queries with it. Start the worker again: it goes on from the checkpoints."""

    def __init__(self) -> None:
        super().__init__("Spark's Java has died", remedy="Start the worker again")


class SparkRunner:
    """Starts flows on a session."""

    def __init__(self, spark: SparkSession, connection: Connection, *, is_once: bool = False) -> None:
        self._spark = spark
        self._url = ",".join(connection.urls)
        self._wire = Wire(connection._replace(retry_seconds=START_RETRY_SECONDS))
        self._is_once = is_once

    def start(self, flow: Flow, directory: FlowDirectory) -> SparkFlow:
        """Start the queries of a flow; with `is_once` they end when they have read what is there now."""
        queries: list[StreamingQuery] = []
        try:
            self._make_queue(flow.source.queue)
            plan = flow_plan(self._spark, flow, self._url)
            if plan.bad is not None:
                # First, so that it begins no later: a bad record is left out by the other one and must be seen here.
                writer = self._writer(plan.bad, flow, directory.errors_checkpoint(flow), suffix=".errors")
                queries.append(self._start_queue(writer, flow.errors_to))
                _wait_until_begun(queries[-1], is_first_batch_awaited=flow.source.begins_with_what_comes)
            queries.insert(0, self._start_sink(self._writer(plan.output, flow, directory.checkpoint(flow)), flow))
            _wait_until_begun(queries[0])
        except BaseException as fault:
            _stop(queries)
            if not isinstance(fault, Exception):
                raise
            # An action of the user's may fail with such an error too, and then only its flow is to blame.
            if isinstance(fault, _GONE) and _is_gone(self._spark):
                raise SparkGone from fault
            raise FlowFailed(cause_of(fault), is_final=isinstance(fault, DoesNotCompile | AnalysisException)) from fault
        return SparkFlow(queries)

    def _make_queue(self, queue: str) -> None:
        try:
            self._wire.request("GET", f"/api/v1/arrow/queues/{quote(queue, safe='')}/range")
        except ServerRefused as refused:
            if refused.status != 404:
                raise
            self._wire.request("POST", "/api/v1/configure", json.dumps({"queue": queue}).encode())

    def _writer(self, frame: DataFrame, flow: Flow, checkpoint: str, suffix: str = "") -> DataStreamWriter:
        writer = frame.writeStream.queryName(flow.name + suffix).option("checkpointLocation", checkpoint)
        if self._is_once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{flow.trigger // timedelta(milliseconds=1)} milliseconds")

    def _start_queue(self, writer: DataStreamWriter, queue: str) -> StreamingQuery:
        # The key of the server is the session's: options of a query are shown in its plan.
        return writer.format("forebay").options(queue=queue, url=self._url).start()

    def _start_sink(self, writer: DataStreamWriter, flow: Flow) -> StreamingQuery:
        if not isinstance(flow.sink, TableSink):
            return self._start_queue(writer, flow.sink.queue)
        table = flow.sink.table
        writer = writer.format(table.format).outputMode(table.mode).options(**table.options)
        if table.partition_by:
            writer = writer.partitionBy(*table.partition_by)
        return writer.start(table.path) if table.path is not None else writer.toTable(table.name or "")


class SparkFlow:
    """The running queries of one flow: the first writes to the sink, the second the bad records."""

    def __init__(self, queries: Sequence[StreamingQuery]) -> None:
        self._queries = queries
        self._counted = [_Counted() for _ in queries]

    def check(self) -> Progress:
        """How far they have come. Raises FlowFailed if one has ended, SparkGone if Spark has."""
        try:
            for query, counted in zip(self._queries, self._counted, strict=True):
                if not query.isActive:
                    raise FlowFailed(end_of(query))
                counted.look(query)
        except _GONE as gone:
            raise SparkGone from gone
        return self._progress()

    def wait(self, pause_seconds: float = POLL_SECONDS) -> Progress:
        """Wait until all queries have ended by themselves. Raises FlowFailed if one failed, SparkGone if Spark did."""
        try:
            while any(query.isActive for query in self._queries):
                if any(not query.isActive and query.exception() for query in self._queries):
                    break
                time.sleep(pause_seconds)
            failed = [query for query in self._queries if query.exception()]
            if failed:
                self.stop()
                raise FlowFailed(end_of(failed[0]))
            for query, counted in zip(self._queries, self._counted, strict=True):
                counted.look(query)
        except _GONE as gone:
            raise SparkGone from gone
        return self._progress()

    def stop(self) -> Progress:
        _stop(self._queries)
        # What was told between the last look and the stop; nothing if Spark itself is gone.
        with suppress(*_GONE):
            for query, counted in zip(self._queries, self._counted, strict=True):
                counted.look(query)
        return self._progress()

    def _progress(self) -> Progress:
        main = self._counted[0]
        bad = self._counted[1].rows_out if len(self._counted) > 1 else 0
        return Progress(main.batches, main.batch, main.rows, main.rows_per_second, main.batch_seconds, main.lag, bad)


class _Counted:
    """What one query has done, summed over the progress that it told."""

    def __init__(self) -> None:
        self.batches = 0
        self.batch: int | None = None
        self.rows = 0
        self.rows_out = 0
        self.rows_per_second = 0.0
        self.batch_seconds = 0.0
        self.lag: int | None = None
        self._last = ""

    def look(self, query: StreamingQuery) -> None:
        """Add what the query has told since the last look."""
        latest = query.lastProgress
        if latest is not None and latest["timestamp"] > self._last:
            # Spark writes everything that it remembers as JSON, a hundred batches: asked for only where one is missing.
            self.add([latest] if self._follows(latest) else query.recentProgress)

    def _follows(self, latest: Any) -> bool:
        """Whether no batch was completed between the last that was added and this one."""
        completed = latest["batchId"] if _is_of_a_batch(latest) else latest["batchId"] - 1
        return self.batch is not None and completed <= self.batch + _is_of_a_batch(latest)

    def add(self, told: Sequence[Any]) -> None:
        for progress in told:
            # Batch ids do not tell what is new: a query that waits tells the id of the batch to come.
            if progress["timestamp"] <= self._last:
                continue
            self._last = progress["timestamp"]
            self._add(progress)

    def _add(self, progress: Any) -> None:
        sources = progress["sources"]
        if sources:
            end, latest = _seq(sources[0]["endOffset"]), _seq(sources[0]["latestOffset"])
            if end is not None and latest is not None:
                self.lag = max(latest - end, 0)
        if not _is_of_a_batch(progress):
            return
        self.batches += 1
        self.batch = progress["batchId"]
        # A plan that reads its queue in several branches counts each row once per branch.
        self.rows += progress["numInputRows"]
        self.rows_out += max(progress["sink"]["numOutputRows"], 0)
        self.rows_per_second = float(progress["processedRowsPerSecond"] or 0.0)
        self.batch_seconds = progress["batchDuration"] / 1000


def _is_of_a_batch(progress: Any) -> bool:
    """A query that waits tells of its waiting too."""
    return "addBatch" in progress["durationMs"]


def _seq(offset: Any) -> int | None:
    found = json.loads(offset) if isinstance(offset, str) and offset.startswith("{") else offset
    return found.get("seq") if isinstance(found, dict) else None


def _wait_until_begun(query: StreamingQuery, *, is_first_batch_awaited: bool = False) -> None:
    """Wait for the Python process of the query's source, and for the place where it begins if that depends on the time.

    Spark allows each of them 10 s from its start to its first word. Many that start at once take longer, and all fail.
    """
    deadline = time.monotonic() + BEGIN_SECONDS_MAX
    while query.isActive and time.monotonic() < deadline:
        is_beginning = query.status["message"] in _BEGINNING
        if not is_beginning and not (is_first_batch_awaited and query.lastProgress is None):
            return
        time.sleep(BEGIN_POLL_SECONDS)


def _is_gone(spark: SparkSession) -> bool:
    try:
        spark.conf.get("spark.app.name", None)
    except Exception:  # noqa: BLE001 - however it fails, it did not answer
        return True
    return False


def stop_session(spark: SparkSession) -> None:
    """Stop Spark, if it is still there."""
    with suppress(*_GONE):
        spark.stop()


def _stop(queries: Sequence[StreamingQuery]) -> None:
    with suppress(*_GONE):
        for query in queries:
            query.stop()
