"""Searches the batch that failed for the records to blame, and sets them aside.

The batch's messages are read once more and kept by Spark while parts of them go through the flow's actions, into
nowhere: see `record_search`.

**Exactly once.** What is found is written down first (`set-aside.json`), then sent to the error queue with a
transaction id that is made of the query and the seq, so that sending it again changes nothing; then the queries go on
from their checkpoints and leave these seqs out. A worker that is killed in between sends again, or searches again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from forebay.flows.definition import Flow, TableSink, source_options
from forebay.flows.flow_directory import FlowDirectory, SetAside, SetAsides
from forebay.flows.narrowing import TooManyFail
from forebay.flows.worker import FlowFailed
from forebay.spark.checkpoints import Checkpoint, read_checkpoint
from forebay.spark.flow_causes import cause_of
from forebay.spark.flow_plan import FlowOnTable
from forebay.spark.job_tags import cancel, tagged
from forebay.spark.message_marks import MARKED, BadRows
from forebay.spark.option_table import BATCH_READ, OPTIONS
from forebay.spark.options import Connection
from forebay.spark.outgoing import letters
from forebay.spark.packing import packing
from forebay.spark.queues import Queue
from forebay.spark.record_faults import Blame, blame
from forebay.spark.record_search import RecordSearch
from forebay.spark.server_calls import ServerCalls, ServerRefused
from forebay.spark.sink import TOO_LARGE

_OF_TABLES = frozenset(option.name for option in OPTIONS if option.belongs_to(BATCH_READ))
_log = logging.getLogger(__name__)


class FlowNarrowing:
    """The search for one flow. `connection` is how tasks reach the servers."""

    def __init__(self, spark: SparkSession, flow: Flow, directory: FlowDirectory, connection: Connection) -> None:
        self._spark = spark
        self._flow = flow
        self._directory = directory
        self._connection = connection
        self._url = ",".join(connection.urls)
        self._is_stopping = False
        self._tag = f"forebay-narrowing-{uuid.uuid4().hex}"

    def stop(self) -> None:
        """End a search that runs in another thread."""
        self._is_stopping = True
        cancel(self._spark, self._tag)

    def left_out(self) -> list[int]:
        """The seqs that the flow leaves out. What the error queue does not have yet is sent there first."""
        known = self._directory.set_asides()
        if not known.records:
            return []
        main = read_checkpoint(self._spark, self._directory.checkpoint(self._flow))
        if main is None or main.query != known.query:
            return []
        self._tell(known)
        return [one.seq for one in known.records]

    def search(self, failure: str, *, of_errors: bool) -> list[SetAside]:
        """Set aside the records because of which a query failed. Raises FlowFailed if it is not the records' fault."""
        with tagged(self._spark, self._tag):
            return self._tagged_search(failure, of_errors)

    def _tagged_search(self, failure: str, of_errors: bool) -> list[SetAside]:
        cause = cause_of(Exception(failure))
        path = self._directory.errors_checkpoint(self._flow) if of_errors else self._directory.checkpoint(self._flow)
        found = read_checkpoint(self._spark, path)
        if found is None or found.is_over:
            raise FlowFailed(cause)
        messages = self._messages(found).persist()
        try:
            search = self._search(messages, of_errors, is_sink_tried=blame(failure) is Blame.SINK)
            bad = search.find(failure, frozenset(one.seq for one in self._directory.set_asides().records))
        except TooManyFail as fault:
            raise FlowFailed(
                f"{cause}\n{fault}: that is the action, not its records; where it is the records, "
                "a smaller maxOffsetsPerTrigger lets fewer of them meet in a batch"
            ) from fault
        finally:
            messages.unpersist()
        if not (bad or search.has_healed):
            raise FlowFailed(f"{cause}\nno record of the batch (seq below {found.end}) fails alone")
        if bad:
            self._set_aside(bad)
        return bad

    def _search(self, messages: DataFrame, of_errors: bool, *, is_sink_tried: bool) -> RecordSearch:
        @contextmanager
        def part(wanted: DataFrame, actions: int | None) -> Iterator[DataFrame]:
            with FlowOnTable(self._spark, self._flow, wanted, actions) as plan:
                frame = plan.bad if actions is None and of_errors and plan.bad is not None else plan.output
                yield self._staged(frame) if actions is None and is_sink_tried else frame

        return RecordSearch(self._flow, self._flow.actions, messages, part, is_stopping=lambda: self._is_stopping)

    # --- the batch, and trying parts of it ---

    def _messages(self, found: Checkpoint) -> DataFrame:
        """The messages of the batch under way, without those that are left out of it already."""
        given = {name: value for name, value in source_options(self._flow).items() if name in _OF_TABLES}
        if found.start is not None:
            given.pop("startingTimestamp", None)
            given["startingOffsets"] = f'{{"seq": {found.start}}}'
        options = {**given, "endingOffsets": f'{{"seq": {found.end}}}', "url": self._url}
        messages = self._spark.read.format("forebay").options(**options).load()
        known = [one.seq for one in self._directory.set_asides().records]
        return messages.where(~f.col("seq").isin(known)) if known else messages

    def _staged(self, output: DataFrame) -> DataFrame:
        """The frame, sent to the sink's server as the sink would do it; nothing of it is ever committed."""
        [sink] = self._flow.all_sinks
        if isinstance(sink, TableSink):
            return output
        connection, queue, producer = self._connection, sink.queue, f"{self._tag}-{uuid.uuid4().hex}"
        packed = packing(output.schema, None)

        def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            target = Queue(ServerCalls(connection), queue)
            for batch in batches:
                _send_to_nowhere(target, packed(batch), producer)
            yield from ()

        return output.mapInArrow(send, "nothing INT")

    # --- what was found ---

    def _set_aside(self, bad: Sequence[SetAside]) -> None:
        main = read_checkpoint(self._spark, self._directory.checkpoint(self._flow))
        errors = read_checkpoint(self._spark, self._directory.errors_checkpoint(self._flow))
        if main is None:
            raise FlowFailed("the flow's checkpoint has gone")
        known = self._directory.set_asides()
        # Both queries have to be past a record before it can be forgotten.
        done = min(one.done for one in (main, errors) if one is not None)
        kept = [one for one in known.records if known.query == main.query and one.seq >= done]
        self._tell(SetAsides(query=main.query, records=(*kept, *bad)))

    def _tell(self, found: SetAsides) -> None:
        """Write down what is left out, and send what the error queue may not have."""
        untold = sorted((one for one in found.records if not one.is_reported), key=lambda one: one.seq)
        if not untold:
            return
        self._directory.save_set_asides(found)
        for one in untold:
            if not one.is_queued:
                _log.warning(
                    "flow %r skips seq %d: %s: %s",
                    self._flow.name,
                    one.seq,
                    one.action,
                    one.cause,
                    extra={"action": "record_skipped"},
                )
        queued = [one for one in untold if one.is_queued]
        if queued:
            self._send(found.query, queued)
        rejected = tuple(msgspec.structs.replace(one, is_reported=True) for one in found.records)
        self._directory.save_set_asides(SetAsides(query=found.query, records=rejected))

    def _send(self, query: str, queued: Sequence[SetAside]) -> None:
        seqs = [one.seq for one in queued]
        options = {"queue": self._flow.source.queue, "url": self._url, "startingOffsets": f'{{"seq": {seqs[0]}}}'}
        options["endingOffsets"] = f'{{"seq": {seqs[-1] + 1}}}'
        messages = self._spark.read.format("forebay").options(**options).load().where(f.col("seq").isin(seqs))
        causes = self._spark.createDataFrame(
            [(one.seq, one.cause, one.action, one.traceback) for one in queued],
            "seq BIGINT, cause STRING, action STRING, traceback STRING",
        )
        rows = messages.join(f.broadcast(causes), "seq").coalesce(1).sortWithinPartitions("seq")
        ids = f.concat(f.lit(f"{query}:"), f.col("seq"))
        rejected = letters(BadRows(rows, MARKED), self._flow, "action", "traceback", ids=ids)
        rejected.write.format("forebay").mode("append").options(queue=self._flow.errors_to, url=self._url).save()


def _send_to_nowhere(queue: Queue, rows: pa.RecordBatch, producer: str) -> None:
    """Stage rows and forget them. What is too large for one request goes in halves, down to one row."""
    if rows.num_rows == 0:
        return
    body = pa.BufferOutputStream()
    with pa.ipc.new_stream(body, rows.schema) as stream:
        stream.write_batch(rows)
    try:
        queue.stage(body.getvalue(), producer, "0", "0")
    except ServerRefused as refused:
        if refused.status != TOO_LARGE or rows.num_rows == 1:
            raise
        middle = rows.num_rows // 2
        _send_to_nowhere(queue, rows.slice(0, middle), producer)
        _send_to_nowhere(queue, rows.slice(middle), producer)
    queue.abort(producer, "0")
