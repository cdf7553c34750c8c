"""Writing to a queue, exactly once: stage in the tasks, commit in the driver.

Each task sends its rows to the server in stages of bounded size. A stage is durable and invisible. When all tasks have
succeeded, one commit names the stages that count, and they become messages at one moment. Stages of tasks that failed
or ran twice are never named; the server removes them.

A commit is known by producer, epoch and queue. For a stream the first two are the query's id, which its checkpoint
keeps, and the number of the batch: a batch that Spark repeats after a crash is committed once. A plain write draws a
producer of its own, so that it is all or nothing; with the options `producer` and `epoch` it can be repeated too, and
`writeName` tells several writes of one batch to one queue apart.

A repeat is compared with what was committed, by the number of rows, their bytes and a checksum that does not mind their
order. If Spark computes a batch again with another result, or if two writes have the same names, the commit is refused
and the query fails with the numbers; with `onDifferentRepeat=keep` it goes on with what was committed first.

Spark makes a new writer object for `commit`, in another process: what it has to know travels in the messages.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from forebay.errors import ForebayError, InvariantBroken, Permanent
from forebay.spark.options import WriteOptions
from forebay.spark.packing import Packing, packing
from forebay.spark.queues import Queue
from forebay.spark.server_calls import ServerCalls, ServerRefused

_log = logging.getLogger(__name__)
TOO_LARGE = 413
_DIFFERENT = "commit_differs"
_BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"


class Staged(WriterCommitMessage):
    """What a task tells the commit."""

    def __init__(self, producer: str, epoch: str, stages: Sequence[str]) -> None:
        self.producer = producer
        self.epoch = epoch
        self.stages = tuple(stages)


class _Writer:
    """What both writers share."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise Permanent(
                "a queue can be appended to, not overwritten", remedy='Use mode("append") or outputMode("append")'
            )
        self._options = options
        self._packing: Packing = packing(schema, options.payload_as)

    def _queue(self) -> Queue:
        return Queue(ServerCalls(self._options.connection), self._options.queue)

    def _stage_all(self, batches: Iterator[pa.RecordBatch], producer: str, epoch: str) -> Staged:
        part = str(_task().partitionId())
        queue = self._queue()
        stages: list[str] = []
        # One stage is on its way while the next is gathered: Spark need not wait for the server's disk.
        with ThreadPoolExecutor(1, "forebay-stage") as sender:
            sending: Future[list[str]] | None = None
            for rows in gathered(map(self._packing, batches), self._options.stage_bytes_max):
                if sending is not None:
                    stages += sending.result()
                sending = sender.submit(staged, queue, rows, (producer, epoch, part, self._options.write_name))
            if sending is not None:
                stages += sending.result()
        return Staged(producer, epoch, stages)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], producer: str, epoch: str) -> None:
        stages = [stage for message in messages if isinstance(message, Staged) for stage in message.stages]
        # An empty write that has a name is remembered too: repeated with rows it must not write them.
        if stages or self._options.producer is not None:
            try:
                self._queue().commit(producer, epoch, stages, self._options.write_name)
            except ServerRefused as refused:
                if refused.code != _DIFFERENT or not self._options.is_first_kept:
                    raise
                _log.warning("a repeated write was left out: %s", refused.detail, extra={"action": "write_repeated"})
                self._abort(producer, epoch)

    def _abort(self, producer: str, epoch: str) -> None:
        try:
            self._queue().abort(producer, epoch, self._options.write_name)
        except ForebayError as fault:
            _log.warning(
                "stages of %s/%s were left for the server to remove: %s",
                producer,
                epoch,
                fault,
                extra={"action": "stages_left"},
            )


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`frame.write.format("forebay").mode("append")`: all rows or none."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self._producer = options.producer or f"spark-write:{uuid.uuid4()}"
        self._epoch = options.epoch or "0"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage_all(iterator, self._producer, self._epoch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._producer, self._epoch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(self._producer, self._epoch)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`frame.writeStream.format("forebay")`: each batch exactly once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        task = _task()
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(_BATCH_ID)
        if not query or not batch:
            raise InvariantBroken(f"Spark did not tell the task its query ({query!r}) and batch ({batch!r})")
        return self._stage_all(iterator, f"spark:{query}", batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        for producer in _producers(messages, batchId):
            self._commit(messages, producer, str(batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for producer in _producers(messages, batchId):
            self._abort(producer, str(batchId))


def _producers(messages: Sequence[WriterCommitMessage | None], batch_id: int) -> set[str]:
    """The query's name as its tasks tell it; none if no task got that far."""
    commits = {(message.producer, message.epoch) for message in messages if isinstance(message, Staged)}
    if len(commits) > 1 or any(epoch != str(batch_id) for _, epoch in commits):
        raise InvariantBroken(f"batch {batch_id} was staged under {sorted(commits)}")
    return {producer for producer, _ in commits}


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise InvariantBroken("rows are written outside of a Spark task")
    return task


def gathered(batches: Iterator[pa.RecordBatch], bytes_max: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches put together up to about the limit; a batch above it is cut by rows."""
    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0
    for batch in batches:
        for piece in _cut(batch, bytes_max):
            if waiting and waiting_bytes + piece.nbytes > bytes_max:
                yield waiting
                waiting, waiting_bytes = [], 0
            waiting.append(piece)
            waiting_bytes += piece.nbytes
    if waiting:
        yield waiting


def _cut(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 0:
        return
    if batch.nbytes <= bytes_max or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _cut(batch.slice(0, middle), bytes_max)
    yield from _cut(batch.slice(middle), bytes_max)


def staged(queue: Queue, rows: list[pa.RecordBatch], names: tuple[str, str, str, str]) -> list[str]:
    """The ids of the stages. What is too large for the server goes in halves, down to one row."""
    try:
        return [queue.stage(_as_ipc(rows), *names)]
    except ServerRefused as refused:
        count = sum(batch.num_rows for batch in rows)
        if refused.status != TOO_LARGE or count == 1:
            raise
        table = pa.Table.from_batches(rows)
        halves = (table.slice(0, count // 2).to_batches(), table.slice(count // 2).to_batches())
        return [stage for half in halves for stage in staged(queue, half, names)]


def _as_ipc(rows: list[pa.RecordBatch]) -> pa.Buffer:
    body = pa.BufferOutputStream()
    with pa.ipc.new_stream(body, rows[0].schema) as stream:
        for batch in rows:
            stream.write_batch(batch)
    return body.getvalue()
