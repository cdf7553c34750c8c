"""Searches the batch that failed for the records to blame, and sets them aside.

The batch's messages are read once more and kept by Spark while parts of them go through the flow's actions, into
nowhere (`forebay.flows.narrowing` says which parts). A record that fails alone is tried again as the action's `retry`
says, unless SQL failed on a value. Then the first action that fails on it is looked for, whose `on_error` decides.

**Exactly once.** What is found is written down first (`set-aside.json`), then sent to the error queue with a
transaction id that is made of the query and the seq, so that sending it again changes nothing; then the queries go on
from their checkpoints and leave these seqs out. A worker that is killed in between sends again, or searches again.

**Not row by row.** Where an action sums, sorts or keeps state, only those before it are searched: what fails behind
them may be the fault of many records, or of none in this batch, and fails the flow.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from forebay.flows.definition import Action, ClassAction, Flow, QueueSink, source_options
from forebay.flows.flow_directory import FlowDirectory, SetAside, SetAsides
from forebay.flows.narrowing import Bad, TooManyFail, narrow
from forebay.flows.registry import find_action
from forebay.flows.worker import FlowFailed
from forebay.spark.checkpoints import Checkpoint, read_checkpoint
from forebay.spark.flow_causes import cause_of, traceback_of
from forebay.spark.flow_plan import DoesNotCompile, FlowOnTable, letters
from forebay.spark.option_table import BATCH_READ, OPTIONS
from forebay.spark.options import Connection
from forebay.spark.packing import packing
from forebay.spark.queues import Queue
from forebay.spark.record_faults import Blame, blame
from forebay.spark.row_wise import other_operator
from forebay.spark.wire import ServerRefused, Wire

SINK = "sink"
_TOO_LARGE = 413
_OF_TABLES = frozenset(option.name for option in OPTIONS if option.belongs_to(BATCH_READ))
_log = logging.getLogger(__name__)


class Interrupted(Exception):
    """The flow is to stop; what was found so far is searched for again at the next start."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How many of a flow's actions can be searched, and why no more."""

    actions: int | None
    """None: all, and the sink."""
    obstacle: str = ""


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
        self._spark.interruptTag(self._tag)

    def left_out(self) -> list[int]:
        """The seqs that the flow leaves out. What the error queue was not told yet is sent there first."""
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
        self._spark.addTag(self._tag)
        cause = cause_of(Exception(failure))
        path = self._directory.errors_checkpoint(self._flow) if of_errors else self._directory.checkpoint(self._flow)
        found = read_checkpoint(self._spark, path)
        if found is None or found.is_over:
            raise FlowFailed(cause)
        messages = self._messages(found).persist()
        try:
            bad = self._search(messages, found, failure, of_errors)
        except TooManyFail as fault:
            raise FlowFailed(
                f"{cause}\n{fault}: that is the action, not its records; where it is the records, "
                "a smaller maxOffsetsPerTrigger lets fewer of them meet in a batch"
            ) from fault
        finally:
            messages.unpersist()
        if not bad:
            raise FlowFailed(f"{cause}\nno record of the batch (seq below {found.end}) fails alone")
        self._set_aside(bad)
        return bad

    def _search(self, messages: DataFrame, found: Checkpoint, failure: str, of_errors: bool) -> list[SetAside]:
        reach = self._reach(messages)
        first = messages.agg(f.min("seq"), f.max("seq")).first()
        if first is None or first[0] is None:
            return []
        attempt = self._attempts(messages, reach.actions, of_errors, blame(failure) is Blame.SINK)
        if attempt(first[0], first[1] + 1) is None:
            if reach.obstacle:
                raise FlowFailed(f"{cause_of(Exception(failure))}\n{reach.obstacle}")
            return []
        known = {one.seq for one in self._directory.set_asides().records}
        suspects = [bad for bad in narrow(first[0], first[1] + 1, attempt) if bad.seq not in known]
        blamed = [(bad, self._action_of(messages, bad, reach.actions)) for bad in suspects]
        lasting = self._tried_again(blamed, attempt)
        for bad, action in lasting:
            if self._flow.on_error_of(action) == "fail":
                raise FlowFailed(f"{_name(action)} fails on seq {bad.seq}: {cause_of(Exception(bad.failure))}")
        return [_set_aside(bad, action, self._flow.on_error_of(action) == "queue") for bad, action in lasting]

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

    def _reach(self, messages: DataFrame) -> Reach:
        for count, action in enumerate(self._flow.actions, 1):
            obstacle = _stateful(action)
            if not obstacle:
                try:
                    with FlowOnTable(self._spark, self._flow, messages, count) as part:
                        obstacle = other_operator(part.output) or ""
                except DoesNotCompile as fault:
                    obstacle = str(fault.cause)
            if obstacle:
                text = f"action {action.name!r} is not row by row ({obstacle}), so that no record is blamed behind it"
                return Reach(count - 1, text)
        return Reach(None)

    def _attempts(
        self, messages: DataFrame, actions: int | None, of_errors: bool, is_sink_tried: bool
    ) -> Callable[[int, int], str | None]:
        def attempt(start: int, end: int) -> str | None:
            if self._is_stopping:
                raise Interrupted
            part = messages.where((f.col("seq") >= start) & (f.col("seq") < end))
            with FlowOnTable(self._spark, self._flow, part, actions) as plan:
                frame = plan.bad if of_errors and plan.bad is not None else plan.output
                return self._failure_of(self._staged(frame) if is_sink_tried and actions is None else frame)

        return attempt

    def _failure_of(self, frame: DataFrame) -> str | None:
        try:
            frame.write.format("noop").mode("overwrite").save()
        except PySparkException as fault:
            if self._is_stopping:
                raise Interrupted from fault
            text = str(fault)
            if blame(text) is Blame.WORLD:
                raise FlowFailed(cause_of(fault)) from fault
            return text
        return None

    def _staged(self, output: DataFrame) -> DataFrame:
        """The frame, sent to the sink's server as the sink would do it; nothing of it is ever committed."""
        sink = self._flow.sink
        if not isinstance(sink, QueueSink):
            return output
        connection, queue, producer = self._connection, sink.queue, f"{self._tag}-{uuid.uuid4().hex}"
        packed = packing(output.schema, None)

        def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            target = Queue(Wire(connection), queue)
            for batch in batches:
                _send_to_nowhere(target, packed(batch), producer)
            yield from ()

        return output.mapInArrow(send, "nothing INT")

    def _action_of(self, messages: DataFrame, bad: Bad, actions: int | None) -> Action | None:
        """The first action that fails on the record; None if all pass, and the sink is to blame."""
        one = messages.where(f.col("seq") == bad.seq)
        for count, action in enumerate(self._flow.actions[:actions], 1):
            with FlowOnTable(self._spark, self._flow, one, count) as part:
                if self._failure_of(part.output) is not None:
                    return action
        return None

    def _tried_again(
        self, blamed: Sequence[tuple[Bad, Action | None]], attempt: Callable[[int, int], str | None]
    ) -> list[tuple[Bad, Action | None]]:
        """Those that go on failing, each tried as often as its action's `retry` says."""
        lasting = []
        for bad, action in blamed:
            delays = self._flow.retry_of(action).delays_seconds() if blame(bad.failure) is Blame.RECORD else []
            lasting.append((bad, action, delays))
        for attempt_number in range(max((len(delays) for _, _, delays in lasting), default=0)):
            due = [item for item in lasting if len(item[2]) > attempt_number]
            self._wait(max(item[2][attempt_number] for item in due))
            healed = {bad.seq for bad, _, _ in due if attempt(bad.seq, bad.seq + 1) is None}
            lasting = [item for item in lasting if item[0].seq not in healed]
        return [(bad, action) for bad, action, _ in lasting]

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._is_stopping:
                raise Interrupted
            time.sleep(min(left, 0.2))

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
        untold = sorted((one for one in found.records if not one.is_told), key=lambda one: one.seq)
        if not untold:
            return
        self._directory.save_set_asides(found)
        for one in untold:
            if not one.is_queued:
                _log.warning("flow %r skips seq %d: %s: %s", self._flow.name, one.seq, one.action, one.cause)
        queued = [one for one in untold if one.is_queued]
        if queued:
            self._send(found.query, queued)
        told = tuple(msgspec.structs.replace(one, is_told=True) for one in found.records)
        self._directory.save_set_asides(SetAsides(query=found.query, records=told))

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
        told = letters(rows, self._flow, "action", "traceback", ids=f.concat(f.lit(f"{query}:"), f.col("seq")))
        told.write.format("forebay").mode("append").options(queue=self._flow.errors_to, url=self._url).save()


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
        if refused.status != _TOO_LARGE or rows.num_rows == 1:
            raise
        middle = rows.num_rows // 2
        _send_to_nowhere(queue, rows.slice(0, middle), producer)
        _send_to_nowhere(queue, rows.slice(middle), producer)
    queue.abort(producer, "0")


def _stateful(action: Action) -> str:
    return "it keeps state" if isinstance(action, ClassAction) and find_action(action.class_name).is_stateful else ""


def _name(action: Action | None) -> str:
    return SINK if action is None else f"action {action.name!r}"


def _set_aside(bad: Bad, action: Action | None, is_queued: bool) -> SetAside:
    return SetAside(
        seq=bad.seq,
        action=SINK if action is None else action.name,
        cause=cause_of(Exception(bad.failure)),
        traceback=traceback_of(bad.failure),
        is_queued=is_queued,
    )
