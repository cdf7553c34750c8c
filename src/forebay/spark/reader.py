"""What the readers of a table and of a stream share: the tasks that a range becomes, and what a task does."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from forebay.spark import columns
from forebay.spark.filters import Narrowing
from forebay.spark.options import ReadOptions
from forebay.spark.positions import SeqRange, rows_per_task, split
from forebay.spark.queues import REMOVED_UP_TO, Queue
from forebay.spark.server_calls import ServerCalls
from forebay.spark.worker_process import spare_the_collector


class RangePartition(InputPartition):
    """One task: the messages from `start` up to, without, `end`."""

    def __init__(self, span: SeqRange, query: list[tuple[str, str]]) -> None:
        self.start, self.end = span
        self.query = query


class Reader:
    """What both readers share."""

    def __init__(self, options: ReadOptions, schema: StructType, cores: int | None = None) -> None:
        columns.check_schema(schema, options)
        self._options = options
        self._schema = schema
        self._cores = cores
        self._narrowing = Narrowing(partitions=frozenset(options.partitions) if options.partitions else None)

    def _queue(self) -> Queue:
        return Queue(ServerCalls(self._options.connection), self._options.queue)

    def _tasks(self, span: SeqRange, identity: str | None, removed_up_to: int) -> list[RangePartition]:
        """The tasks of a range of the queue of that identity, of which what was removed up to a seq may be absent."""
        left = self._narrowing.of(span)
        named = [("identity", identity)] if identity else []
        query = [*self._narrowing.query(), *named, (REMOVED_UP_TO, str(removed_up_to))]
        rows_max = self._options.rows_per_task_max or rows_per_task(left.size, self._cores)
        ranges = split(left, self._options.tasks_min, rows_max)
        return [] if self._narrowing.is_nothing else [RangePartition(one, query) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spare_the_collector()
        # Spark hands in an empty partition of its own making when there is no task at all.
        if isinstance(partition, RangePartition):
            shaped = columns.shaping(self._schema, self._options)
            span = SeqRange(partition.start, partition.end)
            is_loss_fatal = self._options.is_loss_fatal
            for batch in self._queue().batches(span, partition.query, is_loss_fatal=is_loss_fatal):
                yield shaped(batch)
