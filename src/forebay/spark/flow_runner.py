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

from forebay.errors import ForebayError, Transient
from forebay.flows.definition import Flow, TableSink
from forebay.flows.flow_directory import FlowDirectory
from forebay.flows.worker import FlowFailed, Progress
from forebay.spark.flow_plan import DoesNotCompile, flow_plan
from forebay.spark.options import Connection
from forebay.spark.wire import ServerRefused, Wire

START_RETRY_SECONDS = 5.0
"""How long a server may be away when a flow starts; after that it counts as a failure and is tried again later."""
POLL_SECONDS = 0.2
CAUSE_LINES_MAX = 12

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
            queries.append(self._start_sink(self._writer(plan.output, flow, directory.checkpoint(flow)), flow))
            if plan.bad is not None:
                writer = self._writer(plan.bad, flow, directory.errors_checkpoint(flow), suffix=".errors")
                queries.append(self._start_queue(writer, flow.errors_to))
        except BaseException as fault:
            _stop(queries)
            if isinstance(fault, _GONE):
                raise SparkGone from fault
            if not isinstance(fault, Exception):
                raise
            raise FlowFailed(_cause(fault), is_final=isinstance(fault, DoesNotCompile | AnalysisException)) from fault
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
                    raise FlowFailed(_end_of(query))
                counted.add(query.recentProgress)
        except _GONE as gone:
            raise SparkGone from gone
        return self._progress()

    def wait(self, pause_seconds: float = POLL_SECONDS) -> Progress:
        """Wait until all queries have ended by themselves. Raises FlowFailed if one failed."""
        while any(query.isActive for query in self._queries):
            if any(not query.isActive and query.exception() for query in self._queries):
                break
            time.sleep(pause_seconds)
        failed = [query for query in self._queries if query.exception()]
        if failed:
            self.stop()
            raise FlowFailed(_end_of(failed[0]))
        for query, counted in zip(self._queries, self._counted, strict=True):
            counted.add(query.recentProgress)
        return self._progress()

    def stop(self) -> Progress:
        _stop(self._queries)
        # What was told between the last look and the stop; nothing if Spark itself is gone.
        with suppress(*_GONE):
            for query, counted in zip(self._queries, self._counted, strict=True):
                counted.add(query.recentProgress)
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
        if "addBatch" not in progress["durationMs"]:
            return
        self.batches += 1
        self.batch = progress["batchId"]
        # A plan that reads its queue in several branches counts each row once per branch.
        self.rows += progress["numInputRows"]
        self.rows_out += max(progress["sink"]["numOutputRows"], 0)
        self.rows_per_second = float(progress["processedRowsPerSecond"] or 0.0)
        self.batch_seconds = progress["batchDuration"] / 1000


def _seq(offset: Any) -> int | None:
    found = json.loads(offset) if isinstance(offset, str) and offset.startswith("{") else offset
    return found.get("seq") if isinstance(found, dict) else None


def stop_session(spark: SparkSession) -> None:
    """Stop Spark, if it is still there."""
    with suppress(*_GONE):
        spark.stop()


def _stop(queries: Sequence[StreamingQuery]) -> None:
    with suppress(*_GONE):
        for query in queries:
            query.stop()


def _end_of(query: StreamingQuery) -> str:
    fault = query.exception()
    return f"query {query.name} ended" if fault is None else _cause(fault)


def _cause(fault: BaseException) -> str:
    """The beginning of what was told: the rest is Java's stack."""
    if isinstance(fault, ForebayError):
        return str(fault)
    lines = str(fault).split("JVM stacktrace", 1)[0].strip().splitlines()
    return "\n".join(lines[:CAUSE_LINES_MAX]) or type(fault).__name__
