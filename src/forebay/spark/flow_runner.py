"""Runs flows as Structured Streaming queries: one for the sink, and one for bad records where a flow checks for them.

**Exactly once.** Both queries keep their own checkpoint. A batch that a crash cut short is repeated with the same rows
and the same number, and a queue takes each (query, batch) once: see `forebay.spark.sink`. Bad records reach the error
queue by the same way. Files of a table are published once (`exact_files`); a table of another kind is as exactly once
as its format is.

**Records that fail.** When a query fails and a record may be to blame, both queries stop, `flow_narrowing` searches for
the record in a thread of its own and sets it aside, and both go on from their checkpoints without it.

**Failures.** What is wrong with the definition is final; everything else may be over at the next try. The worker
decides what follows. The source's queue is made if it is not there yet, so that a flow can wait for its first message.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
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
from forebay.flows.definition import TRIGGER, Flow, TableSink
from forebay.flows.flow_directory import FlowDirectory, SetAside
from forebay.flows.worker import FlowFailed, Progress
from forebay.spark.exact_files import batch_writer, exact_root
from forebay.spark.flow_causes import cause_of, end_of
from forebay.spark.flow_narrowing import FlowNarrowing
from forebay.spark.flow_plan import DoesNotCompile, flow_plan
from forebay.spark.options import Connection
from forebay.spark.record_faults import Blame, blame
from forebay.spark.server_calls import ServerCalls, ServerRefused

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
        self._connection = connection
        self._url = ",".join(connection.urls)
        self._calls = ServerCalls(connection._replace(retry_seconds=START_RETRY_SECONDS))
        self._is_once = is_once

    def start(self, flow: Flow, directory: FlowDirectory) -> SparkFlow:
        """Start the queries of a flow; with `is_once` they end when they have read what is there now."""
        narrowing = FlowNarrowing(self._spark, flow, directory, self._connection)
        running = SparkFlow(lambda: self._queries(flow, directory, narrowing), flow, narrowing)
        running.begin()
        return running

    def _queries(self, flow: Flow, directory: FlowDirectory, narrowing: FlowNarrowing) -> list[StreamingQuery]:
        queries: list[StreamingQuery] = []
        try:
            self._make_queue(flow.source.queue)
            plan = flow_plan(self._spark, flow, self._url, narrowing.left_out())
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
        return queries

    def _make_queue(self, queue: str) -> None:
        try:
            self._calls.request("GET", f"/api/v1/arrow/queues/{quote(queue, safe='')}/range")
        except ServerRefused as refused:
            if refused.status != 404:
                raise
            self._calls.request("POST", "/api/v1/configure", json.dumps({"queue": queue}).encode())

    def _writer(self, frame: DataFrame, flow: Flow, checkpoint: str, suffix: str = "") -> DataStreamWriter:
        writer = frame.writeStream.queryName(flow.name + suffix).option("checkpointLocation", checkpoint)
        if self._is_once:
            return writer.trigger(availableNow=True)
        trigger = flow.trigger if flow.trigger is not None else TRIGGER
        return writer.trigger(processingTime=f"{trigger // timedelta(milliseconds=1)} milliseconds")

    def _start_queue(self, writer: DataStreamWriter, queue: str) -> StreamingQuery:
        # The key of the server is the session's: options of a query are shown in its plan.
        # A query writes to one queue, once per batch: a repeat with other rows is the batch computed again, by actions
        # that do not give the same result twice. What was committed first is its result.
        options = {"queue": queue, "url": self._url, "onDifferentRepeat": "keep"}
        return writer.format("forebay").options(**options).start()

    def _start_sink(self, writer: DataStreamWriter, flow: Flow) -> StreamingQuery:
        [sink] = flow.all_sinks
        if not isinstance(sink, TableSink):
            return self._start_queue(writer, sink.queue)
        table = sink.table
        root = exact_root(self._spark, table)
        if root is not None:
            return writer.outputMode(table.mode).foreachBatch(batch_writer(root, table)).start()
        writer = writer.format(table.format).outputMode(table.mode).options(**table.options)
        if table.partition_by:
            writer = writer.partitionBy(*table.partition_by)
        return writer.start(table.path) if table.path is not None else writer.toTable(table.name or "")


class SparkFlow:
    """The running queries of one flow: the first writes to the sink, the second the bad records."""

    def __init__(self, start: Callable[[], list[StreamingQuery]], flow: Flow, narrowing: FlowNarrowing) -> None:
        self._start = start
        self._flow = flow
        self._narrowing = narrowing
        self._queries: Sequence[StreamingQuery] = ()
        self._counted: list[_Counted] = []
        self._search: Future[list[SetAside]] | None = None
        self._set_aside = 0
        self._skipped = 0

    def begin(self) -> None:
        """Start the queries, the first time or again."""
        self._queries = self._start()
        self._counted = self._counted or [_Counted() for _ in self._queries]

    def check(self) -> Progress:
        """How far they have come. Raises FlowFailed if one has ended, SparkGone if Spark has."""
        try:
            if self._search is not None:
                self._follow_search(self._search)
            else:
                self._look(is_end_expected=False)
        except _GONE as gone:
            raise SparkGone from gone
        return self._progress()

    def wait(self, pause_seconds: float = POLL_SECONDS) -> Progress:
        """Wait until all queries have ended by themselves. Raises FlowFailed if one failed, SparkGone if Spark did."""
        try:
            while True:
                is_over = self._search is None and not any(query.isActive for query in self._queries)
                if self._search is not None:
                    self._follow_search(self._search)
                else:
                    self._look(is_end_expected=True)
                if is_over and self._search is None:
                    break
                time.sleep(pause_seconds)
        except FlowFailed:
            self.stop()
            raise
        except _GONE as gone:
            raise SparkGone from gone
        return self._progress()

    def stop(self) -> Progress:
        if self._search is not None:
            with suppress(*_GONE):
                self._narrowing.stop()
            wait_for_all([self._search])
        _stop(self._queries)
        # What was reported between the last look and the stop; nothing if Spark itself is gone.
        with suppress(*_GONE):
            self._count()
        return self._progress()

    def _look(self, *, is_end_expected: bool) -> None:
        """Count, and see to a query that has ended."""
        for index, query in enumerate(self._queries):
            if query.isActive:
                continue
            fault = query.exception()
            if fault is not None or not is_end_expected:
                return self._ended(query, None if fault is None else str(fault), of_errors=index > 0)
        self._count()
        return None

    def _ended(self, query: StreamingQuery, failure: str | None, *, of_errors: bool) -> None:
        """Search for the record that is to blame, or fail."""
        fault = Blame.WORLD if failure is None else blame(failure)
        if failure is None or fault is Blame.WORLD or not (self._flow.may_set_aside or fault is Blame.BAD):
            raise FlowFailed(end_of(query))
        _stop(self._queries)
        self._count()
        thread = ThreadPoolExecutor(1, "forebay-narrowing")
        self._search = thread.submit(self._narrowing.search, failure, of_errors=of_errors)
        thread.shutdown(wait=False)

    def _follow_search(self, search: Future[list[SetAside]]) -> None:
        if not search.done():
            return
        self._search = None
        try:
            found = search.result()
        except ForebayError:
            raise
        except Exception as fault:
            if isinstance(fault, _GONE):
                raise
            raise FlowFailed(cause_of(fault)) from fault
        self._set_aside += sum(one.is_queued for one in found)
        self._skipped += sum(not one.is_queued for one in found)
        self.begin()

    def _count(self) -> None:
        for query, counted in zip(self._queries, self._counted, strict=True):
            counted.look(query)

    def _progress(self) -> Progress:
        main = self._counted[0]
        bad = self._counted[1].rows_out if len(self._counted) > 1 else 0
        return Progress(
            main.batches,
            main.batch,
            main.rows,
            main.rows_per_second,
            main.batch_seconds,
            main.lag,
            bad + self._set_aside,
            self._skipped,
            "looking for records that fail" if self._search is not None else "",
        )


class _Counted:
    """What one query has done, summed over the progress that it reported."""

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
        """Add what the query has reported since the last look."""
        latest = query.lastProgress
        if latest is not None and latest["timestamp"] > self._last:
            # Spark writes everything that it remembers as JSON, a hundred batches: fetched only where one is missing.
            self.add([latest] if self._follows(latest) else query.recentProgress)

    def _follows(self, latest: Any) -> bool:
        """Whether no batch was completed between the last that was added and this one."""
        completed = latest["batchId"] if _is_of_a_batch(latest) else latest["batchId"] - 1
        return self.batch is not None and completed <= self.batch + _is_of_a_batch(latest)

    def add(self, events: Sequence[Any]) -> None:
        for progress in events:
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
        # By the attribute: Spark Connect tells only the sources' own counts, which it adds up.
        self.rows += progress.numInputRows
        self.rows_out += max(progress["sink"]["numOutputRows"], 0)
        self.rows_per_second = float(progress.processedRowsPerSecond or 0.0)
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
